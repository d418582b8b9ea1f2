"""The attention core on one device: work and traffic, forward and backward, fused or not, cached or not.

Floor: model. Used by ``placement`` and ``backward``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy

from ..algebra.functions import functions
from ..algebra.symbols import symbol, unit_symbol
from .axes import BATCH, CONTEXT, QUERY, Tensor
from .layout import Layout, local_extent
from .ops import Attention
from .pairs import attention_pairs
from .phase import ordered, width
from .work import Collective, Direction, Work

if TYPE_CHECKING:
    from sympy import Expr

    from .placement import Placer

FLOP = unit_symbol("FLOP")


def attention_work(
    placer: Placer, op: Attention, q: Layout, k: Layout, v: Layout, out: Layout, direction: Direction
) -> Work:
    """The attention core on one device, forward or as the gradient of its inputs."""
    phase, mesh = placer.phase, placer.mesh
    documents = phase.documents  # each is a sequence of its own here
    batch = local_extent(phase.extents[BATCH], q[BATCH], mesh) * documents
    heads = local_extent(phase.extent(op.q.axes[2]), q[op.q.axes[2].role], mesh)
    query, context = phase.extents[QUERY] / documents, phase.extents[CONTEXT] / documents
    shards = mesh.degree(q[QUERY])
    window = symbol(op.window) if op.window else None
    dense = query * context * documents  # what is not fused masks what lies in other documents, and computes it
    exact = attention_pairs(query, context, op.causal, window, op.chunked) if phase.fused_attention else dense
    reach = functions().fmin(context, window) if window is not None else context
    depth = phase.extent(op.q.axes[-1]) + phase.extent(op.v.axes[-1])
    whole_heads, whole_batch = phase.extent(op.q.axes[2]), phase.extents[BATCH] * documents
    flops = 2 * batch * heads * depth * exact / shards
    model = 2 * whole_batch * whole_heads * depth * query * reach
    # The last of the queries looks back a window, the first one as far again before itself.
    kv_tokens = functions().fmin(context, window + query - 1) if phase.cached and window is not None else context
    kv = {t.name: context_bytes(placer, t, layout, kv_tokens * documents) for t, layout in ((op.k, k), (op.v, v))}
    reads = {op.q.name: placer.size(op.q, q), **kv}
    writes = {op.out.name: placer.size(op.out, out)}
    passes = 0
    if not phase.fused_attention:
        passes = 6 if op.dropout else 4  # scores and probabilities, each written and read back
    if direction != "forward":
        # Fused kernels recompute the scores: five products instead of two (FlashAttention-2, arXiv:2307.08691).
        flops = flops * (sympy.Rational(5, 2) if phase.fused_attention else 2)
        model = 2 * model
        reads = {**reads, op.out.name: writes[op.out.name], f"d({op.out.name})": writes[op.out.name]}
        writes = {
            f"d({t.name})": b for t, b in ((op.q, placer.size(op.q, q)), (op.k, kv[op.k.name]), (op.v, kv[op.v.name]))
        }
    if passes:
        scores = batch * heads * dense / shards
        reads["scores"] = passes // 2 * scores * width("activation")
        writes["scores"] = passes // 2 * scores * width("activation")
    shape = {
        "batch": batch, "heads": heads,
        "kv_heads": local_extent(phase.extent(op.k.axes[2]), k[op.k.axes[2].role], mesh),
        "query": query / shards, "context": kv_tokens, "head_dim": phase.extent(op.q.axes[-1]),
    }  # fmt: skip
    return Work(op.name, direction, "attention", flops * FLOP, model * FLOP, reads, writes, shape, "attention")


def split_by_heads(placer: Placer, op: Attention) -> list[Layout]:
    """Queries, keys and values split by heads where a strategy swaps that for queries, each after an all-to-all; empty
    if none does.

    What a device has of them stays the same, unless there are fewer heads than devices: then some get the same ones.
    Source: Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.
    """
    queries = placer.stored(op.q)[QUERY]
    atoms = frozenset(queries) & placer.rules.swapped_atoms(placer.mesh)
    if not atoms:
        return []
    found = []
    for tensor in op.reads:
        stored = placer.stored(tensor)
        role = tensor.axes[2].role
        layout = stored.without(atoms).with_axis(role, (*stored[role], *ordered(atoms, placer.mesh)))
        swap_heads(placer, op, tensor, layout, "forward")
        found.append(layout)
    return found


def swap_heads(placer: Placer, op: Attention, tensor: Tensor, layout: Layout, direction: Direction) -> None:
    """The all-to-all between a tensor split by heads as ``layout`` says and split by queries, either way."""
    atoms = placer.rules.swapped_atoms(placer.mesh) & layout.atoms()
    name = tensor.name if direction == "forward" else f"d({tensor.name})"
    placer.steps.append(
        Collective("all_to_all", name, op.name, direction, ordered(atoms, placer.mesh), placer.count(tensor, layout),
                   tensor.format)
    )  # fmt: skip


def context_bytes(placer: Placer, tensor: Tensor, layout: Layout, tokens: Expr) -> Expr:
    """Bytes of a key, value or latent tensor over ``tokens`` of context, in the cache's format where it is cached."""
    phase = placer.phase
    per_token = Tensor(tensor.name, (tensor.axes[0], *tensor.axes[2:]), tensor.format)
    element = width("cache") if phase.cached else width(tensor.format)
    return placer.count(per_token, layout) * tokens * element
