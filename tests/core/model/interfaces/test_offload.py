"""Offload policies: the minimal one, systems that the data must be able to say, and data that says nothing sound."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.errors import PluginError
from slipstick.core.model.interfaces.offload import (
    DEVICE,
    FIT,
    HOST,
    REST,
    Compute,
    Every,
    Offload,
    OffloadPolicy,
    Placement,
    Stream,
)


def test_the_minimal_plugin_works(minimal: Callable[[str], Any]) -> None:
    policy = minimal("offload")
    assert isinstance(policy, OffloadPolicy)
    stated = policy.offload({})
    assert [(p.row, p.pool, p.share) for p in stated.placements] == [("optimizer", HOST, 1.0)]
    assert [(c.work, c.pool) for c in stated.computes] == [("optimizer", HOST)]
    assert policy.constraints({}) == ()


def interleaved(stride: Any) -> Offload:
    """Deep Optimizer States (arXiv:2410.21316): every k-th subgroup is updated on the device, the rest on the host."""
    tile = 100_000_000
    return Offload(
        placements=(Placement("optimizer", HOST, tile=tile),),
        computes=(Compute("optimizer", DEVICE, Every(stride)), Compute("optimizer", HOST, REST)),
        streams=(
            Stream("gradients", DEVICE, HOST, during="backward", tile=tile, format="weight"),
            Stream("optimizer", HOST, DEVICE, during="update"),
            Stream("optimizer", DEVICE, HOST, during="update"),
            Stream("weights", HOST, DEVICE, during="update", ahead=stride - 1, tile=tile),
        ),
    )


def several_tiers(drive: float, files: float) -> Offload:
    """MLP-Offload (arXiv:2509.02480): optimizer state on a drive and a parallel file system, the last tiles in DRAM."""
    return Offload(
        placements=(
            Placement("optimizer", "nvme", drive, tile=10**8),
            Placement("optimizer", "pfs", files, tile=10**8),
            Placement("optimizer", HOST, REST, tile=10**8),
        ),
        computes=(Compute("optimizer", HOST),),
        streams=(
            Stream("optimizer", "nvme", HOST, during="update", ahead=2),
            Stream("optimizer", "pfs", HOST, during="update", ahead=2),
        ),
    )


def test_published_systems_can_be_said() -> None:
    import sympy

    k = sympy.Symbol("k", positive=True, integer=True)
    assert interleaved(k).streams[3].ahead == k - 1  # a stride that is left open stays open
    assert interleaved(2).computes[0].share == Every(2)
    assert len(several_tiers(0.5, 0.3).placements) == 3
    # LIME (arXiv:2512.21835): layers that do not fit are read from a drive, while other devices have their turn.
    Offload(
        placements=(Placement("weights", DEVICE, FIT, "layer"), Placement("weights", "ssd", REST, "layer")),
        streams=(Stream("weights", "ssd", DEVICE, during="decode", tile="layer"),),
    )
    # FastDecode (arXiv:2403.11421): cache and attention on other computers, two batches in turn.
    Offload(placements=(Placement("kv_cache", "cpus"),), computes=(Compute("attention", "cpus"),), batches=2)
    # SIMPLE (arXiv:2512.00719): sampling on the host beside the next batch.
    Offload(computes=(Compute("sampling", HOST),), batches=2)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Placement("optimiser", HOST), "did you mean optimizer"),
        (lambda: Placement("weights", HOST, 1.5), "not between 0 and 1"),
        (lambda: Placement("weights", HOST, float("nan")), "not between 0 and 1"),
        (lambda: Placement("weights", HOST, "half"), "neither 'rest' nor 'fit'"),
        (lambda: Placement("weights", HOST, tile=-1), "can't be negative"),
        (lambda: Placement("weights", HOST, tile="block"), "neither 'layer'"),
        (lambda: Every(0), "at least 1"),
        (lambda: Compute("", HOST), "without a name"),
        (lambda: Compute("optimizer", HOST, FIT), "takes no room"),
        (lambda: Stream("weights", HOST, HOST, during="forward"), "goes nowhere"),
        (lambda: Stream("weights", HOST, DEVICE, during="forwards"), "did you mean forward"),
        (lambda: Stream("weights", HOST, DEVICE, during="forward", ahead=-1), "can't be negative"),
        (lambda: Offload((Placement("weights", HOST, FIT),)), "no pool takes the rest"),
        (lambda: Offload((Placement("weights", HOST, REST), Placement("weights", "ssd", REST))), "two pools"),
        (lambda: Offload((Placement("weights", HOST, 0.1), Placement("weights", HOST, 0.2))), "two entries"),
        (lambda: Offload(streams=(Stream("weights", HOST, DEVICE, during="forward"),) * 2), "two streams of weights"),
        (lambda: Offload(batches=0), "at least 1"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(PluginError, match=told):
        make()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5))
def test_shares_of_a_row_come_to_at_most_all_of_it(shares: list[float]) -> None:
    placements = tuple(Placement("weights", f"pool{number}", share) for number, share in enumerate(shares))
    if sum(shares) > 1.000001:
        with pytest.raises(PluginError, match="more than all of it"):
            Offload(placements)
    elif sum(shares) <= 1:
        assert Offload(placements).placements == placements
