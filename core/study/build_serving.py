"""Serving as cost trees and a memory ledger: the prefill of a request, one decode step, keys and values kept.

Floor: study. Imports sympy; only imported when a program is built.

Two phases of one model: a prefill computes all tokens of a prompt, a decode step one token of each sequence with the
cache as its context. With pipeline stages the sequences in flight are dealt out over as many groups as there are
stages (fewer where there are fewer sequences); a token's time is one trip through all stages, or one period of the
slowest stage for each group, whichever is longer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy
from attrs import evolve, frozen

from ..algebra.compile import Builder
from ..algebra.cost import Node, Pipelined, Repeat, Sequence, TreeCompiler
from ..algebra.functions import functions
from ..algebra.symbols import symbol
from ..model.axes import BATCH, CONTEXT, QUERY, Tensor
from ..model.blocks import BlockCost, Setting, block_cost
from ..model.collectives import collective_node
from ..model.graph import Block, cached
from ..model.layout import local_elements, local_extent
from ..model.memory import Ledger, Row, compile_ledgers
from ..model.ops import Attention
from ..model.phase import Phase, width
from ..model.stages import Stage, candidate_stages, kinds, whole_model
from .build import expert_skew, host_leaf, setting_of, stage_degree, stage_node, stored_weights, weights_over_stage
from .build_pipeline import boundary
from .plan import Plan
from .program import Program

if TYPE_CHECKING:
    from sympy import Expr

ORDER = ("input_tokens", "output_tokens", "tp", "ep", "pp", "dp", "concurrency")


@frozen(eq=False)
class PassModel:
    """One phase: its blocks' costs, the tree of one pass through the model, and the slowest stage's period."""

    phase: Phase
    embedding: BlockCost
    output: BlockCost
    costs: dict[Block, BlockCost]
    through: Node
    periods: tuple[Node, ...]


@frozen(eq=False)
class ServingModel:
    """The parts of a serving answer before they are compiled."""

    plan: Plan
    setting: Setting
    prefill: PassModel
    decode: PassModel
    stages: tuple[Stage, ...]
    ttft: Node
    tpot: Node
    sequences: Expr
    ledgers: tuple[Ledger, ...]
    capacity_tokens: Expr
    max_concurrency: Expr


def serving_model(plan: Plan) -> ServingModel:
    """Derive everything for a plan."""
    f = functions()
    setting = setting_of(plan)
    mesh = setting.mesh
    degree = stage_degree(plan, mesh)
    stages = tuple(candidate_stages(plan.graph, degree))
    prompt, generated, concurrency = symbol("input_tokens"), symbol("output_tokens"), symbol("concurrency")
    replicas = symbol("dp")
    prefill = _pass(
        plan, setting, stages,
        # One request on every replica: the prefill of an unqueued request.
        Phase("prefill", {BATCH: replicas, QUERY: prompt, CONTEXT: prompt}, fused_attention=plan.fused_attention,
              skew=expert_skew(plan, mesh)),
    )  # fmt: skip
    decode = _pass(
        plan, setting, stages,
        Phase(
            "decode",
            {BATCH: f.fmax(concurrency / degree, 1), QUERY: sympy.Integer(1), CONTEXT: prompt + generated / 2},
            fused_attention=plan.fused_attention,
            cached=True,
            skew=expert_skew(plan, mesh),
        ),
    )  # fmt: skip
    sequences = f.cdiv(concurrency, replicas)
    host = host_leaf("decode", f.cdiv(concurrency, replicas * degree))
    # Groups follow one another through the stages, as many as there are stages or, with fewer sequences, as those. One
    # group's next token waits for its last one, a whole trip and all groups ago; that cycle or the slowest stage sets
    # the pace.
    groups = degree if degree == 1 else f.fmin(degree, sequences)
    cycle = Repeat("trip through all stages, shared by the groups in flight", 1 / groups, decode.through)
    trip = Pipelined("decode step", groups, decode.through, (cycle, *decode.periods), steady=True)
    # A request that ends makes room for a prompt; its prefill runs between decode steps, which wait for it.
    joined = Repeat(
        "prefills between decode steps", symbol("prefill_factor") * (sequences - 1) / generated, prefill.through
    )
    tpot = Sequence("time per output token", (host, trip, joined))
    ttft = Sequence("time to first token", (evolve(host, tags={"phase": "prefill", "kind": "host"}), prefill.through))
    ledgers = tuple(_ledger(setting, prefill, decode, stage) for stage in stages)
    per_sequence = [_kept(setting, decode, stage, prompt + generated) for stage in stages]
    free = [
        symbol("hbm_capacity") - sum((r.bytes for r in ledger.rows if r.name != "kv_cache"), sympy.Integer(0))
        for ledger in ledgers
    ]
    most = f.fmin(*(f.fdiv(f.fmax(room, 0), size) for room, size in zip(free, per_sequence, strict=True)))
    tokens = f.fmin(*(f.fmax(room, 0) / size for room, size in zip(free, per_sequence, strict=True)))
    return ServingModel(
        plan, setting, prefill, decode, stages, ttft, tpot, sequences, ledgers,
        replicas * f.floor_(tokens * (prompt + generated)), replicas * most,
    )  # fmt: skip


def _pass(plan: Plan, setting: Setting, stages: tuple[Stage, ...], phase: Phase) -> PassModel:
    mesh = setting.mesh
    graph = plan.graph
    # Only the last token's logits are needed.
    last = evolve(phase, extents={**phase.extents, QUERY: sympy.Integer(1)})
    embedding = block_cost(graph.embedding, phase, setting)
    output = block_cost(graph.output, last, setting)
    costs = {block: block_cost(block, phase, setting) for block in kinds(stages)}
    send = collective_node(boundary(plan, setting, phase), mesh, setting.network, setting.family, phase.name)
    through = Sequence(
        f"{phase.name} pass",
        (
            embedding.forward,
            *(Repeat(f"{b.name} layers", count, costs[b].forward) for b, count in whole_model(graph)),
            output.forward,
            Repeat("stage boundaries", stage_degree(plan, mesh) - 1, send),
        ),
    )
    periods = tuple(stage_node(s, costs, embedding, output, lambda c: c.forward, (send,)) for s in stages)
    return PassModel(phase, embedding, output, costs, through, periods)


def _kept(setting: Setting, decode: PassModel, stage: Stage, length: Expr) -> Expr:
    """Cache bytes of one sequence of ``length`` tokens on one device of a stage; windows limit what is kept."""
    return sympy.Add(*(count * cache_bytes(decode.costs[block], setting, length) for block, count in stage.layers))


def cache_bytes(cost: BlockCost, setting: Setting, length: Expr) -> Expr:
    """Cache bytes of one layer for one sequence of ``length`` tokens on one device, after the layer's layout.

    Source: 2·kv·d·b per token and layer (grouped-query), (d_c + d_r)·b (latent, arXiv:2405.04434).
    """
    phase = cost.placed.phase
    total: list[Expr] = []
    for op in cost.block.ops:
        window = symbol(op.window) if isinstance(op, Attention) and op.window else None
        tokens = length if window is None else functions().fmin(length, window)
        for tensor in cached(op):
            per_token = Tensor(tensor.name, tensor.axes[2:], tensor.format)
            layout = cost.placed.stored[tensor.name].only(per_token.roles)
            extents = {a.size: phase.extent(a) for a in per_token.axes}
            total.append(local_elements(per_token, layout, setting.mesh, extents) * tokens * width("cache"))
    return sympy.Add(*total)


def _ledger(setting: Setting, prefill: PassModel, decode: PassModel, stage: Stage) -> Ledger:
    mesh = setting.mesh
    f = functions()
    length = symbol("input_tokens") + symbol("output_tokens")
    sequences = local_extent(symbol("concurrency"), mesh.view("dp"), mesh)
    weights = weights_over_stage(
        stage, decode.costs, decode.embedding, decode.output, lambda w: stored_weights(w, mesh)
    )
    # A prompt longer than one pass is computed in chunks; a pass never holds more than one chunk's tensors.
    share = f.fmin(1, symbol("prefill_tokens") / symbol("input_tokens"))
    working = []
    for passes, scale in ((prefill, share), (decode, sympy.Integer(1))):
        working += [stage.embedding * passes.embedding.working * scale, stage.output * passes.output.working]
        working += [f.lt(0, count) * passes.costs[block].working * scale for block, count in stage.layers]
    return Ledger(
        stage.label,
        (
            Row("weights", weights),
            Row("kv_cache", sequences * _kept(setting, decode, stage, length)),
            Row("activations", f.fmax(*working)),
            Row("reserve", symbol("reserve") + (1 - symbol("memory_utilisation")) * symbol("hbm_capacity")),
        ),
    )


def build_serving(plan: Plan) -> Program:
    """Compile both trees, the ledger and the capacities."""
    model = serving_model(plan)
    builder = Builder(ORDER)
    compiler = TreeCompiler(builder)
    roots = {"tpot": compiler.add(model.tpot), "ttft": compiler.add(model.ttft)}
    periods = [compiler.add(p) for p in model.prefill.periods]
    tpot, ttft = compiler.slot(model.tpot), compiler.slot(model.ttft)
    builder.output("tpot", tpot)
    builder.output("ttft", ttft)
    refill = builder.max([compiler.slot(p) for p in model.prefill.periods])
    builder.output("refill", refill)
    concurrency, generated = builder.input("concurrency"), builder.input("output_tokens")
    # A replica makes every sequence's tokens in turn with the prefills of those that follow, unless a token's time
    # has these in it.
    apart = builder.expr(functions().fmax(0, 1 - symbol("prefill_factor")) * model.sequences)
    cycle = builder.add([builder.mul(generated, tpot), builder.mul(apart, refill)])
    builder.output("output_tokens_per_s", builder.div(builder.mul(concurrency, generated), cycle))
    builder.output("kv_capacity_tokens", builder.expr(model.capacity_tokens))
    builder.output("max_concurrency", builder.expr(model.max_concurrency))
    ledger = compile_ledgers(model.ledgers, builder, "memory.")
    facts = {"periods": periods, "kv_capacity_tokens": compiler.text(model.capacity_tokens)}
    return Program(builder.finish(), compiler.nodes, roots, ledger, facts)
