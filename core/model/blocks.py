"""What one block costs on one device: time of its passes, what it keeps, what its weights occupy.

Floor: model. Joins the law's parts for one block; ``study`` puts blocks into stages and steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import sympy
from attrs import evolve, frozen

from ..algebra.cost import Node, Sequence
from ..algebra.functions import functions
from .axes import FLAT, Weight
from .backward import Backward, backward, saved_tensors
from .collectives import Network
from .graph import Block, cached
from .interfaces.kernels import KernelFamily
from .layout import Rules
from .mesh import Mesh
from .ops import Attention, LatentAttention
from .phase import Phase, Placed, ordered, weight_layout, width
from .placement import Placer
from .pricing import beside, steps_node
from .work import Alternatives, Collective, Gradient, Step, Work

if TYPE_CHECKING:
    from sympy import Expr

Recompute = Literal["none", "selective", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@frozen
class Setting:
    """Everything the law needs besides the block: rules and mesh, prices and network, and the choices of a run."""

    rules: Rules
    mesh: Mesh
    family: KernelFamily
    network: Network
    recompute: Recompute = "none"


@frozen
class WeightShare:
    """One weight on one device: local elements, and the atoms over which its copies are kept sharded.

    ``partial``: atoms over which its gradient is a partial sum (it is replicated over them); ``flat_*``: those of
    them over which the stored weight, gradient and optimizer state are split as packed elements; ``copies``: groups
    of ranks with the same part of a replicated axis, whose gradients have to be summed as well. A frozen weight has
    nothing to sum and nothing to update: of these only ``flat_weight``.
    """

    weight: Weight
    elements: Expr
    partial: tuple[str, ...]
    flat_weight: tuple[str, ...]
    flat_gradient: tuple[str, ...]
    flat_optimizer: tuple[str, ...]
    copies: tuple[str, ...] = ()

    @property
    def trained(self) -> Expr:
        """Local elements that have a gradient and a state of the optimizer: all, or none."""
        return sympy.Integer(0) if self.weight.frozen else self.elements


@frozen
class BlockCost:
    """One block in one phase on one device.

    ``forward``, ``backward``: trees [s] (backward with what it recomputes); ``saved``: bytes kept from forward to
    backward [B]; ``working``: bytes of the largest momentary working set [B]; ``model_flops`` and ``hardware_flops`` of
    both passes over all devices of the group (hardware: what is recomputed counts again).
    """

    block: Block
    placed: Placed
    forward: Node
    backward: Node | None
    saved: Expr
    working: Expr
    weights: tuple[WeightShare, ...]
    model_flops: Expr
    hardware_flops: Expr


def recomputed_ops(block: Block, mode: Recompute) -> frozenset[str]:
    """Names of the operations that the backward pass runs again."""
    if mode == "full":
        return frozenset(op.name for op in block.ops)
    if mode == "selective":
        return frozenset(op.name for op in block.ops if isinstance(op, (Attention, LatentAttention)))
    return frozenset()


def block_cost(block: Block, phase: Phase, setting: Setting, *, recompute: Recompute | None = None) -> BlockCost:
    """Place, derive and price one block."""
    placed = Placer(block, phase, setting.rules, setting.mesh).place()
    steps = list(placed.steps)
    again: list[Step] = []
    back: Backward | None = None
    saved: Expr = sympy.Integer(0)
    names = frozenset(weight.name for weight in block.weights())
    if phase.cached:  # what a cache keeps is no working set: it has a row of its own
        names |= {tensor.name for op in block.ops for tensor in cached(op)}
    working = _working(placed.steps, names)
    mode = setting.recompute if recompute is None else recompute
    if phase.training:
        ops = recomputed_ops(block, mode)
        back = backward(placed)
        again = [step for op in block.ops if op.name in ops for step in placed.by_op[op.name]]
        saved = kept_bytes(placed, ops)
        working = _working(back.steps, names)
        if mode == "full":
            working = working + kept_bytes(placed, frozenset())
    gradients = {g.weight: g for g in (*back.gradients, *back.frozen)} if back else {}
    weights = weight_shares(block, placed, setting, gradients)
    gathers, more = _sharded_weights(weights)

    def node(name: str, what: list[Step], transfers: list[Collective]) -> Node:
        tree = steps_node(name, what, setting.family, setting.mesh, setting.network, phase.name)
        tree = tree if isinstance(tree, Sequence) else Sequence(name, (tree,), tags={"phase": phase.name})
        if not phase.training:  # an engine launches its steps as a graph, and keeps its weights whole
            return tree
        moved = (
            steps_node("weights", transfers, setting.family, setting.mesh, setting.network, phase.name)
            if transfers
            else None
        )
        return beside(name, tree, moved, phase.name)

    everything = [*placed.steps, *again, *(back.steps if back else ())]
    useful = [*placed.steps, *(back.steps if back else ())]
    return BlockCost(
        block,
        placed,
        node(f"{block.name} forward", steps, gathers),
        node(f"{block.name} backward", [*again, *back.steps], more) if back else None,
        saved,
        working,
        weights,
        sympy.Add(*(w.model_flops for w in _works(useful))),
        sympy.Add(*(w.model_flops for w in _works(everything))),
    )


def kept_bytes(placed: Placed, recomputed: frozenset[str]) -> Expr:
    """Bytes of the tensors kept for backward, each in its stored layout."""
    total: list[Expr] = []
    for name, tensor in saved_tensors(placed, recomputed).items():
        layout = placed.stored.get(name)
        if layout is None:  # what the attention core makes itself: split as the queries and heads are
            queries = next(u for u in placed.uses if u.op.name == name.rsplit(".", 1)[0])
            layout = queries.layouts[queries.op.reads[0].name].only(tensor.roles)
        total.append(placed.elements(tensor, layout) * width(tensor.format))
    return sympy.Add(*total)


def weight_shares(
    block: Block, placed: Placed, setting: Setting, gradients: Mapping[str, Gradient]
) -> tuple[WeightShare, ...]:
    """Every weight of the block as this device holds it."""
    mesh, rules = setting.mesh, setting.rules
    shares = []
    for weight in block.weights():
        layout = next(
            (use.layouts[weight.name] for use in placed.uses if weight.name in use.layouts), None
        ) or weight_layout(weight, rules, mesh)
        gradient = gradients.get(weight.name)
        sums = gradient.partial if gradient else ()
        live = not weight.frozen

        def flat(kind: Literal["weight", "gradient", "optimizer"], sums: tuple[str, ...] = sums) -> tuple[str, ...]:
            return ordered(frozenset(sums) & frozenset(rules.stored_atoms(kind, FLAT, mesh)), mesh)

        shares.append(
            WeightShare(
                weight,
                placed.elements(weight, layout),
                tuple(sums) if live else (),
                flat("weight"),
                flat("gradient") if live else (),
                flat("optimizer") if live else (),
                gradient.copies if gradient and live else (),
            )
        )
    return tuple(shares)


def _sharded_weights(weights: tuple[WeightShare, ...]) -> tuple[list[Collective], list[Collective]]:
    """What moves beside a forward and a backward pass: weights stored flat are gathered before each, gradients stored
    flat are scattered after each backward."""
    gathers: dict[tuple[tuple[str, ...], str], Expr] = {}
    scatters: dict[tuple[str, ...], Expr] = {}
    for share in weights:
        if share.flat_weight:
            key = share.flat_weight, "frozen" if share.weight.kept == "frozen" else "weight"
            gathers[key] = gathers.get(key, 0) + share.elements
        if share.flat_gradient:
            scatters[share.flat_gradient] = scatters.get(share.flat_gradient, 0) + share.elements
    forward = [Collective("all_gather", "weights", "weights", "forward", a, n, f) for (a, f), n in gathers.items()]
    second = [evolve(gather, direction="input gradient") for gather in forward]
    reduced = [
        Collective("reduce_scatter", "gradients", "weights", "weight gradient", a, n, "gradient")
        for a, n in scatters.items()
    ]
    return forward, [*second, *reduced]


def _works(steps: Iterable[Step]) -> Iterable[Work]:
    for step in steps:
        if isinstance(step, Work):
            yield step
        elif isinstance(step, Alternatives):
            yield from next(iter(step.variants.values()))


def _working(steps: Iterable[Step], apart: frozenset[str]) -> Expr:
    """Bytes of the largest operation's activations and their gradients, input and output together.

    Tensors named ``apart`` have rows of their own. Of several ways to do an operation the one that needs least counts:
    long contexts, where they differ most, are decoded that way.
    """
    f = functions()
    sizes: dict[Expr, None] = {}
    for step in steps:
        if isinstance(step, Alternatives):
            sizes[f.fmin(*(_working(works, apart) for works in step.variants.values()))] = None
        elif isinstance(step, Work) and step.direction != "weight gradient" and step.kind != "lookup":
            own = {**step.reads, **step.writes}
            sizes[sympy.Add(*(size for name, size in own.items() if name not in apart))] = None
    return f.fmax(0, *sizes)
