"""The backward pass, derived from the forward one: for y = x·w, dx = dy·w and dw = x·dy, under the same law.

Floor: model. Each gradient of a tensor gathers what its consumers contribute; contributions that are partial sums over
the same atoms are added first and reduced once, into the layout the tensor is stored in. Gradients of weights stay
local here, with the atoms over which they are partial sums; they are reduced once a step (data parallelism, ZeRO).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import sympy
from attrs import frozen

from ..algebra.symbols import unit_symbol
from .attention import attention_work, swap_heads
from .axes import BATCH, EXPERTS, QUERY, ROUTED, Tensor, Weight
from .latent import latent_gradient
from .layout import Layout
from .ops import Attention, Combine, Contraction, Dispatch, LatentAttention, Lookup, Loss, Norm, Pointwise
from .phase import Placed, Use, engine_of, ordered, reduction, stored_layout, unpacked, width
from .placement import Placer
from .routing import exchange, permuted
from .work import ROUTED_UNFUSED, Collective, Gradient, Step, Work, routed_bias, unfused, unfused_loss

if TYPE_CHECKING:
    from sympy import Expr

FLOP = unit_symbol("FLOP")
ZERO = sympy.Integer(0)


@frozen
class Backward:
    """A block's backward pass on one device: steps in order, and the gradients of its weights.

    ``frozen``: what would be the gradients of weights that are not trained. Nothing makes or keeps them; the atoms over
    which they would be summed are those that have the same weights, which may be stored split over them.
    """

    steps: tuple[Step, ...]
    gradients: tuple[Gradient, ...]
    frozen: tuple[Gradient, ...] = ()


class BackwardPlacer(Placer):
    """Walks the uses of a placed block in reverse."""

    def __init__(self, placed: Placed) -> None:
        super().__init__(placed.block, placed.phase, placed.rules, placed.mesh)
        self.placed = placed
        self.layout = dict(placed.stored)
        self.tensors = dict(placed.tensors)
        self.root: dict[str, str] = {}
        self.home: dict[str, Layout] = {}
        self.pending: dict[str, dict[frozenset[str], Layout]] = {}
        self.ready: set[str] = set()
        self.refetched: set[tuple[str, frozenset[str]]] = set()
        self.gradients: dict[str, Gradient] = {}
        self.frozen: dict[str, Gradient] = {}

    def derive(self) -> Backward:
        """All operations in reverse; the gradient of the block's input is settled last."""
        for use in reversed(self.placed.uses):
            self.backward(use)
        first = self.tensors.get(self.block.input)
        if first is not None and first.name in self.pending:
            self.settle_gradient(first, self.placed.uses[0].op.name)
        return Backward(tuple(self.steps), tuple(self.gradients.values()), tuple(self.frozen.values()))

    # The gradient of a tensor: contributions, one reduction, gathers for its readers.

    def contribute(self, tensor: Tensor, layout: Layout, partial: frozenset[str]) -> None:
        """One consumer's part of the gradient of ``tensor``, left in ``layout`` as a partial sum over ``partial``."""
        parts = self.pending.setdefault(tensor.name, {})
        parts.setdefault(partial, layout)

    def home_of(self, tensor: Tensor) -> Layout:
        """The layout a tensor's gradient is stored in: the tensor's own, or that of a sum it went into unsettled."""
        found = self.home.get(tensor.name) or self.placed.stored.get(tensor.name)
        return found if found is not None else stored_layout(tensor, self.rules, self.mesh)

    def settle_gradient(self, tensor: Tensor, op: str) -> None:
        """Reduce what is partial, gather what was used split but is stored whole, into the stored layout."""
        if tensor.name in self.ready:
            return
        self.ready.add(tensor.name)
        final = self.home_of(tensor)
        for partial, layout in self.pending.pop(tensor.name, {}).items():
            if partial:
                kept = final.atoms() - layout.atoms()
                self.steps.extend(reduction(tensor, layout, partial, kept, op, "input gradient", self.mesh, self.phase))
            missing = layout.atoms() - final.atoms()
            if missing:
                self.steps.append(
                    Collective("all_gather", f"d({tensor.name})", op, "input gradient", ordered(missing, self.mesh),
                               self.count(tensor, layout.without(missing)), tensor.format)
                )  # fmt: skip

    def refetch(self, tensor: Tensor, wanted: Layout, op: str) -> None:
        """A saved tensor gathered again for the weight gradient: it was kept as stored, not as used."""
        missing = frozenset(self.layout[tensor.name].atoms() - wanted.atoms())
        key = (tensor.name, missing)
        if missing and key not in self.refetched:
            self.refetched.add(key)
            self.steps.append(
                Collective("all_gather", tensor.name, op, "weight gradient", ordered(missing, self.mesh),
                           self.count(tensor, wanted), tensor.format)
            )  # fmt: skip

    def gather_gradient(self, tensor: Tensor, use: Use) -> Layout:
        """The gradient of an output in the layout its operation needs: gathered where stored split, once for both."""
        self.settle_gradient(tensor, use.op.name)
        stored = self.home_of(tensor)
        used = use.layouts[tensor.name]
        missing = frozenset(stored.atoms() - used.atoms()) & use.taken
        root = self.root.get(tensor.name, tensor.name)
        key = (f"d({root})", missing)
        if missing and key not in self.refetched:
            self.refetched.add(key)
            self.steps.append(
                Collective("all_gather", f"d({tensor.name})", use.op.name, "input gradient",
                           ordered(missing, self.mesh), self.count(tensor, used), tensor.format)
            )  # fmt: skip
        return used

    def weight(self, weight: Weight, layout: Layout, partial: frozenset[str]) -> None:
        """Record a weight's gradient."""
        record = self.frozen if weight.frozen else self.gradients
        known = record.get(weight.name)
        if known is not None:
            partial |= set(known.partial)
        record[weight.name] = Gradient(
            weight.name,
            self.count(weight, layout),
            ordered(partial, self.mesh),
            weight.format,
            tuple(group for a in weight.axes for group in self.mesh.copies.get(a.size, ())),
        )

    # Each kind of operation.

    def backward(self, use: Use) -> None:
        """The gradient operations of one forward operation."""
        op = use.op
        if isinstance(op, Contraction):
            self.contraction_gradient(op, use)
        elif isinstance(op, Attention):
            self.attention_gradient(op, use)
        elif isinstance(op, LatentAttention):
            self.latent_gradient(op, use)
        elif isinstance(op, Dispatch):
            self.dispatch_gradient(op, use)
        elif isinstance(op, Combine):
            self.combine_gradient(op, use)
        elif isinstance(op, Lookup):
            self.lookup_gradient(op, use)
        elif isinstance(op, Loss):
            self.loss_gradient(op, use)
        elif isinstance(op, Pointwise):
            self.pointwise_gradient(op, use)

    def contraction_gradient(self, op: Contraction, use: Use) -> None:
        """dx = dy·w over the new axes; dw = x·dy over the rows, where the weight is trained."""
        x, weight, out = (use.layouts[t.name] for t in (op.x, op.weight, op.out))
        self.gather_gradient(op.out, use)
        flops, model, shape = self.product(op, x, weight)
        kind = str(shape.pop("kind"))
        m, n, k = shape["m"], shape["n"], shape["k"]
        rest = {key: value for key, value in shape.items() if key not in "mnk"}
        dy = self.size(op.out, out)
        dx = self.size(op.x, x)
        # Sums over axes that only the weight and the output have; an axis split there leaves dx partial.
        new = [a for a in op.weight.axes if a not in op.x.axes]
        partial = frozenset(atom for a in new for atom in weight[a.role])
        self.steps.extend(unpacked(op.weight, weight, op.name, "input gradient", self.mesh, self.phase))
        if op.bias is not None and kind == "grouped_gemm":
            self.steps.append(routed_bias(op.name, "input gradient", dy))
        self.steps.append(
            Work(op.name, "input gradient", kind, flops, model,
                 {f"d({op.out.name})": dy, op.weight.operand: self.weight_bytes(op, x, weight)},
                 {f"d({op.x.name})": dx}, {"m": m, "n": k, "k": n, **rest}, engine_of(op.weight),
                 f"d({op.x.name})")
        )  # fmt: skip
        self.contribute(op.x, x, partial)
        if not op.weight.frozen:
            self.refetch(op.x, x, op.name)
            elements = self.count(op.weight, weight)
            groups = rest.get("groups", sympy.Integer(1))  # one product an expert, each over its own tokens
            self.steps.append(
                Work(op.name, "weight gradient", kind, flops, model,
                     {op.x.name: dx, f"d({op.out.name})": dy},
                     {f"d({op.weight.name})": 2 * elements * width("gradient")},
                     {"m": n * groups, "n": k, "k": m / groups, **rest}, engine_of(op.weight), op.x.name)
            )  # fmt: skip
        rows = self.row_atoms(op.x, x) - frozenset(weight[EXPERTS])
        self.weight(op.weight, weight, rows)
        if op.bias is not None:
            bias = self.weight_layout(op.bias)
            # A bias after a partial sum is added to the settled output: it is read where that is stored.
            stored = self.placed.stored.get(op.out.name, out)
            self.weight(op.bias, bias, self.row_atoms(op.out, stored) - frozenset(bias[EXPERTS]))

    def row_atoms(self, tensor: Tensor, layout: Layout) -> frozenset[str]:
        """Atoms that split the tokens of a tensor: gradients of weights used on it are partial over them."""
        return frozenset(a for role in (BATCH, QUERY, ROUTED) if role in tensor.roles for a in layout[role])

    def attention_gradient(self, op: Attention, use: Use) -> None:
        """dq where q is; dk and dv over the whole context, partial over atoms that split the queries."""
        q, k, v, out = (use.layouts[t.name] for t in (op.q, op.k, op.v, op.out))
        self.gather_gradient(op.out, use)
        swapped = self.rules.swapped_atoms(self.mesh) & q.atoms()
        if swapped:  # saved as the core read them; their gradients go back to where their tokens are
            swap_heads(self, op, op.out, out, "input gradient")
            self.steps.append(attention_work(self, op, q, k, v, out, "input gradient"))
            for tensor, layout in ((op.q, q), (op.k, k), (op.v, v)):
                swap_heads(self, op, tensor, layout, "input gradient")
                self.contribute(tensor, self.placed.stored[tensor.name], frozenset())
            if op.sinks is not None:
                self.weight(op.sinks, self.weight_layout(op.sinks), self.row_atoms(op.q, self.layout[op.q.name]))
            return
        for tensor, layout in ((op.k, k), (op.v, v)):
            self.refetch(tensor, layout, op.name)
        self.steps.append(attention_work(self, op, q, k, v, out, "input gradient"))
        queries = frozenset(q[QUERY])
        self.contribute(op.q, q, frozenset())
        for tensor, layout in ((op.k, k), (op.v, v)):
            self.contribute(tensor, layout, queries - frozenset(layout[QUERY]))
        if op.sinks is not None:
            self.weight(op.sinks, self.weight_layout(op.sinks), self.row_atoms(op.q, q))

    def latent_gradient(self, op: LatentAttention, use: Use) -> None:
        """As attention; the latents feed every head, so their gradients are partial over atoms that split heads."""
        self.gather_gradient(op.out, use)
        q = use.layouts[op.q.name]
        for tensor in (op.latent, op.rope_key):
            self.refetch(tensor, use.layouts[tensor.name], op.name)
        self.steps.extend(latent_gradient(self, op, use.layouts))
        self.contribute(op.q, q, frozenset())
        shared = (frozenset(q[QUERY]) | use.taken) - self.row_atoms(op.latent, use.layouts[op.latent.name])
        for tensor in (op.latent, op.rope_key):
            self.contribute(tensor, use.layouts[tensor.name], shared)
        for weight in op.weights:
            self.weight(weight, use.layouts[weight.name], self.row_atoms(op.q, q))

    def dispatch_gradient(self, op: Dispatch, use: Use) -> None:
        """The mirror of dispatch: gradients of token copies come home and are summed.

        Dispatch is linear: sums that are open over atoms along which the copies are whole stay open.
        """
        home = self.home_of(op.out).atoms()
        pending = self.pending.get(op.out.name, {})
        carried = frozenset(a for partial in pending for a in partial) if len(pending) == 1 else frozenset()
        if carried & home:
            carried = frozenset()
        if carried:
            self.pending.pop(op.out.name)
        self.settle_gradient(op.out, op.name)
        x, routed = use.layouts[op.x.name], use.layouts[op.out.name]
        exchange(self, f"d({op.x.name})", op.name, "input gradient", op.x, x)
        self.steps.append(self.gradient_copy(op.name, op.out, routed, op.x, x))
        self.contribute(op.x, x, use.taken | carried)

    def combine_gradient(self, op: Combine, use: Use) -> None:
        """The mirror of combine: output gradients travel to the experts."""
        out, routed = use.layouts[op.out.name], use.layouts[op.x.name]
        self.gather_gradient(op.out, use)
        stream = stored_layout(op.out, self.rules, self.mesh)
        exchange(self, f"d({op.x.name})", op.name, "input gradient", op.out, stream)
        self.steps.append(self.gradient_copy(op.name, op.out, out, op.x, routed))
        self.contribute(op.x, routed, frozenset())

    def gradient_copy(self, name: str, source: Tensor, a: Layout, target: Tensor, b: Layout) -> Work:
        """One pass over memory in the backward direction."""
        copy = permuted(self, name, source, a, target, b)
        return Work(
            name, "input gradient", copy.kind, copy.flops, ZERO,
            {f"d({n})": s for n, s in copy.reads.items()}, {f"d({n})": s for n, s in copy.writes.items()},
        )  # fmt: skip

    def lookup_gradient(self, op: Lookup, use: Use) -> None:
        """Rows of the table collect the gradients of their tokens; nothing is left to do where it is frozen."""
        out, table = use.layouts[op.out.name], use.layouts[op.table.name]
        self.weight(op.table, table, self.row_atoms(op.out, out))
        if op.table.frozen:
            return
        self.gather_gradient(op.out, use)
        size = self.size(op.out, out)
        rows = self.count(op.out, out) * width("gradient")
        self.steps.append(
            Work(op.name, "weight gradient", "lookup", ZERO, ZERO,
                 {f"d({op.out.name})": size, f"d({op.table.name})": rows}, {f"d({op.table.name})": rows})
        )  # fmt: skip

    def loss_gradient(self, op: Loss, use: Use) -> None:
        """Probabilities minus the target: one pass."""
        layout = use.layouts[op.logits.name]
        count = self.count(op.logits, layout)
        given, kept = self.size(op.logits, layout), self.size(op.probabilities, layout)
        self.steps.append(
            Work(op.name, "input gradient", "pointwise", count * FLOP, ZERO, {op.probabilities.name: kept},
                 {f"d({op.logits.name})": given}, unfused_loss(given, kept, "input gradient"))
        )  # fmt: skip
        self.contribute(op.logits, layout, frozenset())

    def pointwise_gradient(self, op: Pointwise, use: Use) -> None:
        """Element by element; a plain sum hands its gradient on unchanged, at no cost."""
        for tensor in op.outputs:
            self.settle_gradient(tensor, op.name)
        if isinstance(op, Norm):  # sums of dy and of dy·x, as the means and squares forward
            self.statistics(op, use.layouts[op.inputs[0].name], "input gradient")
        hands_on = not op.saves and not op.parameters and len(op.outputs) == 1
        reads: dict[str, Expr] = {}
        writes: dict[str, Expr] = {}
        for tensor in op.outputs:
            if tensor.format != "mask":
                reads[f"d({tensor.name})"] = self.size(tensor, use.layouts[tensor.name])
        for tensor in op.saves:
            reads[tensor.name] = self.size(tensor, self.layout[tensor.name])
        for tensor in op.inputs:
            if hands_on:
                self.root[tensor.name] = self.root.get(op.outputs[0].name, op.outputs[0].name)
                self.home[tensor.name] = self.home_of(op.outputs[0])
            layout = self.home_of(tensor)
            writes[f"d({tensor.name})"] = self.size(tensor, layout)
            self.contribute(tensor, layout, frozenset())
        if not hands_on and op.inputs:
            first = op.inputs[0]
            flops = 2 * op.flops * self.count(first, self.layout[first.name]) * FLOP
            # unfused, a chain of operations has about two for each on the way back, less the one that starts it
            shape = unfused(2 * op.rounds - 1, writes.values())
            by = ROUTED_UNFUSED if op.apart else ""
            work = Work(op.name, "input gradient", "pointwise", flops, ZERO, reads, writes, shape, unfused_by=by)
            self.steps.append(work)
        for weight in op.parameters:  # partial over whatever splits an axis that the weight lacks: tokens, or heads too
            layout = use.layouts[op.inputs[0].name]
            summed = (a.role for a in op.inputs[0].axes if a not in weight.axes)
            self.weight(weight, use.layouts[weight.name], frozenset(atom for role in summed for atom in layout[role]))


