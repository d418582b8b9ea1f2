"""Output of NVIDIA's nccl-tests (and AMD's rccl-tests): all_reduce_perf, all_gather_perf, reduce_scatter_perf,
alltoall_perf and sendrecv_perf.

The column ``size`` is the whole tensor for every test: the gathered result of all-gather, the input of reduce-scatter,
what one rank holds for all-to-all, what is sent for send/receive. Source: nccl-tests, doc/PERFORMANCE.md and the
``GetCollByteCount`` of each test.

Calibration.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from attrs import define, field

from slipstick.core.errors import UserError, shown
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread

from .kernel_names import number_format

TESTS = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all": "all_to_all",
    "sendrecv": "send",
}
"""Test → slipstick's kind; a name is looked for in the file's own and in its ``Collective test starting`` line."""

_ONE_WAY = ("all_to_all", "send")  # these tests don't check, and NCCL doesn't support, results in place
_PREFIX = re.compile(r"^(\[[\d,]+\]<std(?:out|err)>: ?|\d+: )")  # mpirun --tag-output, srun --label
_STARTING = re.compile(r"#\s*Collective test starting: (\S+)")
_RANK = re.compile(r"#\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+\d+ on\s+\S+\s+device\s+\d+ \[[^\]]+\]\s*(.*)")
_ITERATIONS = re.compile(r"(warmup |agg |)iters: (\d{1,9})\b")
_CLOCK = re.compile(r"\s+\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\s*$")  # the column of -S 1
_HEADER = re.compile(r"#\s*size\s+count\s+type\b")
_NUMBER = re.compile(r"\s*\d+\s+\d+\s+[A-Za-z]\w*\s")


@define
class _Run:
    """What the lines before the results say of a run."""

    kind: str = ""
    ranks: dict[int, int] = field(factory=dict)
    devices: list[str] = field(factory=list)
    iterations: int = 1
    columns: list[str] = field(factory=list)
    facts: dict[str, str] = field(factory=dict)


class NcclTests(TraceReader):
    """Reads what the programs of nccl-tests print."""

    name = "nccl-tests"

    def sniff(self, path: Path, head: bytes) -> bool:
        text = head.decode("utf-8", errors="replace")
        return bool(
            re.search(r"# nThread \d+ nGpus \d+ minBytes", text)
            or _STARTING.search(text)
            or re.search(r"#\s+size\s+count\s+type\s", text)
        )

    def rows(self, path: Path) -> Iterator[TraceRow | Unread]:
        run, skipped, found = _Run(kind=_kind(path.name)), Counter[tuple[str, str]](), False
        try:
            with path.open(encoding="utf-8", errors="replace") as file:
                for number, written in enumerate(file, start=1):
                    line = _PREFIX.sub("", written.rstrip("\r\n"))
                    if line.startswith("#"):
                        run = _told(line, run, path)
                    elif run.columns and _NUMBER.match(line):
                        found = True
                        yield from _results(line, number, run, path, skipped)
        except OSError as error:
            raise UserError(f"{path.name} can't be read: {error.strerror or error}") from None
        if not found:
            raise UserError(f"{path.name} holds no results of nccl-tests; lines of size, count, type, ... are expected")
        for (what, why), count in skipped.items():
            yield Unread(what, why, count)


@hookimpl
def slipstick_trace_readers() -> Sequence[TraceReader]:
    """The reader of nccl-tests' output."""
    return [NcclTests()]


def _kind(name: str) -> str:
    plain = name.lower().replace("-", "_").replace("allreduce", "all_reduce").replace("allgather", "all_gather")
    plain = plain.replace("reducescatter", "reduce_scatter").replace("send_recv", "sendrecv")
    return next((kind for test, kind in TESTS.items() if test in plain), "")


