"""Which shapes are measured, and in which order: a bounded, deterministic set for each kind of kernel.

Stands on the core; no torch, no numpy. Shapes come from a low-discrepancy sequence over the logarithms of the extents,
so that any beginning of the list is spread over decode to prefill: a run that stops early leaves a balanced set.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from attrs import field, frozen

from slipstick.core.errors import unknown
from slipstick.core.model.work import COLLECTIVES

T = TypeVar("T")

COUNTS: dict[str, int] = {
    "gemm": 84,
    "attention": 104,
    "attention_backward": 36,
    "pointwise": 60,
    "grouped_gemm": 28,
    "optimizer": 16,
    "lookup": 14,
    "memory_copy": 16,
    "host_to_device": 24,
    "device_to_host": 24,
    **dict.fromkeys(COLLECTIVES, 16),
}
"""Kind → shapes of one number format. Enough for a fit of each kind of its own (attention splits by head size)."""

CUDA_ONLY = ("host_to_device", "device_to_host")
FORMATS: dict[str, tuple[str, ...]] = {
    "gemm": ("bf16", "fp16", "fp32", "tf32", "fp8"),
    "attention": ("bf16", "fp16", "fp32"),
    "attention_backward": ("bf16", "fp16", "fp32"),
    "pointwise": ("bf16", "fp16", "fp32"),
    "grouped_gemm": ("bf16", "fp16", "fp32"),
    "optimizer": ("fp32",),
    "lookup": ("bf16", "fp16", "fp32"),
    "memory_copy": ("",),
    "host_to_device": ("",),
    "device_to_host": ("",),
    **dict.fromkeys(COLLECTIVES, ("bf16", "fp16", "fp32")),
}
"""Kind → formats it can be measured in; a copy of bytes has none."""

WIDTH = {"bf16": 2, "fp16": 2, "fp32": 4, "tf32": 4, "fp8": 1, "": 1}
BASES = (2, 3, 5, 7, 11)

HIDDEN = (256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 5120, 6144, 8192)
VOCABULARY = (8192, 16384, 32000, 50304, 128256)
# Query heads, key-value heads, head size: two head sizes, with and without grouped queries. They take turns, so that
# each of the four kinds gets the dozen shapes that a fit of its own asks for.
HEADS = ((8, 8, 64), (32, 8, 128), (12, 12, 64), (16, 4, 64), (16, 16, 128), (32, 4, 64), (8, 2, 128), (40, 40, 128),
         (16, 16, 64), (64, 8, 128), (8, 2, 64), (8, 8, 128))  # fmt: skip
# Hidden size, one expert's size, experts, experts of a token; by the size of all weights.
EXPERTS = ((512, 512, 16, 4), (512, 1024, 8, 2), (768, 2048, 4, 1), (1024, 512, 32, 4), (1024, 3584, 8, 2),
           (2048, 768, 64, 8), (2048, 1408, 64, 6), (2048, 768, 128, 8), (4096, 14336, 8, 2),
           (4096, 1536, 128, 8))  # fmt: skip

# The coordinate of a point that makes a kernel wider or its batch larger, and by how much it may fall: what a device is
# too slow for is made smaller, not left out, so that all numbers of tokens are seen alike.
SHRINKS = {"gemm": 1, "grouped_gemm": 1, "attention": 2, "attention_backward": 2}
SMALLER = (1.0, 0.6, 0.3, 0.0)

# What a pass over memory does → tensors read and written (what it has to move, however often the software goes over
# it), operations an element, and what it takes where nothing is fused: kernels, and tensors read or written by them.
# These are the passes that slipstick joins pointwise work into, as eager PyTorch models write them: norms alone and
# after a residual sum, activations, rotary embedding, the loss, and their gradients.
PASSES: dict[str, tuple[int, int, int, int, int]] = {
    "add_rms_norm": (2, 2, 6, 5, 11),
    "silu_mul": (2, 1, 9, 2, 5),
    "rms_norm_backward": (2, 1, 10, 7, 15),
    "rotary": (1, 1, 3, 5, 10),
    "gelu": (1, 1, 8, 1, 2),
    "silu_mul_backward": (3, 2, 18, 6, 13),
    "add": (2, 1, 1, 1, 3),
    "layer_norm_backward": (2, 1, 10, 1, 3),
    "cross_entropy": (1, 1, 5, 1, 2),
    "add_layer_norm": (2, 2, 6, 2, 5),
    "rotary_backward": (1, 1, 6, 9, 18),
    "gelu_backward": (2, 1, 16, 1, 3),
    "rms_norm": (1, 1, 5, 4, 8),
    "cross_entropy_backward": (1, 1, 1, 1, 2),
    "layer_norm": (1, 1, 5, 1, 2),
}


@frozen
class Case:
    """One measurement to make: a kernel at a shape in a number format; ``variant``: which of several ways to run it."""

    kernel: str
    shape: Mapping[str, float] = field(hash=False)
    format: str
    variant: str = ""
    ranks: int = 1

    @property
    def text(self) -> str:
        """The case as a person reads it.

        >>> Case("gemm", {"m": 1, "n": 4096, "k": 1024}, "bf16").text
        'gemm bf16 m=1 n=4096 k=1024'
        """
        extents = " ".join(f"{name}={value:g}" if value < 1e6 else f"{name}={value:.0f}"
                           for name, value in self.shape.items() if value or name != "window")  # fmt: skip
        words = (self.kernel, self.format, extents, self.variant, f"ranks={self.ranks}" if self.ranks > 1 else "")
        return " ".join(word for word in words if word)


@frozen
class Limits:
    """What a device is up to: ``flops`` [FLOP/s] and ``bandwidth`` [B/s] from a quick probe, ``run`` [s]: the longest
    one execution may take, ``memory`` [B]: what the tensors of one case may occupy."""

    flops: float
    bandwidth: float
    run: float
    memory: float


def plan(
    kinds: Sequence[str], formats: Sequence[str], limits: Limits | None = None, seed: int = 0, ranks: Sequence[int] = ()
) -> tuple[Case, ...]:
    """All cases of ``kinds``, those of different kinds in turn, so that any beginning is balanced among them too.

    ``formats``: those wanted; a kind that knows none of them is measured in its own first one where it has only one.
    ``ranks``: group sizes of collectives. Without ``limits`` no shape is too large.

    Errors: UserError for an unknown kind or format.
    """
    check(kinds, formats)
    lists = []
    for kind in dict.fromkeys(kinds):
        own = FORMATS[kind]
        chosen = own if len(own) == 1 else tuple(name for name in dict.fromkeys(formats) if name in own)
        groups = tuple(ranks) if kind in COLLECTIVES else (1,)
        lists += [list(_cases(kind, name, limits, seed, size)) for name in chosen for size in groups]
    return tuple(_in_turn(lists))


def check(kinds: Iterable[str], formats: Iterable[str]) -> None:
    """Errors: UserError for a kind of kernel or a number format that can't be measured."""
    for kind in kinds:
        if kind not in COUNTS:
            raise unknown("kind of kernel", kind, COUNTS, "see `slipstick calibrate measure --help`")
    for number_format in formats:
        if number_format not in WIDTH or not number_format:
            raise unknown("number format", number_format, [name for name in WIDTH if name])


