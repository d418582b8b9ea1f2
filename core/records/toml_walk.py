"""A TOML file of a person, read without trust: size and form first, then table by table, all problems at once.

Floor: records. Uses errors and the unit parser. Nothing in a file is ever executed.

Hand-written where cattrs could have served: importing cattrs costs 60 ms of the 400 ms that a repeated command has
in all, and a record of four short tables needs only a dozen checks, each of which has to name its path in the file.
"""

from __future__ import annotations

import datetime
import math
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from ..algebra.units import format_si, parse
from ..errors import UserError, nearest, shown
from .provenance import Kind, Quantity, Source

MAX_BYTES = 256 * 1024
"""A record is 1 to 4 kB; anything far above is not one, and is refused before it is read."""

MAX_DOTS_PER_LINE = 40
"""``tomllib`` takes time quadratic in the parts of one dotted key, so a line of a thousand dots is refused first."""

MAX_SHOWN = 20
"""Problems told in one message; the rest is counted."""

NAME = re.compile(r"[a-z0-9]+(?:[._-][a-z0-9]+)*")
NAME_RULE = "a name is at most 64 of a-z, 0-9, and single '-', '_' or '.' between them"
_DATE = re.compile(r"(?:19|20)\d\d(?:-(?:0[1-9]|1[0-2])(?:-(?:0[1-9]|[12]\d|3[01]))?)?")
_KINDS: tuple[str, ...] = get_args(Kind)


def is_name(text: object) -> bool:
    """Whether ``text`` may name a record (and hence a file): no slash, no dots in a row, no capital letter.

    >>> is_name("h100-sxm"), is_name("../h100"), is_name("")
    (True, False, False)
    """
    return isinstance(text, str) and len(text) <= 64 and NAME.fullmatch(text) is not None


def place(path: Path) -> str:
    """``path`` as it may stand at the head of an error line: printable, on one line, its end kept if it is long."""
    text = "".join(letter if letter.isprintable() else "?" for letter in str(path))
    return text if len(text) <= 160 else "…" + text[-160:]


def read_toml(path: Path, most: int = MAX_BYTES) -> dict[str, Any]:
    """The top table of the TOML file at ``path``, of at most ``most`` bytes.

    Raises ``UserError`` for whatever is not a small, regular, well-formed TOML file in UTF-8.
    """
    where = place(path)
    try:
        about = path.stat()
        if stat.S_ISDIR(about.st_mode):
            raise UserError(f"{where}: is a folder; a TOML file is needed")
        if not stat.S_ISREG(about.st_mode):
            raise UserError(f"{where}: is not a regular file; a TOML file is needed")
        if about.st_size > most:
            size = format_si(float(about.st_size), "B")
            raise UserError(f"{where}: {size} is too large for a record, at most {most // 1024} KiB")
        with path.open("rb") as stream:
            raw = stream.read(most + 1)
    except FileNotFoundError:
        raise UserError(f"{where}: no such file") from None
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or "not a path"
        raise UserError(f"{where}: cannot be read ({reason})") from None
    if len(raw) > most:
        raise UserError(f"{where}: too large for a record, at most {most // 1024} KiB")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{where}: byte {error.start}: not UTF-8 text; a TOML file is needed") from None
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > MAX_DOTS_PER_LINE:
            raise UserError(f"{where}: line {number}: more than {MAX_DOTS_PER_LINE} dots; not a record")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{where}: not TOML: nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and what int() and datetime() say of their text
        reason = " ".join(str(error).split())[:120]
        raise UserError(f"{where}: not TOML: {reason}") from None


