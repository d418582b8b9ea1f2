"""Fitted records in TOML: one file for an accelerator and an engine, read without trust, written whole or not at all.

Floor: records. Uses errors and the walk of ``toml_walk``. A file has ``schema = 1``, ``kind = "fitted"``, the
accelerator, the engine, its ``[sources.KEY]`` tables, and one ``[[record]]`` for each fit: ``parameters`` and their
``spread``, ``ranges`` of the formula's inputs, and ``errors`` as [n, mean, median, p90, bias].
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError, shown
from ..files import put, reason_of
from .fitted import ErrorSummary, FittedRecord
from .provenance import Source
from .toml_walk import MAX_DOTS_PER_LINE, Problems, Table, is_name, place, read_sources, read_toml, source_of

SCHEMA = 1
MAX_BYTES = 4 * 1024 * 1024
MAX_RECORDS = 2000
MAX_DOTS = MAX_DOTS_PER_LINE - 4
"""Dots of a written line: a table with more is written line by line, a note is cut."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_KEYS = (
    "slot", "family", "formula", "format", "kernel_source", "engine_version", "where", "rows", "sigma", "calibrated",
    "reason", "source", "command", "note", "parameters", "spread", "unidentified", "ranges", "errors",
)  # fmt: skip


def read_records(path: Path) -> tuple[FittedRecord, ...]:
    """The records of the file at ``path``. Raises ``UserError`` that tells every problem of the file."""
    return _records(read_toml(path, MAX_BYTES), path)


def read_records_of(path: Path, accelerator: str) -> tuple[FittedRecord, ...]:
    """The records of ``accelerator`` in the file at ``path``; none where the file describes something else.

    Raises ``UserError`` for a file of fitted records that is not sound.
    """
    content = read_toml(path, MAX_BYTES)
    if content.get("kind") in ("accelerator", "host", "link", "node") or content.get("accelerator") != accelerator:
        return ()
    return _records(content, path)


def _records(content: Mapping[str, Any], path: Path) -> tuple[FittedRecord, ...]:
    top = Table(content, "", problems := Problems(path))
    top.only(["schema", "kind", "accelerator", "engine", "sources", "record"])
    top.whole("schema", SCHEMA, SCHEMA)
    kind = top.text("kind")
    if kind and kind != "fitted":
        top.add("kind", f'{shown(kind)} is not "fitted"')
        problems.check()
    accelerator = top.name("accelerator")
    engine = top.text("engine", "", limit=60)
    sources = read_sources(top)
    entries = top.tables("record")
    if not entries:
        top.add("record", "missing; a file of fitted records has at least one [[record]]")
    if len(entries) > MAX_RECORDS:
        top.add("record", f"{len(entries)} records; at most {MAX_RECORDS}")
        entries = []
    found = [_record(entry, accelerator, engine, sources) for entry in entries]
    problems.check()
    return tuple(found)


def _record(entry: Table, accelerator: str, engine: str, sources: dict[str, Source]) -> FittedRecord:
    entry.only(_KEYS)
    parameters = _numbers(entry, "parameters")
    if not parameters:
        entry.add("parameters", "missing; a record holds the parameters of its formula")
    spread = _numbers(entry, "spread", lower=0.0)
    open_ = entry.content.get("unidentified", [])
    if not isinstance(open_, list) or not all(isinstance(name, str) for name in open_):
        entry.add("unidentified", f"{shown(open_)} is not a list of parameters")
        open_ = []
    for key, names in (("spread", spread), ("unidentified", open_)):
        for name in names:
            if name not in parameters:
                entry.add(key, f"{shown(name)} is not one of the record's parameters")
    calibrated = entry.content.get("calibrated")
    if not isinstance(calibrated, bool):
        entry.add("calibrated", f"{shown(calibrated)} is neither true nor false")
    reason = entry.text("reason", "")
    if calibrated is False and not reason:
        entry.add("reason", "missing; say why the fit is not good enough")
    if "sigma" not in entry.content:
        entry.add("sigma", "missing; the spread of ln(measured/predicted) is needed")
    return FittedRecord(
        accelerator=accelerator,
        slot=entry.text("slot", limit=60),
        family=entry.text("family", limit=60),
        formula=entry.text("formula", limit=60),
        format=entry.text("format", limit=60),
        kernel_source=entry.text("kernel_source", "", limit=200),
        engine=engine,
        engine_version=entry.text("engine_version", "", limit=60),
        where=_spans(entry, "where"),
        parameters=parameters,
        spread=spread,
        unidentified=tuple(open_),
        ranges=_spans(entry, "ranges"),
        rows=entry.whole("rows", 1, 10**12),
        errors=_errors(entry),
        sigma=entry.number("sigma", 0.0, 100.0, 1.0),
        calibrated=calibrated is True,
        reason=reason,
        source=source_of(entry, sources) or Source("", "", "", "", "measured"),
        command=entry.text("command", "", limit=2000),
        note=entry.text("note", "", limit=4000),
    )


