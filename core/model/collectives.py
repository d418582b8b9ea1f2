"""Collectives as transfers: which links they cross, how many bytes cross the busiest one, in how many hops.

Floor: model. That a collective exists is derived (``placement``); how it is realised is chosen here: a ring or a tree
for an all-reduce (the cheaper one), rings for all-gather and reduce-scatter, direct exchange for an all-to-all, with
the transfers inside a domain and between domains running at once.

A group over atoms has n members, of which g sit within one domain of a tier. A ring that leaves the domain crosses its
boundary once each way with all its bytes, and the g members share their g ports: its bandwidth is the smaller of the
inner tier's and g ports of the outer one. Source: Thakur, Rabenseifner, Gropp, IJHPCA 19(1) 2005 (ring and tree
volumes).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import sympy
from attrs import frozen

from ..algebra.cost import Choice, Leaf, Node, Overlap, Repeat
from ..algebra.functions import functions
from ..algebra.symbols import symbol
from .interfaces.kernels import KernelFamily, parameter_symbol
from .mesh import Mesh
from .phase import width
from .work import Collective

if TYPE_CHECKING:
    from sympy import Expr


@frozen
class Network:
    """The link tiers of a machine, innermost first: symbols ``tier_span_i``, ``tier_bandwidth_i``, ``tier_latency_i``.

    The outermost tier has no span (``open_ended``) or a largest one, which limits the number of devices.
    """

    tiers: int

    def inside(self, atoms: tuple[str, ...], mesh: Mesh, tier: int) -> Expr:
        """Members of a group within one domain of ``tier``; on the outermost tier all of them."""
        if tier >= self.tiers - 1:
            return mesh.degree(atoms)
        return mesh.inside(atoms, symbol(f"tier_span_{tier}"))

    def ring(self, atoms: tuple[str, ...], mesh: Mesh) -> tuple[Expr, Expr]:
        """Bandwidth [B/s] and latency of a hop [s] of a ring over the group."""
        f = functions()
        bandwidth = self.first()
        latency: Expr = sympy.Integer(0)
        within: Expr = sympy.Integer(1)
        for tier in range(self.tiers):
            reach = self.inside(atoms, mesh, tier)
            if tier:
                own = symbol(f"tier_bandwidth_{tier}")
                crossed = f.where(within - 1, f.fmin(bandwidth, within * own), own)
                bandwidth = f.where(reach - within, crossed, bandwidth)
            latency = f.fmax(latency, f.where(reach - within, symbol(f"tier_latency_{tier}"), 0))
            within = reach
        return bandwidth, latency

    def first(self) -> Expr:
        """Bandwidth of the innermost tier; without any tier nothing is ever sent, and device memory stands in."""
        return symbol("tier_bandwidth_0" if self.tiers else "hbm_bandwidth")

    def neighbour(self, atoms: tuple[str, ...], mesh: Mesh) -> tuple[Expr, Expr]:
        """Bandwidth and latency between neighbours along an atom, on the outermost tier that some pair crosses."""
        f = functions()
        bandwidth = self.first()
        latency: Expr = sympy.Integer(0)
        within: Expr = sympy.Integer(1)
        for tier in range(self.tiers):
            reach = self.inside(atoms, mesh, tier)
            if tier:
                bandwidth = f.where(reach - within, symbol(f"tier_bandwidth_{tier}"), bandwidth)
            latency = f.where(reach - within, symbol(f"tier_latency_{tier}"), latency)
            within = reach
        return bandwidth, latency


def volume(collective: Collective, mesh: Mesh) -> Expr:
    """Bytes that one device sends in a bandwidth-optimal realisation.

    All-reduce 2·(n − 1)/n, all-gather, reduce-scatter and all-to-all (n − 1)/n of the payload; a send the payload,
    where there is a neighbour to send to.
    """
    n = mesh.degree(collective.atoms)
    payload = collective.elements * width(collective.format)
    if collective.kind == "send":
        return payload * functions().lt(1, n)
    share = payload * (n - 1) / n
    return 2 * share if collective.kind == "all_reduce" else share


def collective_node(collective: Collective, mesh: Mesh, network: Network, family: KernelFamily, phase: str) -> Node:
    """The cost tree of one collective."""
    tags = {
        "phase": phase, "op": collective.op, "direction": collective.direction, "kind": collective.kind,
        "over": "×".join(collective.atoms),
    }  # fmt: skip
    f = functions()
    n = mesh.degree(collective.atoms)
    sent = volume(collective, mesh)

    slot = family.transfer_slot(collective.kind)
    formula = family.transfer()
    # A family with slots has parameters of each kind apart; one without has one set for all.
    stand_for = {
        name: parameter_symbol(name, slot) if slot else stated for name, stated in family.transfer_parameters().items()
    }

    def leaf(name: str, bytes_: Expr, bandwidth: Expr, hops: Expr, latency: Expr, resource: str = "link") -> Leaf:
        inputs = {"volume": bytes_, "bandwidth": bandwidth, "hops": hops, "latency": latency, "ranks": n}
        return Leaf(
            name, formula, {key: value for key, value in inputs.items() if key in formula.inputs}, stand_for,
            {"link": resource}, tags=tags, factors=("collective_factor",), slot=slot,
        )  # fmt: skip

    node: Node
    if collective.kind == "send":
        bandwidth, latency = network.neighbour(collective.atoms, mesh)
        node = leaf(collective.name, sent, bandwidth, f.lt(1, n), latency)
    elif collective.kind == "all_to_all":
        node = _exchange(collective, mesh, network, leaf)
    else:
        bandwidth, latency = network.ring(collective.atoms, mesh)
        if collective.kind == "all_reduce" and slot:
            # Measurements of a slot are of whatever algorithm the library took; there is no choice left.
            node = leaf(collective.name, sent, bandwidth, 2 * (n - 1), latency)
        elif collective.kind == "all_reduce":
            payload = collective.elements * width(collective.format)
            ring = leaf("ring", sent, bandwidth, 2 * (n - 1), latency)
            tree = leaf("tree", 2 * payload * f.lt(1, n), bandwidth, 2 * f.ceil_(f.log2(n)), latency)
            node = Choice(collective.name, {"ring": ring, "tree": tree}, tags=tags)
        else:
            node = leaf(collective.name, sent, bandwidth, n - 1, latency)
    if collective.count != 1:
        node = Repeat(f"{collective.count} × {collective.name}", sympy.Integer(collective.count), node, tags=tags)
    return node


def distinct(domains: Expr, copies: Expr) -> Expr:
    """Domains that the copies of a row reach, over the copies, where each goes to any domain alike.

    Source: the two-level dispatch of DeepSeek-V3, arXiv:2412.19437, section 3.2.2 (a token crosses to a node once).
    """
    return domains * (1 - (1 - 1 / domains) ** copies) / copies


def _exchange(collective: Collective, mesh: Mesh, network: Network, leaf: Callable[..., Leaf]) -> Node:
    """All-to-all: the share for peers on each tier crosses that tier's port of the device; tiers work at once."""
    f = functions()
    payload = collective.elements * width(collective.format)
    n = mesh.degree(collective.atoms)
    within: Expr = sympy.Integer(1)
    parts = []
    for tier in range(network.tiers):
        reach = network.inside(collective.atoms, mesh, tier)
        crossing = f.lt(within, reach)
        crossed = payload * (reach - within) / n
        if tier and collective.copies is not None:
            crossed = crossed * distinct(n / within, collective.copies)
        parts.append(
            leaf(f"tier {tier}", crossed, symbol(f"tier_bandwidth_{tier}"), crossing,
                 symbol(f"tier_latency_{tier}"), f"link of tier {tier}")
        )  # fmt: skip
        within = reach
    if not parts:
        return leaf(collective.name, payload * 0, network.first(), sympy.Integer(0), sympy.Integer(0))
    tags = dict(parts[0].tags)
    return parts[0] if len(parts) == 1 else Overlap(collective.name, tuple(parts), tags=tags)
