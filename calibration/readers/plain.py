"""slipstick's own file of measurements: a plain CSV, read and written.

The first line that is no comment names the columns: ``kernel,format,device,ranks,source,samples,seconds,spread_s,
measured``, then the shape's extents by the names of ``SHAPES`` (m, n, k, batch, bytes, ...; empty where a kernel has
none) and facts as ``fact:<name>``. The time column is ``seconds``, ``ms``, ``us`` or ``ns``; exactly one of them.
Lines that begin with # are comments, and those of the form ``# name: value`` facts of every row after them.

A minimal file::

    kernel,format,device,us,measured,m,n,k
    gemm,bf16,h100-sxm,412.5,"CUDA events, median",4096,4096,8192

Calibration; the measuring writes it.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from attrs import evolve

from slipstick.core.errors import UserError, shown
from slipstick.core.files import put, reason_of
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import SHAPES, TraceReader, TraceRow

UNITS = {"seconds": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
"""Names of the time column, and how many of that unit a second has."""

LEADING = ("kernel", "format", "device", "ranks", "source", "samples", "seconds", "spread_s", "measured")
EXTENTS = tuple(dict.fromkeys(name for names in SHAPES.values() for name in names))
_NEEDED = ("kernel", "format", "device", "measured")
_FACT = "fact:"


class Plain(TraceReader):
    """Reads the CSV that ``slipstick calibrate measure`` writes."""

    name = "plain-csv"

    def sniff(self, path: Path, head: bytes) -> bool:
        for line in head.decode("utf-8", errors="replace").lstrip("\ufeff").splitlines():
            if line.strip() and not line.startswith("#"):
                columns = {name.strip() for name in line.split(",")}
                return {"kernel", "device", "measured"} <= columns and bool(columns & set(UNITS))
        return False

    def rows(self, path: Path) -> Iterator[TraceRow]:
        found = False
        for row in _read(path):
            found = True
            yield row
        if not found:
            raise UserError(f"{path.name} holds no measurement after its line of column names")


@hookimpl
def slipstick_trace_readers() -> Sequence[TraceReader]:
    """The reader of slipstick's own CSV."""
    return [Plain()]


# --- reading ------------------------------------------------------------------------------------------------------


def _read(path: Path, torn: bool = False) -> Iterator[TraceRow]:
    """The rows of the file; with ``torn`` a last line without its end is left out."""
    facts: dict[str, str] = {}
    columns: list[str] | None = None
    for number, fields in _lines(path, torn):
        if isinstance(fields, str):
            name, colon, value = fields[1:].partition(":")
            if colon and name.strip():
                facts[name.strip()] = value.strip()
        elif columns is None:
            columns = _columns(fields, path, number)
        else:
            yield _row(dict(zip(columns, fields, strict=False)), len(fields), columns, facts, path, number)
    if columns is None:
        raise UserError(f"{path.name} names no columns; {','.join(LEADING)} and a kernel's extents are expected")


def _lines(path: Path, torn: bool) -> Iterator[tuple[int, str | list[str]]]:
    """Number of a line and what it is: a comment's text or fields. A field may hold line ends in quotes."""
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            number = 0
            while line := file.readline():
                number += 1
                if torn and not line.endswith("\n"):
                    return
                if line.startswith("#"):
                    yield number, line.strip()
                    continue
                begin = number
                while line.count('"') % 2 and (more := file.readline()):
                    line, number = line + more, number + 1
                    if len(line) > 1 << 20:
                        raise UserError(f"{path.name}, line {begin}: a quote is opened and not closed")
                if not line.strip():
                    continue
                try:
                    fields = next(csv.reader(io.StringIO(line, newline=""), strict=True))
                except (csv.Error, StopIteration) as error:
                    raise UserError(f"{path.name}, line {begin}: no CSV: {error}") from None
                yield begin, [field.strip() for field in fields]
    except OSError as error:
        raise UserError(f"{path.name} can't be read: {error.strerror or error}") from None


def _columns(names: list[str], path: Path, number: int) -> list[str]:
    where = f"{path.name}, line {number}"
    times = [name for name in names if name in UNITS]
    if len(times) != 1:
        told = " and ".join(times) if times else "none"
        raise UserError(f"{where}: one time column is expected, {', '.join(UNITS)}; there is {told}")
    for name in _NEEDED:
        if name not in names:
            raise UserError(f"{where}: the column {name} is missing")
    for place, name in enumerate(names):
        if name in names[:place]:
            raise UserError(f"{where}: two columns are called {shown(name)}")
        if not name:
            raise UserError(f"{where}: column {place + 1} has no name")
        if name not in (*LEADING, *UNITS) and not name.startswith(_FACT) and not name.isidentifier():
            raise UserError(f"{where}: {shown(name)} is no column; an extent's name, or {_FACT}<name>, is expected")
    return names


def _row(
    values: Mapping[str, str], count: int, columns: list[str], facts: Mapping[str, str], path: Path, number: int
) -> TraceRow:
    where = f"{path.name}, line {number}"
    if count != len(columns):
        raise UserError(f"{where} has {count} fields where {len(columns)} are expected")
    unit = next(name for name in columns if name in UNITS)
    shape, own = {}, dict(facts)
    for name in columns:
        text = values[name]
        if text and name.startswith(_FACT):
            own[name.removeprefix(_FACT)] = text
        elif text and name not in LEADING and name not in UNITS:
            shape[name] = _number(text, name, where)
    kernel = values["kernel"]
    lacking = [name for name in SHAPES.get(kernel, ()) if name not in shape and name not in _MAY_LACK]
    if lacking:
        raise UserError(f"{where}: {kernel} without {', '.join(lacking)}")
    spread = values.get("spread_s", "")
    try:
        return TraceRow(
            kernel,
            shape,
            values["format"],
            values["device"],
            _number(values[unit], unit, where) / UNITS[unit],
            values["measured"],
            ranks=_whole(values.get("ranks", ""), "ranks", where),
            source=values.get("source", ""),
            samples=_whole(values.get("samples", ""), "samples", where),
            spread=_number(spread, "spread_s", where) if spread else None,
            line=number,
            facts=own,
        )
    except UserError as error:
        message = str(error)
        raise error if message.startswith(path.name) else UserError(f"{path.name}, {message}") from None


