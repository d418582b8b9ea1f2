"""What the columns of AIConfigurator's kernel tables mean, table by table, in slipstick's words.

Calibration. Pure data and arithmetic on columns.

Facts of the tables, from the collector that made them and from the tables themselves:

* Times are milliseconds in ``latency`` and ``avg_ms``, microseconds in columns that end in ``_us``; ``moe_a2a`` writes
  microseconds into ``latency`` as well, so its ``_us`` columns are read.
* ``message_size`` counts elements. NCCL's all-gather counts the gathered result, oneCCL's what one rank sends.
* Heads are those of one rank; ``tp_size`` beside them only says how they came about.
* Context in the cache: ``isl + step``; decoding has one new token, which is counted in it.
* ``compute_scale`` is the difference of two measurements, so some of its times are not positive.
* The ``wideep`` and ``module`` tables time whole modules with their projections, no single kernel.

Source: ai-dynamo/aiconfigurator, collector/ (collect_nccl.py, collect_all_reduce.py, collect_oneccl_xpu.py,
sglang/collect_moe.py, trtllm/collect_moe.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Columns: TypeAlias = Mapping[str, npt.NDArray[np.float64]]
    Extent: TypeAlias = str | float | Callable[[Columns, Mapping[str, str]], Any]

FORMATS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "sq": "int8",
    "default": "",
}
"""Number format in a table → in slipstick; sq is SmoothQuant's 8-bit integers. Others are called alike in both."""

WIDTHS = {"half": 2, "float16": 2, "bfloat16": 2, "float32": 4, "int8": 1, "fp8": 1}
"""Bytes of an element of a collective."""

NON_GATED = ((1856, 6, 128), (2688, 22, 512), (5120, 22, 512))
"""Width, experts a token and experts of the Nemotron 3 models, whose experts have no gate; only TensorRT-LLM's rows
say so themselves."""

ENGINES = {"trtllm": "trtllm", "sglang": "sglang", "vllm": "vllm"}


@frozen
class Mapped:
    """How rows of a table become rows of ``kernel``.

    ``extents``: name → column, number, or function of the columns and the row group's texts; ``format`` and
    ``kv_format``: columns; ``ranks``: column of the number of devices.
    """

    kernel: str
    extents: Mapping[str, Extent] = field(factory=dict)
    format: str = ""
    kv_format: str = ""
    ranks: str = ""


def _window(columns: Columns, texts: Mapping[str, str]) -> Any:
    return columns.get("window_size", 0.0)


def _context(columns: Columns, texts: Mapping[str, str]) -> Any:
    return columns["isl"] + columns["step"]


def _matrices(columns: Columns, texts: Mapping[str, str]) -> Any:
    import numpy as np

    gateless = np.zeros(len(columns["topk"]), dtype=bool)
    for width, top_k, experts in NON_GATED:
        same = (columns["inter_size"] == width) & (columns["topk"] == top_k) & (columns["num_experts"] == experts)
        gateless |= same
    return np.where(gateless | ("nongated" in texts.get("kernel_source", "")), 2.0, 3.0)


def _skew(columns: Columns, texts: Mapping[str, str]) -> Any:
    return 1.0 if texts.get("distribution") in ("balanced", "uniform") else 0.0


def _elements(factor: float) -> Callable[[Columns, Mapping[str, str]], Any]:
    return lambda columns, texts: factor * columns["m"] * columns["k"]


def _message(column: str) -> Callable[[Columns, Mapping[str, str]], Any]:
    def volume(columns: Columns, texts: Mapping[str, str]) -> Any:
        sent = columns["message_size"] * WIDTHS.get(texts[column], 0)
        gathers = texts.get("kernel_source") == "oneCCL" and texts.get("op_name") == "all_gather"
        return sent * columns["num_gpus"] if gathers else sent

    return volume


_ATTENTION: dict[str, Extent] = {
    "batch": "batch_size", "query": "isl", "context": _context, "heads": "num_heads",
    "kv_heads": "num_key_value_heads", "head_dim": "head_dim", "window": _window, "causal": 1.0,
}  # fmt: skip
_LATENT: dict[str, Extent] = {
    "batch": "batch_size", "query": "isl", "context": _context, "heads": "num_heads", "latent": 512.0, "rope": 64.0,
}  # fmt: skip

