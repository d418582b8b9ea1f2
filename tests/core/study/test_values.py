"""Values as a person writes them, and every way to write them wrong."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.study.settings import SettingInfo, settings_for
from slipstick.core.study.values import LONGEST_LIST, checked_value, parse_value


@pytest.fixture(scope="module")
def infos(host: Host) -> dict[str, SettingInfo]:
    return {**settings_for("serve", host), **settings_for("train", host)}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("tp", "8", 8),
        ("tp", " 8 ", 8),
        ("tp", "1,2, 4", (1, 2, 4)),
        ("tp", "1..4", (1, 2, 3, 4)),
        ("tp", "?", "?"),
        ("tp", "1..64*2", (1, 2, 4, 8, 16, 32, 64)),
        ("tp", "3..20*3", (3, 9)),
        ("tp", "2,2,1", (2, 1)),
        ("tp", "5..5", (5,)),
        ("global_batch", "4k", 4000),
        ("global_batch", "1.5k", 1500),
        ("tokens", "15T", 15e12),
        ("price", "2.5", 2.5),
        ("max_tpot", "30ms", 0.03),
        ("max_tpot", "0.03", 0.03),
        ("max_ttft", "2 s", 2.0),
        ("recompute", "full", "full"),
        ("recompute", "none,full", ("none", "full")),
        ("recompute", "?", "?"),
        ("zero", "1", 1),
        ("zero", "0,3", (0, 3)),
        ("mtp", "true", True),
        ("mtp", "off", False),
        ("stack", "a,b", "a,b"),
    ],
)
def test_values_that_are_right(infos: dict[str, SettingInfo], name: str, text: str, value: Any) -> None:
    assert parse_value(text, infos[name]) == value
    assert checked_value(value, infos[name]) == value  # a value read is a value given


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("tp", "eight", "--tp: a whole number, not 'eight'"),
        ("tp", "", "--tp: a whole number"),
        ("tp", "0", "--tp: between 1 and 1e\\+07, not 0"),
        ("tp", "-1", "--tp: a whole number"),
        ("tp", "1.5", "--tp: a whole number, not 1.5"),
        ("tp", "nan", "--tp: a whole number"),
        ("tp", "1e400", "--tp: a whole number"),
        ("tp", "1,,2", "--tp: the list '1,,2' has an empty value"),
        ("tp", "8..1", "--tp: the range '8..1' is empty"),
        ("tp", "1..8*1", "must be 2 or more"),
        ("tp", "1..", "a range is written 1..8"),
        ("tp", "1..9999999", "at most 100,000"),
        ("tp", "1..1e300", "--tp: between"),
        ("tp", "?,1", "--tp: a whole number, not '?'"),
        ("tp", float("nan"), "--tp: a whole number, not nan"),
        ("tp", float("inf"), "--tp: a whole number, not inf"),
        ("tp", True, "--tp: a whole number, not 'True'"),
        ("tp", None.__class__, "--tp: a whole number"),
        ("tp", [], "--tp: an empty list"),
        ("tp", [1, "x"], "--tp: a whole number, not 'x'"),
        ("tp", [[1]], "--tp: a whole number"),
        ("tp", {}, "--tp: a whole number, not '{}'"),
        ("tp", 10**400, "--tp: between .* more than 300 digits"),
        ("tp", 1j, "--tp: a whole number"),
        ("tp", b"8", "--tp: a whole number"),
        ("tp", Fraction(1, 2), "--tp: a whole number"),
        ("tp", np.array([1.5]), "--tp: a whole number, not 1.5"),
        ("tp", range(1, 10**9), "--tp: at most 100,000 values"),
        ("price", "?", "--price: takes one value"),
        ("price", "-3", "--price: a number"),
        ("price", "1,2", "--price: takes one value, not a list"),
        ("max_tpot", "30 GB", "--max-tpot: .*not in s"),
        ("max_tpot", "-1ms", "--max-tpot: between"),
        ("max_tpot", "fast", "--max-tpot: 'fast' is not a number with a unit"),
        ("max_tpot", "", "--max-tpot"),
        ("recompute", "ful", "--recompute: 'ful' is none of none, selective, full; did you mean full"),
        ("recompute", 3, "--recompute: '3' is none of"),
        ("mtp", "maybe", "--mtp: true or false"),
        ("mtp", 1, "--mtp: true or false"),
        ("mtp", "?", "--mtp: takes one value"),
        ("stack", 7, "--stack: a name"),
        ("stack", "a\nb", "--stack: a name"),
        ("stack", "", "--stack: a name"),
        ("memory_utilisation", "1.1", "--memory-utilisation: between 0.01 and 1"),
        ("tp", "9" * 5000, "--tp: a whole number"),
    ],
)
def test_values_that_are_wrong(infos: dict[str, SettingInfo], name: str, value: Any, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        checked_value(value, infos[name])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["tp", "price", "zero", "mtp", "stack", "recompute"])
def test_a_number_too_long_to_write_is_refused_like_any_other(infos: dict[str, SettingInfo], name: str) -> None:
    for value in (10**5000, [1, 10**5000], -(10**5000)):
        with pytest.raises(UserError, match=infos[name].flag):
            checked_value(value, infos[name])


def test_numbers_of_numpy_are_numbers(infos: dict[str, SettingInfo]) -> None:
    assert checked_value(np.int64(8), infos["tp"]) == 8
    assert checked_value(np.float32(8), infos["tp"]) == 8
    assert checked_value(np.array([1, 2, 4]), infos["tp"]) == (1, 2, 4)
    assert checked_value(range(1, 4), infos["tp"]) == (1, 2, 3)
    assert type(checked_value(np.int64(8), infos["tp"])) is int


@given(low=st.integers(1, 500), more=st.integers(0, 500), factor=st.integers(2, 9))
def test_ranges_hold_what_they_say(infos: dict[str, SettingInfo], low: int, more: int, factor: int) -> None:
    high = low + more
    assert parse_value(f"{low}..{high}", infos["tp"]) == tuple(range(low, high + 1))
    several = parse_value(f"{low}..{high}*{factor}", infos["tp"])
    assert several[0] == low
    assert all(b == a * factor for a, b in pairwise(several))
    assert several[-1] <= high < several[-1] * factor


@given(
    text=st.text(max_size=30),
    name=st.sampled_from(["tp", "price", "max_tpot", "recompute", "mtp", "stack", "tokens", "zero"]),
)
@settings(max_examples=400, deadline=None)
def test_any_text_is_a_value_or_one_line(infos: dict[str, SettingInfo], text: str, name: str) -> None:
    try:
        value = parse_value(text, infos[name])
    except UserError as error:
        told = str(error)
    else:
        assert checked_value(value, infos[name]) == value
        return
    assert "\n" not in told
    assert infos[name].flag in told


def test_a_list_has_a_limit(infos: dict[str, SettingInfo]) -> None:
    with pytest.raises(UserError, match=f"at most {LONGEST_LIST:,} values"):
        parse_value("1," * LONGEST_LIST + "1", infos["tp"])
    with pytest.raises(UserError, match=f"at most {LONGEST_LIST:,} values"):
        checked_value([1] * (LONGEST_LIST + 1), infos["tp"])
