"""One training step as a cost tree and a memory ledger.

Floor: study. Imports sympy; only imported when a program is built.

A step: micro-batches through the pipeline (each a forward and a backward pass of every layer); gradients that are
partial sums are reduced; the optimizer updates what this device owns; updated weights are gathered where they are
stored whole. Every collective comes from the law; here parts are put in order and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import sympy
from attrs import frozen

from ..algebra.compile import Builder
from ..algebra.cost import Exposed, Node, Sequence, TreeCompiler
from ..algebra.functions import functions
from ..algebra.symbols import symbol, unit_symbol
from ..model.axes import BATCH, CONTEXT, QUERY
from ..model.blocks import BlockCost, Recomputation, Setting, WeightShare, block_cost, in_chunks
from ..model.collectives import collective_node
from ..model.graph import Block
from ..model.memory import Ledger, Row, compile_ledgers
from ..model.mesh import Mesh
from ..model.phase import Phase, ordered, width
from ..model.pricing import EXPOSED, work_leaf
from ..model.stages import Stage, candidate_stages, kinds, whole_model
from ..model.work import Collective, Work
from .build import (
    copies,
    expert_skew,
    host_leaf,
    over_stage,
    setting_of,
    stage_atoms,
    stage_degree,
    stage_node,
    stored_weights,
    weights_over_stage,
)
from .build_pipeline import pipeline
from .plan import Plan
from .program import Program

if TYPE_CHECKING:
    from sympy import Expr

ORDER = ("sequence", "tp", "ep", "pp", "dp", "micro_batch", "micro_batches", "global_batch")
"""Inputs that a sweep varies, from the one that changes least to the one that changes most."""

OPTIMIZER_FLOPS = 12
"""Operations of one Adam update of one element."""


@frozen(eq=False)
class TrainingModel:
    """The parts of a step, before they are compiled: for programs, symbolic answers and tests alike."""

    plan: Plan
    setting: Setting
    phase: Phase
    embedding: BlockCost
    output: BlockCost
    costs: dict[Block, BlockCost]
    stages: tuple[Stage, ...]
    step: Node
    ledgers: tuple[Ledger, ...]
    model_flops: Expr
    hardware_flops: Expr


def training_model(plan: Plan) -> TrainingModel:
    """Derive everything for a plan."""
    setting = setting_of(plan)
    mesh = setting.mesh
    phase = Phase(
        "train",
        {BATCH: symbol("micro_batch") * symbol("dp"), QUERY: symbol("sequence"), CONTEXT: symbol("sequence")},
        training=True,
        fused_attention=plan.fused_attention,
        skew=expert_skew(plan, mesh),
        document=symbol("document_tokens") if plan.packed else None,
    )
    graph = plan.graph
    embedding = block_cost(graph.embedding, phase, setting, again=Recomputation())
    output = in_chunks(block_cost(graph.output, phase, setting, again=Recomputation()), plan.loss_chunks)
    extra = [block_cost(graph.extras[name], phase, setting) for name in plan.extras]
    if extra:
        output = _joined(output, extra)
    stages = tuple(candidate_stages(graph, stage_degree(plan, mesh), plan.schedule))
    costs = {block: block_cost(block, phase, setting) for block in kinds(stages)}
    step = _step(plan, setting, phase, embedding, output, costs, stages)
    ledgers = tuple(_ledger(plan, setting, embedding, output, costs, stage) for stage in stages)
    micro_batches = symbol("micro_batches")
    everything = [(embedding, sympy.Integer(1)), (output, sympy.Integer(1))]
    everything += [(costs[block], count) for block, count in whole_model(graph)]
    model_flops = micro_batches * sympy.Add(*(count * cost.model_flops for cost, count in everything))
    hardware = micro_batches * sympy.Add(*(count * cost.hardware_flops for cost, count in everything))
    return TrainingModel(
        plan, setting, phase, embedding, output, costs, stages, step, ledgers, model_flops, hardware
    )  # fmt: skip


def _joined(output: BlockCost, extra: list[BlockCost]) -> BlockCost:
    """The output block together with extra layers that run beside it on the last stage."""
    from attrs import evolve

    parts = [*extra, output]

    def half(name: str, found: Iterable[Node | None]) -> Node | None:
        nodes = tuple(node for node in found if node is not None)
        return Sequence(name, nodes) if nodes else None

    return evolve(
        output,
        forward=Sequence("output forward", tuple(p.forward for p in parts)),
        backward=Sequence("output backward", tuple(p.backward for p in parts if p.backward is not None)),
        inputs=half("output backward, inputs", (p.inputs for p in parts)),
        gradients=half("output backward, weights", (p.gradients for p in parts)),
        saved=sympy.Add(*(p.saved for p in parts)),
        working=functions().fmax(*(p.working for p in parts)),
        weights=tuple(w for p in parts for w in p.weights),
        model_flops=sympy.Add(*(p.model_flops for p in parts)),
        hardware_flops=sympy.Add(*(p.hardware_flops for p in parts)),
    )


def _step(
    plan: Plan,
    setting: Setting,
    phase: Phase,
    embedding: BlockCost,
    output: BlockCost,
    costs: dict[Block, BlockCost],
    stages: tuple[Stage, ...],
) -> Node:
    mesh, family, network = setting.mesh, setting.family, setting.network
    parts: list[Node] = [pipeline(plan, setting, phase, embedding, output, costs, stages)]
    held = _buckets(costs, embedding, output, stages)
    reductions = [
        collective_node(c, mesh, network, family, phase.name)
        for partial, flat, early, size in held
        for c in _reductions(partial, flat, early, size, setting)
    ]
    reductions += [
        collective_node(c, mesh, network, family, phase.name)
        for c in _replicated(costs, embedding, output, stages, setting)
    ]
    # A table tied to the output layer stands on the first and the last stage: both add up their gradients.
    tied = sympy.Add(*(w.trained for w in copies(output)))
    if tied != 0 and plan.schedule and not (plan.schedule.returns or plan.schedule.opposite):
        shared = Collective(
            "send", "tied embedding gradient", "gradients", "update", stage_atoms(plan, mesh), tied, "gradient"
        )
        reductions.append(collective_node(shared, mesh, network, family, phase.name))
    if plan.schedule and plan.schedule.opposite:
        reductions.append(collective_node(_opposite(plan, costs, embedding, output, stages, setting), mesh, network,
                                          family, phase.name))  # fmt: skip
    if reductions:
        # Beside the last backward pass of the stage that ends last, the first.
        last = stage_node(stages[0], costs, embedding, output, lambda cost: cost.backward)
        parts.append(Exposed("reduce gradients", Sequence("gradient reduction", tuple(reductions)), last, EXPOSED))
    parts += _update(plan, setting, phase, costs, embedding, output, stages)
    gathers = [
        collective_node(c, mesh, network, family, phase.name)
        for c in _gathers(costs, embedding, output, stages, setting)
    ]
    if gathers:
        first = stage_node(stages[0], costs, embedding, output, lambda cost: cost.forward)
        parts.append(
            Exposed("gather updated weights", Sequence("updated weights", tuple(gathers)), first, EXPOSED)
        )  # fmt: skip
    parts.append(host_leaf(phase.name, sympy.Integer(0)))
    return Sequence("step", tuple(parts))


def _shares(costs: dict[Block, BlockCost], embedding: BlockCost, output: BlockCost) -> Iterable[WeightShare]:
    for cost in (embedding, output, *costs.values()):
        yield from cost.weights


def _largest(
    stages: tuple[Stage, ...],
    costs: dict[Block, BlockCost],
    embedding: BlockCost,
    output: BlockCost,
    member: Callable[[WeightShare], bool],
) -> Expr:
    """Elements of the weights for which ``member`` holds, on the stage that has most of them."""
    sums = [
        weights_over_stage(s, costs, embedding, output, lambda w: w.elements if member(w) else sympy.Integer(0))
        for s in stages
    ]
    return functions().fmax(*sums)


def _buckets(
    costs: dict[Block, BlockCost], embedding: BlockCost, output: BlockCost, stages: tuple[Stage, ...]
) -> list[tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], Expr]]:
    """Gradients that are reduced together: (partial atoms, atoms kept flat, atoms reduced already, elements)."""
    groups = dict.fromkeys((w.partial, w.flat_optimizer, w.flat_gradient) for w in _shares(costs, embedding, output))
    found = []
    for partial, flat, early in groups:
        if partial:

            def member(w: WeightShare, key: object = (partial, flat, early)) -> bool:
                return (w.partial, w.flat_optimizer, w.flat_gradient) == key

            found.append((partial, flat, early, _largest(stages, costs, embedding, output, member)))
    return found


def _reductions(
    partial: tuple[str, ...], flat: tuple[str, ...], early: tuple[str, ...], size: Expr, setting: Setting
) -> list[Collective]:
    """Once a step: reduce-scatter over atoms that keep the state split, all-reduce over the others.

    What is kept split as gradients (``early``) was scattered in every backward pass already.
    """
    mesh = setting.mesh
    found = []
    size = size / mesh.degree(early)
    late = ordered(frozenset(flat) - frozenset(early), mesh)
    rest = ordered(frozenset(partial) - frozenset(flat) - frozenset(early), mesh)
    if late:
        found.append(Collective("reduce_scatter", "gradients", "gradients", "update", late, size, "gradient"))
        size = size / mesh.degree(late)
    if rest:
        found.append(Collective("all_reduce", "gradients", "gradients", "update", rest, size, "gradient"))
    return found


def _replicated(
    costs: dict[Block, BlockCost], embedding: BlockCost, output: BlockCost, stages: tuple[Stage, ...], setting: Setting
) -> list[Collective]:
    """Once a step: copies of a replicated part add up what each has of its gradient, after any scatter."""
    found = []
    for group in dict.fromkeys(w.copies for w in _shares(costs, embedding, output) if w.copies):

        def kept(w: WeightShare, group: tuple[str, ...] = group) -> Expr:
            return _scattered(w, setting.mesh) if w.copies == group else sympy.Integer(0)

        size = functions().fmax(*(weights_over_stage(s, costs, embedding, output, kept) for s in stages))
        found.append(Collective("all_reduce", "gradients of copies", "gradients", "update", group, size, "gradient"))
    return found


def _scattered(w: WeightShare, mesh: Mesh) -> Expr:
    """Elements of a weight's gradient that a device has after any scatter."""
    return w.trained / mesh.degree({*w.flat_gradient, *w.flat_optimizer})


