"""Formulas of matrix products: dense ones and those of routed experts.

Plugin. A product takes as long as a smooth maximum of its arithmetic, its traffic and the latency of its longest tile.
Arithmetic counts processors that idle while the last wave of tiles runs; traffic tells weights, which come from
memory, from activations, which the kernel before has left in the cache where they fit.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .kernels_shapes import bends, corrected, hinge, kept, labelled, rise, stays
from .kernels_values import parameters

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Formula

LONG = 3e-4
"""Seconds of arithmetic after which clocks fall: where the slowdown of long products reaches half its size."""

PRODUCT = {
    "flops": "FLOP", "m": "1", "n": "1", "k": "1", "cold": "B", "warm": "B", "rate": "FLOP/s", "bandwidth": "B/s",
    "units": "1",
}  # fmt: skip


def _gemm(n: Any) -> Any:
    m = n.fmax(n.m, 1)
    many, some = n.lt(128, m), n.lt(64, m)
    rows, columns = kept(n, 64 + 64 * many), kept(n, 64 + 64 * some)
    block, area = kept(n, rows * columns * n.units), kept(n, m * n.n)
    waves = kept(n, n.cdiv(m, rows) * n.cdiv(n.n, columns) / n.units)
    lines, wide_block = n.cdiv(m, 128), 128 * 256 * n.units
    wide = kept(n, lines * n.cdiv(n.n, 256) / n.units)
    # processors that idle in the last wave; with less than one wave, what a whole tile takes
    idle = kept(n, block / area * n.where(waves - 1, n.ceil_(waves), 1) - 1)
    idle_wide = kept(n, n.lt(1, wide) * (wide_block / area * n.ceil_(wide) - 1))
    share = n.where(waves - 1, n.wave, n.floor)
    plain = kept(n, n.flops / (n.compute_efficiency * n.rate) * (1 + n.depth_extra / n.k)
                 * (1 + share * idle + n.wide_wave * idle_wide))  # fmt: skip
    compute = kept(n, plain + plain * n.throttle * plain / (plain + LONG * n.second))
    again = n.hot * (1 - 1 / n.weight_gain) * stays(n, n.working_set, n.weight_cache * n.cache)
    near = (1 - 1 / n.warm_gain) * stays(n, n.warm, n.warm_cache * n.cache)
    memory = kept(n, (n.cold * (1 - again) + n.warm * (1 - near)) / (n.memory_efficiency * n.bandwidth))
    deep = kept(n, n.k / n.latency_depth)
    tile = kept(n, n.tile_latency * n.k / n.sqrt(1 + deep * deep))
    own = kept(n, n.launch + n.row_cost * m + n.quantise_bytes * m * n.k / n.bandwidth)
    # What is left: how the best kernel for a shape deviates from this one. Nested, so that a sweep over rows alone
    # works on rows alone.
    log_m, log_n, log_k = n.log2(m), n.log2(n.n), n.log2(n.k)
    n8, n10, k5, k8, k10 = (rise(n, x, at) for x, at in ((log_n, 8), (log_n, 10), (log_k, 5), (log_k, 8), (log_k, 10)))
    both = log_m + log_n
    factor = corrected(
        n,
        rise(n, log_m, 7) * bends(n, k8, k10, n8 * k8, n8 * k10)
        + n.lt(256, m) * bends(n, n10 * k10, first=5)
        + bends(n, n10 * k5, rise(n, both, 10) * k5, rise(n, both, 14) * k8, first=6)
        + bends(n, n.fmax(-n.log2(waves), 0) / 6, n.fmin(idle_wide, 1), many * (lines * 128 / m - 1), first=9),
    )
    whole = own + n.pnorm(n.sharpness, compute, memory, tile)
    return labelled(factor, whole, compute=compute, memory=memory, latency=own + tile)


@cache
def gemm() -> Formula:
    """One matrix product y[m, n] = x[m, k] · w[k, n]; ``hot`` 1 where a benchmark reads ``working_set`` bytes of
    weights again and again, 0 in a model, whose weights are read once a step.

    Source: waves of tiles after NVIDIA, Matrix Multiplication Background User's Guide; the smooth maximum and the
    latency of the summed axis are slipstick's own, fitted to public measurements.
    """
    from slipstick.core.algebra.formula import Formula

    return Formula(
        "gemm",
        inputs={**PRODUCT, "cache": "B", "working_set": "B", "hot": "1"},
        parameters=parameters("gemm"),
        build=_gemm,
        unit="s",
        validity="one dense product of 32 to 65536 columns and depth and up to 32768 rows",
        source="nvidia2023matmul",
    )


def _grouped(n: Any) -> Any:
    rows, groups = n.fmax(n.m, 1), n.fmax(n.groups, 1)
    each = kept(n, rows / groups)
    tiles = kept(n, rows * n.n / (128 * 256 * n.units))
    padded = (1 + n.row_extra * groups / rows) * (1 + n.width_extra / n.n) * (1 + n.depth_extra / n.k)
    compute = kept(n, n.flops / (n.compute_efficiency * n.rate) * padded * (1 + n.idle / (1 + tiles)))
    memory = kept(n, (n.cold * (1 + n.weight_extra / n.n) + n.warm) / (n.memory_efficiency * n.bandwidth))
    tile = kept(n, n.tile_latency * n.k)
    octave = n.log2(rows)
    factor = corrected(
        n,
        bends(
            n,
            rise(n, octave, 3),
            rise(n, octave, 7),
            rise(n, octave, 10),
            hinge(n, each, 0) * hinge(n, groups, 4),
            hinge(n, tiles, -4),
            n.uneven,
        ),
    )
    own = kept(n, n.launch + n.row_cost * rows)
    whole = own + n.pnorm(n.sharpness, compute, memory, tile)
    return labelled(factor, whole, compute=compute, memory=memory, latency=own + tile)


@cache
def grouped() -> Formula:
    """One product of routed experts: ``m`` rows in all over ``groups`` experts with any; ``uneven`` 0 where all get
    alike, 1 where loads follow a power law.

    Source: waves of tiles after NVIDIA, Matrix Multiplication Background User's Guide.
    """
    from slipstick.core.algebra.formula import Formula

    return Formula(
        "grouped_gemm",
        inputs={**PRODUCT, "groups": "1", "uneven": "1"},
        parameters=parameters("grouped_gemm"),
        build=_grouped,
        unit="s",
        validity="one of the products of a routed feed-forward layer on one rank",
        source="nvidia2023matmul",
    )
