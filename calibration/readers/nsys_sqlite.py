"""The SQLite export of Nsight Systems: kernels, transfers, and NVTX ranges that name PyTorch's operators.

Calibration; used by ``nsys``. The file is opened for reading only and not changed; rows come from the data base one
by one. Source of the tables: Nsight Systems' export schema (CUPTI_ACTIVITY_KIND_*, NVTX_EVENTS, StringIds).
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from attrs import define, field

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import TraceRow, Unread

from .kernel_names import element_format, format_by_name, library
from .nsys_csv import kernel_row, transfer_row
from .operators import is_known, meaning
from .operators_call import Call, Unclear

MAGIC = b"SQLite format 3\0"
COPY_KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
"""``copyKind`` of a transfer. Source: CUPTI's CUpti_ActivityMemcpyKind."""

OPERATOR = "Nsight Systems, time of the GPU kernels of one operator (NVTX range)"
_SIZES = re.compile(r"^:?(?P<name>[^,]+),.*?\bsizes = (?P<sizes>\[[\[\]\d, ]*\])")
_PROCESS = ~0xFFFFFF  # a thread's global id with its last 24 bits cleared is its process's
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


@define
class _Range:
    """An NVTX range of an operator with sizes, and the kernels that were launched in it."""

    end: int
    text: str
    seconds: float = 0.0
    main: tuple[float, str] = (0.0, "")
    device: str = ""
    kernels: int = 0


@define
class _Database:
    """An open data base: the columns of its tables, and the names of its devices."""

    connection: sqlite3.Connection
    tables: dict[str, set[str]] = field(factory=dict)
    devices: dict[int, str] = field(factory=dict)

    def has(self, table: str, *columns: str) -> bool:
        """Whether there is such a table with these columns."""
        return table in self.tables and set(columns) <= self.tables[table]

    def device(self, index: object) -> str:
        """The name of a device."""
        return self.devices.get(index if isinstance(index, int) else -1, "unnamed GPU")


def sqlite_rows(path: Path) -> Iterator[TraceRow | Unread]:
    """Rows of the kernels, then of the transfers.

    Errors: UserError for a damaged file, one without kernels and transfers, and times that no measurement can be.
    """
    try:
        # immutable: no lock and no journal is made beside the file
        address = f"file:{quote(str(path.resolve()))}?mode=ro&immutable=1"
        with closing(sqlite3.connect(address, uri=True)) as connection:
            connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            base = _opened(connection)
            if not base.has(_KERNELS, "start", "end") and not base.has("CUPTI_ACTIVITY_KIND_MEMCPY", "start", "end"):
                raise UserError(
                    f"{path.name} is a data base without GPU kernels or transfers of Nsight Systems; "
                    "profile with --trace=cuda and export with `nsys export --type sqlite`"
                )
            skipped: Counter[tuple[str, str]] = Counter()
            yield from _all_rows(base, skipped)
            for (what, why), count in skipped.items():
                yield Unread(what, why, count)
    except (sqlite3.Error, OverflowError) as error:
        raise UserError(f"{path.name} can't be read as a data base of Nsight Systems: {error}") from None
    except UserError as error:
        raise error if path.name in str(error) else UserError(f"{path.name}: {error}") from None


