"""Where groups lie on the link tiers, against every rank written out; the same devices in two factorisations."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import compile_expressions
from slipstick.core.algebra.symbols import symbol
from slipstick.core.errors import PluginError
from slipstick.core.model import symbols as _registered  # noqa: F401  # registers the law's symbols
from slipstick.core.model.collectives import Network, volume
from slipstick.core.model.mesh import Dimension, Mesh
from slipstick.core.model.work import Collective

POWERS = [1, 2, 4, 8, 16]
PLAIN = Mesh.of(
    [Dimension("tp", "t", 10), Dimension("cp", "c", 20), Dimension("dp", "d", 30), Dimension("pp", "p", 40)]
)
BORROWING = Mesh.of([Dimension("tp", "t", 10), Dimension("dp", "d", 30), Dimension("ep", "e", 25, ("dp", "tp"))])
GROUPS = [("tp",), ("cp",), ("dp",), ("pp",), ("tp", "cp"), ("cp", "dp"), ("tp", "dp"), ("tp", "cp", "dp")]


def ranks(degrees: dict[str, int], group: tuple[str, ...], order: tuple[str, ...]) -> list[int]:
    """The ranks of the group that holds rank 0: every coordinate of ``group`` runs, the others stay 0."""
    strides = dict(
        zip(order, itertools.accumulate((degrees[n] for n in order), lambda a, b: a * b, initial=1), strict=False)
    )
    axes = [[i * strides[name] for i in range(degrees[name])] for name in group]
    return sorted(sum(point) for point in itertools.product(*axes))


def per_domain(members: list[int], span: int) -> int:
    """Members in the same domain of ``span`` neighbouring devices as the first."""
    return sum(1 for rank in members if rank // span == members[0] // span)


INSIDE = compile_expressions({"·".join(g): PLAIN.inside(g, symbol("tier_span_0")) for g in GROUPS})


@given(st.tuples(*[st.sampled_from(POWERS)] * 4), st.sampled_from([1, 2, 4, 8, 16, 64, 256]))
@settings(max_examples=150, deadline=None)
def test_members_in_a_domain_are_those_that_lie_there(degrees: tuple[int, ...], span: int) -> None:
    named = dict(zip(("tp", "cp", "dp", "pp"), degrees, strict=True))
    found = INSIDE.evaluate({**named, "tier_span_0": span})
    for group in GROUPS:
        assert found["·".join(group)] == per_domain(ranks(named, group, ("tp", "cp", "dp", "pp")), span), (group, named)


RING = compile_expressions({
    f"{what}:{'·'.join(g)}": expr
    for g in GROUPS
    for what, expr in zip(("bandwidth", "latency"), Network(3).ring(g, PLAIN), strict=True)
})  # fmt: skip


@given(st.tuples(*[st.sampled_from(POWERS)] * 4), st.sampled_from([2, 4, 8]), st.sampled_from([1, 2, 8]))
@settings(max_examples=100, deadline=None)
def test_a_ring_runs_at_its_narrowest_cut(degrees: tuple[int, ...], node: int, nodes: int) -> None:
    """Members in rank order form a ring. At each tier the domains are cut out: what leaves a domain is all that one
    member sends, through the ports of all members inside. Written out hop by hop for every rank."""
    named = dict(zip(("tp", "cp", "dp", "pp"), degrees, strict=True))
    spans, bandwidths, latencies = (node, node * nodes, math.inf), (400.0, 40.0, 10.0), (1.0, 3.0, 7.0)
    values = {**named, "tier_span_0": spans[0], "tier_span_1": spans[1]}
    for i in range(3):
        values |= {f"tier_bandwidth_{i}": bandwidths[i], f"tier_latency_{i}": latencies[i]}
    found = RING.evaluate(values)
    for group in GROUPS:
        members = ranks(named, group, ("tp", "cp", "dp", "pp"))
        bandwidth, latency = math.inf, 0.0
        for here, there in zip(members, members[1:] + members[:1], strict=True):
            tier = next(i for i, span in enumerate(spans) if span == math.inf or here // span == there // span)
            if here != there:
                inside = per_domain(members, int(spans[tier - 1])) if tier else 1
                bandwidth = min(bandwidth, inside * bandwidths[tier])
                latency = max(latency, latencies[tier])
        name = "·".join(group)
        assert found[f"latency:{name}"] == latency, (group, named)
        if len(members) > 1:
            assert found[f"bandwidth:{name}"] == bandwidth, (group, named)
        else:
            assert found[f"bandwidth:{name}"] == bandwidths[0]  # it sends nothing: the nearest link stands in


@given(st.sampled_from(POWERS), st.sampled_from(POWERS), st.sampled_from(POWERS))
@settings(max_examples=60, deadline=None)
def test_both_factorisations_have_the_same_devices(tp: int, dp: int, ep: int) -> None:
    if ep > tp * dp:
        return
    product = compile_expressions({
        "own": BORROWING.degree((*BORROWING.view("tp"), *BORROWING.view("dp"))),
        "all": BORROWING.degree(BORROWING.atoms),
        "ep": BORROWING.degree(BORROWING.view("ep")),
        "rest": BORROWING.degree([name for name in BORROWING.atoms if name not in BORROWING.view("ep")]),
    }).evaluate({"tp": tp, "dp": dp, "ep": ep})  # fmt: skip
    assert product["own"] == product["all"] == tp * dp
    assert product["ep"] == ep
    assert product["rest"] == tp * dp / ep


@given(st.sampled_from(POWERS), st.sampled_from(POWERS), st.sampled_from(POWERS), st.sampled_from([1, 2, 4, 8, 32]))
@settings(max_examples=100, deadline=None)
def test_borrowed_groups_lie_where_their_ranks_lie(tp: int, dp: int, ep: int, span: int) -> None:
    """Expert ranks come from dp first and then from tp; atoms in mesh order are the digits of a rank."""
    if ep > tp * dp:
        return
    order = tuple(BORROWING.atoms)
    values = {"tp": tp, "dp": dp, "ep": ep, "tier_span_0": span}
    digits = compile_expressions({name: atom.degree for name, atom in BORROWING.atoms.items()}).evaluate(values)
    degrees = {name: int(value) for name, value in digits.items()}
    assert math.prod(degrees[a] for a in BORROWING.view("dp")) == dp
    assert math.prod(degrees[a] for a in BORROWING.view("tp")) == tp
    assert math.prod(degrees[a] for a in BORROWING.view("ep") if a.startswith("dp")) == min(ep, dp)
    for view in ("tp", "dp", "ep"):
        atoms = BORROWING.view(view)
        found = compile_expressions({"n": BORROWING.inside(atoms, symbol("tier_span_0"))}).evaluate(values)["n"]
        assert found == per_domain(ranks(degrees, atoms, order), span), (view, values)


def test_no_dimension_is_lent_twice() -> None:
    with pytest.raises(PluginError, match="'dp' is lent twice"):
        Mesh.of([Dimension("dp", "d"), Dimension("ep", "e", 25, ("dp",)), Dimension("etp", "e", 26, ("dp",))])
    with pytest.raises(PluginError, match="takes its devices from"):
        Mesh.of([Dimension("ep", "e", 25, ("dp",))])


@given(st.integers(1, 64), st.integers(1, 1000))
@settings(max_examples=40, deadline=None)
def test_volumes_by_playing_the_ring(n: int, chunk: int) -> None:
    """A ring of n ranks, each step sends one of n chunks: n − 1 steps to gather or to scatter, both for an all-reduce.

    Source: Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005."""
    payload = chunk * n
    steps = {"all_gather": n - 1, "reduce_scatter": n - 1, "all_reduce": 2 * (n - 1), "all_to_all": n - 1}
    for kind, times in steps.items():
        collective = Collective(kind, "x", "op", "forward", ("tp",), symbol("tokens"))  # type: ignore[arg-type]
        tape = compile_expressions({"v": volume(collective, PLAIN)})
        assert tape.evaluate({"tp": n, "tokens": payload, "activation_width": 2})["v"] == pytest.approx(
            2 * times * chunk
        )


def test_a_send_goes_nowhere_from_a_single_stage() -> None:
    tape = compile_expressions(
        {"v": volume(Collective("send", "x", "op", "forward", ("pp",), symbol("tokens")), PLAIN)}
    )
    values = {"tokens": 7, "activation_width": 2}
    assert [tape.evaluate({**values, "pp": p})["v"] for p in (1, 2, 8)] == [0, 14, 14]
