"""Units: values that the SI brochure and datasheets stand behind, round trips, hostile text."""

from __future__ import annotations

import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.algebra.units import (
    BINARY_PREFIXES,
    SI_PREFIXES,
    Dimension,
    dimension_of_unit,
    format_count,
    format_si,
    parse,
    parse_count,
)
from slipstick.core.errors import UserError

# BIPM, The International System of Units, 9th edition, table 7
BIPM = {
    "p": 1e-12, "n": 1e-9, "u": 1e-6, "µ": 1e-6, "m": 1e-3,
    "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18, "Z": 1e21, "Y": 1e24,
}  # fmt: skip
# IEC 80000-13
IEC = {"Ki": 1024, "Mi": 1024**2, "Gi": 1024**3, "Ti": 1024**4, "Pi": 1024**5, "Ei": 1024**6}


@pytest.mark.parametrize(("prefix", "factor"), BIPM.items())
def test_a_prefix_is_what_the_si_brochure_says(prefix: str, factor: float) -> None:
    unit = "s" if factor < 1 else "B"
    assert parse(f"1 {prefix}{unit}") == (factor, unit)
    assert 10.0 ** SI_PREFIXES[prefix] == pytest.approx(factor, rel=1e-15)


def test_tera_is_ten_to_the_twelfth_in_every_unit_that_takes_it() -> None:
    for unit in ("B", "FLOP", "FLOPS", "B/s", "OPS", "W", "J"):
        assert parse(f"1 T{unit}")[0] == 1e12
        assert parse(f"1000 G{unit}") == parse(f"1 T{unit}")


@pytest.mark.parametrize(("prefix", "factor"), IEC.items())
def test_a_binary_prefix_is_what_iec_says(prefix: str, factor: int) -> None:
    assert parse(f"1 {prefix}B") == (factor, "B")
    assert 2 ** BINARY_PREFIXES[prefix] == factor


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("3.35 TB/s", 3.35e12, "B/s"),  # H100 SXM memory
        ("3.35TB/s", 3.35e12, "B/s"),
        ("989.4 TFLOP/s", 989.4e12, "FLOP/s"),
        ("989.4 TFLOPS", 989.4e12, "FLOP/s"),
        ("1979 TOPS", 1979e12, "FLOP/s"),
        ("1.979 POP/s", 1.979e15, "FLOP/s"),
        ("400 Gb/s", 50e9, "B/s"),  # NDR InfiniBand: 400 Gbit/s are 50 GB/s
        ("400 Gbit/s", 50e9, "B/s"),
        ("400 Gbps", 50e9, "B/s"),
        ("900 GB/s", 900e9, "B/s"),
        ("81559 MiB", 81559 * 2**20, "B"),  # nvidia-smi on an H100
        ("80 GB", 80e9, "B"),
        ("30 ms", 0.03, "s"),
        ("2 us", 2e-6, "s"),
        ("2 µs", 2e-6, "s"),
        ("2 μs", 2e-6, "s"),
        ("1.5 h", 5400.0, "s"),
        ("90 min", 5400.0, "s"),
        ("2 days", 172800.0, "s"),
        ("1 day", 86400.0, "s"),
        ("700 W", 700.0, "W"),
        ("10.2 kW", 10200.0, "W"),
        ("1 kWh", 3.6e6, "J"),
        ("3.6 USD/h", 0.001, "USD/s"),
        ("1.98 GHz", 1.98e9, "1/s"),
        ("50 tokens/s", 50.0, "1/s"),
        ("85 %", 0.85, "1"),
        ("4 B/FLOP", 4.0, "B/FLOP"),
        ("1e3", 1000.0, "1"),
        ("  .5  ", 0.5, "1"),
    ],
)
def test_text_is_read_as_a_person_means_it(text: str, value: float, unit: str) -> None:
    read, read_unit = parse(text)
    assert (read, read_unit) == (pytest.approx(value, rel=1e-15), unit)


def test_decimal_prefixes_are_rounded_once() -> None:
    assert parse("3.35 TB/s")[0] == 3.35e12
    assert parse("0.3 us")[0] == 3e-7
    assert parse("989.4 TFLOP/s")[0] == 989.4e12


def test_a_bare_number_is_taken_in_the_expected_unit() -> None:
    assert parse("3.35e12", expect="B/s") == (3.35e12, "B/s")
    assert parse(700, expect="W") == (700.0, "W")
    assert parse("5", expect="GB/s") == (5.0, "B/s")


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "nan", "NaN", "inf", "-inf", "1e999 B", "1e308 TB", "GB", "80 gb", "80 Gb/s/h", "80 G", "1,5 GB",
        "1 2 B", "80 GB; rm", "0x10 B", "1__0 B", "__import__('os')", "١ B", "3 s/", "3 /s /", "1e99999999999 B",
        "\x00", "80 GB\n70",
        "x" * 10_000, "1" * 10_000, "1 " + "/s" * 5000, "1 " + "B*" * 5000,
    ],
)  # fmt: skip
def test_what_is_not_a_quantity_is_one_clear_line(text: str) -> None:
    start = time.perf_counter()
    with pytest.raises(UserError) as caught:
        parse(text, expect="B")
    assert time.perf_counter() - start < 0.5
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 300
    assert "write a number in B" in line