def _all_rows(base: _Database, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    if base.has(_KERNELS, "start", "end"):
        yield from _kernel_rows(base, skipped)
    if base.has("CUPTI_ACTIVITY_KIND_MEMCPY", "start", "end", "bytes", "copyKind"):
        yield from _copy_rows(base, skipped)


def _opened(connection: sqlite3.Connection) -> _Database:
    base = _Database(connection)
    names = [
        str(name) for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")
    ]
    for name in names:
        quoted = name.replace('"', '""')
        base.tables[name] = {str(row[1]) for row in connection.execute(f'PRAGMA table_info("{quoted}")')}
    if base.has("TARGET_INFO_GPU", "id", "name"):
        found = connection.execute("SELECT id, name FROM TARGET_INFO_GPU")
        gpus = {number: str(name) for number, name in found if isinstance(number, int)}
        base.devices = dict(gpus)
        if base.has("TARGET_INFO_CUDA_DEVICE", "gpuId", "cudaId"):  # CUDA_VISIBLE_DEVICES renumbers
            for gpu, cuda in connection.execute("SELECT gpuId, cudaId FROM TARGET_INFO_CUDA_DEVICE"):
                if gpu in gpus and isinstance(cuda, int):
                    base.devices[cuda] = gpus[gpu]
    return base


def _kernel_rows(base: _Database, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    """Kernels by the thread that launched them and in its order, so that those of one operator are together."""
    linked = (
        base.has(_KERNELS, "correlationId")
        and base.has("CUPTI_ACTIVITY_KIND_RUNTIME", "start", "correlationId", "globalTid")
        and base.has("NVTX_EVENTS", "start", "end", "text", "globalTid")
    )
    columns = base.tables[_KERNELS]
    name = next((column for column in ("demangledName", "shortName", "mangledName", "name") if column in columns), "")
    named = f"(SELECT value FROM StringIds WHERE id = k.{name})" if name and base.has("StringIds", "value") else "NULL"
    extents = [column for column in ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ") if column in columns]
    device = "k.deviceId" if "deviceId" in columns else "0"
    fields = ", ".join(["k.start", "k.end", device, named, *(f"k.{column}" for column in extents)])
    if linked:
        process = f"AND k.globalPid = (r.globalTid & {_PROCESS})" if "globalPid" in columns else ""
        query = (
            f"SELECT r.globalTid, r.start, {fields} FROM {_KERNELS} AS k LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS r "
            f"ON r.correlationId = k.correlationId {process} ORDER BY r.globalTid, r.start"
        )
    else:
        query = f"SELECT NULL, NULL, {fields} FROM {_KERNELS} AS k ORDER BY k.start"
    ranges = _Ranges(base, linked)
    for thread, launched, start, end, index, text, *sizes in base.connection.execute(query):
        seconds = (end - start) / 1e9 if isinstance(start, int) and isinstance(end, int) else float("nan")
        for done in ranges.until(thread, launched):
            yield from _operator_row(done, skipped)
        kernel = str(text) if text is not None else "unnamed kernel"
        inner = ranges.innermost()
        if inner is None:
            shape = {
                f"{column[:-1]}_{column[-1].lower()}": size
                for column, size in zip(extents, sizes, strict=True)
                if isinstance(size, int)
            }
            yield kernel_row(kernel, shape, seconds, base.device(index), 0, {})
            continue
        if not seconds > 0:
            raise UserError(f"kernel {kernel[:60]!r} took {seconds:g} s; a positive time is expected")
        inner.seconds += seconds
        inner.kernels += 1
        inner.main = max(inner.main, (seconds, kernel))
        inner.device = base.device(index)
    for done in ranges.rest():
        yield from _operator_row(done, skipped)


class _Ranges:
    """The NVTX ranges with sizes that are open while one walks along the launches of one thread after the other."""

    def __init__(self, base: _Database, linked: bool) -> None:
        self._open: list[_Range] = []
        self._next: tuple[int, int, int, str] | None = None
        self._thread: int | None = None
        self._rows: Iterator[tuple[object, object, object, object]] = iter(())
        if linked:
            text = "n.text"
            if base.has("NVTX_EVENTS", "textId") and base.has("StringIds", "id", "value"):
                text = "COALESCE(n.text, (SELECT value FROM StringIds WHERE id = n.textId))"
            self._rows = base.connection.execute(
                f"SELECT n.globalTid, n.start, n.end, {text} AS t FROM NVTX_EVENTS AS n "
                "WHERE n.end IS NOT NULL AND t LIKE '%, sizes = [%' ORDER BY n.globalTid, n.start, n.end DESC"
            )
            self._read()

    def _read(self) -> None:
        for thread, start, end, text in self._rows:
            if isinstance(thread, int) and isinstance(start, int) and isinstance(end, int):
                self._next = (thread, start, end, str(text))
                return
        self._next = None

    def until(self, thread: object, moment: object) -> list[_Range]:
        """Walks on to ``moment`` of ``thread``; the ranges that ended on the way."""
        if not isinstance(thread, int) or not isinstance(moment, int):
            return self.rest()
        done: list[_Range] = []
        if thread != self._thread:
            done, self._thread = self.rest(), thread
        while self._next is not None and (self._next[0], self._next[1]) <= (thread, moment):
            _, start, end, text = self._next
            if self._next[0] == thread:
                done += self._close(start)
                self._open.append(_Range(end, text))
            self._read()
        return done + self._close(moment)

    def _close(self, moment: int) -> list[_Range]:
        done = []
        while self._open and self._open[-1].end < moment:
            done.append(self._open.pop())
        return done

    def innermost(self) -> _Range | None:
        """The innermost open range."""
        return self._open[-1] if self._open else None

    def rest(self) -> list[_Range]:
        """All that are open, closed."""
        done, self._open = self._open[::-1], []
        return done


def _operator_row(done: _Range, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    """The row of an operator that launched kernels."""
    if not done.kernels:
        return
    kernel = done.main[1]
    call = _call(done.text, kernel)
    try:
        found = meaning(call) if call and is_known(call.name) else None
    except Unclear as error:
        skipped[call.name if call else done.text[:60], str(error)] += 1
        return
    facts = {"kernel": kernel[:200], "kernels": str(done.kernels), "operator": call.name if call else done.text[:60]}
    if found is None:
        name = call.name if call else done.text[:60]
        yield TraceRow(name, {}, "", done.device, done.seconds, OPERATOR, source=library(kernel), facts=facts)
        return
    number = found.format or (element_format(kernel) or ("fp32", 4))[0]
    yield TraceRow(
        found.kernel, found.shape, number, done.device, done.seconds, OPERATOR, source=library(kernel), facts=facts
    )


def _call(text: str, kernel: str) -> Call | None:
    """The operator and the sizes in an NVTX range; the number format is what its main kernel's name tells.

    >>> _call("aten::mm, op_id = 7, sizes = [[4, 8], [8, 2]], input_op_ids = [(5,0), (6,0)]", "ampere_sgemm_32x32").dims
    ((4, 8), (8, 2))
    """
    found = _SIZES.match(text)
    if not found:
        return None
    typed = element_format(kernel)
    number = format_by_name(kernel) or (typed[0] if typed else "")
    return Call(found["name"].strip(), _lists(found["sizes"]), (), (), number)


def _lists(text: str) -> tuple[object, ...]:
    """Lists of whole numbers, as the brackets nest them."""
    stack: list[list[object]] = [[]]
    for mark in re.findall(r"\[|\]|\d{1,15}", text):
        if mark == "[":
            stack.append([])
        elif mark == "]":
            if len(stack) < 2:
                return ()
            inner = tuple(stack.pop())
            stack[-1].append(inner)
        else:
            stack[-1].append(int(mark))
    outer = stack[0][0] if len(stack) == 1 and stack[0] else ()
    return outer if isinstance(outer, tuple) else ()


def _copy_rows(base: _Database, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    device = "deviceId" if base.has("CUPTI_ACTIVITY_KIND_MEMCPY", "deviceId") else "0"
    query = f"SELECT start, end, {device}, bytes, copyKind FROM CUPTI_ACTIVITY_KIND_MEMCPY ORDER BY start"
    for start, end, index, amount, kind in base.connection.execute(query):
        name = f"memcpy {COPY_KINDS.get(kind, f'of kind {kind}')}"
        if not isinstance(amount, int) or amount <= 0:
            skipped[name, "no bytes"] += 1
            continue
        seconds = (end - start) / 1e9 if isinstance(start, int) and isinstance(end, int) else float("nan")
        yield transfer_row(name, amount, seconds, base.device(index), 0, {})