def _in_turn(lists: list[list[Case]]) -> Iterator[Case]:
    """Merge so that after any number of cases every list has given about the same share of its own."""
    places = [((index + 0.5) / len(cases), order, case) for order, cases in enumerate(lists)
              for index, case in enumerate(cases)]  # fmt: skip
    return (case for _, _, case in sorted(places, key=lambda place: place[:2]))


def _cases(kind: str, number_format: str, limits: Limits | None, seed: int, ranks: int) -> Iterator[Case]:
    """The first shapes of the sequence that are new and that the device is up to."""
    seen: set[tuple[object, ...]] = set()
    wanted = COUNTS[kind]
    for point in points(40 * wanted, seed):
        case = _case_at(point, kind, number_format, limits, len(seen), ranks)
        if case is None or (key := (tuple(case.shape.values()), case.variant)) in seen:
            continue
        seen.add(key)
        yield case
        if len(seen) == wanted:
            return


def _case_at(
    point: tuple[float, ...], kind: str, number_format: str, limits: Limits | None, turn: int, ranks: int
) -> Case | None:
    """The case at a point, made smaller until the device is up to it; None where it never is."""
    shrinks = SHRINKS.get(kind)
    for share in SMALLER if shrinks is not None else SMALLER[:1]:
        near = tuple(share * u if place == shrinks else u for place, u in enumerate(point))
        shape, variant = _SHAPES.get(kind, _message)(near, number_format, turn)
        case = Case(kind, shape, number_format, variant, ranks)
        if limits is None or _within(case, limits):
            return case
    return None


