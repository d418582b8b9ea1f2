"""What building both kinds of programs shares: the setting of the law, stage sums, weights in memory.

Floor: study. Imports sympy; only imported when a program is built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import sympy

from ..algebra.cost import Leaf, Node, Repeat, Sequence
from ..algebra.formula import Formula
from ..algebra.functions import functions
from ..algebra.symbols import symbol
from ..model import symbols as _registered  # noqa: F401  # registers the law's symbols
from ..model.axes import EXPERTS
from ..model.blocks import BlockCost, Recomputation, Setting, WeightShare
from ..model.collectives import Network
from ..model.graph import Block
from ..model.layout import Distribution
from ..model.mesh import Mesh
from ..model.phase import width
from ..model.stages import Stage, layer_total
from .plan import Plan

if TYPE_CHECKING:
    from sympy import Expr


HOST = Formula(
    "host step",
    inputs={"step_overhead": "s", "sequence_overhead": "s", "sequences": "1"},
    parameters=(),
    build=lambda n: (
        n.step_overhead + n.sequences * n.sequence_overhead,
        {"host": n.step_overhead + n.sequences * n.sequence_overhead},
    ),
    unit="s",
    source="defined here: time of the software for one step",
)


def host_leaf(phase: str, sequences: Expr) -> Leaf:
    """Time on the host for one step that no device work hides."""
    return Leaf(
        "host", HOST,
        {"step_overhead": symbol("step_overhead"), "sequence_overhead": symbol("sequence_overhead"),
         "sequences": sequences},
        tags={"phase": phase, "kind": "host"},
    )  # fmt: skip


def setting_of(plan: Plan) -> Setting:
    """Rules, mesh, prices and network of a plan."""
    schedule = plan.schedule
    rules = plan.rules
    mesh = Mesh.of(plan.dimensions)
    for split in rules.splits:
        if split.distribution is Distribution.REPLICATED and mesh.view(split.over):
            for size in plan.graph.sizes:
                if size.partition("@")[0] == split.axis:
                    mesh = mesh.with_copies(size, split.over)
    return Setting(
        rules,
        mesh,
        plan.family,
        Network(plan.tiers),
        _again(plan, mesh),
        plan.task == "train" and schedule is not None and schedule.bubble is not None,
        plan.task != "train" or plan.graphs,  # an engine launches its steps as graphs
    )


def _again(plan: Plan, mesh: Mesh) -> Recomputation:
    """What is computed again; so many layers of a stage as are asked for."""
    mode = plan.recompute
    assert mode in ("none", "selective", "full")
    f = functions()
    share, group = None, sympy.Integer(1)
    held = f.cdiv(layer_total(plan.graph), stage_degree(plan, mesh))
    if plan.recompute_layers:
        share = f.fmin(1, plan.recompute_layers / held)
    if plan.recompute_group > 1:  # a group ends where the layers that are computed again do
        group = f.fmin(plan.recompute_group, held, *([plan.recompute_layers] if plan.recompute_layers else ()))
    return Recomputation(
        mode,  # type: ignore[arg-type]  # narrowed by the assertion above
        frozenset(plan.recompute_ops), share, group,
    )  # fmt: skip


def expert_skew(plan: Plan, mesh: Mesh) -> Expr:
    """The load of the busiest expert rank over the mean: at most all of it, so that a single rank has no skew."""
    return functions().fmin(symbol("load_skew"), mesh.degree(plan.rules.split_atoms(EXPERTS, mesh)))


def stage_degree(plan: Plan, mesh: Mesh) -> Expr:
    """Number of pipeline stages."""
    schedule = plan.schedule
    return mesh.degree(mesh.view(schedule.dimension)) if schedule else sympy.Integer(1)


def stage_atoms(plan: Plan, mesh: Mesh) -> tuple[str, ...]:
    """The atoms that stages lie on."""
    schedule = plan.schedule
    return mesh.view(schedule.dimension) if schedule else ()


def over_stage(
    stage: Stage,
    costs: dict[Block, BlockCost],
    embedding: BlockCost,
    output: BlockCost,
    pick: Callable[[BlockCost], Expr],
) -> Expr:
    """A quantity of blocks summed over what one stage holds."""
    parts = [stage.embedding * pick(embedding), stage.output * pick(output)]
    parts += [count * pick(costs[block]) for block, count in stage.layers]
    return sympy.Add(*parts)


def layers_node(
    name: str,
    layers: Iterable[tuple[Block, Expr]],
    costs: dict[Block, BlockCost],
    pick: Callable[[BlockCost], Node | None],
) -> list[Node]:
    """A repeat node for each kind of layer."""
    nodes: list[Node] = []
    for block, count in layers:
        body = pick(costs[block])
        if body is not None:
            nodes.append(Repeat(f"{name}: {block.name}", count, body))
    return nodes


def stage_node(
    stage: Stage,
    costs: dict[Block, BlockCost],
    embedding: BlockCost,
    output: BlockCost,
    pick: Callable[[BlockCost], Node | None],
    extra: Iterable[Node] = (),
) -> Sequence:
    """The time of everything one stage does for one pass."""
    nodes: list[Node] = []
    for present, cost in ((stage.embedding, embedding), (stage.output, output)):
        body = pick(cost)
        if body is not None:
            nodes.append(Repeat(f"{cost.block.name} if here", present, body))
    nodes[1:1] = layers_node("layers", stage.layers, costs, pick)
    return Sequence(stage.label, (*nodes, *extra))


def stored_weights(share: WeightShare, mesh: Mesh) -> Expr:
    """Bytes of a stored weight."""
    return share.elements * width(share.weight.kept) / mesh.degree(share.flat_weight)


def copies(cost: BlockCost) -> list[WeightShare]:
    """Tied weights of the output block that are copies where the embedding is on another stage: each table once.

    What is tied to a weight of this block itself (a prediction layer's output matrix to the model's) is no copy.
    """
    here = {w.weight.name for w in cost.weights}
    return list({w.weight.tied: w for w in cost.weights if w.weight.tied and w.weight.tied not in here}.values())


def tied_apart(stage: Stage, cost: BlockCost, pick: Callable[[WeightShare], Expr]) -> Expr:
    """A sum over the output block's weights on a stage: a tied one is there already beside the embedding."""
    own = sympy.Add(*(pick(w) for w in cost.weights if not w.weight.tied))
    tied = sympy.Add(*(pick(w) for w in copies(cost)))
    return stage.output * own + stage.output * (1 - stage.copies * stage.embedding) * tied


def weights_over_stage(
    stage: Stage,
    costs: dict[Block, BlockCost],
    embedding: BlockCost,
    output: BlockCost,
    pick: Callable[[WeightShare], Expr],
) -> Expr:
    """A sum over all weights that a stage holds."""

    def total(cost: BlockCost) -> Expr:
        return sympy.Add(*(pick(w) for w in cost.weights))

    parts = [stage.embedding * total(embedding), tied_apart(stage, output, pick)]
    parts += [count * total(costs[block]) for block, count in stage.layers]
    return stage.copies * sympy.Add(*parts)
