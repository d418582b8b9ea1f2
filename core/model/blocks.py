"""What one block costs on one device: time of its passes, what it keeps, what its weights occupy.

Floor: model. Joins the law's parts for one block; ``study`` puts blocks into stages and steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

import sympy
from attrs import evolve, frozen

from ..algebra.cost import Node, Repeat, Sequence
from ..algebra.functions import functions
from .axes import FLAT, VOCAB, Weight
from .backward import Backward, backward, saved_tensors
from .collectives import Network
from .graph import Block, cached
from .interfaces.kernels import KernelFamily
from .layout import Rules
from .mesh import Mesh
from .ops import Attention, LatentAttention
from .phase import Phase, Placed, ordered, weight_layout, width
from .placement import Placer
from .pricing import WAITED, beside, steps_node
from .work import Alternatives, Collective, Gradient, Step, Work

if TYPE_CHECKING:
    from sympy import Expr

Recompute = Literal["none", "selective", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")


@frozen
class Recomputation:
    """What the backward pass computes again.

    ``mode``: nothing, the attention core, or whole layers; ``named``: further operations by name, whose outputs nobody
    keeps; ``share``: of the layers of a stage, those that are computed again (whole ones only; None for all);
    ``group``: layers between two inputs that are kept.
    """

    mode: Recompute = "none"
    named: frozenset[str] = frozenset()
    share: Expr | None = None
    group: Expr = sympy.S.One

    def ops(self, block: Block) -> frozenset[str]:
        """Names of a block's operations that run again."""
        if self.mode == "full":
            return frozenset(op.name for op in block.ops)
        core = (op.name for op in block.ops if isinstance(op, (Attention, LatentAttention)))
        return frozenset(core if self.mode == "selective" else ()) | self.dropped(block)

    def dropped(self, block: Block) -> frozenset[str]:
        """Of these the ones whose outputs are not kept for operations that read them either."""
        return frozenset(op.name for op in block.ops if op.name in self.named)


@frozen
class Setting:
    """Everything the law needs besides the block: rules and mesh, prices and network, and the choices of a run.

    ``again``: what backward passes compute again; ``halves``: the backward pass is made in two passes, gradients of
    activations first, those of weights later; ``graphs``: passes are launched as graphs, not kernel by kernel.
    """

    rules: Rules
    mesh: Mesh
    family: KernelFamily
    network: Network
    again: Recomputation = Recomputation()
    halves: bool = False
    graphs: bool = False


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
    both passes over all devices of the group (hardware: what is recomputed counts again). ``inputs`` and ``gradients``:
    the backward pass in halves, where a schedule has them apart.
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
    inputs: Node | None = None
    gradients: Node | None = None


