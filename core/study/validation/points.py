"""Measured points from files: CSV files with documented columns, and whatever the installed trace readers know.

Floor: study. Standard library. A CSV file is of one of four forms, told apart by its columns; other columns are kept
for ``--filter`` and ``--group-by``, and a blank cell means that the value is not known.

==========  =====================================================  ==================================================
form        columns it must have                                   columns it may have
==========  =====================================================  ==================================================
training    model gpus gpu_type metric value                       layers hidden heads kv_heads ffn vocab seq tp pp dp
                                                                   cp ep interleave micro_batch global_batch recompute
                                                                   seq_parallel zero_stage precision
serving     model system concurrency input_len output_len,         mode devices engine precision tp pp dp ep
            ttft_ms or tpot_ms
inference   model gpu_type batch_or_concurrency metric value       num_gpus engine precision tp pp dp ep input_len
                                                                   output_len
offload     layers hidden heads seq gbs mbs iter_ms                tp dp cpu_ratio step_ms tflops
==========  =====================================================  ==================================================

All may have ``id``, ``source`` and ``notes``. Metrics of the training form: iter_time_s [s], tflops_per_gpu
[TFLOP/s; model FLOPs unless the notes say that they count recomputation or are hardware FLOPs], tokens_per_s_per_gpu,
mfu [1], mem_gb_per_gpu [GiB, as drivers and frameworks count], oom [0 or 1]. Of the inference form: ttft_ms, tpot_ms,
output_tok_s, total_tok_s (prompts counted too), tok_s_per_gpu, prefill_tok_s, kv_capacity_tokens,
kv_cache_gib_per_gpu.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, TypeAlias

from attrs import field, frozen

from ...errors import UserError, nearest, shown
from ...records.measured import MeasuredPoint

if TYPE_CHECKING:
    from ...host.host import Host

GIB = 2.0**30

Figures: TypeAlias = Callable[[Mapping[str, str]], "list[tuple[str, str, float, bool]]"]
"""A row → its figures: column, metric, factor to SI, and whether the value is one device's of a figure of all."""

# Column → (metric, factor to SI, whether the value is one device's of a figure of all devices).
TRAINING_METRICS = {
    "iter_time_s": ("iteration", 1.0, False),
    "tflops_per_gpu": ("tflops", 1e12, False),
    "tokens_per_s_per_gpu": ("tokens_per_s", 1.0, True),
    "tokens_per_s": ("tokens_per_s", 1.0, False),
    "mfu": ("mfu", 1.0, False),
    "mem_gb_per_gpu": ("memory", GIB, False),
    "oom": ("oom", 1.0, False),
}
INFERENCE_METRICS = {
    "ttft_ms": ("ttft", 1e-3, False),
    "tpot_ms": ("tpot", 1e-3, False),
    "output_tok_s": ("throughput", 1.0, False),
    "total_tok_s": ("throughput", 1.0, False),
    "tok_s_per_gpu": ("throughput", 1.0, True),
    "prefill_tok_s": ("throughput", 1.0, False),
    "kv_capacity_tokens": ("kv_capacity", 1.0, False),
    "kv_cache_gib_per_gpu": ("kv_bytes", GIB, False),
    "max_concurrency": ("max_concurrency", 1.0, False),
    "latency_s": ("latency", 1.0, False),
}
SETTINGS = {
    "gpus": "devices", "num_gpus": "devices", "devices": "devices", "seq": "sequence", "gbs": "global_batch",
    "mbs": "micro_batch", "seq_parallel": "sequence_parallel", "zero_stage": "zero", "input_len": "input_tokens",
    "output_len": "output_tokens", "batch_or_concurrency": "concurrency",
    **{name: name for name in (
        "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "tp", "pp", "dp", "cp", "ep", "interleave",
        "micro_batch", "global_batch", "recompute", "precision", "concurrency", "engine", "mode", "cpu_ratio",
    )},
}  # fmt: skip


@frozen
class Form:
    """One form of CSV file: what it must have (groups of which one is enough), and how a row becomes points."""

    name: str
    task: str
    must: tuple[tuple[str, ...], ...]
    device: str
    figures: Figures


@frozen
class Passed:
    """Something in a file that makes no point to predict: ``name`` of the row, ``metric``, ``reason``, how many."""

    name: str
    metric: str
    reason: str
    source: str = ""
    count: int = 1


