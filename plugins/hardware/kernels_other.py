"""Formulas of passes over memory and of transfers between devices.

Plugin.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .kernels_shapes import bends, corrected, kept, rise, stays
from .kernels_values import parameters

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Formula

MOST_RANKS = 8
"""Ranks up to which the bandwidth that a collective reaches was seen to grow."""


def _pass(n: Any) -> Any:
    compute = n.flops / (n.compute_efficiency * n.rate)
    memory = n.bytes / (n.memory_efficiency * n.bandwidth)
    return n.launch + n.fmax(compute, memory), {"compute": compute, "memory": memory, "latency": n.launch}


@cache
def one_pass(slot: str) -> Formula:
    """One pass over memory. Source: Williams, Waterman, Patterson, CACM 52(4) 2009."""
    from slipstick.core.algebra.formula import Formula

    return Formula(
        slot,
        inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
        parameters=parameters(slot),
        build=_pass,
        unit="s",
        validity="one kernel that reads and writes each tensor once",
        source="williams2009",
    )


def _chain(n: Any) -> Any:
    own = kept(n, n.launch * (1 + n.unfused_share * n.further))
    compute = kept(n, n.flops / (n.compute_efficiency * n.rate))
    moved = kept(n, n.bytes + n.unfused_share * n.spilled)
    near = (1 - 1 / n.warm_gain) * stays(n, n.bytes, n.warm_cache * n.cache)
    memory = kept(n, moved * (1 - near) / (n.memory_efficiency * n.bandwidth))
    return own + n.fmax(compute, memory), {"compute": compute, "memory": memory, "latency": own}


@cache
def chain() -> Formula:
    """A chain of pointwise operations: one kernel over ``bytes``, and as far as software does not fuse them ``further``
    kernels that move ``spilled`` bytes more. What fits the cache may move faster.

    Source: Williams, Waterman, Patterson, CACM 52(4) 2009.
    """
    from slipstick.core.algebra.formula import Formula

    return Formula(
        "pointwise",
        inputs={"flops": "FLOP", "bytes": "B", "spilled": "B", "further": "1", "rate": "FLOP/s", "bandwidth": "B/s",
                "cache": "B"},
        parameters=parameters("pointwise"),
        build=_chain,
        unit="s",
        validity="kernels that read and write each tensor once",
        source="williams2009",
    )  # fmt: skip


def _transfer(n: Any) -> Any:
    latency = kept(n, n.launch + n.hops * n.latency * n.latency_factor)
    least = kept(n, n.volume / n.bandwidth)
    grown = (n.fmin(n.fmax(n.ranks, 2), MOST_RANKS) / 2) ** n.growth
    link = kept(n, least / (n.link_efficiency * grown))
    # Protocols change with the size of a message; were it a time, a faster link could be a slower one.
    octave = n.log2(n.volume / n.byte)
    factor = corrected(
        n, bends(n, rise(n, octave, 13, 4, 1.5), rise(n, octave, 16, 3, 1.5), rise(n, octave, 19, 4, 1.5))
    )
    several = n.lt(0, n.hops)
    whole = n.where(n.hops, n.pnorm(n.sharpness, latency, link) * factor, 0)
    return whole, {"link": link * factor, "latency": several * latency * factor}


@cache
def transfer(slot: str = "all_reduce") -> Formula:
    """One transfer: latency and bytes over the link, blended, since pieces of a message follow one another.

    Source: Alexandrov et al., LogGP, SPAA 1995 (an order of 1/2 is its best message of many pieces).
    """
    from slipstick.core.algebra.formula import Formula

    return Formula(
        "transfer",
        inputs={"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s", "ranks": "1"},
        parameters=parameters(slot),
        build=_transfer,
        unit="s",
        validity="volume: bytes that cross the busiest link of one device",
        source="alexandrov1995",
    )
