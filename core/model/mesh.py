"""Devices as a mesh of named dimensions, laid onto the link tiers of a machine.

Floor: model. Uses the algebra. Every dimension is a product of *atoms*, the finest dimensions of the mesh, so the same
devices can be seen in two factorisations: expert parallelism takes its devices from data and tensor parallelism, and
both views are sets of the same atoms. Degrees are symbolic; which tier a group uses follows from degree and stride.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from attrs import evolve, field, frozen

from ..errors import PluginError

if TYPE_CHECKING:
    from sympy import Expr


@frozen
class Dimension:
    """A named dimension of the mesh, its degree the symbol of the same name.

    ``order``: place in the mesh, smaller is more inward (neighbouring devices; tensor 10, context 20, data 30,
    pipeline 40). ``lenders``: dimensions whose devices this one regroups instead of adding devices of its own; it
    takes from the first lender as much as that has, the rest from the next. ``fills``: its degree is what the other
    dimensions leave of the devices, unless it is given. ``size``: a fixed degree (0: the symbol of its name); such a
    dimension may borrow from one that is lent already, all that lent part included.
    """

    name: str
    title: str
    order: int = 50
    lenders: tuple[str, ...] = ()
    fills: bool = False
    size: int = 0


@frozen
class Atom:
    """A finest dimension: its ``degree`` and its ``stride`` (devices between two neighbours along it)."""

    name: str
    degree: Expr
    stride: Expr


@frozen
class Mesh:
    """Dimensions as tuples of atoms, innermost first.

    ``copies``: size of an axis → groups of neighbouring ranks that hold the same part of it (``with_copies``).

    >>> mesh = Mesh.of([Dimension("tp", "tensor", 10), Dimension("dp", "data", 30)])
    >>> mesh.view("dp"), str(mesh.atoms["dp"].stride)
    (('dp',), 'tp')
    """

    atoms: Mapping[str, Atom]
    views: Mapping[str, tuple[str, ...]] = field(factory=dict)
    copies: Mapping[str, tuple[str, ...]] = field(factory=dict)

    @classmethod
    def of(cls, dimensions: Iterable[Dimension]) -> Mesh:
        """The mesh of ``dimensions``; a dimension without lenders is an atom, one with lenders splits theirs."""
        from ..algebra.functions import functions
        from ..algebra.symbols import TABLE, SymbolInfo, register, symbol

        dimensions = tuple(dimensions)
        for dimension in dimensions:  # a strategy's own dimension is a symbol like any other
            if TABLE.get(dimension.name) is None and not dimension.size:
                latex = rf"\mathrm{{{dimension.name}}}".replace("_", r"\_")
                register(SymbolInfo(dimension.name, latex, "1", dimension.title, 1, integer=True), "mesh")
        f = functions()
        own = sorted((d for d in dimensions if not d.lenders), key=lambda d: d.order)
        borrowing = sorted((d for d in dimensions if d.lenders), key=lambda d: d.size > 0)
        known, places = {d.name for d in own}, {d.name: d.order for d in own}
        pieces: dict[str, list[tuple[str, Expr]]] = {d.name: [(d.name, symbol(d.name))] for d in own}
        views: dict[str, list[str]] = {}
        for dimension in borrowing:
            lenders = [name for name in dimension.lenders if name in known]
            if not lenders:
                raise PluginError(
                    f"mesh dimension {dimension.name!r} takes its devices from {', '.join(dimension.lenders)}; "
                    "none of them is in use"
                )
            if dimension.size:
                views[dimension.name] = _group(pieces, dimension, lenders[0])
                continue
            wanted = symbol(dimension.name)
            taken: list[tuple[int, str]] = []
            for index, lender in enumerate(lenders):
                whole = symbol(lender)
                if len(pieces[lender]) > 1:
                    raise PluginError(
                        f"mesh dimension {lender!r} is lent twice (the second time to {dimension.name!r})"
                    )
                last = index == len(lenders) - 1
                part = wanted if last else f.fmin(wanted, whole)
                wanted = wanted / part
                lent, rest = (f"{lender}.{dimension.name}", part), (f"{lender}.rest", whole / part)
                # What is kept of an inner lender stays innermost (expert tensor parallelism beside its neighbours).
                inner = last and places[lender] < places[lenders[0]]
                pieces[lender] = [rest, lent] if inner else [lent, rest]
                taken.append((places[lender], lent[0]))
            views[dimension.name] = [name for _, name in sorted(taken)]
        atoms: dict[str, Atom] = {}
        stride: Expr = _one()
        for dimension in own:
            for name, degree in pieces[dimension.name]:
                atoms[name] = Atom(name, degree, stride)
                stride = stride * degree
            views[dimension.name] = [name for name, _ in pieces[dimension.name]]
        return cls(atoms, {name: tuple(v) for name, v in views.items()})

    def with_copies(self, size: str, dimension: str) -> Mesh:
        """The same mesh, knowing that an axis shorter than ``dimension`` stands several times on it.

        The copies of each part lie on degree / extent neighbouring ranks (one where the axis is not shorter). Their
        group is a part of the dimension's own atoms, so no view lists it.

        >>> mesh = Mesh.of([Dimension("tp", "tensor", 10)]).with_copies("kv_heads", "tp")
        >>> mesh.copies["kv_heads"], str(mesh.degree(mesh.copies["kv_heads"])), mesh.view("tp")
        (('tp.copies@kv_heads',), 'max(1, tp/kv_heads)', ('tp',))
        """
        from ..algebra.functions import functions
        from ..algebra.symbols import symbol

        whole = self.view(dimension)
        name = f"{dimension}.copies@{size}"
        group = Atom(name, functions().fmax(1, self.degree(whole) / symbol(size)), self.atoms[whole[0]].stride)
        known = self.copies.get(size, ())
        return evolve(self, atoms={**self.atoms, name: group}, copies={**self.copies, size: (*known, name)})

    def view(self, dimension: str) -> tuple[str, ...]:
        """The atoms of a dimension, innermost first; empty for a dimension that this mesh lacks."""
        return self.views.get(dimension, ())

    def degree(self, atoms: Iterable[str]) -> Expr:
        """Number of devices in a group over ``atoms``."""
        product = _one()
        for name in atoms:
            product = product * self.atoms[name].degree
        return product

    def inside(self, atoms: Sequence[str], span: Expr) -> Expr:
        """How many members of a group over ``atoms`` sit within one domain of ``span`` neighbouring devices.

        Each atom has ``min(degree, max(1, span / stride))`` members there: neighbours along an atom are a stride
        apart, and atoms are laid out innermost first.
        """
        from ..algebra.functions import functions

        f = functions()
        product = _one()
        for name in atoms:
            atom = self.atoms[name]
            product = product * f.fmin(atom.degree, f.fmax(1, span / atom.stride))
        return product


def _group(pieces: dict[str, list[tuple[str, Expr]]], dimension: Dimension, lender: str) -> list[str]:
    """Cut a group of a fixed size out of a dimension, from its inner end, beyond what is lent of it already."""
    from ..algebra.functions import functions

    *lent, (rest, free) = pieces[lender]
    inside = _one()
    for _, degree in lent:
        inside = inside * degree
    part = functions().fmax(1, dimension.size / inside)
    own = f"{lender}.{dimension.name}"
    pieces[lender] = [*lent, (own, part), (f"{lender}.rest" if rest == lender else rest, free / part)]
    return [*(name for name, _ in lent), own]


def _one() -> Expr:
    import sympy

    return sympy.Integer(1)