@frozen
class Points:
    """What the files hold: measured points and what was passed over."""

    points: tuple[MeasuredPoint, ...]
    passed: tuple[Passed, ...] = field(default=())


def _one(metrics: Mapping[str, tuple[str, float, bool]]) -> Figures:
    def figures(row: Mapping[str, str]) -> list[tuple[str, str, float, bool]]:
        wanted = row["metric"]
        if wanted not in metrics:
            near = nearest(wanted, metrics, limit=1)
            hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(metrics)}"
            raise UserError(f"unknown metric {shown(wanted)}{hint}")
        metric, factor, each = metrics[wanted]
        return [("value", metric, factor, each)]

    return figures


def _columns(*figures: tuple[str, str, float]) -> Figures:
    return lambda row: [(column, metric, factor, False) for column, metric, factor in figures if column in row]


FORMS: tuple[Form, ...] = (
    Form("training", "train", (("model",), ("gpus",), ("gpu_type",), ("metric",), ("value",)), "gpu_type",
         _one(TRAINING_METRICS)),
    Form("serving", "serve", (("model",), ("system",), ("concurrency",), ("input_len",), ("output_len",),
                              ("ttft_ms", "tpot_ms")), "system",
         _columns(("ttft_ms", "ttft", 1e-3), ("tpot_ms", "tpot", 1e-3))),
    Form("inference", "serve", (("model",), ("gpu_type",), ("batch_or_concurrency",), ("metric",), ("value",)),
         "gpu_type", _one(INFERENCE_METRICS)),
    Form("offload", "train", (("layers",), ("hidden",), ("heads",), ("seq",), ("gbs",), ("mbs",), ("iter_ms",)),
         "gpu_type", _columns(("iter_ms", "iteration", 1e-3), ("step_ms", "step", 1e-3), ("tflops", "tflops", 1e12))),
)  # fmt: skip


def read_files(paths: Iterable[Path], host: Host) -> Points:
    """The points of all files, in their order.

    Errors: UserError that names file and line for a file that is no measured file, has no rows, or holds a value that
    is no positive finite number.
    """
    points: list[MeasuredPoint] = []
    passed: list[Passed] = []
    for path in paths:
        found = read_file(path, host)
        points += found.points
        passed += found.passed
    return Points(tuple(points), tuple(passed))


def read_file(path: Path, host: Host) -> Points:
    """The points of one file: a CSV file of a known form, else a file that an installed trace reader knows."""
    header, form, complaint = _form_of(path)
    if form is not None:
        return _read_csv(path, header, form)
    from ...model.interfaces.trace_reader import Unread, reader_for

    readers = list(host.trace_readers().values())
    try:
        reader = reader_for(path, readers)
    except UserError as error:
        told = complaint if "lacks the columns" in complaint else f"{complaint}; {error}"
        raise UserError(f"{path}: {told}") from None
    points: list[MeasuredPoint] = []
    passed: list[Passed] = []
    kernels = 0
    for row in reader.rows(path):
        if isinstance(row, MeasuredPoint):
            points.append(row)
        elif isinstance(row, Unread):
            passed.append(Passed(f"{path.name}:{row.line}" if row.line else path.name, row.what, row.why, path.stem,
                                 row.count))  # fmt: skip
        else:
            kernels += 1
    if not points:
        what = f"{kernels:,} times of kernels, which calibration reads" if kernels else "nothing measured"
        raise UserError(f"{path}: holds {what}; validation takes figures of whole runs")
    return Points(tuple(points), tuple(passed))


def _form_of(path: Path) -> tuple[list[str], Form | None, str]:
    """The header of a CSV file and the form it has; else what is wrong with it, in words."""
    try:
        with _opened(path) as lines:
            header = [name.strip() for name in next(csv.reader(lines), [])]
    except OSError as error:
        raise UserError(f"{path}: can't be read: {error.strerror or error}") from None
    except csv.Error:
        header = ["\0"]
    if not all(_is_text(name) for name in header):
        return [], None, "is no text"
    if not header:
        return [], None, "is empty"
    fits = [form for form in FORMS if all(any(c in header for c in group) for group in form.must)]
    if fits:
        twice = [name for name in set(header) if name and header.count(name) > 1]
        if twice:
            raise UserError(f"{path}, line 1: column {shown(twice[0])} stands twice")
        return header, fits[0], ""
    form = max(FORMS, key=lambda form: sum(any(c in header for c in group) for group in form.must))
    lacks = [" or ".join(group) for group in form.must if not any(c in header for c in group)]
    if len(lacks) == len(form.must):
        known = "; ".join(f"{f.name}: {', '.join(' or '.join(g) for g in f.must)}" for f in FORMS)
        return header, None, f"line 1: no form of measured points has these columns ({known})"
    return header, None, f"line 1: a {form.name} file lacks the columns {', '.join(lacks)}"