_MAY_LACK = frozenset(
    {"window", "causal", "skew", "matrices", "tp", "ep", "elements", "rope", "flops", "rounds", "unfused"}
)
"""Extents with a usual value, or that another one tells roughly."""


def _number(text: str, name: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{where}: {name} is {shown(text)}; a number is expected") from None


def _whole(text: str, name: str, where: str) -> int:
    if not text:
        return 1
    try:
        return int(text)
    except ValueError:
        raise UserError(f"{where}: {name} is {shown(text)}; a whole number is expected") from None


# --- writing ------------------------------------------------------------------------------------------------------


def write_rows(path: Path, rows: Iterable[TraceRow], facts: Mapping[str, str] | None = None) -> None:
    """Writes all ``rows`` at once: the file is whole or not there. ``facts`` stand at its head.

    Errors: UserError where the place can't be written.
    """
    rows = list(rows)
    columns = _columns_for(rows)
    content = _head(columns, facts or {}) + "".join(_line(row, columns) for row in rows)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, content.encode("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} can't be written: {reason_of(error)}") from None


def append_rows(path: Path, rows: Iterable[TraceRow], facts: Mapping[str, str] | None = None) -> None:
    """Adds ``rows`` at the end of the file and makes sure that they are on the disk; a new file gets its head.

    A last line that was torn off (the machine stopped while it was written) is cut away first. Facts that the file
    has no column for, and extents of a kernel that ``SHAPES`` has not, call for the whole file to be written anew.

    Errors: UserError where the place can't be written, or the file is none of slipstick's.
    """
    rows = list(rows)
    if not path.exists() or path.stat().st_size == 0:
        return write_rows(path, rows, facts)
    _mend(path)
    columns = _columns_of(path)
    if set(_columns_for(rows, least=())) - set(columns):
        common, old = _facts_of(path), list(_read(path))
        old = [evolve(row, facts={k: v for k, v in row.facts.items() if common.get(k) != v}) for row in old]
        return write_rows(path, [*old, *rows], common)
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.writelines(_line(row, columns) for row in rows)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror or error}") from None
    return None


def read_done(path: Path) -> list[TraceRow]:
    """What a file that is being measured holds so far; a torn last line is left out, no file is none.

    Errors: UserError where the file is none of slipstick's.
    """
    if not path.exists() or path.stat().st_size == 0:
        return []
    return list(_read(path, torn=True))


def _columns_for(rows: Sequence[TraceRow], least: Sequence[str] = (*LEADING, *EXTENTS)) -> list[str]:
    extents = dict.fromkeys(name for row in rows for name in row.shape)
    names = dict.fromkeys(f"{_FACT}{name}" for row in rows for name in row.facts)
    return list(dict.fromkeys([*least, *extents, *names]))


def _columns_of(path: Path) -> list[str]:
    for number, fields in _lines(path, torn=False):
        if not isinstance(fields, str):
            columns = _columns(fields, path, number)
            if "seconds" not in columns or set(LEADING) - set(columns):
                raise UserError(f"{path.name} has other columns than slipstick writes; give a new file")
            return columns
    raise UserError(f"{path.name} names no columns; give a new file")


def _facts_of(path: Path) -> dict[str, str]:
    facts = {}
    for _, fields in _lines(path, torn=False):
        if isinstance(fields, str):
            name, colon, value = fields[1:].partition(":")
            if colon and name.strip():
                facts[name.strip()] = value.strip()
    return facts


def _mend(path: Path) -> None:
    """Cuts a last line without an end away."""
    try:
        with path.open("r+b") as file:
            content = file.read()
            if content and not content.endswith(b"\n"):
                file.truncate(content.rfind(b"\n") + 1)
    except OSError as error:
        raise UserError(f"{path} can't be written: {error.strerror or error}") from None


def _head(columns: Sequence[str], facts: Mapping[str, str]) -> str:
    comments = "".join(f"# {name}: {' '.join(str(value).split())}\n" for name, value in facts.items())
    return comments + _text(columns)


def _line(row: TraceRow, columns: Sequence[str]) -> str:
    own: dict[str, object] = {
        "kernel": row.kernel,
        "format": row.format,
        "device": row.device,
        "ranks": row.ranks,
        "source": row.source,
        "samples": row.samples,
        "seconds": f"{row.seconds:.9g}",
        "spread_s": "" if row.spread is None else f"{row.spread:.6g}",
        "measured": row.measured,
    }
    own.update((name, _plain_number(value)) for name, value in row.shape.items())
    own.update((f"{_FACT}{name}", value) for name, value in row.facts.items())
    return _text([own.get(name, "") for name in columns])


def _plain_number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _text(fields: Iterable[object]) -> str:
    """One line of CSV; line ends inside a text become spaces, so that a line is a row."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow([" ".join(str(field).split()) for field in fields])
    return buffer.getvalue()
