"""What a parallel strategy says: which axes of which tensors are split over which mesh dimensions, and how.

Floor: model. Pure data. Nothing here speaks of communication; that follows from the layouts (``placement``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Literal, get_args

from attrs import field, frozen

from ..errors import PluginError
from .axes import ROLES, Tensor

if TYPE_CHECKING:
    from sympy import Expr

    from .mesh import Mesh

Kind = Literal["stream", "weight", "gradient", "optimizer", "cache"]


class Distribution(Enum):
    """How an axis is spread over a dimension.

    ``BLOCK``: equal blocks, the first ones one larger where there is a remainder; ``REPLICATED``: where the axis is
    shorter than the degree, each part stands ``degree / extent`` times (key/value heads); ``CYCLIC``: dealt out in
    turn (interleaved stages).
    """

    BLOCK = "block"
    REPLICATED = "replicated"
    CYCLIC = "cyclic"


@frozen
class Split:
    """Work along ``axis`` is split over mesh dimension ``over``: tensors that have the axis are stored and used so.

    ``once``: copies of a row for several devices of one domain of the network cross its border once (of experts).
    """

    axis: str
    over: str
    distribution: Distribution = Distribution.BLOCK
    once: bool = False


@frozen
class Store:
    """Tensors of ``kind`` are *stored* split along ``axis`` over ``over`` as well, and gathered where used whole.

    ``axis`` ``flat`` is the axis of packed elements (sharded weights, gradients and optimizer state). ``kept``: of
    weights: once gathered they stay whole until the backward pass is through; ``waited``: they are gathered when they
    are needed, not beside what runs before.
    """

    kind: Kind
    axis: str
    over: str
    kept: bool = False
    waited: bool = False


@frozen
class Swap:
    """In the attention core what is split along ``query`` over ``over`` is split along heads instead: an all-to-all of
    queries, keys and values before it, and one of its output after."""

    over: str


@frozen
class Beside:
    """Transfers inside a layer over mesh dimension ``over`` run beside computation, and do not wait.

    ``work``: the kinds of work of the same pass that they run beside (gemm, attention); empty: all of the pass, that of
    another micro-batch.
    """

    over: str
    work: tuple[str, ...] = ()


@frozen
class Rules:
    """All that one strategy states, or several put together."""

    splits: tuple[Split, ...] = ()
    stores: tuple[Store, ...] = ()
    swaps: tuple[Swap, ...] = ()
    beside: tuple[Beside, ...] = ()

    def __add__(self, other: Rules) -> Rules:
        return Rules(
            self.splits + other.splits, self.stores + other.stores, self.swaps + other.swaps, self.beside + other.beside
        )

    def checked(self) -> Rules:
        """These rules, or an error where an axis or kind is unknown, or an axis is split twice over one dimension."""
        seen: dict[tuple[str, str], str] = {}
        for split in self.splits:
            if split.axis not in ROLES:
                raise PluginError(f"split of unknown axis {split.axis!r}; known: {', '.join(ROLES)}")
            key = (split.axis, split.over)
            if key in seen:
                raise PluginError(f"axis {split.axis!r} is split twice over mesh dimension {split.over!r}")
            seen[key] = split.over
        for store in self.stores:
            if store.kind not in get_args(Kind):
                raise PluginError(f"store of unknown kind {store.kind!r}; known: {', '.join(get_args(Kind))}")
            if store.axis not in ROLES:
                raise PluginError(f"store along unknown axis {store.axis!r}; known: {', '.join(ROLES)}")
        return self

    def swapped_atoms(self, mesh: Mesh) -> frozenset[str]:
        """The atoms along which the attention core is split by heads instead of queries."""
        return frozenset(a for swap in self.swaps for a in mesh.view(swap.over))

    def states(self, kind: Kind, what: Literal["kept", "waited"]) -> bool:
        """Whether some store of a kind is so."""
        return any(getattr(store, what) for store in self.stores if store.kind == kind)

    def split_atoms(self, role: str, mesh: Mesh) -> tuple[str, ...]:
        """The atoms over which work along ``role`` is split."""
        found: list[str] = []
        for split in self.splits:
            if split.axis == role:
                found.extend(a for a in mesh.view(split.over) if a not in found)
        return tuple(found)

    def stored_atoms(self, kind: Kind, role: str, mesh: Mesh) -> tuple[str, ...]:
        """The further atoms over which tensors of ``kind`` are stored split along ``role``."""
        found: list[str] = []
        for store in self.stores:
            if store.kind == kind and store.axis == role:
                found.extend(a for a in mesh.view(store.over) if a not in found)
        return tuple(found)


@frozen
class Layout:
    """Over which atoms each axis role of a tensor is split (roles not named are whole)."""

    over: Mapping[str, tuple[str, ...]] = field(factory=dict)

    def __getitem__(self, role: str) -> tuple[str, ...]:
        return self.over.get(role, ())

    def atoms(self) -> frozenset[str]:
        """Every atom that splits some axis."""
        return frozenset(a for group in self.over.values() for a in group)

    def only(self, roles: Iterable[str]) -> Layout:
        """The layout restricted to ``roles``."""
        keep = set(roles)
        return Layout({r: g for r, g in self.over.items() if r in keep and g})

    def with_axis(self, role: str, atoms: Iterable[str]) -> Layout:
        """The layout with ``role`` split over ``atoms``."""
        return Layout({**self.over, role: tuple(atoms)})

    def without(self, atoms: Iterable[str]) -> Layout:
        """The layout with nothing split over ``atoms``."""
        drop = set(atoms)
        kept = {r: tuple(a for a in g if a not in drop) for r, g in self.over.items()}
        return Layout({r: g for r, g in kept.items() if g})


def local_elements(tensor: Tensor, layout: Layout, mesh: Mesh, extents: Mapping[str, Expr]) -> Expr:
    """Elements of ``tensor`` on one device: the product over axes of the extent divided by the degree it is split by.

    Blocks with remainder count as the largest block, ceil(extent / degree); where the division is exact for every
    value of the symbols, no ceiling is written.
    """
    import sympy

    product: Expr = sympy.Integer(1)
    for a in tensor.axes:
        product = product * local_extent(extents[a.size], layout[a.role], mesh)
    return product


def local_extent(extent: Expr, atoms: Iterable[str], mesh: Mesh) -> Expr:
    """The largest block of ``extent`` when split over ``atoms``."""
    from ..algebra.functions import functions

    degree = mesh.degree(atoms)
    if degree == 1:
        return extent
    exact = extent / degree
    if exact.is_integer or not _has_denominator(exact):
        return exact
    return functions().cdiv(extent, degree)


def _has_denominator(expr: Expr) -> bool:
    return any(p.is_Pow and p.exp.is_negative for p in (expr.args if expr.is_Mul else (expr,)))