def _opposite(
    plan: Plan, costs: dict[Block, BlockCost], embedding: BlockCost, output: BlockCost, stages: tuple[Stage, ...],
    setting: Setting,
) -> Collective:  # fmt: skip
    """Once a step: both devices that hold a stage hand each other its gradients, after any scatter."""
    left = (weights_over_stage(s, costs, embedding, output, lambda w: _scattered(w, setting.mesh)) for s in stages)
    size = functions().fmax(*left)
    atoms = stage_atoms(plan, setting.mesh)
    return Collective("send", "gradients of opposite stages", "gradients", "update", atoms, size, "gradient")


def _gathers(
    costs: dict[Block, BlockCost], embedding: BlockCost, output: BlockCost, stages: tuple[Stage, ...], setting: Setting
) -> list[Collective]:
    """Updated weights, where the state is split and the weights are stored whole."""
    groups = dict.fromkeys((w.flat_optimizer, w.flat_weight) for w in _shares(costs, embedding, output))
    found = []
    for flat, stored in groups:
        over = ordered(frozenset(flat) - frozenset(stored), setting.mesh)
        if over:

            def member(w: WeightShare, key: object = (flat, stored)) -> bool:
                return (w.flat_optimizer, w.flat_weight) == key

            size = _largest(stages, costs, embedding, output, member)
            found.append(Collective("all_gather", "updated weights", "weights", "update", over, size, "weight"))
    return found