def _told(line: str, run: _Run, path: Path) -> _Run:
    """The run as known after a comment line; a new test in the same file begins a new one."""
    if starting := _STARTING.match(line):
        kind = _kind(starting[1])
        return _Run(kind=kind or starting[1], facts=dict(run.facts) if not run.columns else {})
    if "nThread" in line and "minBytes" in line:
        if run.columns:
            run = _Run(kind=run.kind)
        counts = {kind: int(count) for kind, count in _ITERATIONS.findall(line)}
        run.iterations = max(counts.get("", 1), 1) * max(counts.get("agg ", 1), 1)
    elif version := re.match(r"# (nccl|rccl)-tests version (\S+)(?:.*nccl-library=(\d+))?", line):
        run.facts[f"{version[1]}-tests"] = version[2]
        if version[3]:
            run.facts["NCCL"] = version[3]
    elif rank := _RANK.match(line):
        group = int(rank[2] or 0)
        run.ranks[group] = run.ranks.get(group, 0) + 1
        if rank[3].strip() and rank[3].strip() not in run.devices:
            run.devices.append(rank[3].strip())
    elif _HEADER.match(line):
        run.columns = [name for name in line[1:].split() if name != "timestamp"]
    return run


def _results(line: str, number: int, run: _Run, path: Path, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    """The row out of place and the row in place."""
    where = f"{path.name}, line {number}"
    if not run.kind:
        raise UserError(
            f"{where}: the file doesn't say which test it is of; "
            f"put the test's name ({', '.join(TESTS)}) in its own name"
        )
    if run.kind not in TESTS.values():
        skipped[run.kind, "no collective of a model's step that slipstick knows"] += 1
        return
    fields = _CLOCK.sub("", line).split()
    first = run.columns.index("time") if "time" in run.columns else len(run.columns)
    results = run.columns[first:]
    if len(fields) < len(results) + 3:
        raise UserError(f"{where} has {len(fields)} fields where {len(run.columns)} are expected; is it cut off?")
    size, type_name = _whole(fields[0], "size", where), fields[2]
    known = number_format(type_name)
    if not run.ranks:
        raise UserError(f"{where}: no line «#  Rank  0 ... device 0 [...]» tells how many took part")
    if size == 0:
        skipped["messages of no bytes", "nothing was sent"] += 1
        return
    tail = fields[len(fields) - len(results) :]
    for place, name in enumerate(results):
        if name != "time":
            continue
        in_place = place > 0
        if in_place and run.kind in _ONE_WAY:
            skipped[f"{run.kind} in place", "the test doesn't support it"] += 1
            continue
        wrong = next((tail[p] for p in range(place, len(results)) if results[p] in ("#wrong", "error")), "0")
        if _is_wrong(wrong):
            skipped[f"{run.kind} with wrong results", "the test found errors in the data"] += 1
            continue
        facts = {**run.facts, "in place": "yes" if in_place else "no"}
        try:
            yield TraceRow(
                run.kind,
                {"bytes": size},
                known[0] if known else type_name,
                " and ".join(run.devices) or "unnamed GPU",
                _number(tail[place], "time", where) / 1e6,
                f"nccl-tests, mean of {run.iterations} iterations",
                ranks=max(run.ranks.values()),
                source="NCCL",
                samples=run.iterations,
                line=number,
                facts=facts,
            )
        except UserError as error:
            raise error if str(error).startswith(path.name) else UserError(f"{path.name}, {error}") from None


def _is_wrong(text: str) -> bool:
    """Whether results were found wrong: a count above 0, or in old versions a relative error of 0.01 and more."""
    try:
        return float(text) >= 0.01
    except ValueError:
        return False  # N/A: not checked


def _number(text: str, name: str, where: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{where}: {name} is {shown(text)}; a number is expected") from None


def _whole(text: str, name: str, where: str) -> int:
    try:
        found = int(text)
    except ValueError:
        raise UserError(f"{where}: {name} is {shown(text)}; a whole number is expected") from None
    if found >= 2**62:
        raise UserError(f"{where}: {name} is {shown(text)}; no message is that large")
    return found