def _numbers(entry: Table, key: str, lower: float = -math.inf) -> dict[str, float]:
    table = entry.table(key)
    found: dict[str, float] = {}
    for name, value in table.content.items() if table is not None else ():
        assert table is not None
        if not name.isidentifier() or len(name) > 64:
            table.add(name, "is no name of a parameter; letters, digits and '_' are")
        elif not _is_number(value) or value < lower:
            told = "a number" if lower == -math.inf else f"a number from {lower:g}"
            table.add(name, f"{shown(value)} is not allowed; {told} is needed")
        else:
            found[name] = float(value)
    return found


def _spans(entry: Table, key: str) -> dict[str, tuple[float, float]]:
    table = entry.table(key)
    found: dict[str, tuple[float, float]] = {}
    for name, value in table.content.items() if table is not None else ():
        assert table is not None
        if not name.isidentifier() or len(name) > 64:
            table.add(name, "is no name of a size; letters, digits and '_' are")
        elif not isinstance(value, list) or len(value) != 2 or not all(map(_is_number, value)) or value[0] > value[1]:
            table.add(name, f"{shown(value)} is not allowed; [least, largest] is needed")
        else:
            found[name] = float(value[0]), float(value[1])
    return found


def _errors(entry: Table) -> dict[str, ErrorSummary]:
    table = entry.table("errors")
    found: dict[str, ErrorSummary] = {}
    for name, value in table.content.items() if table is not None else ():
        assert table is not None
        if not isinstance(value, list) or len(value) != 5 or not all(map(_is_number, value)) or value[0] < 1:
            table.add(name, f"{shown(value)} is not allowed; [n, mean, median, p90, bias] is needed")
        else:
            found[name] = ErrorSummary(int(value[0]), *(float(part) for part in value[1:]))
    return found


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 10**300


# --- writing ------------------------------------------------------------------------------------------------------


def write_records(path: Path, records: Iterable[FittedRecord]) -> None:
    """Write ``records`` of one accelerator and engine to ``path``: beside it first, then moved, so never half a file.

    Equal records make an equal file, in whatever order they come. Raises ``UserError`` for records that do not belong
    into one file, and where the file cannot be written.
    """
    text = records_text(records)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, text.encode("utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{place(path)}: cannot be written ({reason_of(error)})") from None


def records_text(records: Iterable[FittedRecord]) -> str:
    """The file of ``records`` as text. Raises ``UserError`` for none, and for several accelerators or engines."""
    listed = sorted(records, key=sort_key)
    if not listed:
        raise UserError("no fitted record to write")
    head = {(record.accelerator, record.engine) for record in listed}
    if len(head) > 1:
        raise UserError(f"a file of fitted records is of one accelerator and engine, not of {len(head)}")
    if not is_name(listed[0].accelerator):
        raise UserError(f"{shown(listed[0].accelerator)} is no name of an accelerator")
    sources = keyed(record.source for record in listed)
    lines = [f"schema = {SCHEMA}", 'kind = "fitted"', f"accelerator = {text_of(listed[0].accelerator)}"]
    if listed[0].engine:
        lines.append(f"engine = {text_of(listed[0].engine)}")
    for source, key in sources.items():
        lines += ["", f"[sources.{bare_key(key)}]", f"title = {text_of(source.title)}", f"url = {text_of(source.url)}"]
        lines += [f"date = {text_of(source.date)}", f"kind = {text_of(source.kind)}"]
    for record in listed:
        lines += ["", "[[record]]", *_record_lines(record, sources[record.source])]
    return "\n".join(lines) + "\n"