def points(count: int, seed: int = 0) -> Iterator[tuple[float, ...]]:
    """Points of the Halton sequence in the unit cube; another ``seed`` shifts all of them, around the cube's edges.

    >>> [point[0] for point in points(4)]
    [0.5, 0.25, 0.75, 0.125]
    """
    for index in range(1, count + 1):
        yield tuple((radical_inverse(index, base) + seed * math.sqrt(base)) % 1.0 for base in BASES)


def radical_inverse(index: int, base: int) -> float:
    """The digits of ``index`` in ``base`` mirrored behind the point. Source: van der Corput 1935, Halton 1960.

    >>> radical_inverse(6, 2), radical_inverse(1, 3) == 1 / 3
    (0.375, True)
    """
    result, scale = 0.0, 1.0
    while index:
        index, digit = divmod(index, base)
        scale /= base
        result += digit * scale
    return result


def _log(u: float, low: float, high: float) -> int:
    """From ``low`` to ``high`` in steps of √2, as kernels meet them: whole, multiples of 8 from 16 on.

    >>> [_log(u, 1, 4096) for u in (0.0, 0.1, 0.5, 0.999)]
    [1, 2, 64, 4096]
    """
    value = low * 2 ** (round(2 * u * math.log2(high / low)) / 2)
    return round(value) if value < 16 else 8 * round(value / 8)


def _of(items: Sequence[T], u: float) -> T:
    return items[min(int(u * len(items)), len(items) - 1)]


Shaped = tuple[dict[str, float], str]