def _read_csv(path: Path, header: Sequence[str], form: Form) -> Points:
    points: list[MeasuredPoint] = []
    passed: list[Passed] = []
    rows = 0
    for line, cells in _lines(path):
        if len(cells) != len(header):
            raise UserError(f"{path}, line {line}: {len(cells)} cells under {len(header)} columns")
        row = {name: cell.strip() for name, cell in zip(header, cells, strict=True) if name}
        rows += 1
        row.setdefault("id", "")
        row["id"] = row["id"] or row.get("folder", "") or f"line {line}"
        if form.name == "offload":
            row["id"] += f":{line}"
        try:
            for column, metric, factor, each in form.figures(row):
                if row[column] == "":
                    passed.append(Passed(row["id"], metric, f"{column} is blank", source_of(row, path.stem)))
                    continue
                points.append(_point(row, form, column, metric, factor, each, path, line))
        except UserError as error:
            raise UserError(f"{path}, line {line}: {str(error).removeprefix(f'line {line}: ')}") from None
    if not rows:
        raise UserError(f"{path}: has a header and no rows")
    return Points(tuple(points), tuple(passed))


def _opened(path: Path) -> TextIO:
    # Bytes that are no UTF-8 come through as they are, so that the line they are on can be named.
    return path.open(encoding="utf-8-sig", errors="surrogateescape", newline="")


def _is_text(cell: str) -> bool:
    return "\0" not in cell and not any("\udc80" <= letter <= "\udcff" for letter in cell)


def _lines(path: Path) -> Iterator[tuple[int, list[str]]]:
    with _opened(path) as lines:
        reader = csv.reader(lines)
        try:
            next(reader)
            for cells in reader:
                if not all(_is_text(cell) for cell in cells):
                    raise UserError(f"{path}, line {reader.line_num}: not UTF-8 text")
                if any(cell.strip() for cell in cells):
                    yield reader.line_num, cells
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: {error}") from None


def _point(
    row: Mapping[str, str], form: Form, column: str, metric: str, factor: float, each: bool, path: Path, line: int
) -> MeasuredPoint:
    setting: dict[str, float | str] = {"task": form.task}
    for name, cell in row.items():
        if name in SETTINGS and cell:
            setting[SETTINGS[name]] = as_number(cell)
    setting.setdefault("devices", 1)
    value = _value(row[column], column)
    if each:
        devices = setting["devices"]
        value *= devices if isinstance(devices, float | int) else 1.0
    facts = {**row, "form": form.name, "file": path.name}
    return MeasuredPoint(metric, value * factor, setting, row.get("model", ""), row.get(form.device, ""),
                         source_of(row, path.stem), line, row.get("notes", ""), facts)  # fmt: skip


def as_number(cell: str) -> float | str:
    """A cell as a number where it is one; other text stays, for whoever needs a number there to say so."""
    try:
        number = float(cell)
    except ValueError:
        return cell
    if not math.isfinite(number):
        return cell
    return int(number) if number == int(number) and abs(number) < 2**53 else number


def _value(cell: str, column: str) -> float:
    try:
        value = float(cell)
    except ValueError:
        raise UserError(f"{column} is {shown(cell)}; a number is expected") from None
    if not math.isfinite(value):
        raise UserError(f"{column} is {shown(cell)}; a finite number is expected")
    return value


def source_of(row: Mapping[str, str], stem: str) -> str:
    """Whose measurement a row is: what its id begins with where a number ends it, else its source, else the file.

    >>> source_of({"id": "BLOOM-017", "source": "a chronicle, line 512"}, "points")
    'BLOOM'
    """
    if not row.get("source"):
        return stem
    match = re.fullmatch(r"(.+?)[-_]\d+[a-z]?", row["id"])
    return match[1] if match else row["source"]
