"""Reader of Vidur's profiling CSV files: mlp.csv, attention.csv and those of collectives.

Calibration. Stands on the core alone.

What the columns hold, from microsoft/vidur, vidur/profiling/: times are milliseconds, rounded to whole microseconds;
everything was run in float16; ``n_embd`` and the heads are those of the whole model, the times those of one of
``num_tensor_parallel_workers`` ranks; ``size`` of a collective is in bytes, of one rank's own buffer. The device is
named by the folder alone: ``compute/<device>/<model>/`` or ``network/<node>/``.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from slipstick.core.errors import UserError, shown
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread

DEVICES = {
    "a100": "a100-sxm-80gb",
    "a100_dgx": "a100-sxm-80gb",
    "a100_pair_nvlink": "a100-pcie-80gb",
    "a100_pairwise_nvlink": "a100-pcie-80gb",
    "a40": "a40",
    "a40_pairwise_nvlink": "a40",
    "h100": "h100-sxm",
    "h100_dgx": "h100-sxm",
    "h100_pair_nvlink": "h100-nvl",
    "h100_pairwise_nvlink": "h100-nvl",
}
"""Folder → accelerator; pairs of NVLink are Azure's NC96ads A100 v4 and H100 NVL.

Source: microsoft/vidur, docs/profiling.md.
"""

WIDTH = 2
"""Bytes of a float16."""

RUNS = {"mlp": 20, "attention": 5, "collective": 3}
"""Executions behind a median: ACTIVE_STEPS of the three profilers."""

Shape = dict[str, float]
Numbers = Mapping[str, float]


def _gemm(n: Callable[[Numbers], float], k: Callable[[Numbers], float]) -> tuple[str, Callable[[Numbers], Shape]]:
    return "gemm", lambda row: {"m": row["num_tokens"], "n": n(row), "k": k(row)}


def _moved(kernel: str, amounts: Callable[[Numbers], tuple[float, float]]) -> tuple[str, Callable[[Numbers], Shape]]:
    def shape(row: Numbers) -> Shape:
        passes, width = amounts(row)  # elements read and written for each result, and results a token
        elements = row["num_tokens"] * width
        return {"bytes": WIDTH * passes * elements, "elements": elements}

    return kernel, shape


def _part(row: Numbers, name: str) -> float:
    return row[name] / row["num_tensor_parallel_workers"]


def _heads(row: Numbers) -> float:
    """Rows of query, key and value together, on one rank."""
    return row["n_embd"] / row["n_head"] * (_part(row, "n_head") + 2 * _part(row, "n_kv_head"))


def _gates(row: Numbers) -> float:
    return 2.0 if row["use_gated_mlp"] else 1.0


MLP: dict[str, tuple[str, Callable[[Numbers], Shape]]] = {
    "attn_pre_proj": _gemm(_heads, lambda row: row["n_embd"]),
    "attn_post_proj": _gemm(lambda row: row["n_embd"], lambda row: _part(row, "n_embd")),
    "mlp_up_proj": _gemm(lambda row: _gates(row) * _part(row, "n_expanded_embd"), lambda row: row["n_embd"]),
    "mlp_down_proj": _gemm(lambda row: row["n_embd"], lambda row: _part(row, "n_expanded_embd")),
    "input_layernorm": _moved("pointwise", lambda row: (2, row["n_embd"])),
    "post_attention_layernorm": _moved("pointwise", lambda row: (2, row["n_embd"])),
    "mlp_act": _moved("pointwise", lambda row: (1 + _gates(row), _part(row, "n_expanded_embd"))),
    "attn_rope": _moved(
        "pointwise",
        lambda row: (2, row["n_embd"] / row["n_head"] * (_part(row, "n_head") + _part(row, "n_kv_head"))),
    ),
    "add": _moved("pointwise", lambda row: (3, row["n_embd"])),
    "emb": _moved("lookup", lambda row: (2, row["n_embd"])),
}
"""Operation of mlp.csv → kernel and its shape. Source: microsoft/vidur, vidur/profiling/mlp/mlp_impl.py."""

COLLECTIVES = {
    "all_reduce": ("all_reduce", False),
    "all_gather": ("all_gather", True),
    "reduce_scatter": ("reduce_scatter", True),
    "send_recv": ("send", False),
}
"""Collective → kernel, and whether the whole tensor is all ranks' buffers together."""