def _gemm(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    """Projections of a transformer with a hidden size h: forward, gradient of the input, gradient of the weight."""
    h = _of(HIDDEN, u[1])
    tokens = _log(u[0], 1, 16384)
    wide = 8 * round(h * (8 / 3 if u[3] < 0.5 else 4) / 8)
    n, k = _of(((3 * h, h), (h, h), (wide, h), (h, wide), (2 * wide, h), (3 * h // 2, h), (_of(VOCABULARY, u[3]), h)),
               u[2])  # fmt: skip
    if number_format != "fp8" and tokens >= 64:
        if u[4] < 0.25:
            return {"m": tokens, "n": k, "k": n}, "input gradient"
        if u[4] < 0.5:
            return {"m": n, "n": k, "k": tokens}, "weight gradient"
    return {"m": tokens, "n": n, "k": k}, "forward"


def _attention(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    """Decoding (one new token each) and prefill in turn."""
    if index % 2:
        return _extents(index // 2, 1, _log(u[0], 64, 65536), _log(u[2], 1, 256), 1)
    tokens = _log(u[0], 32, 16384)
    return _extents(index // 2, tokens, tokens, _log(u[2], 1, 32), 0 if u[3] < 0.15 else 1)


def _attention_backward(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    tokens = _log(u[0], 32, 16384)
    return _extents(index, tokens, tokens, _log(u[2], 1, 32), 0 if u[3] < 0.15 else 1)


def _extents(turn: int, query: int, context: int, batch: int, causal: int) -> Shaped:
    heads, kv_heads, head_dim = HEADS[turn % len(HEADS)]
    return {"batch": batch, "query": query, "context": context, "heads": heads, "kv_heads": kv_heads,
            "head_dim": head_dim, "window": 0, "causal": causal}, ""  # fmt: skip


def _pointwise(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    """A pass over rows: ``elements`` of one tensor, ``bytes`` of all that it has to read and write."""
    variant = tuple(PASSES)[index % len(PASSES)]
    columns = _of(VOCABULARY[:3], u[1]) if variant.startswith("cross_entropy") else _of(HIDDEN, u[1])
    rows = max(1, round(2 ** (10 + 17 * u[0]) / columns))
    elements = rows * columns
    reads, writes, flops, rounds, unfused = PASSES[variant]
    size = elements * WIDTH[number_format]
    shape: dict[str, float] = {
        "bytes": (reads + writes) * size, "elements": elements, "flops": flops * elements, "rounds": rounds,
        "unfused": unfused * size,
    }  # fmt: skip
    return shape, f"{variant} of rows of {columns}"


def _grouped(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    hidden, ffn, experts, top_k = _of(EXPERTS, u[1])
    return {"tokens": _log(u[0], 1, 16384), "hidden": hidden, "ffn": ffn, "experts": experts, "top_k": top_k,
            "tp": 1, "ep": 1, "skew": 1, "matrices": 3}, ""  # fmt: skip


def _optimizer(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    return {"elements": _log(u[0], 2**14, 2**28)}, ""


def _lookup(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    columns = _of(HIDDEN, u[1])
    elements = columns * _log(u[0], 1, 32768)
    return {"bytes": 2 * elements * WIDTH[number_format], "elements": elements}, f"rows of {columns}"


def _copy(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    """Inside one memory: bytes read plus written."""
    return {"bytes": 2 * _log(u[0], 2**12, 2**30)}, ""


def _host_copy(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    """Between two memories: bytes that cross."""
    return {"bytes": _log(u[0], 2**10, 2**30)}, "pageable" if index % 2 else "pinned"


def _message(u: tuple[float, ...], number_format: str, index: int) -> Shaped:
    """What one rank sees of the whole tensor, divisible among up to 64 ranks."""
    return {"bytes": 1024 * round(2 ** (20 * u[0]))}, ""


_SHAPES: dict[str, Callable[[tuple[float, ...], str, int], Shaped]] = {
    "gemm": _gemm,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "pointwise": _pointwise,
    "grouped_gemm": _grouped,
    "optimizer": _optimizer,
    "lookup": _lookup,
    "memory_copy": _copy,
    "host_to_device": _host_copy,
    "device_to_host": _host_copy,
}


def work_of(case: Case) -> tuple[float, float]:
    """Arithmetic [FLOP] and compulsory memory traffic [B] of one execution: to judge whether it takes too long.

    >>> work_of(Case("gemm", {"m": 2, "n": 3, "k": 5}, "fp32"))
    (60.0, 124.0)
    """
    s, width = case.shape, WIDTH[case.format]
    if case.kernel == "gemm":
        m, n, k = s["m"], s["n"], s["k"]
        return float(2 * m * n * k), float(width * (m * k + k * n + m * n))
    if case.kernel in ("attention", "attention_backward"):
        share = 0.5 if s["causal"] and s["query"] > 1 else 1.0
        flops = 4 * s["batch"] * s["heads"] * s["query"] * s["context"] * s["head_dim"] * share
        rows = 2 * s["heads"] * s["query"] + 2 * s["kv_heads"] * s["context"]
        backward = case.kernel == "attention_backward"
        return flops * (2.5 if backward else 1.0), (2 if backward else 1) * width * s["batch"] * s["head_dim"] * rows
    if case.kernel == "grouped_gemm":
        copies, weights = s["tokens"] * s["top_k"], 3 * s["hidden"] * s["ffn"]
        touched = min(s["experts"], copies)
        return 2 * copies * weights, width * (touched * weights + copies * (2 * s["hidden"] + 3 * s["ffn"]))
    if case.kernel == "optimizer":
        return 12 * s["elements"], 28 * s["elements"]
    return 0.0, float(s["bytes"])


def _within(case: Case, limits: Limits) -> bool:
    flops, size = work_of(case)
    # Attention reaches a fraction of what a matrix product does; eager passes go over their tensors several times.
    slow = {"attention": 3.0, "attention_backward": 3.0, "grouped_gemm": 2.0, "pointwise": 3.0}.get(case.kernel, 1.0)
    held = size * (2 if case.kernel in ("pointwise", *COLLECTIVES) else 1)
    if case.kernel == "grouped_gemm":  # weights that no token reaches lie there too
        held += WIDTH[case.format] * 3 * case.shape["hidden"] * case.shape["ffn"] * case.shape["experts"]
    return slow * (flops / limits.flops + size / limits.bandwidth) <= limits.run and held <= limits.memory


def kinds_for(cuda: bool, devices: int, asked: Iterable[str] | None) -> tuple[str, ...]:
    """The kinds asked for, or all that make sense on the device."""
    if asked:
        return tuple(dict.fromkeys(asked))
    left_out = (*(() if cuda else CUDA_ONLY), *(() if cuda and devices > 1 else COLLECTIVES))
    return tuple(kind for kind in COUNTS if kind not in left_out)
