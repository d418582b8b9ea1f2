"""The CSV of ``nsys stats``: reports of single kernels (cuda_gpu_trace) and of sums (cuda_gpu_kern_sum).

Calibration; used by ``nsys``. Units stand in the names of the columns, (ns) or (MB) and others, and are read there.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from slipstick.core.errors import UserError, shown
from slipstick.core.model.interfaces.trace_reader import TraceRow, Unread

from .kernel_names import library

SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0}
BYTES = {"B": 1, "byte": 1, "bytes": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
COPIES = (
    (re.compile(r"HtoD|Host-to-Device"), "host_to_device"),
    (re.compile(r"DtoH|Device-to-Host"), "device_to_host"),
    (re.compile(r"DtoD|Device-to-Device"), "memory_copy"),
)
_HEADER = re.compile(r"^\"?(Time ?\(%\)|Start ?\(|Total (Time )?\(|#|Row#)")
_UNIT = re.compile(r"^(.*?) ?\(([^)]+)\)$")
_MOST_FIELDS = 64

Columns = dict[str, tuple[int, str]]


def csv_rows(path: Path) -> Iterator[TraceRow | Unread]:
    """Rows of all reports in the file, in its order.

    Errors: UserError that names the line of a row that can't be read.
    """
    skipped: Counter[tuple[str, str]] = Counter()
    columns: Columns = {}
    reports = found = 0
    csv.field_size_limit(1 << 20)  # names of CUTLASS's kernels have thousands of characters
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    columns = {}
                    continue
                if _HEADER.match(line) and (named := _columns(line)):
                    columns, reports = named, reports + 1
                    continue
                if not columns:
                    continue  # what nsys says of its work: «Processing [...] with [...]»
                try:
                    row = _row(line, number, columns, path, skipped)
                except UserError as error:
                    raise error if str(error).startswith(path.name) else UserError(f"{path.name}, {error}") from None
                if row is not None:
                    found += 1
                    yield row
    except OSError as error:
        raise UserError(f"{path.name} can't be read: {error.strerror or error}") from None
    if not reports:
        raise UserError(
            f"{path.name} holds no report of kernels; give `nsys stats --format csv --report cuda_gpu_trace`"
        )
    for (what, why), count in skipped.items():
        yield Unread(what, why, count)
    if not found and not skipped:
        raise UserError(f"{path.name} holds {reports} reports without a row")


def _columns(line: str) -> Columns:
    """Name of a column without its unit → place and unit; empty for a line that names no columns of a report."""
    try:
        names = next(csv.reader([line]))
    except (csv.Error, StopIteration):
        return {}
    columns: Columns = {}
    for place, name in enumerate(names[:_MOST_FIELDS]):
        split = _UNIT.match(name.strip())
        columns[split[1].strip() if split else name.strip()] = (place, split[2] if split else "")
    known = {"Start", "Duration", "Name"} <= set(columns) or {"Name", "Instances"} <= set(columns)
    return columns if known or {"Operation", "Num Calls", "Count", "Range"} & set(columns) else {}


def _row(line: str, number: int, columns: Columns, path: Path, skipped: Counter[tuple[str, str]]) -> TraceRow | None:
    where = f"{path.name}, line {number}"
    try:
        fields = next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration) as error:
        raise UserError(f"{where}: no CSV: {error}") from None
    if len(fields) <= max(place for place, _ in columns.values()):
        raise UserError(f"{where} has {len(fields)} fields where {len(columns)} are expected; is the file cut off?")
    values = {name: fields[place].strip() for name, (place, _) in columns.items()}
    if "Duration" in columns and "Start" in columns:
        return _single(values, columns, where, number, skipped)
    if "Instances" in columns and "Name" in columns and not {"Range", "Style"} & set(columns):
        return _sum(values, columns, where, number, skipped)
    what = next((name for name in ("Operation", "Range", "Num Calls", "Count") if name in columns), "another report")
    skipped[f"a report by {what}", "not one of kernels' times"] += 1
    return None


def _single(
    values: Mapping[str, str], columns: Columns, where: str, number: int, skipped: Counter[tuple[str, str]]
) -> TraceRow | None:
    """One kernel or transfer of cuda_gpu_trace."""
    name = values.get("Name", "")
    seconds = _amount(values, columns, "Duration", SECONDS, where)
    device = re.sub(r" \(\d+\)$", "", values.get("Device", "")) or "unnamed GPU"
    facts = {"stream": values["Strm"]} if values.get("Strm") else {}
    if name.startswith("[CUDA mem"):
        if not values.get("Bytes"):
            skipped[name, "how many bytes isn't told"] += 1
            return None
        amount = _amount(values, columns, "Bytes", BYTES, where)
        if amount <= 0:
            skipped[name, "no bytes, or too few for the unit of the report"] += 1
            return None
        return transfer_row(name, amount, seconds, device, number, facts)
    shape = {}
    for column, extent in GRID.items():
        if values.get(column):
            shape[extent] = _number(values[column], column, where)
    return kernel_row(name, shape, seconds, device, number, facts)


GRID = {
    f"{short}{axis}": f"{what}_{axis.lower()}" for short, what in (("Grd", "grid"), ("Blk", "block")) for axis in "XYZ"
}


def _sum(
    values: Mapping[str, str], columns: Columns, where: str, number: int, skipped: Counter[tuple[str, str]]
) -> TraceRow | None:
    """One line of cuda_gpu_kern_sum: all executions of a kernel, of whatever shapes."""
    name = values["Name"]
    median = next((column for column in ("Med", "Median") if column in columns), "")
    mean = next((column for column in ("Avg", "Average") if column in columns), "")
    if not (median or mean) or name.startswith("[CUDA mem"):
        skipped["a report of sums", "neither median nor mean of a kernel's times"] += 1
        return None
    seconds = _amount(values, columns, median or mean, SECONDS, where)
    spread = _amount(values, columns, "StdDev", SECONDS, where) if values.get("StdDev") else None
    instances = _number(values["Instances"], "Instances", where)
    if not 1 <= instances < 2**53:
        raise UserError(f"{where}: {shown(values['Instances'])} instances; 1 or more are expected")
    shape = {}
    for column, what in (("GridXYZ", "grid"), ("BlockXYZ", "block")):
        extents = values.get(column, "").split()
        if len(extents) == 3:
            shape.update({f"{what}_{axis}": _number(e, column, where) for axis, e in zip("xyz", extents, strict=True)})
    return TraceRow(
        name or "unnamed kernel",
        shape,
        "",
        "unnamed GPU",
        seconds,
        f"Nsight Systems, {'median' if median else 'mean'} of all executions of the kernel, shapes not told",
        source=library(name),
        samples=int(instances),
        spread=spread,
        line=number,
    )


def kernel_row(
    name: str, shape: Mapping[str, float], seconds: float, device: str, line: int, facts: Mapping[str, str]
) -> TraceRow:
    """The row of one kernel without a known operator."""
    measured = "Nsight Systems, time of one GPU kernel"
    name = name or "unnamed kernel"
    return TraceRow(name, shape, "", device, seconds, measured, source=library(name), line=line, facts=facts)


def transfer_row(
    name: str, amount: float, seconds: float, device: str, line: int, facts: Mapping[str, str]
) -> TraceRow:
    """The row of one transfer of ``amount`` [B]; a copy on the device reads and writes it."""
    kind = next((kind for pattern, kind in COPIES if pattern.search(name)), name.strip("[]"))
    moved = {"bytes": 2 * amount if kind == "memory_copy" else amount}
    measured = "Nsight Systems, time of one transfer"
    facts = {"kernel": name, **facts}
    return TraceRow(kind, moved, "", device, seconds, measured, source="CUDA", line=line, facts=facts)


def _amount(values: Mapping[str, str], columns: Columns, name: str, units: Mapping[str, float], where: str) -> float:
    unit = columns[name][1] or ("ns" if units is SECONDS else "B")
    if unit not in units:
        raise UserError(f"{where}: {name} is in {shown(unit)}; one of {', '.join(units)} is expected")
    return _number(values[name], name, where) * units[unit]


def _number(text: str, name: str, where: str) -> float:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        raise UserError(f"{where}: {name} is {shown(text)}; a number is expected") from None