class Vidur(TraceReader):
    """CSV files of Vidur's profiler (``time_stats.<operation>.median`` in ms)."""

    name = "vidur"

    def sniff(self, path: Path, head: bytes) -> bool:
        first = head.splitlines()[0] if head else b""
        return b"time_stats." in first and first.count(b",") >= 5

    def rows(self, path: Path) -> Iterator[TraceRow | Unread]:
        device = _device(path)
        left: Counter[tuple[str, str]] = Counter()
        with path.open(encoding="utf-8", errors="replace", newline="") as file:
            lines = csv.reader(file)
            header = next(lines, [])
            read = _kind(path, header)
            try:
                for values in lines:
                    if not values:
                        continue
                    if len(values) != len(header):
                        raise UserError(
                            f"{path}, line {lines.line_num}: {len(values)} values for {len(header)} columns"
                        )
                    row = dict(zip(header, values, strict=True))
                    try:
                        yield from read(row, device, lines.line_num, left)
                    except UserError as error:
                        told = str(error).removeprefix(f"line {lines.line_num}: ")
                        raise UserError(f"{path}, line {lines.line_num}: {told}") from None
            except csv.Error as error:
                raise UserError(f"{path}, line {lines.line_num}: {error}") from None
            if lines.line_num < 2:
                raise UserError(f"{path} has a head line and no row")
        for (what, why), count in left.items():
            yield Unread(what, why, count)


Left = Counter[tuple[str, str]]
Read = Callable[[Mapping[str, str], str, int, Left], Iterator[TraceRow]]


def _device(path: Path) -> str:
    """The accelerator, from the folders. Errors: UserError where they do not name one."""
    parts = path.absolute().parts[:-1]
    for above in ("compute", "network", "profiling"):
        if above in parts[:-1]:
            folder = parts[len(parts) - parts[::-1].index(above)] if parts[-1] != above else ""
            if folder:
                return DEVICES.get(folder, folder)
    raise UserError(f"{path}: the folder names no device; leave the file in compute/<device>/ or network/<node>/")


def _kind(path: Path, header: list[str]) -> Read:
    timed = any(name.startswith("time_stats.") for name in header)
    for needed, read in (
        (("collective", "num_workers", "size"), _collective),
        (("n_embd", "n_q_head", "n_kv_head", "num_tensor_parallel_workers", "batch_size", "prefill_chunk_size",
          "kv_cache_size", "is_prefill"), _attention),
        (("n_embd", "n_head", "n_kv_head", "n_expanded_embd", "use_gated_mlp", "num_tokens",
          "num_tensor_parallel_workers"), _mlp),
    ):  # fmt: skip
        if timed and set(needed) <= set(header):
            return read
    raise UserError(f"{path} has not the columns of Vidur's mlp.csv, attention.csv or a collective's file")


def _mlp(row: Mapping[str, str], device: str, line: int, left: Left) -> Iterator[TraceRow]:
    numbers = _numbers(row, ("n_embd", "n_head", "n_kv_head", "n_expanded_embd", "num_tokens",
                             "num_tensor_parallel_workers"))  # fmt: skip
    gated = {**numbers, "use_gated_mlp": float(_flag(row, "use_gated_mlp"))}
    facts = {"tp": f"{numbers['num_tensor_parallel_workers']:g}"}
    for operation in _operations(row):
        times = _times(row, operation, left)
        if times is None:
            continue
        if operation not in MLP:
            left[operation, "no such operation is known in mlp.csv"] += 1
            continue
        kernel, shape = MLP[operation]
        yield _row(kernel, shape(gated), device, times, "mlp", line, {"operation": operation, **facts}, row)


def _attention(row: Mapping[str, str], device: str, line: int, left: Left) -> Iterator[TraceRow]:
    numbers = _numbers(row, ("n_embd", "n_q_head", "n_kv_head", "num_tensor_parallel_workers", "batch_size",
                             "prefill_chunk_size", "kv_cache_size"))  # fmt: skip
    if row.get("is_true_mixed_batch", "").strip().lower() == "true":
        left["attention", "prefill and decode in one batch"] += 1
        return
    prefill = _flag(row, "is_prefill")
    workers = numbers["num_tensor_parallel_workers"]
    query = numbers["prefill_chunk_size"] if prefill else 1.0
    head = numbers["n_embd"] / numbers["n_q_head"]
    kv_heads = max(numbers["n_kv_head"] / workers, 1.0)
    shape = {"batch": numbers["batch_size"], "query": query, "context": numbers["kv_cache_size"] + query,
             "heads": numbers["n_q_head"] / workers, "kv_heads": kv_heads, "head_dim": head, "window": 0.0,
             "causal": 1.0}  # fmt: skip
    facts = {"tp": f"{workers:g}", "block_size": row.get("block_size", ""), "kv_format": "fp16"}
    for operation in _operations(row):
        times = _times(row, operation, left)
        if times is None:
            continue
        if operation == ("attn_prefill" if prefill else "attn_decode"):
            yield _row("attention", shape, device, times, "attention", line, facts, row)
        elif operation == "attn_kv_cache_save":
            elements = shape["batch"] * query * 2 * kv_heads * head
            yield _row("pointwise", {"bytes": 2 * WIDTH * elements, "elements": elements}, device, times,
                       "attention", line, {"operation": operation, **facts}, row)  # fmt: skip
        else:
            left[operation, "no kernel that slipstick prices"] += 1


