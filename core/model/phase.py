"""A block in a phase: the extents it runs at, how its tensors are laid out, how much of each is on one device.

Floor: model. What the law's passes share: ``placement`` makes a ``Placed`` block, ``backward`` and ``blocks`` read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from attrs import field, frozen

from ..algebra.symbols import symbol, unit_symbol
from .axes import BATCH, CONTEXT, EXPERTS, QUERY, ROUTED, Axis, Tensor, Weight
from .graph import Block
from .layout import Layout, Rules, local_elements
from .mesh import Mesh
from .ops import Op
from .work import Collective, Direction, Step, Work

if TYPE_CHECKING:
    from sympy import Expr

ENGINES = {"weight": "gemm", "expert": "expert", "high": "high"}
"""Whose rate prices a product, by the format role of its weight; see ``engine_of``."""

FLOP = unit_symbol("FLOP")

EXPANSION_FLOPS = 2
"""Operations for an element of a weight that is expanded: its value looked up, and times the scale of its block."""


@frozen
class Phase:
    """How a block is run: the extents of its run-time axes and what is kept.

    ``extents`` maps sizes (batch, query, context and the model's own) to expressions; ``training``: a backward pass
    follows; ``fused_attention``: probabilities stay on chip; ``cached``: keys and values of earlier tokens are read
    from a cache; ``skew``: what stands for ``load_skew``; ``document``: tokens of the documents that sequences are
    packed from, where attention stays inside each.
    """

    name: str
    extents: Mapping[str, Expr]
    training: bool = False
    fused_attention: bool = True
    cached: bool = False
    skew: Expr | None = None
    document: Expr | None = None

    @property
    def documents(self) -> Expr:
        """Parts of a sequence that attention takes for sequences of their own: one where nothing is packed."""
        import sympy

        return sympy.Integer(1) if self.document is None else self.extents[CONTEXT] / self.document

    @property
    def load_skew(self) -> Expr:
        """Token copies of the busiest expert rank over the mean: as given, else the symbol."""
        return symbol("load_skew") if self.skew is None else self.skew

    def extent(self, a: Axis) -> Expr:
        """The extent of an axis: the phase's own, else the symbol of its size."""
        return self.extents[a.size] if a.size in self.extents else symbol(a.size)


@frozen
class Use:
    """How one operation of the block used its tensors: what ``backward`` needs to know.

    ``layouts``: used layout by tensor name; ``taken``: atoms that split the operation's weights.
    """

    op: Op
    layouts: Mapping[str, Layout]
    taken: frozenset[str]


@frozen
class Placed:
    """A block's forward pass on one device: steps in order (and by operation), uses, stored layouts by tensor."""

    block: Block
    phase: Phase
    mesh: Mesh
    rules: Rules
    steps: tuple[Step, ...]
    by_op: Mapping[str, tuple[Step, ...]]
    uses: tuple[Use, ...]
    stored: Mapping[str, Layout]
    tensors: Mapping[str, Tensor] = field(factory=dict)

    def elements(self, tensor: Tensor, layout: Layout) -> Expr:
        """Local elements of a tensor in a layout."""
        return elements(tensor, layout, self.mesh, self.phase)


def elements(tensor: Tensor, layout: Layout, mesh: Mesh, phase: Phase) -> Expr:
    """Local elements; a routed tensor has batch·query·top_k copies in all, spread evenly times the load skew."""
    extents = {a.size: phase.extent(a) for a in tensor.axes if a.role != ROUTED}
    if ROUTED not in tensor.roles:
        return local_elements(tensor, layout, mesh, extents)
    rest = Tensor(tensor.name, tuple(a for a in tensor.axes if a.role not in (ROUTED, EXPERTS)), tensor.format)
    return routed_copies(layout, mesh, phase) * local_elements(rest, layout, mesh, extents)


def routed_copies(layout: Layout, mesh: Mesh, phase: Phase) -> Expr:
    """Token copies on the busiest device: batch·query·top_k over the degree of the routed axis, times the skew."""
    tokens = phase.extents[BATCH] * phase.extents[QUERY]
    return phase.load_skew * tokens * symbol("top_k") / mesh.degree(layout[ROUTED])


def width(tensor_format: str) -> Expr:
    """Bytes of one element kept in a format role."""
    return symbol(f"{tensor_format}_width")


def engine_of(weight: Weight) -> str:
    """Whose rate prices a product with a weight: a frozen one's that of its kind of layer."""
    return ENGINES[("expert" if EXPERTS in weight.roles else "weight") if weight.format == "frozen" else weight.format]


def unpacked(weight: Weight, layout: Layout, op: str, direction: Direction, mesh: Mesh, phase: Phase) -> list[Work]:
    """The pass that expands a weight for the products of one direction; none where it is stored as they read it.

    Source: QLoRA, arXiv:2305.14314, section 3: weights are expanded to 16 bits whenever they are used, forward and
    backward.
    """
    if not weight.stored:
        return []
    count = elements(weight, layout, mesh, phase)
    return [
        Work(f"{op} expansion", direction, "pointwise", EXPANSION_FLOPS * count * FLOP, 0 * count,
             {weight.name: count * width(weight.stored)}, {weight.operand: count * width(weight.format)})
    ]  # fmt: skip


def stored_layout(tensor: Tensor, rules: Rules, mesh: Mesh) -> Layout:
    """The layout a stream tensor is stored in: split like the work on its axes, and what strategies add to it."""
    over: dict[str, tuple[str, ...]] = {}
    for role in tensor.roles:
        atoms = rules.split_atoms(role, mesh)
        extra = rules.stored_atoms("stream", role, mesh) if tensor.is_stream else ()
        atoms = (*atoms, *(a for a in extra if a not in atoms))
        if atoms:
            over[role] = atoms
    return Layout(over)


def ordered(atoms: frozenset[str] | set[str] | tuple[str, ...], mesh: Mesh) -> tuple[str, ...]:
    """Atoms in mesh order, innermost first."""
    return tuple(name for name in mesh.atoms if name in atoms)


def weight_layout(weight: Weight, rules: Rules, mesh: Mesh) -> Layout:
    """How a weight is used: each axis split by its strategy; an atom splits one axis, the first that claims it."""
    over: dict[str, tuple[str, ...]] = {}
    taken: set[str] = set()
    for role in weight.roles:
        atoms = tuple(a for a in rules.split_atoms(role, mesh) if a not in taken)
        if atoms:
            over[role] = atoms
            taken.update(atoms)
    return Layout(over)


def reduction(
    tensor: Tensor,
    now: Layout,
    partial: frozenset[str],
    kept: frozenset[str],
    op: str,
    direction: Direction,
    mesh: Mesh,
    phase: Phase,
) -> list[Collective]:
    """What settles a partial sum: reduce-scatter over atoms that then split it, all-reduce over others."""
    result = []
    scattered, reduced = partial & kept, partial - kept
    size = elements(tensor, now, mesh, phase)
    if scattered:
        result.append(
            Collective("reduce_scatter", tensor.name, op, direction, ordered(scattered, mesh), size, tensor.format)
        )
    if reduced:
        size = size / mesh.degree(scattered)
        result.append(Collective("all_reduce", tensor.name, op, direction, ordered(reduced, mesh), size, tensor.format))
    return result
