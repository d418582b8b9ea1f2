"""What a person names on the command line as measurements: files that a trace reader knows, or tables of a package.

Floor: calibration. Uses the host's trace readers and the batches; readers are imported when a trace asks for them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from attrs import evolve, frozen

from slipstick.core.errors import UserError, shown
from slipstick.core.model.interfaces.trace_reader import TraceRow, Unread, reader_for
from slipstick.core.records.provenance import Source

if TYPE_CHECKING:
    from slipstick.core.host.host import Host
    from slipstick.core.model.interfaces.trace_reader import TraceReader
    from slipstick.core.records.measured import MeasuredPoint

    from .readers.batch import Batch

TABLES = "aiconfigurator"
"""The scheme of an address of a package's tables: ``aiconfigurator:<system>/<table>/<engine>[/<version>]``."""


@frozen(eq=False)
class Read:
    """What was read: ``batches`` of alike rows, what was ``unread``, and how many figures of whole deployments."""

    batches: tuple[Batch, ...]
    unread: tuple[Unread, ...]
    points: int = 0

    @property
    def rows(self) -> int:
        """Measured kernels in all."""
        return sum(len(batch) for batch in self.batches)


def is_address(text: str) -> bool:
    """Whether ``text`` names tables of a package, not a file.

    >>> is_address("aiconfigurator:h100_sxm/gemm/trtllm"), is_address("trace.json")
    (True, False)
    """
    return text.startswith(f"{TABLES}:")


def read(names: Sequence[str], host: Host, device: str = "", engine: str = "") -> Read:
    """The rows of all ``names``; ``device`` and ``engine`` in place of what the files say, where given.

    Errors: UserError for a file that no reader knows or that cannot be read, naming it.
    """
    batches: list[Batch] = []
    unread: list[Unread] = []
    points = 0
    readers = tuple(host.trace_readers().values()) if any(not is_address(name) for name in names) else ()
    for name in names:
        found = _tables(name) if is_address(name) else _file(name, readers)
        batches += found.batches
        unread += found.unread
        points += found.points
    if device or engine:
        facts = {"engine": engine} if engine else {}
        batches = [evolve(b, device=device or b.device, facts={**b.facts, **facts}) for b in batches]
    return Read(tuple(batches), tuple(unread), points)


def source_of(names: Sequence[str], date: str) -> Source:
    """The provenance of records fitted to ``names``, as it stands in their file."""
    if len(names) == 1 and is_address(names[0]):
        from importlib import metadata

        address = names[0].partition(":")[2]
        try:
            version = metadata.version("aiconfigurator-core")
        except metadata.PackageNotFoundError:
            version = ""
        title = f"kernel tables of aiconfigurator-core {version}".rstrip() + f", {address}"
        url = f"https://pypi.org/project/aiconfigurator-core/{version}/".replace("//", "/").replace(":/", "://")
        key = "-".join("".join(c if c.isalnum() else "-" for c in address).split("-"))[:60]
        return Source(key or "tables", title, url, date, "measured")
    told = ", ".join(name if is_address(name) else os.path.basename(name) for name in names)
    if len(told) > 200:
        told = f"{told[:200]}…"
    return Source("trace", f"measured: {told}", told, date, "measured")


def _file(name: str, readers: Sequence[TraceReader]) -> Read:
    from .readers.batch import from_rows

    if not name or "\0" in name:
        raise UserError(f"{shown(name)} is no path of a trace")
    path = Path(os.path.expanduser(name))
    reader = reader_for(path, readers)
    if reader.name == TABLES:  # as columns: a table has 100,000 rows
        from .readers import aiconfigurator

        found, rest = aiconfigurator.read(path)
        return Read(tuple(found), tuple(rest))
    unread: list[Unread] = []
    points: list[int] = [0]
    batches = from_rows(medians(_rows(reader.rows(path), unread, points)))
    return Read(tuple(batches), tuple(unread), points[0])


def medians(rows: Iterable[TraceRow]) -> list[TraceRow]:
    """Executions of one kernel with one shape as one row: the median, how many there were and how far they spread.

    A trace holds every execution, the first and slow ones too; a row of a benchmark stands for several already.
    """
    groups: dict[tuple[object, ...], list[TraceRow]] = {}
    for row in rows:
        key = (
            row.kernel, row.format, row.device, row.ranks, row.source, row.measured, row.samples > 1,
            *sorted(row.shape.items()), *sorted(row.facts.items()),
        )  # fmt: skip
        groups.setdefault(key, []).append(row)
    found = []
    for several in groups.values():
        middle = sorted(several, key=lambda row: row.seconds)[(len(several) - 1) // 2]
        if len(several) > 1:
            spread = statistics.pstdev(row.seconds for row in several)
            middle = evolve(middle, samples=sum(row.samples for row in several), spread=spread)
        found.append(middle)
    return found


def _rows(
    rows: Iterable[TraceRow | MeasuredPoint | Unread], unread: list[Unread], points: list[int]
) -> Iterator[TraceRow]:
    for row in rows:
        if isinstance(row, TraceRow):
            yield row
        elif isinstance(row, Unread):
            unread.append(row)
        else:
            points[0] += 1


def _tables(address: str) -> Read:
    from .readers import aiconfigurator

    kept: list[Batch] = []
    unread: list[Unread] = []
    for path in aiconfigurator.find(address):
        batches, rest = aiconfigurator.read(path)
        unread += rest
        for batch in batches:
            if is_eager(batch.engine, batch.kernel, batch.format, batch.source):
                why = "launched from Python one by one: the time is the launch's, not the kernel's"
                unread.append(Unread(f"{batch.kernel} {batch.format} of {batch.source}", why, len(batch)))
            else:
                kept.append(batch)
    return Read(tuple(kept), tuple(unread))


def is_eager(engine: str, kernel: str, number_format: str, kernel_source: str) -> bool:
    """Whether the times are of launching from Python, not of the kernel: no GPU waits so long for a captured graph.

    vLLM's block-scaled FP8 products were not captured and never take less than 55 to 290 µs; all-reduces say so in
    the name of their source. Records of them would price every product of a model at that floor.

    >>> is_eager("vllm", "gemm", "fp8_block", "DeepGemm"), is_eager("vllm", "gemm", "fp8", "Cutlass")
    (True, False)
    """
    return kernel_source.endswith("_eager") or (engine, kernel, number_format) == ("vllm", "gemm", "fp8_block")
