"""What repeats among scattered points: the same numbers as point by point, computed once."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra import _repeats, _vector
from slipstick.core.algebra.compile import Builder
from slipstick.core.algebra.tape import Tape

from .test_tape import INPUTS, tapes

POINTS = 48


@st.composite
def scattered(draw: st.DrawFn) -> dict[str, Any]:
    """Flat arrays of few values each (one of them maybe of many, or all alike), or a number."""
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    values: dict[str, Any] = {}
    for name in INPUTS:
        kind = draw(st.integers(0, 5))
        count = {0: 1, 1: 48}.get(kind, kind)
        values[name] = random.integers(-8, 8, count)[random.integers(0, count, POINTS)] / 4
        if kind == 1:
            values[name] = random.normal(size=POINTS)
        elif kind == 5:
            values[name] = float(values[name][0])
    return values


@settings(max_examples=300, deadline=None)
@given(tapes(), scattered(), st.sampled_from([1, 3, 7, 8192]), st.sampled_from([2, 8, 48]))
def test_looked_up_values_are_those_of_every_point(tape: Tape, values: dict[str, Any], chunk: int, most: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_repeats, "FEWEST_POINTS", 10**9)
        plain = tape.evaluate(values, chunk=chunk)
        patch.setattr(_repeats, "FEWEST_POINTS", 1)
        patch.setattr(_repeats, "SAVING", 1)
        patch.setattr(_repeats, "MOST_ENTRIES", most)
        looked_up = tape.evaluate(values, chunk=chunk)
    assert plain.keys() == looked_up.keys()
    for name, value in plain.items():
        assert np.shape(looked_up[name]) == np.shape(value)
        np.testing.assert_allclose(looked_up[name], value, rtol=1e-13, atol=0)


def chain() -> Tape:
    """y = f(a, b) + c, where f takes forty steps."""
    builder = Builder()
    slot = builder.add([builder.input("a"), builder.input("b")])
    for _ in range(20):
        slot = builder.op("sqrt", builder.add([slot, builder.constant(1)]))
    builder.output("y", builder.add([slot, builder.input("c")]))
    return builder.finish()


def settings_of(points: int) -> dict[str, Any]:
    """Four and five values of what the long chain depends on, a new value of the rest at each point."""
    random = np.random.default_rng(0)
    return {
        "a": 2.0 ** random.integers(0, 4, points), "b": 1.0 * random.integers(0, 5, points),
        "c": random.normal(size=points),
    }  # fmt: skip


def test_the_chain_is_computed_for_the_twenty_pairs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []

    def counted(x: Any, out: Any) -> None:
        computed.append(x.size)
        np.sqrt(x, out)

    monkeypatch.setitem(_vector.OPERATIONS, "sqrt", counted)
    values = settings_of(100_000)
    found = np.asarray(chain().evaluate(values)["y"])
    assert computed == [20] * 20
    monkeypatch.setattr(_repeats, "FEWEST_POINTS", 10**9)
    computed.clear()
    assert np.array_equal(found, np.asarray(chain().evaluate(values)["y"]))  # to the last bit
    assert sum(computed) == 20 * 100_000


def test_few_points_are_computed_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(_repeats, "column", refuse)
    assert np.shape(chain().evaluate(settings_of(1000))["y"]) == (1000,)


def test_memory_for_look_ups_is_a_few_bytes_a_point() -> None:
    points, tape = 200_000, chain()
    values = settings_of(points)
    tape.evaluate({name: array[:10] for name, array in values.items()})
    tracemalloc.start()
    tape.evaluate(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # the result; two bytes of each of two inputs; what finding them takes for a moment
    assert peak < points * (8 + 2 * 2 + 24) + 4e6


@pytest.mark.parametrize("count", [1, 7, _repeats.MOST_VALUES])
def test_a_column_is_its_values_at_its_codes(count: int) -> None:
    array = np.random.default_rng(1).permutation(np.arange(50_000) % count * 0.1)
    found = _repeats.column(array)
    assert found is not None
    assert found.values.tolist() == sorted(set(array.tolist()))
    assert np.array_equal(found.values[found.codes], array)


def test_a_rare_value_is_found_though_a_sample_misses_it() -> None:
    array = np.zeros(100_000)
    array[77_777] = 5.0
    found = _repeats.column(array)
    assert found is not None
    assert found.values.tolist() == [0.0, 5.0]
    assert np.flatnonzero(found.codes).tolist() == [77_777]


@pytest.mark.parametrize("array", [np.arange(50_000.0), np.array([1.0, np.nan] * 20_000)])
def test_many_values_and_nan_are_no_column(array: Any) -> None:
    assert _repeats.column(array) is None