def block_cost(block: Block, phase: Phase, setting: Setting, *, again: Recomputation | None = None) -> BlockCost:
    """Place, derive and price one block."""
    placed = Placer(block, phase, setting.rules, setting.mesh).place()
    steps = list(placed.steps)
    rerun: list[Step] = []
    back: Backward | None = None
    saved: Expr = sympy.Integer(0)
    names = frozenset(weight.name for weight in block.weights())
    if phase.cached:  # what a cache keeps is no working set: it has a row of its own
        names |= {tensor.name for op in block.ops for tensor in cached(op)}
    working = _working(placed.steps, names)
    plan = setting.again if again is None else again
    if phase.training:
        back = backward(placed)
        names_again = plan.ops(block)
        rerun = [step for op in block.ops if op.name in names_again for step in placed.by_op[op.name]]
        saved = kept_bytes(placed, names_again, plan.dropped(block))
        working = _working(back.steps, names)
        if plan.mode == "full":
            every = kept_bytes(placed, frozenset())
            working = working + plan.group * every
            saved = saved / plan.group
            if plan.share is not None:
                saved = plan.share * saved + (1 - plan.share) * every
    gradients = {g.weight: g for g in (*back.gradients, *back.frozen)} if back else {}
    weights = weight_shares(block, placed, setting, gradients)
    gathers, more = _sharded_weights(weights, again=not setting.rules.states("weight", "kept"))
    waits = setting.rules.states("weight", "waited")

    def priced(name: str, steps: Iterable[Step]) -> Sequence:
        tree = steps_node(name, steps, setting.family, setting.mesh, setting.network, phase.name)
        return tree if isinstance(tree, Sequence) else Sequence(name, (tree,), tags={"phase": phase.name})

    def node(name: str, what: list[Step], transfers: list[Collective], first: Sequence | None = None) -> Node:
        """A pass of the block; ``first``: what only some layers do before it."""
        waited, hidden = _apart(what, setting)
        moved = {kinds: priced("transfers", steps) for kinds, steps in hidden.items()}
        for kinds in (WAITED, "weights"):
            own = [c for c in transfers if (kinds == WAITED) == (waits and c.kind == "all_gather")]
            if own:
                moved[kinds] = priced("weights", own)
        tree = priced(name, waited)
        launches: Expr = sympy.Integer(len(tree.parts))
        if first is not None and plan.share is not None:
            launches = launches + plan.share * len(first.parts)
            tree = Sequence(name, (Repeat("layers computed again", plan.share, first), *tree.parts), tags=tree.tags)
        return beside(name, tree, moved, phase.name, None if setting.graphs else launches)

    def half(name: str, steps: list[Step], own: bool, first: Sequence | None = None) -> Node | None:
        mine = [step for step in steps if (step.direction == "weight gradient") == own]
        moved = [step for step in more if (step.direction == "weight gradient") == own]
        return node(f"{block.name} backward, {name}", mine, moved, first) if mine else None

    some = priced("computed again", rerun) if rerun and plan.share is not None else None
    late: list[Step] = [*([] if some else rerun), *back.steps] if back else []
    inputs, own = None, None
    backwards: Node | None = None
    if back and setting.halves:
        inputs, own = half("inputs", late, False, some), half("weights", late, True)
        backwards = Sequence(f"{block.name} backward", tuple(n for n in (inputs, own) if n is not None))
    elif back:
        backwards = node(f"{block.name} backward", late, more, some)
    useful = sympy.Add(*(w.model_flops for w in _works([*placed.steps, *(back.steps if back else ())])))
    more_flops = sympy.Add(*(w.model_flops for w in _works(rerun))) * (1 if plan.share is None else plan.share)
    return BlockCost(
        block, placed, node(f"{block.name} forward", steps, gathers), backwards, saved, working, weights, useful,
        useful + more_flops, inputs, own,
    )  # fmt: skip


def in_chunks(output: BlockCost, chunks: int) -> BlockCost:
    """The output block where so many parts of the tokens go through it one after the other, each with its gradients at
    once: of logits and what the loss keeps of them only one part is there. The work is the same.

    Source: Hsu et al., Liger Kernel, arXiv:2410.10989, section 3.2 (fused linear cross entropy).
    """
    if chunks == 1:
        return output
    placed = output.placed
    wide = [t for t in saved_tensors(placed).values() if VOCAB in t.roles]
    kept = sympy.Add(*(placed.elements(t, placed.stored[t.name]) * width(t.format) for t in wide))
    return evolve(output, saved=output.saved - kept * (chunks - 1) / chunks, working=output.working / chunks)


def _apart(steps: Iterable[Step], setting: Setting) -> tuple[list[Step], dict[str, list[Collective]]]:
    """Steps in order, and the transfers that a strategy has run beside computation, by the kinds of work they run
    beside ("" for all)."""
    rules, mesh = setting.rules, setting.mesh
    waited: list[Step] = []
    hidden: dict[str, list[Collective]] = {}
    for step in steps:
        rule = next(
            (r for r in rules.beside if isinstance(step, Collective) and set(step.atoms) <= set(mesh.view(r.over))),
            None,
        )
        if rule is None or not isinstance(step, Collective):
            waited.append(step)
        else:
            hidden.setdefault(" ".join(rule.work), []).append(step)
    return waited, hidden


def kept_bytes(placed: Placed, recomputed: frozenset[str], dropped: frozenset[str] = frozenset()) -> Expr:
    """Bytes of the tensors kept for backward, each in its stored layout."""
    total: list[Expr] = []
    for name, tensor in saved_tensors(placed, recomputed, dropped).items():
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


def _sharded_weights(weights: tuple[WeightShare, ...], again: bool = True) -> tuple[list[Collective], list[Collective]]:
    """What moves beside a forward and a backward pass: weights stored flat are gathered before each (before the second
    only if they have to be ``again``), gradients stored flat are scattered after each backward."""
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
    return forward, [*(second if again else ()), *reduced]


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