def test_an_error_names_what_would_be_right() -> None:
    with pytest.raises(UserError, match=r"'80 gb' has the unknown unit 'gb'; did you mean GB or Gb\?"):
        parse("80 gb")
    with pytest.raises(UserError, match=r"'80 GB' is in B, not in s; write a number in s, for example 30 ms"):
        parse("80 GB", expect="s")
    for wrong in (True, None, [1], float("nan"), math.inf):
        with pytest.raises(UserError):
            parse(wrong, expect="B")  # type: ignore[arg-type]


@given(st.text(max_size=200))
def test_any_text_is_a_finite_number_or_a_user_error(text: str) -> None:
    for read in (lambda: parse(text)[0], lambda: parse(text, expect="B/s")[0], lambda: parse_count(text)):
        try:
            value, line = read(), ""
        except UserError as error:
            value, line = 0.0, str(error)
        assert math.isfinite(value)
        assert "\n" not in line


@given(
    st.floats(min_value=1e-9, max_value=1e24, allow_nan=False),
    st.sampled_from(["s", "B", "B/s", "FLOP", "FLOP/s", "W", "J", "B/FLOP", "USD/s"]),
    st.integers(min_value=1, max_value=15),
)
def test_what_is_printed_reads_back_within_the_printed_digits(value: float, unit: str, digits: int) -> None:
    back, back_unit = parse(format_si(value, unit, digits), expect=unit)
    assert back_unit == unit
    assert back == pytest.approx(value, rel=0.5001 * 10.0 ** (1 - digits) + 1e-14)


@given(st.floats(min_value=1e-6, max_value=1e18), st.sampled_from(["B", "FLOP/s", "W"]), st.integers(2, 6))
def test_a_printed_number_stands_between_1_and_1000(value: float, unit: str, digits: int) -> None:
    number = float(format_si(value, unit, digits).split()[0])
    if value >= 1:
        assert 1 <= number < 1000


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3.35e12, "B/s", "3.35 TB/s"),
        (80e9, "B", "80 GB"),
        (0.03, "s", "30 ms"),
        (1.2e15, "FLOP/s", "1.2 PFLOP/s"),
        (85.5e9, "B", "85.5 GB"),
        (2.5e-6, "s", "2.5 µs"),
        (59.9, "s", "59.9 s"),
        (59.99999, "s", "1 min"),
        (7200.0, "s", "2 h"),
        (30 * 86400.0, "s", "30 days"),
        (999.96e9, "B", "1 TB"),
        (0.0, "B", "0 B"),
        (0.0, "s", "0 s"),
        (-2e9, "B", "-2 GB"),
        (math.inf, "s", "∞"),
        (math.nan, "s", "not a number"),
        (700.0, "W", "700 W"),
        (1234567.0, "1", "1,234,567"),
        (0.4567, "1", "0.4567"),
        (12.345, "USD", "12.35 USD"),
        (1234567.8, "USD", "1,234,568 USD"),
        (125.0, "1/s", "125 /s"),
    ],
)
def test_numbers_are_printed_for_people(value: float, unit: str, text: str) -> None:
    assert format_si(value, unit) == text


def test_counts() -> None:
    assert parse_count("15T") == 15e12
    assert parse_count("70.6B") == 70.6e9
    assert parse_count("128k") == 128_000
    assert parse_count(8192) == 8192
    for wrong in ("15 TB", "many", "-3", "nan", "1e999", "", "1" * 100):
        with pytest.raises(UserError, match="is not a count"):
            parse_count(wrong)
    assert format_count(70553706496) == "70.55B"
    assert format_count(999_999_999_999) == "1T"


@given(st.floats(min_value=1, max_value=1e15))
def test_counts_read_back(value: float) -> None:
    assert parse_count(format_count(value, 4)) == pytest.approx(value, rel=5.1e-4)


def test_dimensions_multiply_and_divide() -> None:
    rate = dimension_of_unit("GB/s")
    assert rate == Dimension(B=1, s=-1) == dimension_of_unit("b/h")
    assert dimension_of_unit("B") / rate == Dimension(s=1)
    assert rate / rate == Dimension() == dimension_of_unit("1")
    assert rate**2 == Dimension(B=2, s=-2)
    assert dimension_of_unit("W") == dimension_of_unit("J/s")
    assert str(dimension_of_unit("kWh")) == "J"
    assert {rate: 1}[Dimension(s=-1, B=1)] == 1
    with pytest.raises(UserError, match="unknown unit"):
        dimension_of_unit("furlong")


@given(st.dictionaries(st.sampled_from(["B", "FLOP", "J", "USD", "s"]), st.integers(-3, 3)))
def test_a_dimension_reads_back_from_its_text(powers: dict[str, int]) -> None:
    assert dimension_of_unit(str(Dimension(**powers))) == Dimension(**powers)
