"""Reader of AIConfigurator's kernel tables (package ``aiconfigurator-core``, Parquet), as columns or as rows.

Calibration. Uses pyarrow and numpy, inside functions. ``columns`` reads a file of 100,000 rows in a fraction of a
second; ``rows`` makes an object of each.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread

from .aiconfigurator_files import DEVICES, PREFIX, SUFFIX, Table, damage, find, first_line, located, parquet, tables
from .aiconfigurator_tables import DIFFERENCES, ENGINES, FORMATS, Mapped, kernel_of, mapped, times
from .batch import Batch

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Codes: TypeAlias = npt.NDArray[np.int64]
    Values: TypeAlias = npt.NDArray[np.float64]

__all__ = ["PREFIX", "Aiconfigurator", "Table", "columns", "find", "read", "tables"]

MAGIC = b"PAR1"
MEASURED = "AIConfigurator's collector"
NO_VERSION = ("unknown", "kernel-level", "")
MIXED = 1 << 62


class Aiconfigurator(TraceReader):
    """Tables of AIConfigurator: ``<table>_perf.parquet``, best where they lie in the package's folders."""

    name = "aiconfigurator"

    def sniff(self, path: Path, head: bytes) -> bool:
        return head.startswith(MAGIC) and path.name.endswith(SUFFIX)

    def rows(self, path: Path) -> Iterator[TraceRow | Unread]:
        import numpy as np

        batches, unread = read(path)
        if batches:
            lines = np.concatenate([batch.lines for batch in batches])
            made = [iter(batch.rows()) for batch in batches]
            which = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
            # rows of a batch are in the order of the file, so the next of the right batch is the next of the file
            for batch in which[np.argsort(lines, kind="stable")].tolist():
                yield next(made[batch])
        yield from unread


def columns(path: Path) -> list[Batch]:
    """The measurements of a table as batches: one for each kernel, format, source, engine and whatever else differs.

    Errors: as ``read``.
    """
    return read(path)[0]


def read(path: Path) -> tuple[list[Batch], list[Unread]]:
    """The measurements of a table as batches, and what makes none.

    Rows alike in everything but the time are one measurement, repeated: they make one row with the median, and the
    others are counted.

    Errors: UserError for a file that can't be read, a column that is missing, a time that is none.
    """
    module = parquet()
    try:
        table = module.read_table(path, partitioning=None)
        names = tuple(str(column) for column in table.column_names)
    except damage() as error:
        raise UserError(f"{path} can't be read as Parquet: {first_line(error)}") from None
    return _batches(path, table, names)


def _batches(path: Path, table: Any, names: tuple[str, ...]) -> tuple[list[Batch], list[Unread]]:
    import numpy as np

    place = located(path)
    name = path.name.removesuffix(SUFFIX)
    if not table.num_rows:
        raise UserError(f"{path} holds no row")
    if len(set(names)) < len(names):
        raise UserError(f"{path} has two columns of one name")
    parts = times(name, names)
    if not parts:
        raise UserError(f"{path} has no column of times (latency); its columns are {', '.join(names)[:200]}")
    numbers, texts, measured = _split(path, table)
    meaning = mapped(name, names)
    _check(path, meaning, numbers, texts)
    extents = [numbers[column] for column in numbers if column not in measured]
    group, group_texts = _groups(texts, table.num_rows)
    key = _key([*extents, group])
    batches: list[Batch] = []
    unread: list[Unread] = []
    for suffix, time_columns, unit in parts:
        seconds = sum((numbers[column] for column in time_columns), np.zeros(table.num_rows)) * unit
        good = _judged(path, name, seconds)
        if not good.all():
            unread.append(Unread(f"{name}{suffix}", "a difference of two measurements that is not above 0",
                                 int((~good).sum())))  # fmt: skip
        kept, medians, counts = _pooled(key, seconds, np.flatnonzero(good))
        if repeats := int(good.sum()) - len(kept):
            unread.append(Unread(f"{name}{suffix}", "measured more than once; its row holds the median", repeats))
        owner = group[kept]
        for position in np.unique(owner).tolist():
            chosen = owner == position
            batches.append(
                _batch(name, suffix, meaning, place, group_texts[position], numbers, measured, kept[chosen],
                       medians[chosen], counts[chosen])
            )  # fmt: skip
    return batches, unread


def _split(path: Path, table: Any) -> tuple[dict[str, Values], dict[str, tuple[Codes, list[str]]], set[str]]:
    """Columns of numbers, columns of texts as codes and their texts, and the names of those that hold measurements."""
    import numpy as np

    numbers: dict[str, Values] = {}
    texts: dict[str, tuple[Codes, list[str]]] = {}
    measured: set[str] = set()
    for column in table.column_names:
        values = table.column(column)
        if values.null_count:
            raise UserError(f"{path}: column {column} has {values.null_count} rows without a value")
        kind = str(values.type)
        if "string" in kind:
            encoded = values.combine_chunks().dictionary_encode()
            codes = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
            try:
                texts[column] = codes, [str(text) for text in encoded.dictionary.to_pylist()]
            except UnicodeDecodeError:
                raise UserError(f"{path}: column {column} holds what is no text in UTF-8") from None
        elif kind.startswith(("int", "uint", "float", "double", "bool")):
            numbers[column] = values.to_numpy().astype(np.float64)
            if kind.startswith(("float", "double")):
                measured.add(column)
        else:
            raise UserError(f"{path}: column {column} holds {kind}; numbers and texts are expected")
    return numbers, texts, measured


