"""Token copies to experts and back: all-to-all where tokens are split, a slice and a partial sum where they are whole.

Floor: model. Used by ``placement`` and ``backward``. The same devices hold tokens (attention's factorisation of the
mesh) and experts (theirs); what has to travel follows from the atoms that the two share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import sympy

from ..algebra.symbols import symbol, unit_symbol
from .axes import BATCH, EXPERTS, QUERY, ROUTED, Tensor
from .layout import Layout
from .ops import Combine, Dispatch
from .phase import Use, ordered, stored_layout
from .work import Collective, Direction, Work

if TYPE_CHECKING:
    from .placement import Placer

FLOP = unit_symbol("FLOP")


def exchange(
    placer: Placer, name: str, op: str, direction: Direction, tokens: Tensor, layout: Layout
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """An all-to-all of token copies over the atoms of experts that split the tokens; those atoms, and the rest.

    The busiest rank exchanges top_k copies of each of its tokens, times the load skew; where tokens are whole over the
    other atoms, each of those ranks handles its share of the copies.
    """
    experts = placer.rules.split_atoms(EXPERTS, placer.mesh)
    moved = tuple(a for a in experts if a in (*layout[BATCH], *layout[QUERY]))
    whole = tuple(a for a in experts if a not in moved)
    if moved:
        size = placer.phase.load_skew * placer.count(tokens, layout) * symbol("top_k") / placer.mesh.degree(whole)
        once = any(split.once for split in placer.rules.splits if split.axis == EXPERTS)
        copies = symbol("top_k") if once else None
        placer.steps.append(
            Collective("all_to_all", name, op, direction, ordered(moved, placer.mesh), size, tokens.format,
                       copies=copies)
        )  # fmt: skip
    return moved, whole


def dispatch(placer: Placer, op: Dispatch) -> None:
    """Token copies to experts: all-to-all over atoms that split tokens; where tokens are whole, a local slice."""
    placer.settle(op.x, op.name)
    x = placer.stored(op.x)
    _, whole = exchange(placer, op.x.name, op.name, "forward", op.x, x)
    experts = placer.rules.split_atoms(EXPERTS, placer.mesh)
    routed = Layout({ROUTED: (*experts, *(a for a in (*x[BATCH], *x[QUERY]) if a not in experts))})
    placer.steps.append(permuted(placer, op.name, op.x, x, op.out, routed))
    placer.uses.append(Use(op, {op.x.name: x, op.out.name: routed}, frozenset(whole)))
    placer.write(op.out, routed)


def combine(placer: Placer, op: Combine) -> None:
    """Expert outputs back to their tokens: the mirror of dispatch, sums left open where tokens are whole."""
    routed = placer.stored(op.x)
    stream = stored_layout(op.out, placer.rules, placer.mesh)
    open_sums = placer.partial.get(op.x.name, frozenset())
    # Copies that are stored split by an atom over which they are partial are settled first.
    if open_sums & {*stream[BATCH], *stream[QUERY]}:
        settle_routed(placer, op)
        routed = placer.stored(op.x)
        open_sums = frozenset()
    placer.partial.pop(op.x.name, None)
    moved, whole = exchange(placer, op.out.name, op.name, "forward", op.out, stream)
    out = stream if moved or not whole else stream.without(whole)
    placer.steps.append(permuted(placer, op.name, op.x, routed, op.out, out))
    placer.uses.append(Use(op, {op.x.name: routed, op.out.name: out}, frozenset(whole)))
    placer.write(op.out, out, frozenset(whole) | open_sums)


def settle_routed(placer: Placer, op: Combine) -> None:
    """Partial sums of routed copies that were gathered for the experts: scattered back before they travel."""
    partial = placer.partial.pop(op.x.name)
    now = placer.stored(op.x)
    placer.steps.append(
        Collective(
            "reduce_scatter", op.x.name, op.name, "forward", ordered(partial, placer.mesh),
            placer.count(op.x, now), op.x.format,
        )
    )  # fmt: skip
    placer.layout[op.x.name] = now.with_axis(ROUTED, (*now[ROUTED], *ordered(partial, placer.mesh)))


def permuted(
    placer: Placer, name: str, source: Tensor, source_layout: Layout, target: Tensor, target_layout: Layout
) -> Work:
    """Rows moved from one tensor to another in another order: a kernel of its own."""
    return Work(
        name, "forward", "permute", placer.count(target, target_layout) * FLOP, sympy.Integer(0),
        {source.name: placer.size(source, source_layout)}, {target.name: placer.size(target, target_layout)},
    )  # fmt: skip
