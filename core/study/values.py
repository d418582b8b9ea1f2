"""Values as a person writes them: numbers with units, lists, ranges, and "?".

Floor: study. Uses the unit table. Nothing is evaluated: a value is a number, a word from a list, or an error.
"""

from __future__ import annotations

import math
from typing import Any

from ..algebra.units import parse, parse_count
from ..errors import UserError, nearest, shown
from ..records.scenario import ASK
from .settings import SettingInfo

LONGEST_LIST = 100_000
"""More values than this in one list or range are refused."""


def parse_value(text: str, info: SettingInfo) -> Any:
    """A setting's value from text: one value, a tuple for a list "1,2,4" or a range, or "?".

    Ranges are "1..8" (every whole number) and "1..64*2" (each twice the last). Errors: UserError naming the flag.
    """
    text = text.strip()
    if text == ASK:
        _searchable(info, "?")
        if info.kind not in ("count", "choice"):
            raise UserError(f"{info.flag}: cannot be searched, give a value")
        return ASK
    if ".." in text and info.kind == "count":
        _searchable(info, "a range")
        return _range(text, info)
    if "," in text and info.kind != "text":
        _searchable(info, "a list")
        parts = [part.strip() for part in text.split(",")]
        if len(parts) > LONGEST_LIST:
            raise UserError(f"{info.flag}: at most {LONGEST_LIST:,} values, not {len(parts):,}")
        if not all(parts):
            raise UserError(f"{info.flag}: the list {shown(text)} has an empty value")
        return tuple(dict.fromkeys(_one(part, info) for part in parts))
    return _one(text, info)


def checked_value(value: Any, info: SettingInfo) -> Any:
    """A value given from Python or a file, checked as if it had been typed; symbols pass as they are."""
    if value is None or hasattr(value, "free_symbols"):
        return value
    if isinstance(value, str):
        return parse_value(value, info)
    if getattr(value, "shape", ()):  # an array of numpy
        value = value.tolist()
    if isinstance(value, range):
        value = tuple(value[: LONGEST_LIST + 1])
    if isinstance(value, (list, tuple)):
        _searchable(info, "a list")
        if not value:
            raise UserError(f"{info.flag}: an empty list")
        if len(value) > LONGEST_LIST:
            raise UserError(f"{info.flag}: at most {LONGEST_LIST:,} values, not {len(value):,}")
        check = _choice if info.kind == "choice" else _number
        return tuple(dict.fromkeys(check(item, info) for item in value))
    if info.kind == "flag":
        if not isinstance(value, bool):
            raise UserError(f"{info.flag}: true or false, not {shown(value)}")
        return value
    if info.kind == "choice":
        return _choice(value, info)
    if info.kind == "text":
        raise UserError(f"{info.flag}: a name, not {shown(value)}")
    return _number(value, info)


def _searchable(info: SettingInfo, what: str) -> None:
    if not info.searchable:
        raise UserError(f"{info.flag}: takes one value, not {what}")


def _one(text: str, info: SettingInfo) -> Any:
    if info.kind == "flag":
        if text.lower() in ("true", "yes", "on", "1"):
            return True
        if text.lower() in ("false", "no", "off", "0"):
            return False
        raise UserError(f"{info.flag}: true or false, not {shown(text)}")
    if info.kind == "choice":
        return _choice(text, info)
    if info.kind == "text":
        if not text or len(text) > 4096 or "\n" in text or "\0" in text:
            raise UserError(f"{info.flag}: a name, not {shown(text)}")
        return text
    if info.unit == "s":
        try:
            seconds = parse(text, expect="s")[0]
        except UserError as error:
            raise UserError(f"{info.flag}: {error}") from None
        return _number(seconds, info)
    try:
        number = parse_count(text)
    except UserError:
        raise UserError(f"{info.flag}: a {_wanted(info)}, not {shown(text)}") from None
    return _number(number, info)


def _wanted(info: SettingInfo) -> str:
    return "whole number" if info.kind == "count" else "number"


def _choice(value: Any, info: SettingInfo) -> Any:
    text = value if isinstance(value, str) else shown(value)[1:-1]
    for choice in info.choices:
        if value == choice or text == str(choice):
            return choice
    near = nearest(text, map(str, info.choices), limit=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise UserError(f"{info.flag}: {shown(value)} is none of {', '.join(map(str, info.choices))}{hint}")


def _number(value: Any, info: SettingInfo) -> Any:
    if not isinstance(value, (int, float)) and hasattr(value, "item"):
        value = value.item()  # a numpy number
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UserError(f"{info.flag}: a {_wanted(info)}, not {shown(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{info.flag}: a {_wanted(info)}, not {value}")
    if info.kind == "count":
        if value != int(value):
            raise UserError(f"{info.flag}: a whole number, not {value:g}")
        value = int(value)
    if not info.lower <= value <= info.upper:
        told = f"{value:g}" if abs(value) < 10**300 else "a number of more than 300 digits"
        raise UserError(f"{info.flag}: between {info.lower:g} and {info.upper:g}, not {told}")
    return value


def _range(text: str, info: SettingInfo) -> tuple[int, ...]:
    body, star, factor_text = text.partition("*")
    low_text, _, high_text = body.partition("..")
    try:
        low, high = int(parse_count(low_text)), int(parse_count(high_text))
        factor = int(parse_count(factor_text)) if star else 0
    except UserError:
        raise UserError(f"{info.flag}: a range is written 1..8 or 1..64*2, not {shown(text)}") from None
    if low > high:
        raise UserError(f"{info.flag}: the range {shown(text)} is empty; the smaller value stands first")
    _number(low, info)
    _number(high, info)
    if star:
        if factor < 2:
            raise UserError(f"{info.flag}: the factor of {shown(text)} must be 2 or more")
        values = []
        while low <= high:
            values.append(low)
            low *= factor
        return tuple(values)
    if high - low >= LONGEST_LIST:
        raise UserError(f"{info.flag}: the range {shown(text)} has {high - low + 1:,} values; at most {LONGEST_LIST:,}")
    return tuple(range(low, high + 1))