def backward(placed: Placed) -> Backward:
    """The derived backward pass of a placed block."""
    return BackwardPlacer(placed).derive()


def saved_tensors(
    placed: Placed, recomputed: frozenset[str] = frozenset(), dropped: frozenset[str] = frozenset()
) -> Mapping[str, Tensor]:
    """Distinct tensors kept from forward to backward, by name.

    What operations named in ``recomputed`` write is not kept for them, only what they read from outside; every other
    operation keeps what its backward pass needs: latent attention the keys and values that it expanded, attention that
    is not fused its probabilities. What those in ``dropped`` write nobody keeps: it is made again before it is read.
    """
    written = {t.name for use in placed.uses if use.op.name in recomputed for t in use.op.writes}
    gone = {t.name for use in placed.uses if use.op.name in dropped for t in use.op.writes}
    kept: dict[str, Tensor] = {}
    for use in placed.uses:
        op = use.op
        needs = list(op.saves)
        if op.name in recomputed:
            needs = [t for t in (*op.saves, *op.reads) if t.name not in written]
        else:
            if isinstance(op, LatentAttention):
                needs.extend(op.expanded)
            if not placed.phase.fused_attention and isinstance(op, (Attention, LatentAttention)):
                needs.extend(probabilities(op))
        kept.update({t.name: t for t in needs if t.name not in gone})
    return kept


def probabilities(op: Attention | LatentAttention) -> list[Tensor]:
    """What unfused attention keeps per head and pair: the softmax, and where it drops out the result and the mask.

    Source: Korthikanti et al., arXiv:2205.05198, section 4.1 (2as²b, 2as²b and as²b bytes).
    """
    from .axes import CONTEXT, axis

    axes = (op.q.axes[0], op.q.axes[1], op.q.axes[2], axis(CONTEXT))
    found = [Tensor(f"{op.name}.softmax", axes)]
    if isinstance(op, Attention) and op.dropout:
        found += [Tensor(f"{op.name}.dropped", axes), Tensor(f"{op.name}.mask", axes, "mask")]
    return found
