"""Units: text to SI values and back, and the dimensions that formulas are checked with.

Floor: algebra, on top of errors; standard library only, no sympy and no numpy, since every command reads units.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from ..errors import UserError, nearest, shown

if TYPE_CHECKING:
    from fractions import Fraction

BASES = ("B", "FLOP", "J", "USD", "s")
"""Base dimensions: bytes, floating-point operations, joules, US dollars, seconds. A watt is J/s."""

SI_PREFIXES: dict[str, int] = {
    "p": -12, "n": -9, "u": -6, "µ": -6, "μ": -6, "m": -3, "": 0,
    "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24,
}  # fmt: skip
"""Prefix to power of ten. Both Unicode spellings of micro (U+00B5, U+03BC) stand here; ``K`` is read as ``k``."""

BINARY_PREFIXES: dict[str, int] = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
"""Prefix to power of two; for bytes and bits only."""

COUNT_SUFFIXES: dict[str, int] = {"": 0, "k": 3, "K": 3, "M": 6, "G": 9, "B": 9, "T": 12, "P": 15}
"""Suffixes of a count: ``B`` is a billion here, as in "70B"."""


class Dimension(Mapping[str, "int | Fraction"]):
    """An immutable product of powers of the base dimensions; the empty one is a pure number.

    >>> Dimension(B=1) / Dimension(s=1)
    Dimension('B/s')
    >>> Dimension(B=1) / Dimension(s=1) * Dimension(s=1) == Dimension(B=1)
    True
    """

    __slots__ = ("_hash", "_powers")

    def __init__(self, **powers: int | Fraction) -> None:
        for base in powers:
            if base not in BASES:
                raise UserError(f"unknown base dimension {shown(base)}; the bases are {', '.join(BASES)}")
        self._powers = {base: powers[base] for base in BASES if powers.get(base)}
        self._hash = hash(tuple(self._powers.items()))

    def __getitem__(self, base: str) -> int | Fraction:
        return self._powers[base]

    def __iter__(self) -> Iterator[str]:
        return iter(self._powers)

    def __len__(self) -> int:
        return len(self._powers)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and self._powers == other._powers

    def __mul__(self, other: Dimension) -> Dimension:
        return Dimension(**{base: self.get(base, 0) + other.get(base, 0) for base in BASES})

    def __truediv__(self, other: Dimension) -> Dimension:
        return Dimension(**{base: self.get(base, 0) - other.get(base, 0) for base in BASES})

    def __pow__(self, power: int | Fraction) -> Dimension:
        return Dimension(**{base: own * power for base, own in self._powers.items()})

    def __str__(self) -> str:
        """The SI unit of this dimension: "B/s", "W", "1".

        >>> str(Dimension(J=1, s=-1)), str(Dimension()), str(Dimension(s=-1)), str(Dimension(s=2, B=-1))
        ('W', '1', '1/s', 's^2/B')
        """
        if self._powers == {"J": 1, "s": -1}:
            return "W"
        above = [_power_text(base, power) for base, power in self._powers.items() if power > 0]
        below = [_power_text(base, -power) for base, power in self._powers.items() if power < 0]
        return "/".join(["*".join(above) or "1", *below])

    def __repr__(self) -> str:
        return f"Dimension({str(self)!r})"


def _power_text(base: str, power: int | Fraction) -> str:
    if power == 1:
        return base
    return f"{base}^{power}" if power == int(power) else f"{base}^({power})"


class _Unit(NamedTuple):
    """A unit as ``value * 10**tens * over / under`` in SI; kept apart so that "3.35 TB/s" is exactly 3.35e12."""

    tens: int
    over: int
    under: int
    dimension: Dimension


_S, _B, _FLOP, _J, _USD, _ONE = (
    Dimension(s=1),
    Dimension(B=1),
    Dimension(FLOP=1),
    Dimension(J=1),
    Dimension(USD=1),
    Dimension(),
)
_SMALL = ("p", "n", "u", "µ", "μ", "m")
_LARGE = ("k", "K", "M", "G", "T", "P", "E", "Z", "Y")

# name: (factor over, factor under, dimension, SI prefixes allowed, binary prefixes allowed)
_ATOMS: dict[str, tuple[int, int, Dimension, tuple[str, ...], bool]] = {
    "1": (1, 1, _ONE, (), False),
    "%": (1, 100, _ONE, (), False),
    "token": (1, 1, _ONE, (), False),
    "tokens": (1, 1, _ONE, (), False),
    "s": (1, 1, _S, _SMALL, False),
    "sec": (1, 1, _S, (), False),
    "second": (1, 1, _S, (), False),
    "seconds": (1, 1, _S, (), False),
    "min": (60, 1, _S, (), False),
    "minute": (60, 1, _S, (), False),
    "minutes": (60, 1, _S, (), False),
    "h": (3600, 1, _S, (), False),
    "hour": (3600, 1, _S, (), False),
    "hours": (3600, 1, _S, (), False),
    "d": (86400, 1, _S, (), False),
    "day": (86400, 1, _S, (), False),
    "days": (86400, 1, _S, (), False),
    "Hz": (1, 1, _ONE / _S, _LARGE, False),
    "B": (1, 1, _B, _LARGE, True),
    "byte": (1, 1, _B, (), False),
    "bytes": (1, 1, _B, (), False),
    "b": (1, 8, _B, _LARGE, True),
    "bit": (1, 8, _B, _LARGE, True),
    "bits": (1, 8, _B, (), False),
    "Bps": (1, 1, _B / _S, _LARGE, False),
    "bps": (1, 8, _B / _S, _LARGE, False),
    "FLOP": (1, 1, _FLOP, _LARGE, False),
    "FLOPs": (1, 1, _FLOP, _LARGE, False),
    "FLOPS": (1, 1, _FLOP / _S, _LARGE, False),
    "OP": (1, 1, _FLOP, _LARGE, False),
    "OPs": (1, 1, _FLOP, _LARGE, False),
    "OPS": (1, 1, _FLOP / _S, _LARGE, False),
    "J": (1, 1, _J, _SMALL + _LARGE, False),
    "W": (1, 1, _J / _S, _SMALL + _LARGE, False),
    "Wh": (3600, 1, _J, _LARGE, False),
    "USD": (1, 1, _USD, (), False),
    "$": (1, 1, _USD, (), False),
}


def _every_unit() -> dict[str, _Unit]:
    table: dict[str, _Unit] = {}
    for name, (over, under, dimension, prefixes, binary) in _ATOMS.items():
        table[name] = _Unit(0, over, under, dimension)
        for prefix in prefixes:
            table[prefix + name] = _Unit(SI_PREFIXES[prefix], over, under, dimension)
        if binary:
            for prefix, power in BINARY_PREFIXES.items():
                table[prefix + name] = _Unit(0, over * 2**power, under, dimension)
    return table


_UNITS = _every_unit()
_NUMBER = re.compile(r"[+-]?(?:\d+(?:_\d+)*\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?", re.ASCII)
_LONGEST = 80
_EXAMPLES = {
    "B": "80 GB or 40 GiB",
    "B/s": "3.35 TB/s or 400 Gb/s",
    "FLOP": "6 PFLOP",
    "FLOP/s": "989 TFLOP/s",
    "s": "30 ms",
    "W": "700 W",
    "J": "5 kJ",
    "USD": "2.5 USD",
    "USD/s": "2.5 USD/h",
    "1": "0.5",
}


def parse(text: str | float, expect: str | None = None) -> tuple[float, str]:
    """The value of ``text`` in SI and its SI unit; a bare number is taken in the unit ``expect``.

    Raises UserError on anything that is not one finite number with a known unit of the expected dimension.

    >>> parse("3.35 TB/s", expect="B/s")
    (3350000000000.0, 'B/s')
    >>> parse("400 Gb/s"), parse("1979 TOPS"), parse("30 ms"), parse("40 GiB")
    ((50000000000.0, 'B/s'), (1979000000000000.0, 'FLOP/s'), (0.03, 's'), (42949672960.0, 'B'))
    >>> parse("2e-6", expect="s")
    (2e-06, 's')
    """
    wanted = dimension_of_unit(expect) if expect is not None else None
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise _bad(text, "is not a number with a unit", expect)
    plain = str(text).strip()
    if len(plain) > _LONGEST:
        raise _bad(plain, f"is too long ({len(plain)} characters) for a number with a unit", expect)
    match = _NUMBER.match(plain)
    if match is None:
        raise _bad(plain, "is not a number with a unit" if plain else "is empty", expect)
    digits, name = match.group(), plain[match.end() :].strip()
    if not name:
        value = _finite(digits, 0, plain, expect)
        return value, "1" if wanted is None else str(wanted)
    unit = _unit(name, plain, expect)
    if wanted is not None and unit.dimension != wanted:
        raise _bad(plain, f"is in {unit.dimension}, not in {wanted}", expect)
    value = _finite(digits, unit.tens, plain, expect) * unit.over / unit.under
    if math.isinf(value):
        raise _bad(plain, "is not a finite number", expect)
    return value, str(unit.dimension)


def parse_count(text: str | float) -> float:
    """A count such as a number of tokens: "15T", "1.5k", "70B" (billion), "8192". Raises UserError on anything else.

    >>> parse_count("15T"), parse_count("8192"), parse_count("70B")
    (15000000000000.0, 8192.0, 70000000000.0)
    """
    told = "is not a count; write for example 15T, 1.5M or 8192"
    if isinstance(text, bool) or not isinstance(text, (str, int, float)):
        raise UserError(f"{shown(text)} {told}")
    plain = str(text).strip()
    match = _NUMBER.match(plain) if len(plain) <= _LONGEST else None
    suffix = plain[match.end() :].strip() if match else None
    if match is None or suffix not in COUNT_SUFFIXES:
        raise UserError(f"{shown(text)} {told}")
    value = _scaled(match.group(), COUNT_SUFFIXES[suffix])
    if not 0 <= value < math.inf:
        raise UserError(f"{shown(text)} {told}")
    return value


@lru_cache(maxsize=256)
def dimension_of_unit(unit: str) -> Dimension:
    """The dimension of a unit, whatever its prefix. Raises UserError on an unknown one.

    >>> dimension_of_unit("GB/s") == dimension_of_unit("B/s") == Dimension(B=1, s=-1)
    True
    """
    return _unit(unit.strip()[:_LONGEST] or "1", unit, None).dimension


def format_si(value: float, unit: str, digits: int = 4) -> str:
    """``value`` [SI ``unit``] as a person reads it, with at most ``digits`` significant digits.

    >>> format_si(3.35e12, "B/s"), format_si(80e9, "B"), format_si(0.03, "s"), format_si(1.2e15, "FLOP/s")
    ('3.35 TB/s', '80 GB', '30 ms', '1.2 PFLOP/s')
    >>> format_si(5400, "s"), format_si(864000, "s"), format_si(70553706496, "1"), format_si(2.5 / 3600, "USD/s")
    ('1.5 h', '10 days', '70,553,706,496', '2.5 USD/h')
    """
    value = float(value)
    if math.isnan(value):
        return "not a number"
    if math.isinf(value):
        return "-∞" if value < 0 else "∞"
    if unit in ("1", ""):
        return f"{value:,.0f}" if value == int(value) and abs(value) < 1e15 else _short(value, digits)
    if unit == "s":
        return _time(value, digits)
    if unit == "USD":
        if abs(value) >= 1000:
            return f"{value:,.0f} USD"
        return f"{value:.2f} USD" if abs(value) >= 0.1 else f"{_short(value, digits)} USD"
    if unit == "USD/s":
        return f"{_short(value * 3600, digits)} USD/h"
    head = unit.split("/", 1)[0]
    if head in ("B", "FLOP", "J", "W") and unit in (head, head + "/s"):
        return _prefixed(value, unit, digits, small=head in ("J", "W"))
    if unit.startswith("1/"):
        return f"{_short(value, digits)} {unit[1:]}"
    return f"{_short(value, digits)} {unit}"


def format_count(value: float, digits: int = 4) -> str:
    """A count in the field's short form, with B for a billion.

    >>> format_count(70553706496), format_count(8192), format_count(15e12)
    ('70.55B', '8192', '15T')
    """
    rounded = _rounded(value, digits)
    if not math.isfinite(rounded):
        return format_si(value, "1")
    for suffix, tens in (("T", 12), ("B", 9), ("M", 6)):
        if abs(rounded) >= 10.0**tens:
            return f"{_short(rounded / 10.0**tens, digits)}{suffix}"
    return f"{value:.0f}" if value == int(value) else _short(value, digits)


def _unit(name: str, whole: str, expect: str | None) -> _Unit:
    """The unit called ``name``: factors joined by "*" or "·", each "/" dividing by the one factor after it."""
    tens, over, under, dimension = 0, 1, 1, _ONE
    parts = re.split(r"([*·/])", name)
    for joint, part in zip(["*", *parts[1::2]], parts[::2], strict=True):
        base, power = _raised(part.strip())
        atom = _UNITS.get(base)
        if atom is None:
            near = [known for known in _UNITS if known.casefold() == base.casefold()] or nearest(base, _UNITS)
            told = f"; did you mean {' or '.join(near)}?" if near else ""
            raise _bad(whole, f"has the unknown unit {shown(part.strip(), 20)}{told}", expect)
        if joint == "/":
            power = -power
        tens += atom.tens * power
        dimension = dimension * atom.dimension**power
        up, down = (atom.over, atom.under) if power > 0 else (atom.under, atom.over)
        over, under = over * up ** abs(power), under * down ** abs(power)
    return _Unit(tens, over, under, dimension)


def _raised(part: str) -> tuple[str, int]:
    """("s", 2) of "s^2"; small positive powers only."""
    base, caret, power = part.partition("^")
    if caret and len(power) == 1 and power.isascii() and power.isdigit() and power != "0":
        return base, int(power)
    return (part, 1) if not caret else ("", 1)


def _scaled(digits: str, tens: int) -> float:
    """``digits`` times a power of ten, rounded once: 3.35 and 12 give 3.35e12 exactly."""
    mantissa, _, exponent = digits.lower().partition("e")
    return float(f"{mantissa}e{int(exponent or 0) + tens}")


def _finite(digits: str, tens: int, whole: str, expect: str | None) -> float:
    value = _scaled(digits, tens)
    if not math.isfinite(value):
        raise _bad(whole, "is not a finite number", expect)
    return value


def _bad(text: object, wrong: str, expect: str | None) -> UserError:
    if expect is None:
        right = "write a number and a unit, for example 80 GB, 3.35 TB/s or 30 ms"
    else:
        unit = str(dimension_of_unit(expect))
        example = f", for example {_EXAMPLES[unit]}" if unit in _EXAMPLES else ""
        right = f"write a number in {unit}{example}" if unit != "1" else f"write a plain number{example}"
    gap = "" if wrong.endswith("?") else ";"
    return UserError(f"{shown(text)} {wrong}{gap} {right}")


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{max(digits, 1) - 1}e}")


def _short(value: float, digits: int) -> str:
    """At most ``digits`` significant digits, no trailing zeros, no exponent between 1e-4 and 1e15."""
    rounded = _rounded(value, digits)
    if rounded == 0:
        return "0"
    if not 1e-4 <= abs(rounded) < 1e15:
        return f"{rounded:.{digits}g}"
    decimals = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    text = f"{rounded:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _prefixed(value: float, unit: str, digits: int, small: bool) -> str:
    rounded = _rounded(value, digits)
    prefixes = ("Y", "Z", "E", "P", "T", "G", "M", "k", "") + (("m", "µ", "n") if small else ())
    size = abs(rounded)
    prefix = next((name for name in prefixes if size >= _ten(SI_PREFIXES[name])), prefixes[-1] if size else "")
    return f"{_short(rounded / _ten(SI_PREFIXES[prefix]), digits)} {prefix}{unit}"


def _ten(power: int) -> float:
    # float("1e-9") is the nearest double to 1e-9; 10.0**-9 need not be
    return float(f"1e{power}")


def _time(value: float, digits: int) -> str:
    for limit, scale, name in ((60.0, 1.0, "s"), (60.0, 60.0, "min"), (48.0, 3600.0, "h")):
        scaled = _rounded(value / scale, digits)
        if abs(scaled) < limit:
            return _prefixed(value, "s", digits, small=True) if name == "s" else f"{_short(scaled, digits)} {name}"
    return f"{_short(value / 86400, digits)} days"