TABLES: dict[str, Mapped] = {
    "gemm": Mapped("gemm", {"m": "m", "n": "n", "k": "k"}, "gemm_dtype"),
    "context_attention": Mapped("attention", _ATTENTION, "attn_dtype", "kv_cache_dtype"),
    "generation_attention": Mapped("attention", _ATTENTION | {"query": 1.0}, "attn_dtype", "kv_cache_dtype"),
    "encoder_attention": Mapped(
        "attention",
        _ATTENTION | {"context": "isl", "kv_heads": "num_heads", "window": 0.0, "causal": 0.0},
        "attn_dtype",
    ),
    "context_mla": Mapped("latent_attention", _LATENT, "mla_dtype", "kv_cache_dtype"),
    "generation_mla": Mapped("latent_attention", _LATENT | {"query": 1.0}, "mla_dtype", "kv_cache_dtype"),
    "moe": Mapped(
        "grouped_gemm",
        {
            "tokens": "num_tokens",
            "hidden": "hidden_size",
            "ffn": "inter_size",
            "experts": "num_experts",
            "top_k": "topk",
            "tp": "moe_tp_size",
            "ep": "moe_ep_size",
            "skew": _skew,
            "matrices": _matrices,
        },
        "moe_dtype",
    ),
    "nccl": Mapped("", {"bytes": _message("nccl_dtype")}, "nccl_dtype", ranks="num_gpus"),
    "oneccl": Mapped("", {"bytes": _message("nccl_dtype")}, "nccl_dtype", ranks="num_gpus"),
    "custom_allreduce": Mapped(
        "all_reduce", {"bytes": _message("allreduce_dtype")}, "allreduce_dtype", ranks="num_gpus"
    ),
    # reads two bytes an element and writes one
    "scale_matrix": Mapped("pointwise", {"bytes": _elements(3.0), "elements": _elements(1.0)}, "quant_dtype"),
    "computescale": Mapped("compute_scale", {"m": "m", "k": "k"}, "quant_dtype"),
}
"""Table → its meaning; an empty kernel is the row's own ``op_name``. Other tables keep their name and all extents."""

OPERATIONS = {"alltoall": "all_to_all"}
"""Collective in a table → in slipstick, where the names differ."""

DIFFERENCES = ("computescale", "dsv4_csa_topk_calib", "glm5_topk_module")
"""Tables whose times are differences of two measurements and may come out at zero or below."""

FORMAT_COLUMNS = ("gemm_dtype", "attn_dtype", "mla_dtype", "moe_dtype", "bmm_dtype", "quant_dtype", "quant_type",
                  "comm_dtype", "gemm_type")  # fmt: skip


def mapped(table: str, columns: tuple[str, ...]) -> Mapped:
    """The meaning of a table, its own name for a kernel that slipstick has no formula for."""
    if table in TABLES:
        return TABLES[table]
    number_format = next((name for name in FORMAT_COLUMNS if name in columns), "")
    return Mapped(table, {}, number_format, "kv_cache_dtype" if "kv_cache_dtype" in columns else "",
                  "ep_size" if table == "moe_a2a" else "")  # fmt: skip


def kernel_of(table: str, texts: Mapping[str, str]) -> str:
    """The kernel of a group of rows that agree in ``texts``.

    >>> kernel_of("nccl", {"op_name": "alltoall"}), kernel_of("mla_bmm", {"op_name": "mla_gen_pre"})
    ('all_to_all', 'mla_bmm.mla_gen_pre')
    >>> kernel_of("wideep_context_mla", {"op_name": "mla_context"})
    'wideep_context_mla'
    """
    operation = texts.get("op_name", "")
    if table in TABLES:
        return TABLES[table].kernel or OPERATIONS.get(operation, operation)
    if "phase" in texts and table == "moe_a2a":
        return f"{table}.{texts['phase']}"
    if operation.startswith(table):
        return operation
    if not operation or operation in table or table.startswith("wideep_"):
        return table
    return f"{table}.{operation}"


def times(table: str, columns: tuple[str, ...]) -> list[tuple[str, tuple[str, ...], float]]:
    """The measurements of a row: suffix of the kernel's name, columns whose sum is the time, seconds of their unit."""
    if table == "moe_a2a" and "transmit_us" in columns:
        return [("", ("transmit_us", "notify_us"), 1e-6)]
    pairs: list[tuple[str, tuple[str, ...], float]] = []
    for part in ("dispatch", "combine"):
        for parts in ((f"{part}_avg_t_us",), (f"{part}_transmit_us", f"{part}_notify_us")):
            if set(parts) <= set(columns):
                pairs.append((f".{part}", parts, 1e-6))
    if pairs:
        return pairs
    for name in ("latency", "avg_ms"):
        if name in columns:
            return [("", (name,), 1e-3)]
    return []