def _collective(row: Mapping[str, str], device: str, line: int, left: Left) -> Iterator[TraceRow]:
    numbers = _numbers(row, ("num_workers", "size"))
    collective = row["collective"].strip()
    if collective not in COLLECTIVES:
        left[collective or "a collective without a name", "no such collective is known"] += 1
        return
    kernel, shared = COLLECTIVES[collective]
    times = _times(row, collective, left)
    if times is None:
        return
    size = numbers["size"] * (numbers["num_workers"] if shared else 1)
    facts = {name: row[name] for name in ("devices_per_node", "max_devices_per_node") if name in row}
    yield _row(kernel, {"bytes": size}, device, times, "collective", line, facts, row, int(numbers["num_workers"]))


def _row(kernel: str, shape: Shape, device: str, times: tuple[float, float | None], kind: str, line: int,
         facts: Mapping[str, str], row: Mapping[str, str], ranks: int = 1) -> TraceRow:  # fmt: skip
    backend = row.get("attention_backend", "").removeprefix("AttentionBackend.") if kernel == "attention" else ""
    source = {"gemm": "torch", "attention": backend}.get(kernel, "NCCL" if kind == "collective" else "")
    method = row.get("profile_method", "").removeprefix("ProfileMethod.").lower()
    return TraceRow(
        kernel, shape, "fp16", device, times[0],
        f"Vidur's profiler{f' ({method})' if method else ''}, median, whole microseconds",
        ranks=ranks, source=source, samples=RUNS[kind], spread=times[1], line=line,
        facts={"engine": "vidur", **{name: text for name, text in facts.items() if text}},
    )  # fmt: skip


def _operations(row: Mapping[str, str]) -> list[str]:
    parts = (name.split(".") for name in row if name.startswith("time_stats."))
    return list(dict.fromkeys(part[1] for part in parts if len(part) == 3))


def _times(row: Mapping[str, str], operation: str, left: Left) -> tuple[float, float | None] | None:
    """The median (else the mean) and the spread [s]; None where the operation was not measured or took 0 µs."""
    for statistic in ("median", "mean"):
        text = row.get(f"time_stats.{operation}.{statistic}", "").strip()
        if text:
            seconds = _number(text, f"time_stats.{operation}.{statistic}") / 1e3
            if seconds == 0:
                left[operation, "0 µs, below what the profiler resolves"] += 1
                return None
            if seconds < 0:
                raise UserError(f"time_stats.{operation}.{statistic} is {shown(text)}; a positive time is expected")
            deviation = row.get(f"time_stats.{operation}.std", "").strip()
            return seconds, _number(deviation, f"time_stats.{operation}.std") / 1e3 if deviation else None
    return None


def _numbers(row: Mapping[str, str], names: tuple[str, ...]) -> dict[str, float]:
    numbers = {name: _number(row[name], name) for name in names}
    for name, number in numbers.items():
        if number < 0 or (number == 0 and name not in ("prefill_chunk_size", "kv_cache_size")):
            raise UserError(f"{name} is {shown(row[name])}; a positive number is expected")
    return numbers


def _number(text: str, name: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"{name} is {shown(text)}; a number is expected")
    return number


def _flag(row: Mapping[str, str], name: str) -> bool:
    text = row[name].strip().lower()
    if text not in ("true", "false", "1", "0"):
        raise UserError(f"{name} is {shown(row[name])}; True or False is expected")
    return text in ("true", "1")


@hookimpl
def slipstick_trace_readers() -> list[TraceReader]:
    """The reader of Vidur's profiles."""
    return [Vidur()]
