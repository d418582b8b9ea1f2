"""Exact integer counts of multiplications: matrix FLOPs of a graph, and the query-key pairs that attention looks at.

Floor: model. No sympy: these are the oracles that the symbolic formulas are tested against, and the tests count the
same figures on real model classes. A multiply-add is two FLOPs; only contractions and attention count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod

from .axes import BATCH, EXPERTS, QUERY, ROUTED, Axis
from .graph import Block, ModelGraph
from .ops import Attention, Contraction, GroupedContraction, LatentAttention, Op


def attention_pairs(query: int, context: int, causal: bool = True, window: int = 0, chunked: bool = False) -> int:
    """How many (query, key) pairs one head of one sequence scores.

    The ``query`` tokens are the last of ``context``. Without ``causal`` every query sees every key (what an eager
    implementation multiplies). Causal: position p sees p + 1 keys; of those, the last ``window`` where one is given,
    or the ones since its chunk of ``window`` positions began where it is ``chunked``.

    >>> attention_pairs(4, 4), attention_pairs(1, 4), attention_pairs(4, 4, causal=False)
    (10, 4, 16)
    >>> attention_pairs(4, 4, window=2), attention_pairs(4, 4, window=2, chunked=True)
    (7, 6)
    """
    if not 0 <= query <= context:
        raise ValueError(f"{query} queries cannot be the last of {context} positions")
    if not causal:
        return query * context
    before = context - query
    if window <= 0:
        return _triangle(context) - _triangle(before)
    keys = _chunked if chunked else _sliding
    return keys(context, window) - keys(before, window)


def _triangle(n: int) -> int:
    """Pairs of the first ``n`` positions without a window: 1 + 2 + ... + n."""
    return n * (n + 1) // 2


def _sliding(n: int, window: int) -> int:
    """The sum of min(p + 1, window) over the first ``n`` positions."""
    short = min(n, window)
    return _triangle(short) + (n - short) * window


def _chunked(n: int, window: int) -> int:
    """The sum of (p mod window) + 1 over the first ``n`` positions."""
    whole, rest = divmod(n, window)
    return whole * _triangle(window) + _triangle(rest)


def op_flops(
    op: Op, sizes: Mapping[str, int], batch: int, query: int, context: int, *, causal: bool = False, top_k: int = 0
) -> int:
    """Matrix FLOPs of one operation's forward pass; 0 for one without a multiplication of matrices."""
    extents = {**sizes, BATCH: batch, QUERY: query}
    if isinstance(op, GroupedContraction):
        # Each token copy meets one expert: experts × routed stands for batch · query · top_k copies.
        extents |= {EXPERTS: 1, ROUTED: batch * query * top_k}
    if isinstance(op, Contraction):
        return 2 * _product({*op.x.axes, *op.weight.axes}, extents)
    if isinstance(op, Attention):
        window = sizes[op.window] if op.window else 0
        pairs = attention_pairs(query, context, causal and op.causal, window, op.chunked)
        heads, width, value = op.q.axes[2:3], op.q.axes[3:], op.v.axes[3:]
        return 2 * batch * pairs * _product(heads, extents) * (_product(width, extents) + _product(value, extents))
    if isinstance(op, LatentAttention):
        # Keys and values of the whole context are expanded from the latent, then attention as usual.
        pairs = attention_pairs(query, context, causal and op.causal)
        expand = sum(2 * batch * context * _product(w.axes, extents) for w in (op.up_key, op.up_value))
        per_pair = _product(op.q.axes[3:], extents) + _product(op.out.axes[3:], extents)
        return expand + 2 * batch * pairs * _product(op.q.axes[2:3], extents) * per_pair
    return 0


def _product(axes: Iterable[Axis], extents: Mapping[str, int]) -> int:
    return prod(extents[a.size] for a in axes)


def block_flops(graph: ModelGraph, block: Block, batch: int, query: int, context: int, *, causal: bool = False) -> int:
    """Matrix FLOPs of one block's forward pass."""
    top_k = graph.sizes.get("top_k", 0)
    return sum(op_flops(op, graph.sizes, batch, query, context, causal=causal, top_k=top_k) for op in block.ops)


def forward_matmul_flops(graph: ModelGraph, batch: int, query: int, context: int, causal: bool = False) -> int:
    """Matrix FLOPs of a forward pass over ``query`` tokens of each of ``batch`` sequences.

    Every token's logits are computed. Without ``causal`` every query meets every key of ``context`` (what PyTorch's
    counter sees of an eager attention).
    """
    return sum(
        count * block_flops(graph, block, batch, query, context, causal=causal) for block, count in graph.parts()
    )


def training_matmul_flops(graph: ModelGraph, batch: int, sequence: int, causal: bool = False) -> int:
    """Matrix FLOPs of forward and backward: a product of two matrices becomes two more, one per factor's gradient.

    Nothing is recomputed, and the first layer's input has a gradient too (the embedding table is trained).
    """
    return 3 * forward_matmul_flops(graph, batch, sequence, sequence, causal)
