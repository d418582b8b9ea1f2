"""The law: from operations on axes and the layouts a strategy states to work and communication on one device.

Floor: model. For each operation the *used* layout of every tensor follows from the splits; where it differs from the
*stored* layout, or where a contracted axis is split, a collective follows:

* an atom that splits a weight's axis is taken; the operation needs its other tensors whole along it: **all-gather**
  of what is stored split over it;
* an atom that splits a contracted axis leaves a **partial sum**: all-reduce over it, or reduce-scatter where the
  stored output is split by it. The sum is settled when a non-linear operation reads it, so the partial outputs of two
  operations that are added meet in one collective;
* experts: an all-to-all over the atoms that split tokens, a partial sum over those that do not.

No strategy writes a collective. The backward pass follows the same rules (``backward``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy

from ..algebra.symbols import symbol, unit_symbol
from .attention import attention_work, split_by_heads, swap_heads
from .axes import BATCH, EXPERTS, QUERY, ROUTED, Axis, Tensor, Weight
from .graph import Block
from .latent import latent_work
from .layout import Layout, Rules, local_extent
from .mesh import Mesh
from .ops import (
    Attention,
    Combine,
    Contraction,
    Dispatch,
    GroupedContraction,
    LatentAttention,
    Lookup,
    Loss,
    Norm,
    Op,
    Pointwise,
    Sampling,
)
from .phase import (
    Phase,
    Placed,
    Use,
    elements,
    engine_of,
    ordered,
    reduction,
    routed_copies,
    stored_layout,
    unpacked,
    weight_layout,
    width,
)
from .routing import combine, dispatch
from .work import ROUTED_UNFUSED, Collective, Direction, Step, Work, routed_bias, unfused, unfused_loss

if TYPE_CHECKING:
    from sympy import Expr

FLOP = unit_symbol("FLOP")


class Placer:
    """Walks the operations of one block forward, keeping the stored layout and open partial sums of each tensor."""

    def __init__(self, block: Block, phase: Phase, rules: Rules, mesh: Mesh) -> None:
        self.block, self.phase, self.rules, self.mesh = block, phase, rules, mesh
        self.layout: dict[str, Layout] = {}
        self.partial: dict[str, frozenset[str]] = {}
        self.tensors: dict[str, Tensor] = {}
        self.gathered: set[tuple[str, frozenset[str]]] = set()
        self.steps: list[Step] = []
        self.uses: list[Use] = []

    def place(self) -> Placed:
        """The whole block; its output is settled into its stored layout at the end."""
        by_op: dict[str, tuple[Step, ...]] = {}
        for op in self.block.ops:
            if isinstance(op, Sampling if self.phase.training else Loss):
                continue  # the output block ends both ways; a phase has one of them
            for tensor in (*op.reads, *op.writes, *op.saves):
                self.tensors.setdefault(tensor.name, tensor)
            before = len(self.steps)
            self.forward(op)
            by_op[op.name] = tuple(self.steps[before:])
        last = self.tensors.get(self.block.output)
        if last is not None:
            self.settle(last, self.block.ops[-1].name)
        return Placed(
            self.block, self.phase, self.mesh, self.rules, tuple(self.steps), by_op, tuple(self.uses),
            dict(self.layout), dict(self.tensors),
        )  # fmt: skip

    # What each kind of operation does to layouts.

    def forward(self, op: Op) -> None:
        """One operation: gathers, its work, and the layout of what it writes."""
        if isinstance(op, Contraction):
            self.contraction(op)
        elif isinstance(op, Attention):
            self.attention(op)
        elif isinstance(op, LatentAttention):
            self.latent_attention(op)
        elif isinstance(op, Dispatch):
            dispatch(self, op)
        elif isinstance(op, Combine):
            combine(self, op)
        elif isinstance(op, Lookup):
            self.lookup(op)
        elif isinstance(op, Loss):
            self.loss(op)
        elif isinstance(op, Sampling):
            self.sampling(op)
        elif isinstance(op, Pointwise):
            self.pointwise(op)
        else:
            raise TypeError(f"the law has no rule for operation {type(op).__name__} ({op.name})")

    def stored(self, tensor: Tensor) -> Layout:
        """The stored layout of a tensor; one that no operation wrote (the block's input) has the strategy's."""
        if tensor.name not in self.layout:
            self.layout[tensor.name] = stored_layout(tensor, self.rules, self.mesh)
        return self.layout[tensor.name]

    def settle(self, tensor: Tensor, op: str) -> None:
        """Reduce an open partial sum: reduce-scatter over atoms by which the tensor is stored, else all-reduce."""
        partial = self.partial.pop(tensor.name, frozenset())
        if not partial:
            return
        now = self.stored(tensor)
        final = stored_layout(tensor, self.rules, self.mesh) if tensor.is_stream else now
        kept = final.atoms() - now.atoms()
        self.steps.extend(reduction(tensor, now, partial, kept, op, "forward", self.mesh, self.phase))
        self.layout[tensor.name] = final

    def gather(self, tensor: Tensor, atoms: frozenset[str], op: str) -> Layout:
        """The tensor whole along ``atoms``: an all-gather where it is stored split by them, once per tensor."""
        stored = self.stored(tensor)
        used = stored.without(atoms)
        wanted = stored.atoms() & atoms
        if wanted and (tensor.name, frozenset(wanted)) not in self.gathered:
            self.gathered.add((tensor.name, frozenset(wanted)))
            self.steps.append(
                Collective(
                    "all_gather", tensor.name, op, "forward", ordered(wanted, self.mesh), self.count(tensor, used),
                    tensor.format,
                )
            )  # fmt: skip
        return used

    def count(self, tensor: Tensor, layout: Layout) -> Expr:
        return elements(tensor, layout, self.mesh, self.phase)

    def size(self, tensor: Tensor, layout: Layout) -> Expr:
        return self.count(tensor, layout) * width(tensor.format)

    def write(self, tensor: Tensor, layout: Layout, partial: frozenset[str] = frozenset()) -> None:
        """A tensor appears, in the layout its operation left it in, with sums open over ``partial``."""
        self.layout[tensor.name] = layout
        if partial:
            self.partial[tensor.name] = partial
        elif tensor.is_stream:
            # Whole where it is stored split: each device keeps its slice, at no cost.
            final = stored_layout(tensor, self.rules, self.mesh)
            if layout.atoms() < final.atoms():
                self.layout[tensor.name] = final

    def weight_layout(self, weight: Weight) -> Layout:
        """How a weight is used under this placement's rules."""
        return weight_layout(weight, self.rules, self.mesh)

    def contraction(self, op: Contraction) -> None:
        """Linear layers, of all tokens or of routed ones."""
        self.settle(op.x, op.name)
        weight = self.weight_layout(op.weight)
        shared = [a for a in op.weight.axes if a in op.x.axes]
        summed = [a for a in shared if a not in op.out.axes]
        # The experts axis is walked in step by x (its routed copies) and the weight: no one has to be whole along it.
        aligned = frozenset(weight[EXPERTS])
        split_alike = frozenset(a for s in shared for a in weight[s.role] if a in self.stored(op.x)[s.role])
        x = self.gather(op.x, weight.atoms() - aligned - split_alike, op.name)
        for s in shared:  # stored whole, used split: a local slice
            if s.role != EXPERTS:
                x = x.with_axis(s.role, weight[s.role]) if weight[s.role] else x
        out = Layout({r: x[r] for r in x.over if r in op.out.roles and r not in weight.over})
        for a in op.out.axes:
            if a in op.weight.axes and weight[a.role] and a.role != EXPERTS:
                out = out.with_axis(a.role, weight[a.role])
        partial = frozenset(atom for s in summed for atom in weight[s.role])
        flops, model, shape = self.product(op, x, weight)
        self.steps.extend(unpacked(op.weight, weight, op.name, "forward", self.mesh, self.phase))
        self.steps.append(
            Work(
                op.name, "forward", shape["kind"], flops, model,
                {op.x.name: self.size(op.x, x), op.weight.operand: self.weight_bytes(op, x, weight)},
                {op.out.name: self.size(op.out, out)},
                {k: v for k, v in shape.items() if k != "kind"}, engine_of(op.weight), op.x.name,
            )
        )  # fmt: skip
        if op.bias is not None and shape["kind"] == "grouped_gemm" and self.phase.training:
            self.steps.append(routed_bias(op.name, "forward", self.size(op.out, out)))
        self.uses.append(Use(op, {op.x.name: x, op.weight.name: weight, op.out.name: out}, weight.atoms() - aligned))
        self.write(op.out, out, partial)

    def product(self, op: Contraction, x: Layout, weight: Layout) -> tuple[Expr, Expr, dict[str, Expr]]:
        """FLOPs executed here, model FLOPs of the whole operation, and the matrix shape m·n·k with its kind."""
        summed = [a for a in op.weight.axes if a in op.x.axes and a not in op.out.axes]
        new = [a for a in op.weight.axes if a not in op.x.axes]
        k = self.product_of(summed, weight)
        n = self.product_of(new, weight)
        if isinstance(op, GroupedContraction):
            m = routed_copies(x, self.mesh, self.phase)
            whole_m = self.phase.extents[BATCH] * self.phase.extents[QUERY] * symbol("top_k")
            kind = "grouped_gemm"
        else:
            rows = [a for a in op.x.axes if a not in summed]
            m = self.product_of(rows, x)
            whole_m = self.product_of(rows, Layout())
            kind = "gemm"
        whole = 2 * whole_m * self.product_of(new, Layout()) * self.product_of(summed, Layout())
        shape = {"m": m, "n": n, "k": k, "kind": kind}
        if kind == "grouped_gemm":
            shape |= {"groups": self.experts_touched(op, x, weight), "skew": self.phase.load_skew}
        return 2 * m * n * k * FLOP, whole * FLOP, shape

    def product_of(self, axes: list[Axis], layout: Layout) -> Expr:
        return sympy.Mul(*(local_extent(self.phase.extent(a), layout[a.role], self.mesh) for a in axes))

    def experts_touched(self, op: Contraction, x: Layout, weight: Layout) -> Expr:
        """Experts of this device that at least one token reaches: E_local·(1 − (1 − k/E)^n) for n tokens.

        Valid when: each token picks its experts independently and evenly.
        """
        total = symbol("experts")
        here = local_extent(total, weight[EXPERTS], self.mesh)
        rest = [a for a in x[ROUTED] if a not in weight[EXPERTS]]
        tokens = self.phase.extents[BATCH] * self.phase.extents[QUERY] / self.mesh.degree(rest)
        return here * (1 - (1 - symbol("top_k") / total) ** tokens)

    def weight_bytes(self, op: Contraction, x: Layout, weight: Layout) -> Expr:
        """Bytes of the weight that are read: of routed experts only those that are touched."""
        if isinstance(op, GroupedContraction):
            rest = Tensor("", tuple(a for a in op.weight.axes if a.role != EXPERTS), op.weight.format)
            return self.experts_touched(op, x, weight) * self.size(rest, weight)
        return self.size(op.weight, weight)

    def attention(self, op: Attention) -> None:
        """Queries stay where they are; keys and values are used over the whole context."""
        for tensor in op.reads:
            self.settle(tensor, op.name)
        by_heads = split_by_heads(self, op)
        q, k, v = by_heads or (self.stored(op.q), *(self.whole_context(t, op.name) for t in (op.k, op.v)))
        out = Layout({r: q[r] for r in q.over if r in op.out.roles})
        self.steps.append(attention_work(self, op, q, k, v, out, "forward"))
        self.uses.append(Use(op, {op.q.name: q, op.k.name: k, op.v.name: v, op.out.name: out}, frozenset()))
        if by_heads:
            swap_heads(self, op, op.out, out, "forward")
            out = self.stored(op.q).only(op.out.roles)
        self.write(op.out, out)

    def whole_context(self, tensor: Tensor, op: str) -> Layout:
        """A key or value tensor gathered along its tokens (they play the context)."""
        return self.gather(tensor, frozenset(self.stored(tensor)[QUERY]), op)

    def latent_attention(self, op: LatentAttention) -> None:
        """Latents are used over the whole context; their up-projections are split by heads."""
        for tensor in op.reads:
            self.settle(tensor, op.name)
        q = self.stored(op.q)
        weight = self.weight_layout(op.up_key)
        latent, rope = (
            self.gather(t, frozenset(self.stored(t)[QUERY]) | weight.atoms(), op.name) for t in (op.latent, op.rope_key)
        )
        out = Layout({r: q[r] for r in q.over if r in op.out.roles})
        layouts = {op.q.name: q, op.latent.name: latent, op.rope_key.name: rope, op.out.name: out}
        for w in op.weights:
            layouts[w.name] = self.weight_layout(w)
        self.steps.append(latent_work(self, op, layouts))
        self.uses.append(Use(op, layouts, weight.atoms()))
        self.write(op.out, out)

    def lookup(self, op: Lookup) -> None:
        """A contraction over the table's rows with a one-hot tensor: partial sums where the rows are split."""
        table = self.weight_layout(op.table)
        base = Layout({r: self.rules.split_atoms(r, self.mesh) for r in (BATCH, QUERY)})
        rows = op.table.axes[0]
        for a in op.table.axes[1:]:
            if table[a.role]:
                base = base.with_axis(a.role, table[a.role])
        out = base.without(table[rows.role])
        if op.out.is_stream and not table.atoms():
            out = stored_layout(op.out, self.rules, self.mesh)  # nothing to sum: each device looks up its own rows
        size = self.size(op.out, out)
        self.steps.append(
            Work(op.name, "forward", "lookup", sympy.Integer(0), sympy.Integer(0), {op.table.name: size},
                 {op.out.name: size})
        )  # fmt: skip
        self.uses.append(Use(op, {op.out.name: out, op.table.name: table}, table.atoms()))
        self.write(op.out, out, frozenset(table[rows.role]))

    def loss(self, op: Loss) -> None:
        """Maximum, sum and the target's logit are reduced over a split vocabulary."""
        self.settle(op.logits, op.name)
        layout = self.stored(op.logits)
        atoms = frozenset(layout[op.logits.axes[-1].role])
        rows = Tensor("loss", op.logits.axes[:2], "wide")
        if atoms:
            self.steps.append(
                Collective("all_reduce", "loss terms", op.name, "forward", ordered(atoms, self.mesh),
                           self.count(rows, layout), "wide", 3)
            )  # fmt: skip
        count = self.count(op.logits, layout)
        given, kept = self.size(op.logits, layout), self.size(op.probabilities, layout)
        self.steps.append(
            Work(op.name, "forward", "pointwise", 5 * count * FLOP, sympy.Integer(0), {op.logits.name: given},
                 {op.probabilities.name: kept}, unfused_loss(given, kept, "forward"))
        )  # fmt: skip
        self.layout[op.probabilities.name] = layout
        self.uses.append(Use(op, {op.logits.name: layout}, frozenset()))

    def sampling(self, op: Sampling) -> None:
        """A token is drawn over the whole vocabulary: split logits are gathered."""
        self.settle(op.logits, op.name)
        layout = self.gather(op.logits, frozenset(self.stored(op.logits)[op.logits.axes[-1].role]), op.name)
        count = self.count(op.logits, layout)
        self.steps.append(
            Work(op.name, "forward", "pointwise", 5 * count * FLOP, sympy.Integer(0),
                 {op.logits.name: self.size(op.logits, layout)}, {})
        )  # fmt: skip
        self.uses.append(Use(op, {op.logits.name: layout}, frozenset()))

    def settle_inputs(self, op: Pointwise) -> None:
        """Settle every input; terms of a plain sum, partial over the same atoms, are added first and reduced once."""
        linear = not op.saves and not op.parameters and len(op.outputs) == 1
        met: set[tuple[object, ...]] = set()
        for tensor in op.inputs:
            partial = self.partial.get(tensor.name, frozenset())
            key = (partial, tensor.axes, tuple(self.stored(tensor).over.items()))
            if linear and partial and tensor.axes == op.outputs[0].axes and key in met:
                self.partial.pop(tensor.name)
                if tensor.is_stream:
                    self.layout[tensor.name] = stored_layout(tensor, self.rules, self.mesh)
            else:
                self.settle(tensor, op.name)
            met.add(key)

    def statistics(self, op: Norm, layout: Layout, direction: Direction = "forward") -> None:
        """Means and squares are sums over the normalised axes: reduced where those are split, two numbers a row."""
        x = op.inputs[0]
        over = op.normalised
        atoms = frozenset(a for axis in over for a in layout[axis.role])
        if atoms:
            rows = Tensor(f"{x.name} statistics", tuple(a for a in x.axes if a not in over), "wide")
            size = 2 * self.count(rows, layout.only(rows.roles))
            self.steps.append(
                Collective("all_reduce", rows.name, op.name, direction, ordered(atoms, self.mesh), size, "wide")
            )

    def pointwise(self, op: Pointwise) -> None:
        """Runs where its inputs are stored; a linear one passes equal partial sums on."""
        sums = {self.partial.get(t.name, frozenset()) for t in op.inputs}
        carried: frozenset[str] = frozenset()
        if len(sums) == 1 and not op.saves and not op.parameters:
            carried = sums.pop()
            for tensor in op.inputs:
                self.partial.pop(tensor.name, None)
        else:
            self.settle_inputs(op)
        layouts = {t.name: self.stored(t) for t in op.inputs}
        merged: dict[str, tuple[str, ...]] = {}
        for layout in layouts.values():
            for role, atoms in layout.over.items():
                merged.setdefault(role, atoms)
        together = Layout(merged)
        reads = {t.name: self.size(t, layouts[t.name]) for t in op.inputs}
        writes: dict[str, Expr] = {}
        for tensor in op.outputs:
            # An output is laid out as the input of its shape (rotary embedding takes queries and keys at once).
            twin = next((t for t in op.inputs if t.axes == tensor.axes), None)
            layout = together.only(tensor.roles) if twin is None else layouts[twin.name]
            layouts[tensor.name] = layout
            writes[tensor.name] = self.size(tensor, layout)
        if isinstance(op, Norm):
            self.statistics(op, layouts[op.inputs[0].name])
        for weight in op.parameters:
            reads[weight.name] = self.size(weight, self.weight_layout(weight))
            layouts[weight.name] = self.weight_layout(weight)
        first = (op.outputs or op.inputs)[0]
        count = self.count(first, layouts[first.name])
        shape = unfused(op.rounds, (writes[t.name] for t in op.outputs if t.format != "mask"))
        flops = op.flops * count * FLOP
        by = ROUTED_UNFUSED if op.apart else ""
        work = Work(op.name, "forward", "pointwise", flops, sympy.Integer(0), reads, writes, shape, unfused_by=by)
        self.steps.append(work)
        self.uses.append(Use(op, layouts, frozenset()))
        for tensor in op.outputs:
            self.write(tensor, layouts[tensor.name], carried)