def _update(
    plan: Plan,
    setting: Setting,
    phase: Phase,
    costs: dict[Block, BlockCost],
    embedding: BlockCost,
    output: BlockCost,
    stages: tuple[Stage, ...],
) -> list[Node]:
    """Adam on the elements this device owns: gradient, master and moments in; master, moments and weight out.

    Where gradients are clipped their norm is taken first: every device reads its own once, and all add up one number.
    """
    mesh = setting.mesh

    def owned(w: WeightShare) -> Expr:
        return w.trained / mesh.degree(w.flat_optimizer)

    size = functions().fmax(*(weights_over_stage(s, costs, embedding, output, owned) for s in stages))
    found: list[Node] = []
    if plan.clip:
        norm = Work("gradient norm", "update", "optimizer", 2 * size * unit_symbol("FLOP"), sympy.Integer(0),
                    {"gradient": size * width("gradient")}, {})  # fmt: skip
        whole = tuple(
            name for dimension in plan.dimensions if not dimension.lenders for name in mesh.view(dimension.name)
        )
        total = Collective("all_reduce", "gradient norm", "gradient norm", "update", whole, sympy.Integer(1), "wide")
        found.append(work_leaf(norm, setting.family, phase.name))
        found.append(collective_node(total, mesh, setting.network, setting.family, phase.name))
    work = Work(
        "optimizer", "update", "optimizer", OPTIMIZER_FLOPS * size * unit_symbol("FLOP"), sympy.Integer(0),
        {"gradient": size * width("gradient"), "state": size * (width("master") + width("moment"))},
        {"state out": size * (width("master") + width("moment")), "weight": size * width("weight")},
    )  # fmt: skip
    return [*found, work_leaf(work, setting.family, phase.name)]


