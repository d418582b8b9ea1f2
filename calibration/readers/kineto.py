"""Traces of the PyTorch profiler (Kineto's chrome trace, ``.json`` or ``.json.gz``), of a GPU or of the CPU alone.

Record with ``torch.profiler.profile(record_shapes=True)`` and ``export_chrome_trace``. All kernels that one operator
launched make one row; kernels without an operator (CUDA graphs) keep their own names. Without kernels the operators'
own times on the CPU are read. Memory grows by some 40 bytes an event and with the number of different calls.

Calibration. Source of the event fields: PyTorch's Kineto output (torch/csrc/profiler, libkineto output_json).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread

from .collectives import collective_row
from .kernel_names import element_format, library, works_in_tf32
from .kineto_events import Events, gather
from .operators import COMPOSITE, MOVES, WRAPPER, Meaning, is_known, meaning
from .operators_call import Call, Unclear
from .trace_json import inflated

GPU = "PyTorch profiler, time of the GPU kernels of one operator"
CPU = "PyTorch profiler, time of one operator on the CPU"
COPIES = {
    "HtoD": "host_to_device",
    "DtoH": "device_to_host",
    "DtoD": "memory_copy",
    "HostToDevice": "host_to_device",
    "DeviceToHost": "device_to_host",
    "DeviceToDevice": "memory_copy",
}


class Kineto(TraceReader):
    """Reads what ``torch.profiler.profile.export_chrome_trace`` writes."""

    name = "pytorch-profiler"

    def sniff(self, path: Path, head: bytes) -> bool:
        text = inflated(head).lstrip()
        if text.startswith(b"["):
            return b'"ph"' in text and b'"cat"' in text
        marks = (b'"schemaVersion"', b'"deviceProperties"', b'"baseTimeNanoseconds"', b'"distributedInfo"')
        return text.startswith(b"{") and (b'"traceEvents"' in text or sum(mark in text for mark in marks) > 1)

    def rows(self, path: Path) -> Iterator[TraceRow | Unread]:
        events = gather(path)
        if not events.count:
            raise UserError(f"{path.name} holds no events; was anything run between the profiler's start and stop?")
        skipped: Counter[tuple[str, str]] = Counter()
        if len(events.name):
            yield from _gpu_rows(events, skipped)
        elif len(events.op_call):
            yield from _cpu_rows(events, skipped)
        else:
            raise UserError(f"{path.name} holds {events.count} events and none is an operator or a kernel")
        for category, count in events.other.items():
            skipped[f"events of category {category}", "not a kernel or an operator"] += count
        for (what, why), count in sorted(skipped.items()):
            yield Unread(what, why, count)


@hookimpl
def slipstick_trace_readers() -> Sequence[TraceReader]:
    """The reader of PyTorch profiler traces."""
    return [Kineto()]


# --- on a GPU -----------------------------------------------------------------------------------------------------


def _gpu_rows(events: Events, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    """Rows in the order in which the first kernel of each stands in the file."""
    import numpy as np

    count = len(events.name)
    correlation = np.frombuffer(events.correlation, dtype=np.int64)
    _, first, copies = np.unique(correlation, return_inverse=True, return_counts=True)
    # One launch makes one kernel; several with one correlation are those of a graph, whose operators aren't recorded.
    replayed = (copies[first] > 1) & (correlation > 0)
    owner = np.full(count, -1, dtype=np.int64)
    for place in range(count):
        if not replayed[place] and events.correlation[place] not in events.graphs:
            owner[place] = _operator(events, place)
    meanings: dict[int, Meaning | str | None] = {}
    order = np.argsort(owner, kind="stable")  # kernels of one operator side by side, in the order of the file
    begins = np.flatnonzero(np.diff(owner[order], prepend=-2))
    ends = np.append(begins[1:], count)
    leads = np.full(count, -1, dtype=np.int64)  # first kernel of an operator → where its kernels are in ``order``
    leads[order[begins]] = np.arange(len(begins))
    for place in range(count):
        if owner[place] < 0:
            yield from _kernel_row(events, place, skipped)
        elif (group := leads[place]) >= 0:
            parts = order[begins[group] : ends[group]].tolist()
            yield from _operator_row(events, parts, events.call_of.get(int(owner[place])), meanings, skipped)


def _operator(events: Events, place: int) -> int:
    """External id of the operator that launched the kernel, -1 where that isn't known or the kernel is no operator's
    (a transfer or a collective, which say themselves what they move)."""
    extra = events.extra[place]
    if extra >= 0 and ("bytes" in events.extras[extra] or "Collective name" in events.extras[extra]):
        return -1
    external = events.external[place]
    if external < 0 or events.call_of.get(external) < 0:
        external = events.launch_of.get(events.correlation[place])
    return external if external >= 0 and events.call_of.get(external) >= 0 else -1


def _operator_row(
    events: Events,
    parts: list[int],
    number: int,
    meanings: dict[int, Meaning | str | None],
    skipped: Counter[tuple[str, str]],
) -> Iterator[TraceRow]:
    call = events.calls[number]
    main = max(parts, key=lambda place: events.seconds[place])
    kernel = events.names.texts[events.name[main]]
    seconds = sum(events.seconds[place] for place in parts)
    if "nccl" in kernel.lower() or "rccl" in kernel.lower():
        skipped["collective " + kernel[:60], "its size isn't recorded (torch 2.2 and later record it)"] += len(parts)
        return
    if number not in meanings:
        meanings[number] = _meaning(call)
    found = meanings[number]
    if isinstance(found, str):
        skipped[call.name, found] += 1
        return
    facts = {"operator": call.name, "kernel": kernel[:200], "kernels": str(len(parts))}
    device, line = events.device_name(events.device[main]), events.line[parts[0]]
    if found is None:
        shape, number_name = _amount(call)
        name = call.name or kernel
        yield TraceRow(name, shape, number_name, device, seconds, GPU, source=library(kernel), line=line, facts=facts)
        return
    shown_format = found.format
    if shown_format == "fp32" and found.kernel in ("gemm", "batched_gemm") and works_in_tf32(kernel):
        shown_format = "tf32"
    facts.update(found.facts)
    if not shown_format:
        typed = element_format(kernel)
        shown_format = typed[0] if typed else _assumed(facts)
    yield TraceRow(
        found.kernel, found.shape, shown_format, device, seconds, GPU, source=library(kernel), line=line, facts=facts
    )


def _kernel_row(events: Events, place: int, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    """A kernel that no operator is known for: a transfer, a collective, one of a graph."""
    kernel, seconds = events.names.texts[events.name[place]], events.seconds[place]
    device, line = events.device_name(events.device[place]), events.line[place]
    extra = events.extras[events.extra[place]] if events.extra[place] >= 0 else {}
    if kernel.startswith(("Memcpy", "Memset", "hipMemcpy", "CopyHost", "CopyDevice")):
        amount = extra.get("bytes")
        if not isinstance(amount, int | float) or amount <= 0:
            skipped[kernel, "how many bytes isn't recorded"] += 1
            return
        yield _copy_row(kernel, float(amount), seconds, device, line)
    elif "Collective name" in extra:
        found = collective_row(extra, kernel, seconds, device, line)
        if isinstance(found, str):
            skipped[f"collective {extra['Collective name']}", found] += 1
        else:
            yield found
    elif "nccl" in kernel.lower() or "rccl" in kernel.lower():
        skipped["collective " + kernel[:60], "its size isn't recorded (torch 2.2 and later record it)"] += 1
    else:
        measured = "PyTorch profiler, time of one GPU kernel"
        yield TraceRow(kernel or "unnamed kernel", {}, "", device, seconds, measured, source=library(kernel), line=line)


def _copy_row(kernel: str, amount: float, seconds: float, device: str, line: int) -> TraceRow:
    """``amount`` [B] that was moved; a copy on the device reads and writes it."""
    kind = next((kind for mark, kind in COPIES.items() if mark in kernel), kernel.split(" (")[0])
    moved = 2 * amount if kind == "memory_copy" else amount
    facts = {"kernel": kernel}
    if "Pinned" in kernel or "Pageable" in kernel:
        facts["host memory"] = "pinned" if "Pinned" in kernel else "pageable"
    measured = "PyTorch profiler, time of one transfer"
    return TraceRow(kind, {"bytes": moved}, "", device, seconds, measured, source="CUDA", line=line, facts=facts)


# --- on the CPU ---------------------------------------------------------------------------------------------------


def _cpu_rows(events: Events, skipped: Counter[tuple[str, str]]) -> Iterator[TraceRow]:
    """One row for each operator that is not part of another one of a known kind; time is counted once."""
    import numpy as np

    start = np.frombuffer(events.op_start, dtype=np.float64)
    length = np.frombuffer(events.op_length, dtype=np.float64)
    thread = np.frombuffer(events.op_thread, dtype=np.int32)
    order = np.lexsort((-length, start, thread)).tolist()
    meanings: dict[int, Meaning | str | None] = {}
    inside: list[list[float]] = []  # [end, thread, place, whether it is a row, whether a row or other work lies inside]
    rows: list[int] = []
    moves: Counter[str] = Counter()
    wrappers: Counter[str] = Counter()

    def close(entry: list[float]) -> None:
        place = int(entry[2])
        name = events.calls[events.op_call[place]].name
        if name in MOVES:
            moves[name] += 1
        elif entry[3] or not (entry[4] or WRAPPER.match(name)):
            rows.append(place)
        else:
            wrappers[name.split(": ")[0]] += 1

    for place in order:
        begin, on = events.op_start[place], events.op_thread[place]
        while inside and (inside[-1][1] != on or inside[-1][0] <= begin):
            close(inside.pop())
        if inside and inside[-1][3]:
            continue  # part of an operator whose whole time is a row
        name = events.calls[events.op_call[place]].name
        whole = is_known(name) and name not in COMPOSITE
        if name not in MOVES and not WRAPPER.match(name):
            for outer in inside:
                outer[4] = 1
        inside.append([begin + events.op_length[place], on, place, float(whole), 0.0])
    while inside:
        close(inside.pop())
    for name, count in moves.items():
        skipped[name, "makes a view or allocates; no kernel"] += count
    for name, count in wrappers.items():
        skipped[name, "its time is that of the operators inside it"] += count
    for place in sorted(rows, key=events.op_line.__getitem__):
        yield from _cpu_row(events, place, meanings, skipped)


def _cpu_row(
    events: Events, place: int, meanings: dict[int, Meaning | str | None], skipped: Counter[tuple[str, str]]
) -> Iterator[TraceRow]:
    number = events.op_call[place]
    call = events.calls[number]
    if number not in meanings:
        meanings[number] = _meaning(call)
    found = meanings[number]
    if isinstance(found, str):
        skipped[call.name, found] += 1
        return
    seconds, line = events.op_length[place] / 1e6, events.op_line[place]
    if seconds <= 0:
        skipped[call.name, "shorter than the profiler's clock"] += 1
        return
    source = "oneDNN" if "mkldnn" in call.name else "ATen" if call.name.startswith("aten::") else ""
    facts = {"operator": call.name}
    if found is None:
        shape, number_name = _amount(call)
        yield TraceRow(call.name or "unnamed", shape, number_name, "cpu", seconds, CPU, source=source, line=line)
        return
    facts.update(found.facts)
    shown_format = found.format or _assumed(facts)
    yield TraceRow(found.kernel, found.shape, shown_format, "cpu", seconds, CPU, source=source, line=line, facts=facts)


def _assumed(facts: dict[str, str]) -> str:
    """The number format of a list of tensors, whose type no profiler records."""
    facts["number format"] = "not recorded, taken as fp32"
    return "fp32"


def _meaning(call: Call) -> Meaning | str | None:
    try:
        return meaning(call)
    except Unclear as error:
        return str(error)


def _amount(call: Call) -> tuple[Mapping[str, float], str]:
    """For an operator of no known kind: bytes and elements of its inputs, where they are recorded, and their format."""
    try:
        arrays = call.arrays()
    except Unclear:
        return {}, ""
    if not arrays:
        return {}, ""
    largest = max(arrays, key=lambda array: array.bytes)
    return {"bytes": sum(array.bytes for array in arrays), "elements": largest.elements}, largest.format
