"""Latent attention on one device: keys and values expanded, or their up-projections absorbed.

Floor: model. Used by ``placement`` and ``backward``. Expanding costs an up-projection of every context token and then
a core with one key/value head per query head; absorbing moves both up-projections to the query tokens and leaves one
shared head of width latent + rotary. Which is cheaper depends on query and context: the tree holds a choice.

Source: DeepSeek-V2, arXiv:2405.04434, section 2.1 (absorption: end of 2.1.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import sympy

from ..algebra.symbols import unit_symbol
from .attention import context_bytes
from .axes import BATCH, CONTEXT, HEADS, QUERY
from .layout import Layout, local_extent
from .pairs import attention_pairs
from .phase import unpacked, width
from .work import Alternatives, Direction, Step, Work

if TYPE_CHECKING:
    from sympy import Expr

    from .ops import LatentAttention
    from .placement import Placer

FLOP = unit_symbol("FLOP")


class _Extents:
    """The local extents that every variant is made of."""

    def __init__(self, placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout]) -> None:
        phase, mesh = placer.phase, placer.mesh
        q = layouts[op.q.name]
        documents = phase.documents  # each is a sequence of its own here
        self.batch = local_extent(phase.extents[BATCH], q[BATCH], mesh) * documents
        self.heads = local_extent(phase.extent(op.q.axes[2]), q[HEADS], mesh)
        query, self.context = phase.extents[QUERY] / documents, phase.extents[CONTEXT] / documents
        self.query = query / mesh.degree(q[QUERY])
        self.dense = query * self.context
        fused = phase.fused_attention  # what is not computes every pair of the sequence, masked or not
        pairs = attention_pairs(query, self.context, op.causal) if fused else self.dense * documents
        self.pairs = pairs / mesh.degree(q[QUERY])
        self.qk = phase.extent(op.q.axes[-1])
        self.latent = phase.extent(op.latent.axes[-1])
        self.rope = phase.extent(op.rope_key.axes[-1])
        self.nope = phase.extent(op.up_key.axes[-1])
        self.value = phase.extent(op.up_value.axes[-1])
        self.whole = phase.extents[BATCH] * documents * phase.extent(op.q.axes[2])


def latent_work(placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout]) -> Step:
    """The forward pass: expanded where the latents are all new (training), else the cheaper of both ways."""
    _unpack(placer, op, layouts, "forward")
    expanded = _expanded(placer, op, layouts)
    if placer.phase.training:
        return expanded
    absorbed = _absorbed(placer, op, layouts)
    return Alternatives(op.name, "forward", {"expanded": (expanded,), "absorbed": (absorbed,)})


def _unpack(placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout], direction: Direction) -> None:
    """Up-projections that are stored packed are expanded first."""
    for weight in op.weights:
        placer.steps.extend(
            unpacked(weight, layouts[weight.name], op.name, direction, placer.mesh, placer.phase)
        )  # fmt: skip


def _traffic(
    placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout]
) -> tuple[dict[str, Expr], dict[str, Expr]]:
    context = placer.phase.extents[CONTEXT]
    reads = {
        op.q.name: placer.size(op.q, layouts[op.q.name]),
        op.latent.name: context_bytes(placer, op.latent, layouts[op.latent.name], context),
        op.rope_key.name: context_bytes(placer, op.rope_key, layouts[op.rope_key.name], context),
    }
    for weight in op.weights:
        reads[weight.operand] = placer.size(weight, layouts[weight.name])
    return reads, {op.out.name: placer.size(op.out, layouts[op.out.name])}


def _expanded(placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout]) -> Work:
    e = _Extents(placer, op, layouts)
    project = 2 * e.batch * e.context * e.latent * e.heads * (e.nope + e.value)
    core = 2 * e.batch * e.heads * (e.qk + e.value)
    model = _useful(e)
    reads, writes = _traffic(placer, op, layouts)
    grown = e.batch * e.context * e.heads * (e.nope + e.value) * width("activation")
    reads, writes = {**reads, "keys and values": grown}, {**writes, "keys and values": grown}
    if not placer.phase.fused_attention:
        scores = 2 * e.batch * e.heads * e.pairs * width("activation")
        reads["scores"] = writes["scores"] = scores
    return Work(
        f"{op.name} (expanded)", "forward", "attention", (project + core * e.pairs) * FLOP, model * FLOP, reads, writes,
        _shape(e, e.heads), "attention",
    )  # fmt: skip


def _absorbed(placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout]) -> Work:
    e = _Extents(placer, op, layouts)
    project = 2 * e.batch * e.query * e.latent * e.heads * (e.nope + e.value)
    core = 2 * e.batch * e.heads * (2 * e.latent + e.rope) * e.pairs
    reads, writes = _traffic(placer, op, layouts)
    return Work(
        f"{op.name} (absorbed)", "forward", "attention", (project + core) * FLOP, _useful(e) * FLOP, reads,
        writes, _shape(e, sympy.Integer(1)), "attention",
    )  # fmt: skip


def _useful(e: _Extents) -> Expr:
    """Operations of the definition, over all devices: what counts as useful work, however it is computed."""
    return 2 * e.whole * (e.context * e.latent * (e.nope + e.value) + (e.qk + e.value) * e.dense)


def _shape(e: _Extents, kv_heads: Expr) -> dict[str, Expr]:
    return {
        "batch": e.batch, "heads": e.heads, "kv_heads": kv_heads, "query": e.query, "context": e.context,
        "head_dim": e.qk,
    }  # fmt: skip


def latent_gradient(placer: Placer, op: LatentAttention, layouts: Mapping[str, Layout]) -> list[Work]:
    """Backward of the expanded form: the core's gradients, then the up-projection's two products (one if frozen)."""
    _unpack(placer, op, layouts, "input gradient")
    e = _Extents(placer, op, layouts)
    project = 2 * e.batch * e.context * e.latent * e.heads * (e.nope + e.value)
    core = 2 * e.batch * e.heads * (e.qk + e.value) * e.pairs
    factor = sympy.Rational(5, 2) if placer.phase.fused_attention else sympy.Integer(2)
    reads, writes = _traffic(placer, op, layouts)
    grown = e.batch * e.context * e.heads * (e.nope + e.value) * width("activation")
    out = writes[op.out.name]
    inputs = {f"d({t.name})": reads[t.name] for t in op.reads}
    model = 2 * e.whole * (e.qk + e.value) * e.dense
    model_project = 2 * e.whole * e.context * e.latent * (e.nope + e.value)
    trained = [w for w in op.weights if not w.frozen]
    gradient = {f"d({w.name})": 2 * placer.count(w, layouts[w.name]) * width("gradient") for w in trained}
    found = [
        Work(op.name, "input gradient", "attention", (factor * core + project) * FLOP,
             (2 * model + model_project) * FLOP,
             {**reads, op.out.name: out, f"d({op.out.name})": out, "keys and values": 2 * grown},
             {**inputs, "keys and values": grown}, _shape(e, e.heads), "attention"),
        Work(f"{op.name} up-projection", "weight gradient", "gemm", project * FLOP, model_project * FLOP,
             {op.latent.name: reads[op.latent.name], "d(keys and values)": grown}, gradient,
             {"m": e.latent, "n": e.heads * (e.nope + e.value), "k": e.batch * e.context}, "gemm"),
    ]  # fmt: skip
    return found if trained else found[:1]
