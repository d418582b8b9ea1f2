"""Measured rows as the measured kernel family sees them: which kernels they are, and what their formulas are given.

Plugin. Arithmetic on numbers or numpy arrays alike; numpy inside functions. The inverse of ``Measured.price``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from slipstick.core.model.interfaces.kernels import Part
from slipstick.core.records.numerics import WIDTHS

from .kernels_routing import busiest, exponent

if TYPE_CHECKING:
    from slipstick.core.model.interfaces.trace_reader import TraceRow

    Machine = Mapping[str, Any]
    Shape = Mapping[str, Any]

# Formats of operands → (bytes of a weight's element, of an activation's), where they are not one width for both.
_OPERANDS = {
    "int8_wo": (1.0, 2.0), "int4_wo": (WIDTHS["int4"], 2.0), "w4a16_mxfp4": (WIDTHS["mxfp4"], 2.0),
    "w4a8_mxfp4_mxfp8": (WIDTHS["mxfp4"], WIDTHS["mxfp8"]), "w4afp8": (WIDTHS["int4"], 1.0), "sq": (1.0, 1.0),
    "fp8_block": (1.0 + 4 / 128**2, 1.0 + 4 / 128), "fp8_static": (1.0, 1.0), "fp8_ootb": (1.0, 1.0),
}  # fmt: skip

# Copies of a weight that a collector of kernel tables walks through, so that the next one is not in the cache.
# Source: ai-dynamo/aiconfigurator, collector/ (vllm, sglang: 6; trtllm: as many as fill the cache, at most 5).
_COPIES = {"vllm": 6.0, "sglang": 6.0, "trtllm": 5.0}
_ONE_COPY = {("vllm", "fp8_block"), ("vllm", "nvfp4")}

UPDATE = {"flops": 12.0, "bytes": 30.0}
"""Adam on one element: operations, and bytes of gradient, master and moments read, and master, moments, weight written
(FP32 state, FP32 gradient, 16-bit weight)."""


def widths(number_format: str) -> tuple[float, float]:
    """Bytes of one element of a weight and of an activation in a format of operands; 2 for an unknown one.

    >>> widths("bf16"), widths("int4_wo")
    ((2.0, 2.0), (0.515625, 2.0))
    """
    plain = number_format.split("/")[0]
    width = WIDTHS.get(plain, 2.0)
    return _OPERANDS.get(plain, (width, width))


def _cores(machine: Machine) -> dict[str, Any]:
    return {"rate": machine["rate"], "bandwidth": machine["bandwidth"], "units": machine["units"]}


def _gemm(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    m, n, k = (row.shape[name] for name in ("m", "n", "k"))
    weight, activation = widths(row.format)
    cold = weight * n * k
    engine = row.facts.get("engine", "") if row.facts.get("table") == "gemm" else ""
    copies = 1.0 if (engine, row.format) in _ONE_COPY else _COPIES.get(engine, 0.0)
    inputs = {
        "flops": 2.0 * m * n * k, "m": m, "n": n, "k": k, "cold": cold,
        "warm": activation * m * k + max(activation, 2.0) * m * n,
        **_cores(machine), "cache": machine["cache"], "working_set": copies * cold, "hot": 1.0 if copies else 0.0,
    }  # fmt: skip
    return (Part("gemm", inputs),)


def _grouped(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    shape = row.shape
    alpha = exponent(row.facts.get("distribution", ""))
    if alpha is None:
        return ()
    groups, rows = busiest(shape["tokens"], shape["top_k"], shape["experts"], shape["ep"], alpha)
    if not alpha and "skew" in shape:  # load of the busiest rank over the mean, where the trace knows it
        rows = rows * _at_least_one(shape["skew"])
    hidden, inner, matrices = shape["hidden"], shape["ffn"] / shape["tp"], shape["matrices"]
    wide = (matrices - 1.0) * inner
    weight, activation = widths(row.format)

    def product(n: Any, k: Any) -> Part:
        return Part("grouped_gemm", {
            "flops": 2.0 * rows * n * k, "m": rows, "n": n, "k": k, "cold": weight * groups * n * k,
            "warm": rows * (activation * k + 2.0 * n), **_cores(machine), "groups": groups,
            "uneven": 1.0 if alpha else 0.0,
        })  # fmt: skip

    vector = {"rate": machine["vector_rate"], "bandwidth": machine["bandwidth"]}
    moved = Part("permute", {"flops": 0.0, "bytes": 4.0 * rows * hidden, **vector})
    size = 2.0 * rows * (wide + inner)
    between = Part("pointwise", {"flops": 5.0 * rows * inner, "bytes": size, "spilled": 0.0, "further": 0.0,
                                 "cache": machine["cache"], **vector})  # fmt: skip
    return (product(wide, hidden), product(hidden, inner), moved, between)


def _at_least_one(value: Any) -> Any:
    import numpy as np

    return np.maximum(value, 1.0)


def _pairs(shape: Shape) -> Any:
    """Pairs of query and key that one head of one sequence attends to."""
    import numpy as np

    query, whole, causal = shape["query"], shape["context"], shape.get("causal", 1.0)
    window = np.where(np.asarray(shape.get("window", 0.0)) > 0, shape.get("window", 0.0), whole)
    reach = np.minimum(window, whole)
    # the last query reaches all it may; each one before it one less, until the window holds for all
    short = np.maximum(np.minimum(query, reach - (whole - query)), 0.0)
    masked = query * reach - np.where(reach > whole - query, short * (short - 1.0) / 2.0, 0.0)
    return np.where(np.asarray(causal) > 0, masked, query * reach)


def _reached(shape: Shape) -> Any:
    """Tokens of context whose keys are read."""
    import numpy as np

    window = np.asarray(shape.get("window", 0.0))
    return np.where(window > 0, np.minimum(shape["context"], window + shape["query"] - 1.0), shape["context"])


def _plain(value: Any) -> Any:
    return value if getattr(value, "ndim", 0) else float(value)


def _attention(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    import numpy as np

    shape = row.shape
    batch, query, heads, kv_heads, width = (shape[name] for name in ("batch", "query", "heads", "kv_heads", "head_dim"))
    context = _reached(shape)
    kept = widths(row.facts.get("kv_format", "") or row.format)[0]
    pairs, own = _pairs(shape), 4.0 * batch * query * heads * width
    moved = own + 2.0 * batch * context * kv_heads * width * kept
    inputs = {
        "bytes": moved, "batch": batch, "heads": heads, "kv_heads": kv_heads, "span": _plain(pairs / query),
        "bandwidth": machine["bandwidth"], "units": machine["units"], "cache": machine["cache"],
    }  # fmt: skip
    if np.all(np.asarray(query) <= 1) and row.kernel == "attention":
        if np.all(np.asarray(shape["context"]) <= 1):
            return ()  # nothing to attend to
        hot = 1.0 if row.facts.get("table", "").endswith("_attention") else 0.0
        return (Part("attention.decode", {**inputs, "bytes": _plain(moved), "hot": hot}),)
    flops = 4.0 * batch * heads * width * pairs
    context_inputs = {**inputs, "query": query, "head_dim": width, "rate": machine["rate"]}
    if row.kernel == "attention_backward":
        # five products for two; gradients of all four tensors beside them
        more = {"flops": _plain(2.5 * flops), "bytes": _plain(2.0 * moved + own / 2.0)}
        return (Part("attention.backward", {**context_inputs, **more}),)
    return (Part("attention.context", {**context_inputs, "flops": _plain(flops), "bytes": _plain(moved)}),)


NOPE, VALUE = 128.0, 128.0
"""Width of a head's keys without their rotary part, and of its values, in every published model with latent attention
so far (DeepSeek-V2, V3, Kimi K2). Source: their configurations."""


def _latent(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    import numpy as np

    shape = row.shape
    batch, query, context, heads, latent, rope = (
        shape[name] for name in ("batch", "query", "context", "heads", "latent", "rope")
    )
    kept = widths(row.facts.get("kv_format", "") or row.format)[0]
    inputs = {"batch": batch, "heads": heads, **_cores(machine)}
    if np.all(np.asarray(query) <= 1):
        flops = 2.0 * batch * heads * (2.0 * latent + rope) * context
        moved = batch * context * (latent + rope) * kept + 2.0 * batch * heads * (2.0 * latent + rope)
        hot = 1.0 if row.facts.get("table", "").endswith("_mla") else 0.0
        return (Part("latent.decode", {**inputs, "flops": flops, "bytes": moved, "span": context,
                                       "cache": machine["cache"], "hot": hot}),)  # fmt: skip
    span = context - (query - 1.0) / 2.0
    width = NOPE + rope + VALUE
    flops = 2.0 * batch * heads * width * query * span
    moved = 2.0 * batch * heads * (width * query + (NOPE + VALUE) * context)
    return (Part("latent.context", {**inputs, "flops": flops, "bytes": moved, "query": query, "span": span}),)


def _moved(slot: str) -> Callable[[TraceRow, Machine], tuple[Part, ...]]:
    def parts(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
        return (Part(slot, {"flops": 0.0, "bytes": row.shape["bytes"], "rate": machine["vector_rate"],
                            "bandwidth": machine["bandwidth"]}),)  # fmt: skip

    return parts


def _chain(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    shape = row.shape
    inputs = {
        "flops": shape.get("flops", shape.get("elements", 0.0)), "bytes": shape["bytes"],
        "spilled": shape.get("unfused", shape["bytes"]) - shape["bytes"], "further": shape.get("rounds", 1.0) - 1.0,
        "rate": machine["vector_rate"], "bandwidth": machine["bandwidth"], "cache": machine["cache"],
    }  # fmt: skip
    return (Part("pointwise", inputs),)


def _optimizer(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    elements = row.shape["elements"]
    inputs = {name: amount * elements for name, amount in UPDATE.items()}
    return (Part("optimizer", {**inputs, "rate": machine["vector_rate"], "bandwidth": machine["bandwidth"]}),)


def _collective(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    import numpy as np

    ranks: Any = row.ranks
    if np.all(np.asarray(ranks) < 2):
        return ()
    payload = row.shape["bytes"]
    share = 1.0 if row.kernel == "send" else (ranks - 1.0) / ranks * (2.0 if row.kernel == "all_reduce" else 1.0)
    hops = {"send": 1.0, "all_to_all": 1.0, "all_reduce": 2.0 * (ranks - 1.0)}.get(row.kernel, ranks - 1.0)
    inputs = {
        "volume": payload * share, "bandwidth": machine["link_bandwidth"], "hops": hops,
        "latency": machine["link_latency"], "ranks": ranks,
    }  # fmt: skip
    return (Part(row.kernel, inputs),)


_READERS: dict[str, Callable[[TraceRow, Machine], tuple[Part, ...]]] = {
    "gemm": _gemm,
    "grouped_gemm": _grouped,
    "attention": _attention,
    "attention_backward": _attention,
    "latent_attention": _latent,
    "pointwise": _chain,
    "memory_copy": _moved("permute"),
    "permute": _moved("permute"),
    "lookup": _moved("lookup"),
    "optimizer": _optimizer,
    "all_reduce": _collective,
    "all_gather": _collective,
    "reduce_scatter": _collective,
    "all_to_all": _collective,
    "send": _collective,
}


def parts_of(row: TraceRow, machine: Machine) -> tuple[Part, ...]:
    """The kernels of a measured row; empty for one of another kind. Errors: KeyError for an extent that is missing."""
    read = _READERS.get(row.kernel)
    return read(row, machine) if read else ()