class Problems:
    """What is wrong with one file, collected until the whole file has been seen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lines: dict[str, None] = {}

    @property
    def many(self) -> bool:
        """Whether so many problems are known that a further one will only be counted."""
        return len(self._lines) > MAX_SHOWN

    def add(self, where: str, what: str) -> None:
        """Note that ``what`` is wrong at ``where`` (a dotted path inside the file); once, if it is noted again."""
        self._lines[f"{where}: {what}" if where else what] = None

    def check(self) -> None:
        """Raise one ``UserError`` that tells every problem noted so far, if there is one."""
        lines = list(self._lines)
        if not lines:
            return
        head = place(self.path)
        if len(lines) == 1:
            raise UserError(f"{head}: {lines[0]}")
        told = lines[:MAX_SHOWN]
        if len(lines) > MAX_SHOWN:
            told.append(f"and {len(lines) - MAX_SHOWN} more")
        raise UserError("\n  ".join([f"{head}: {len(lines)} problems", *told]))


class Table:
    """One table of a file: typed look-ups that note a problem with its path instead of raising.

    A look-up that fails returns an empty stand-in of the right type, so that reading goes on to the next key.
    """

    def __init__(self, content: Mapping[str, Any], where: str, problems: Problems) -> None:
        self.content = content
        self.where = where
        self.problems = problems

    def at(self, key: str) -> str:
        """The path of ``key`` in the file."""
        plain = key if len(key) <= 40 and key.isprintable() else shown(key, 40)
        return f"{self.where}.{plain}" if self.where else plain

    def add(self, key: str, what: str) -> None:
        """Note a problem at ``key``."""
        self.problems.add(self.at(key), what)

    def only(self, known: Iterable[str]) -> None:
        """Note every key that is not ``known``, with the nearest one that is."""
        known = list(known)
        for key in self.content:
            if key not in known:
                # Looking for the nearest name is slow, and no one reads it of the hundredth key.
                near = [] if self.problems.many else nearest(key[:64], known, limit=1)
                told = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
                self.add(key, f"unknown key; {told}")

    def text(self, key: str, default: str | None = None, limit: int = 600) -> str:
        """A text of at most ``limit`` characters; a missing one is a problem unless there is a ``default``."""
        value = self.content.get(key)
        if value is None:
            if default is None:
                self.add(key, "missing; a text is needed")
            return default or ""
        if not isinstance(value, str) or not value.strip():
            self.add(key, f"{shown(value)} is not a text; write it in quotes")
        elif len(value) > limit:
            self.add(key, f"a text of {len(value)} characters; at most {limit}")
        elif not all(letter.isprintable() for letter in value):
            self.add(key, "a text on one line, of printable characters, is needed")
        else:
            return value
        return default or ""

    def name(self, key: str, default: str | None = None) -> str:
        """The name of a record."""
        value = self.text(key, default)
        if value and not is_name(value):
            self.add(key, f"{shown(value)} is no name; {NAME_RULE}")
            return default or ""
        return value

    def names(self, key: str) -> tuple[str, ...]:
        """A list of names, empty where the key is missing."""
        value = self.content.get(key, [])
        if not isinstance(value, list) or not all(is_name(entry) for entry in value):
            self.add(key, f"{shown(value)} is not a list of names; {NAME_RULE}")
            return ()
        return tuple(value)

    def whole(self, key: str, lower: int, upper: int, default: int | None = None) -> int:
        """A whole number between ``lower`` and ``upper``; a missing one is a problem unless there is a default."""
        value = self.content.get(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not lower <= value <= upper:
            found = "missing" if value is None else f"{shown(value)} is not allowed"
            self.add(key, f"{found}; a whole number from {lower} to {upper} is needed")
            return lower
        return value

    def number(self, key: str, lower: float, upper: float, default: float) -> float:
        """A number between ``lower`` and ``upper``, or the default where the key is missing."""
        value = self.content.get(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not lower <= value <= upper:
            self.add(key, f"{shown(value)} is not allowed; a number from {lower:g} to {upper:g} is needed")
            return default
        return float(value)

    def table(self, key: str) -> Table | None:
        """The table at ``key``; None where it is missing (no problem) or not a table (a problem)."""
        value = self.content.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.add(key, f"{shown(value)} is not a table; write [{self.at(key)}]")
            return None
        return Table(value, self.at(key), self.problems)

    def tables(self, key: str) -> list[Table]:
        """The list of tables at ``key``, empty where it is missing."""
        value = self.content.get(key, [])
        if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
            self.add(key, f"{shown(value)} is not a list of tables; write [[{self.at(key)}]]")
            return []
        return [Table(entry, f"{self.at(key)}[{index}]", self.problems) for index, entry in enumerate(value)]


def read_sources(top: Table) -> dict[str, Source]:
    """The ``[sources.KEY]`` tables of a file: title, url, date (year, month or day) and kind."""
    sources: dict[str, Source] = {}
    table = top.table("sources")
    if table is None:
        return sources
    for key in table.content:
        entry = table.table(key)
        if entry is None:
            continue
        entry.only(["title", "url", "date", "kind"])
        kind = entry.text("kind", "datasheet")
        if kind not in _KINDS:
            entry.add("kind", f"{shown(kind)} is not one of {', '.join(_KINDS)}")
        sources[key] = Source(
            key=key,
            title=entry.text("title"),
            url=entry.text("url"),
            date=_date(entry),
            kind=kind,  # type: ignore[arg-type]  # checked above; the file does not load otherwise
        )
    return sources


def _date(entry: Table) -> str:
    value = entry.content.get("date")
    if isinstance(value, datetime.date) and not isinstance(value, datetime.datetime):
        return value.isoformat()
    text = entry.text("date")
    if text and not _DATE.fullmatch(text):
        entry.add("date", f'{shown(text)} is not a date; write "2024", "2024-05" or "2024-05-13"')
    return text


def source_of(table: Table, sources: Mapping[str, Source]) -> Source | None:
    """The source that ``table`` names by its key ``source``; a missing or unknown one is a problem."""
    key = table.content.get("source")
    if key is None:
        table.add("source", "missing; a value without a source does not load")
        return None
    if not isinstance(key, str) or key not in sources:
        near = nearest(key[:64], sources, limit=1) if isinstance(key, str) else []
        told = f"did you mean {near[0]}?" if near else f"declared: {', '.join(sources) or 'none'}"
        table.add("source", f"{shown(key)} is not declared under [sources]; {told}")
        return None
    return sources[key]


def read_quantity(
    owner: Table, key: str, sources: Mapping[str, Source], unit: str | None, lower: float, upper: float
) -> Quantity | None:
    """The value at ``key``: ``{ value = "3.35 TB/s", source = "datasheet", note = "..." }``.

    ``unit`` is the SI unit it must come to (None: any), ``lower`` and ``upper`` the allowed range in that unit.
    Returns None where the key is missing, and where there is a problem, which is noted.
    """
    if key not in owner.content:
        return None
    value = owner.content[key]
    if not isinstance(value, dict):
        owner.add(key, f'{shown(value)} has no source; write {{ value = "...", source = "..." }}')
        return None
    entry = Table(value, owner.at(key), owner.problems)
    entry.only(["value", "source", "note"])
    source = source_of(entry, sources)
    note = entry.text("note", "")
    told = entry.content.get("value")
    try:
        number, found = _parse(told, unit)
    except UserError as error:
        entry.add("value", str(error))
        return None
    if not math.isfinite(number) or not lower <= number <= upper:
        span = f"from {_human(lower, found)} to {_human(upper, found)}"
        entry.add("value", f"{shown(told)} is out of range; {span} is allowed")
        return None
    if source is None:
        return None
    return Quantity(value=number, unit=found, source=source, text=str(told), note=note)


def _parse(told: object, unit: str | None) -> tuple[float, str]:
    """Value in SI and its unit; a bare number stands for a count only, since 80 could be GB or GiB."""
    if told is None:
        raise UserError("missing; a value with its unit is needed")
    if isinstance(told, int | float) and not isinstance(told, bool):
        if unit in (None, "1"):
            if abs(told) > 1e300:
                raise UserError(f"{shown(told)} is out of range")
            return float(told), "1"
        raise UserError(f"{shown(told)} has no unit; write it as a text that ends in one ({unit})")
    if not isinstance(told, str):
        raise UserError(f"{shown(told)} is neither a number nor a text with a unit")
    if len(told) > 64:
        raise UserError(f"a value of {len(told)} characters; at most 64")
    return parse(told, expect=unit)


def _human(value: float, unit: str) -> str:
    return f"{value:g}" if unit == "1" else format_si(value, unit)
