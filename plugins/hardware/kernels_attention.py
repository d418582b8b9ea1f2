"""Formulas of attention: over a whole context, of one new token, and of compressed (latent) keys and values.

Plugin. Contexts run as tiles of 128 queries, each over its whole span; decoding reads the cache and is bound by memory,
by waves of sequences, or by the latency of the longest one until it is split.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from .kernels_shapes import bends, corrected, hinge, kept, labelled, rise, stays
from .kernels_values import parameters

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Formula

TILE = 128
"""Queries of one tile."""

CORE = {
    "flops": "FLOP", "bytes": "B", "batch": "1", "heads": "1", "query": "1", "span": "1", "rate": "FLOP/s",
    "bandwidth": "B/s", "units": "1",
}  # fmt: skip


def _context(n: Any) -> Any:
    query, batch, span = n.fmax(n.query, 1), n.fmax(n.batch, 1), n.fmax(n.span, 1)
    tiles, shared = n.cdiv(query, TILE), kept(n, query * n.heads / n.kv_heads)
    packed = n.cdiv(shared, TILE)
    lines = batch / n.units
    waves, packed_waves = kept(n, lines * n.heads * tiles), kept(n, lines * n.kv_heads * packed)
    apart = 1 - n.packing
    padded = apart * tiles / query + n.packing * packed / shared
    idle = apart * n.ceil_(waves) / waves + n.packing * n.ceil_(packed_waves) / packed_waves
    compute = kept(n, TILE * n.flops / (n.compute_efficiency * n.rate) * padded * (1 + n.span_extra / span)
                   * (1 - n.wave + n.wave * idle)
                   + n.tile_cost * (apart * waves + n.packing * packed_waves))  # fmt: skip
    memory = kept(n, n.bytes / (n.memory_efficiency * n.bandwidth))
    tile = kept(n, 2 * n.span_latency * span)
    own = kept(n, n.launch + n.token_cost * batch * query * n.fmin(n.kv_heads * n.head_dim / 512, 1))
    windowed = n.lt(span, 0.49 * query)
    octave = n.log2(query)
    factor = corrected(
        n,
        bends(
            n,
            rise(n, octave, 7),
            hinge(n, 25 * n.bytes / n.cache, 0),
            windowed,
            windowed * rise(n, octave, 10),
            hinge(n, n.kv_heads, 1),
            hinge(n, lines * n.heads * n.cdiv(query, 64), 0),
        ),
    )
    whole = own + n.pnorm(n.sharpness, memory, n.pnorm(n.core_sharpness, compute, tile))
    return labelled(factor, whole, compute=compute, memory=memory, latency=own + tile)


@cache
def context(slot: str = "attention.context") -> Formula:
    """Attention of ``query`` new tokens of each sequence, which look at ``span`` others on average; also backward.

    Source: tiles and passes after Dao, FlashAttention-2, arXiv:2307.08691; the rest is slipstick's own.
    """
    from slipstick.core.algebra.formula import Formula

    return Formula(
        slot.replace(".", "_"),
        inputs={**CORE, "kv_heads": "1", "head_dim": "1", "cache": "B"},
        parameters=parameters(slot),
        build=_context,
        unit="s",
        validity="fused attention of more than one new token",
        source="dao2023",
    )


def _decode(n: Any) -> Any:
    batch, span = n.fmax(n.batch, 1), n.fmax(n.span, 1)
    groups = n.cdiv(n.heads, 64 * n.kv_heads)
    waves = kept(n, batch * n.kv_heads * groups / n.units)
    again = n.hot * (1 - 1 / n.weight_gain) * stays(n, n.bytes, n.weight_cache * n.cache)
    memory = kept(n, n.bytes * (1 - again) / (n.memory_efficiency * n.bandwidth))
    busy = kept(n, n.tile_cost * ((1 - n.wave) * waves + n.wave * n.fmax(n.ceil_(waves) - 1, 0)))
    tile = kept(n, n.span_latency * span / (1 + span / n.split_span))
    own = kept(n, n.launch + n.sequence_cost * batch)
    long, log_batch, log_kv = n.log2(span), n.log2(batch), n.log2(n.kv_heads)
    share = n.log2(n.heads) - log_kv
    factor = corrected(
        n,
        bends(
            n,
            hinge(n, 1.5 * n.bytes / n.cache, 0),
            rise(n, long, 7),
            rise(n, long, 9),
            rise(n, share, 2),
            rise(n, log_batch, 5) * rise(n, share, 3),
            rise(n, log_batch, 3) * rise(n, log_batch + log_kv, 8),
        ),
    )
    whole = own + n.pnorm(n.sharpness, memory, busy, tile)
    return labelled(factor, whole, compute=busy, memory=memory, latency=own + tile)


@cache
def decode() -> Formula:
    """Attention of one new token of each sequence; ``hot`` 1 where a benchmark reads one cache again and again.

    Source: splitting of contexts after Dao et al., Flash-Decoding, 2023; the rest is slipstick's own.
    """
    from slipstick.core.algebra.formula import Formula

    inputs = {name: unit for name, unit in CORE.items() if name not in ("flops", "query", "rate")}
    return Formula(
        "attention_decode",
        inputs={**inputs, "kv_heads": "1", "cache": "B", "hot": "1"},
        parameters=parameters("attention.decode"),
        build=_decode,
        unit="s",
        validity="one new token a sequence, keys and values from a cache",
        source="dao2023decoding",
    )


def _latent_context(n: Any) -> Any:
    query, batch, span = n.fmax(n.query, 1), n.fmax(n.batch, 1), n.fmax(n.span, 1)
    tiles = n.cdiv(query, TILE)
    waves = kept(n, batch * n.heads * tiles / n.units)
    idle = 1 - n.wave + n.wave * n.ceil_(waves) / waves
    compute = kept(n, n.flops / (n.compute_efficiency * n.rate) * TILE * tiles / query
                   * (1 + n.span_extra / span) * idle)  # fmt: skip
    memory = kept(n, n.bytes / (n.memory_efficiency * n.bandwidth))
    tile = kept(n, 2 * n.span_latency * span)
    several = hinge(n, batch, 0)
    factor = corrected(n, bends(n, several, several * hinge(n, n.heads, 0), hinge(n, batch, 2) * hinge(n, query, 6)))
    whole = n.launch + n.pnorm(n.sharpness, memory, n.pnorm(n.core_sharpness, compute, tile))
    return labelled(factor, whole, compute=compute, memory=memory, latency=n.launch + tile)


@cache
def latent_context() -> Formula:
    """Latent attention of more than one new token, keys and values expanded. Source: DeepSeek-V2, arXiv:2405.04434."""
    from slipstick.core.algebra.formula import Formula

    return Formula(
        "latent_context",
        inputs=dict(CORE),
        parameters=parameters("latent.context"),
        build=_latent_context,
        unit="s",
        validity="fused latent attention of more than one new token",
        source="deepseek2024v2",
    )


def _latent_decode(n: Any) -> Any:
    batch, span = n.fmax(n.batch, 1), n.fmax(n.span, 1)
    groups = n.cdiv(n.heads, 64)
    waves = kept(n, batch * groups / n.units)
    again = n.hot * (1 - 1 / n.weight_gain) * stays(n, n.bytes, n.weight_cache * n.cache)
    compute = kept(n, n.flops / (n.compute_efficiency * n.rate) * 64 * groups / n.heads)
    memory = kept(n, n.bytes * (1 - again) / (n.memory_efficiency * n.bandwidth))
    busy = kept(n, n.tile_cost * ((1 - n.wave) * waves + n.wave * n.fmax(n.ceil_(waves) - 1, 0)))
    tile = kept(n, n.span_latency * span / (1 + span / n.split_span))
    own = kept(n, n.launch + n.sequence_cost * batch * groups)
    factor = corrected(n, bends(n, hinge(n, n.heads, 4), hinge(n, span, 9), hinge(n, batch, 4) * hinge(n, n.heads, 5)))
    whole = own + n.pnorm(n.sharpness, compute, memory, busy, tile)
    return labelled(factor, whole, compute=compute + busy, memory=memory, latency=own + tile)


@cache
def latent_decode() -> Formula:
    """Latent attention of one new token, up-projections absorbed. Source: DeepSeek-V2, arXiv:2405.04434."""
    from slipstick.core.algebra.formula import Formula

    inputs = {name: unit for name, unit in CORE.items() if name != "query"}
    return Formula(
        "latent_decode",
        inputs={**inputs, "cache": "B", "hot": "1"},
        parameters=parameters("latent.decode"),
        build=_latent_decode,
        unit="s",
        validity="one new token a sequence, latents from a cache",
        source="deepseek2024v2",
    )
