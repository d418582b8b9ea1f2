"""What the law derives for one block, in a form that a test or a table can compare with what a paper says.

Floor: testkit. Uses the model floor. Nothing is priced here: this is about which collectives exist, not what they cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..algebra.symbols import symbol
from ..model import symbols as _registered  # noqa: F401  # registers the law's symbols
from ..model.backward import Backward, backward
from ..model.graph import Block
from ..model.layout import Rules
from ..model.mesh import Dimension, Mesh
from ..model.phase import Phase, Placed
from ..model.placement import Placer
from ..model.work import Alternatives, Collective, Step, Work

if TYPE_CHECKING:
    from sympy import Expr

MESH = (Dimension("tp", "tensor", 10), Dimension("cp", "context", 20), Dimension("dp", "data", 30))
"""The mesh of the derivation that the documentation shows."""


def exact(expr: Any, values: Mapping[str, Any] | None = None) -> Expr:
    """``expr`` where every degree divides what it splits: rounded quotients become quotients; ``values`` by name.

    >>> from slipstick.core.algebra.functions import functions
    >>> exact(functions().cdiv(symbol("ffn"), symbol("tp")), {"ffn": 4 * symbol("hidden")})
    4*hidden/tp
    """
    import sympy

    from ..algebra.functions import functions

    f = functions()
    found = sympy.sympify(expr, strict=True).replace(
        lambda e: isinstance(e, (f.cdiv, f.fdiv)), lambda e: e.args[0] / e.args[1]
    )
    if values:
        found = found.xreplace({symbol(name): sympy.sympify(value, strict=True) for name, value in values.items()})
    return sympy.simplify(found)


def training_phase(*, fused_attention: bool = True) -> Phase:
    """Forward and backward over sequences of ``sequence`` tokens, ``micro_batch`` for each data parallel rank."""
    extents = {
        "batch": symbol("micro_batch") * symbol("dp"),
        "query": symbol("sequence"),
        "context": symbol("sequence"),
    }
    return Phase("train", extents, training=True, fused_attention=fused_attention)


def cached_phase() -> Phase:
    """``query`` new tokens of each of ``batch`` sequences, beside a cache that makes them ``context`` long."""
    return Phase("decode", {name: symbol(name) for name in ("batch", "query", "context")}, cached=True)


@frozen
class Found:
    """One derived collective: ``kind``, the ``tensor``, the ``over`` atoms, its ``elements``, where it was needed."""

    kind: str
    tensor: str
    over: tuple[str, ...]
    elements: Expr
    op: str
    direction: str


@frozen
class Derived:
    """One block's forward and backward pass under some rules."""

    placed: Placed
    back: Backward | None

    def steps(self) -> list[Step]:
        """Every step, forward then backward."""
        return [*self.placed.steps, *(self.back.steps if self.back else ())]

    def works(self) -> list[Work]:
        """Every kernel; of alternatives the first."""
        found: list[Work] = []
        for step in self.steps():
            if isinstance(step, Alternatives):
                found.extend(next(iter(step.variants.values())))
            elif isinstance(step, Work):
                found.append(step)
        return found

    def collectives(self, *, directions: Iterable[str] = (), tensors: Iterable[str] = ()) -> list[Found]:
        """The collectives of some ``directions`` and ``tensors`` (all where none are named), elements exact."""
        directions, tensors = set(directions), set(tensors)
        return [
            Found(s.kind, s.tensor, s.atoms, exact(s.elements), s.op, s.direction)
            for s in self.steps()
            if isinstance(s, Collective)
            and (not directions or s.direction in directions)
            and (not tensors or s.tensor in tensors)
        ]

    def gradients(self) -> dict[str, tuple[Expr, frozenset[str]]]:
        """Weight → its local gradient elements (exact) and the atoms over which it is a partial sum."""
        assert self.back is not None
        return {g.weight: (exact(g.elements), frozenset(g.partial)) for g in self.back.gradients}


def derive(block: Block, rules: Rules, dimensions: Iterable[Dimension] = MESH, phase: Phase | None = None) -> Derived:
    """Place a block and derive its backward pass where the phase trains."""
    phase = training_phase() if phase is None else phase
    placed = Placer(block, phase, rules.checked(), Mesh.of(dimensions)).place()
    return Derived(placed, backward(placed) if phase.training else None)