def sort_key(record: FittedRecord) -> tuple[Any, ...]:
    """What tells records of one file apart, in the order in which they stand in it."""
    where = tuple(sorted(record.where.items()))
    return record.slot, record.format, record.kernel_source, record.engine_version, where, record.formula


def keyed(several: Iterable[Source]) -> dict[Source, str]:
    """Each source with a key of its own, its own one where no other source has it."""
    found: dict[Source, str] = {}
    taken: set[str] = set()
    for source in sorted(set(several), key=lambda s: (s.key, s.title, s.url, s.date)):
        key = stem = source.key or "trace"
        number = 2
        while key in taken:
            key, number = f"{stem}-{number}", number + 1
        taken.add(key)
        found[source] = key
    return found


def _record_lines(record: FittedRecord, key: str) -> list[str]:
    lines = []
    for name in ("slot", "format", "kernel_source", "engine_version", "family", "formula"):
        if getattr(record, name):
            lines.append(f"{name} = {text_of(getattr(record, name))}")
    spans = {name: [_figure(low), _figure(high)] for name, (low, high) in sorted(record.where.items())}
    if spans:
        lines.append(f"where = {_inline({name: _array(span) for name, span in spans.items()})}")
    lines += [f"rows = {record.rows}", f"sigma = {_figure(record.sigma)}"]
    lines.append(f"calibrated = {'true' if record.calibrated else 'false'}")
    for name, text in (("reason", record.reason), ("source", key), ("command", record.command), ("note", record.note)):
        if text:
            lines.append(f"{name} = {text_of(cut(text))}")
    if record.unidentified:
        lines.append(f"unidentified = {_array([text_of(name) for name in record.unidentified])}")
    tables = {
        "parameters": {name: _figure(value) for name, value in record.parameters.items()},
        "spread": {name: _figure(value, 4) for name, value in record.spread.items()},
        "ranges": {name: _array([_figure(a), _figure(b)]) for name, (a, b) in record.ranges.items()},
        "errors": {
            name: _array([str(e.n), *(_figure(value, 4) for value in (e.mean, e.median, e.p90, e.bias))])
            for name, e in record.errors.items()
        },
    }
    # short tables on one line first: what follows a [record.TABLE] line would belong to that table
    short = {
        name: line for name, table in tables.items() if name != "errors" and (line := _inline(table)) and _fits(line)
    }
    lines += [f"{name} = {line}" for name, line in short.items() if tables[name]]
    for name, table in tables.items():
        if table and name not in short:
            lines += [f"[record.{name}]", *(f"{bare_key(entry)} = {value}" for entry, value in table.items())]
    return lines


def _fits(line: str) -> bool:
    return line.count(".") <= MAX_DOTS


def cut(text: str) -> str:
    """``text`` as far as a reader takes it."""
    parts = text.split(".")
    return text if len(parts) <= MAX_DOTS + 1 else ".".join(parts[: MAX_DOTS + 1]) + "…"


def _figure(value: float, digits: int = 6) -> str:
    """Six significant digits: more than a fit knows, few enough to be the same on every machine."""
    if not math.isfinite(value):
        raise UserError(f"a fitted record cannot hold {value}")
    return f"{value:.{digits}g}"


def _array(parts: list[str]) -> str:
    return f"[{', '.join(parts)}]"


def _inline(table: Mapping[str, str]) -> str:
    return "{ " + ", ".join(f"{bare_key(name)} = {value}" for name, value in table.items()) + " }"


def bare_key(name: str) -> str:
    """``name`` as a key: bare where TOML takes it so."""
    return name if _BARE.fullmatch(name) else text_of(name)


def text_of(text: str) -> str:
    """``text`` as a TOML string on one line; what is not printable becomes a question mark.

    >>> text_of('a "b"')
    '"a \\\\"b\\\\""'
    """
    plain = "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'