def _ledger(
    plan: Plan,
    setting: Setting,
    embedding: BlockCost,
    output: BlockCost,
    costs: dict[Block, BlockCost],
    stage: Stage,
) -> Ledger:
    mesh = setting.mesh
    f = functions()
    schedule = plan.schedule
    degree = stage_degree(plan, mesh)
    micro_batches = symbol("micro_batches")
    in_flight = schedule.in_flight(stage.index, degree, micro_batches) if schedule else sympy.Integer(1)

    def over(pick: Callable[[WeightShare], Expr]) -> Expr:
        return weights_over_stage(stage, costs, embedding, output, pick)

    state, gradient = width("master") + width("moment"), width("gradient") + width("gradient_copy")
    saved = over_stage(stage, costs, embedding, output, lambda c: c.saved)
    kept = setting.rules.states("weight", "kept")
    rows: tuple[Row, ...] = (
        Row("weights", over(lambda w: stored_weights(w, mesh))),
        Row("gradients", over(lambda w: w.trained * gradient / mesh.degree(w.flat_gradient))),
        Row("optimizer", over(lambda w: w.trained * state / mesh.degree(w.flat_optimizer))),
        Row("activations", in_flight * saved, ("compute",)),
        Row(
            "workspace",
            f.fmax(
                stage.copies * stage.embedding * _transient(embedding, mesh, kept),
                stage.copies * stage.output * _transient(output, mesh, kept),
                *(f.lt(0, count) * _transient(costs[block], mesh, kept) for block, count in stage.layers),
            ),
            ("compute",),
        ),
        Row("reserve", symbol("reserve")),
    )
    if kept:  # all that a forward pass gathered, until its backward pass is through
        rows += (Row("gathered", over(lambda w: _elsewhere(w, mesh)), ("compute",)),)
    return Ledger(stage.label, rows, stage.index, saved)


def _transient(cost: BlockCost, mesh: Mesh, kept: bool) -> Expr:
    """Momentary bytes of one block: its working set, gradients until scattered, weights while they are gathered, unless
    those are ``kept``, which has a row of its own."""
    reduced = (
        w.trained * width("gradient") * (1 - 1 / mesh.degree(w.flat_gradient)) for w in cost.weights if w.flat_gradient
    )
    return cost.working + sympy.Add(*reduced) + (sympy.Integer(0) if kept else _gathered(cost, mesh))


def _gathered(cost: BlockCost, mesh: Mesh) -> Expr:
    """Bytes of a block's gathered weights besides this device's own part."""
    return sympy.Add(*(_elsewhere(w, mesh) for w in cost.weights))


def _elsewhere(w: WeightShare, mesh: Mesh) -> Expr:
    """Bytes of a weight that other devices keep and this one gathers."""
    kept_here = 1 / mesh.degree(w.flat_weight) if w.flat_weight else sympy.Integer(1)
    return w.elements * width(w.weight.kept) * (1 - kept_here)


def build_training(plan: Plan) -> Program:
    """Compile the step, its ledger and its counts."""
    model = training_model(plan)
    builder = Builder(ORDER)
    compiler = TreeCompiler(builder)
    root = compiler.add(model.step)
    builder.output("step_time", compiler.slot(model.step))
    builder.output("model_flops", builder.expr(model.model_flops))
    builder.output("hardware_flops", builder.expr(model.hardware_flops))
    ledger = compile_ledgers(model.ledgers, builder, "memory.")
    facts = {"model_flops": compiler.text(model.model_flops), "hardware_flops": compiler.text(model.hardware_flops)}
    return Program(builder.finish(), compiler.nodes, {"step": root}, ledger, facts)