def _check(path: Path, meaning: Mapped, numbers: Mapping[str, object], texts: Mapping[str, object]) -> None:
    """Errors: UserError that names the columns that are missing."""
    lacking = [extent for extent in meaning.extents.values() if isinstance(extent, str) and extent not in numbers]
    lacking += [column for column in (meaning.ranks,) if column and column not in numbers]
    lacking += [column for column in (meaning.format, meaning.kv_format) if column and column not in texts]
    lacking += [] if meaning.kernel or "op_name" in texts else ["op_name"]
    if lacking:
        raise UserError(f"{path} has no column {', '.join(dict.fromkeys(lacking))}, as a table of this name has")


def _groups(texts: Mapping[str, tuple[Codes, list[str]]], count: int) -> tuple[Codes, dict[int, dict[str, str]]]:
    """The group of each row, rows of one group agreeing in all their texts, and the texts of each group."""
    import numpy as np

    group = _key([codes for codes, _ in texts.values()]) if texts else np.zeros(count, dtype=np.int64)
    _, first, group = np.unique(group, return_index=True, return_inverse=True)
    known = {
        position: {name: words[codes[row]] for name, (codes, words) in texts.items()}
        for position, row in enumerate(first.tolist())
    }
    return group.astype(np.int64), known


def _key(parts: list[Any]) -> Codes:
    """One whole number for each row, equal for rows that are equal in all columns and for no others."""
    import numpy as np

    key: Codes = np.zeros(len(parts[0]) if parts else 0, dtype=np.int64)
    size = 1
    for column in parts:
        low, high = float(column.min()), float(column.max())
        if high == low:
            continue
        if high - low < 1 << 20 and (column == np.rint(column)).all():
            codes, several = (column - low).astype(np.int64), int(high - low) + 1
        else:
            values, codes = np.unique(column, return_inverse=True)
            several = len(values)
        if size * several >= MIXED:
            values, key = np.unique(key, return_inverse=True)
            size = len(values)
        key = key * several + codes
        size *= several
    return key


def _judged(path: Path, name: str, seconds: Values) -> npt.NDArray[np.bool_]:
    """Which rows have a time. Errors: UserError for the first that has none, but in tables of differences."""
    import numpy as np

    good = np.isfinite(seconds) & (seconds > 0)
    bad = np.isfinite(seconds) & ~good if name in DIFFERENCES else np.zeros(len(seconds), dtype=bool)
    wrong = np.flatnonzero(~good & ~bad)
    if len(wrong):
        raise UserError(f"{path}, row {wrong[0] + 1}: a time of {seconds[wrong[0]]:g} s; a positive one is expected")
    return np.asarray(good)


def _pooled(key: Codes, seconds: Values, rows: npt.NDArray[np.intp]) -> tuple[Any, Values, Codes]:
    """Of ``rows``, the first of each that are alike, the median of their times and how many they are."""
    import numpy as np

    _, first, inverse, counts = np.unique(key[rows], return_index=True, return_inverse=True, return_counts=True)
    if len(first) == len(rows):
        return rows, seconds[rows], np.ones(len(rows), dtype=np.int64)
    ordered = seconds[rows][np.lexsort((seconds[rows], inverse))]
    ends = np.cumsum(counts)
    starts = ends - counts
    medians = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2
    place = np.argsort(first, kind="stable")
    return rows[first[place]], medians[place], counts[place].astype(np.int64)


def _batch(
    name: str, suffix: str, meaning: Mapped, place: Table | None, texts: Mapping[str, str],
    numbers: Mapping[str, Values], measured: set[str], rows: Any, seconds: Values, counts: Codes,
) -> Batch:  # fmt: skip
    import numpy as np

    taken = {column: values[rows] for column, values in numbers.items() if column not in measured}
    if meaning.extents:
        arrays = {}
        for extent, of in meaning.extents.items():
            try:
                value = taken[of] if isinstance(of, str) else of(taken, texts) if callable(of) else of
            except KeyError as error:
                raise UserError(f"{name}{SUFFIX} has no column {error.args[0]}, as a table of this name has") from None
            arrays[extent] = np.broadcast_to(np.asarray(value, dtype=np.float64), seconds.shape)
    else:
        arrays = {column: values for column, values in taken.items() if column != meaning.ranks}
    ranks = taken[meaning.ranks] if meaning.ranks else np.ones(len(seconds))
    number_format = texts.get(meaning.format, "")
    device = DEVICES.get(texts.get("device", "")) or (place.device if place else "") or texts.get("device", "")
    if not device:
        raise UserError(f"{name}{SUFFIX} names no device; leave it in AIConfigurator's folders, which do")
    return Batch(
        kernel_of(name, texts) + suffix,
        FORMATS.get(number_format, number_format),
        texts.get("kernel_source", ""),
        device,
        arrays,
        seconds,
        ranks.astype(np.int64),
        counts,
        rows.astype(np.int64) + 1,
        MEASURED,
        _facts(name, meaning, place, texts),
    )


def _facts(name: str, meaning: Mapped, place: Table | None, texts: Mapping[str, str]) -> dict[str, str]:
    facts = {"table": name}
    framework = texts.get("framework", "").lower()
    library = name if name in ("nccl", "oneccl") else ""  # its version is that of the library, not of the framework
    facts["engine"] = library or ENGINES.get(framework, framework) or (place.engine if place else "")
    version = texts.get("version", "")
    if version in NO_VERSION:
        version = place.version if place else ""
    if version:
        facts["engine_version"] = version
    if place:
        facts["collection"] = place.version
    for column, text in texts.items():
        if column in ("framework", "version", "device", "kernel_source", meaning.format):
            continue
        if column == meaning.kv_format:
            facts["kv_format"] = FORMATS.get(text, text)
        else:
            facts[column] = text
    return facts


@hookimpl
def slipstick_trace_readers() -> list[TraceReader]:
    """The reader of AIConfigurator's tables."""
    return [Aiconfigurator()]
