"""Parameters of the measured kernel family: what each means, its range, and its stated value for each kind of kernel.

Plugin. Pure data and the symbols that stand for it; no sympy. Stated values are typical of fits to public kernel
measurements (AIConfigurator's tables of A100, H100, H200, B200 and L40S); corrections are 0 until somebody measures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstick.core.algebra.symbols import SymbolInfo, register
from slipstick.core.records.provenance import Source

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Parameter

STATED = Source(
    key="default",
    title="slipstick's stated default, typical of fits to public kernel measurements (docs/efficiency.md)",
    url="docs/efficiency.md",
    date="2026-11-30",
    kind="default",
)

OWNER = "measured kernel family"

# name: unit, latex, least value, greatest value, meaning
_MEANINGS: dict[str, tuple[str, str, float, float, str]] = {
    "launch": ("s", "t_0", 1e-8, 1e-3, "time that a kernel costs before it works"),
    "compute_efficiency": ("1", r"\eta_c", 0.01, 1.0, "fraction of the arithmetic rate that a kernel reaches"),
    "memory_efficiency": ("1", r"\eta_m", 0.02, 1.0, "fraction of the memory bandwidth that a kernel reaches"),
    "link_efficiency": ("1", r"\eta_l", 0.02, 1.0, "fraction of a link's bandwidth that a collective reaches"),
    "sharpness": ("1", "q_0", 0.3, 8.0, "order of the norm over resources: 1 is their sum, infinity the slowest alone"),
    "core_sharpness": ("1", "q_1", 0.3, 8.0, "order of the norm over arithmetic and latency"),
    "depth_extra": ("1", "k_0", 1.0, 2500.0, "steps along the summed axis that filling a tile's pipeline costs"),
    "width_extra": ("1", "n_0", 1.0, 2500.0, "columns that the ends of a product cost"),
    "tile_latency": ("s", r"\ell_t", 1e-12, 1e-7, "time of one step along the summed axis in one tile"),
    "latency_depth": ("1", "k_s", 100.0, 1e5, "steps after which splitting the summed axis pays"),
    "throttle": ("1", r"\theta", 1e-3, 1.0, "slowdown of long products (power)"),
    "wave": ("1", "g", 1e-3, 1.3, "part of the idle processors in the last wave of tiles that stays idle"),
    "wide_wave": ("1", "g_2", 1e-3, 1.3, "the same for tiles of 128 by 256"),
    "floor": ("1", "g_0", 1e-3, 1.3, "part of one whole tile's time below which too few tiles don't get"),
    "weight_cache": ("1", "c_w", 0.05, 3.0, "part of the cache in which weights stay that are read again"),
    "weight_gain": ("1", "a_w", 0.5, 10.0, "speed of weights in the cache over those in memory"),
    "warm_cache": ("1", "c_a", 0.05, 3.0, "part of the cache in which activations stay from kernel to kernel"),
    "warm_gain": ("1", "a_a", 1.0, 10.0, "speed of activations in the cache over those in memory"),
    "unfused_share": ("1", "f_u", 0.0, 1.0, "part of the passes of a chain that are kernels of their own"),
    "row_cost": ("s", "t_m", 1e-14, 5e-8, "time of one row outside the product (scales, sorting)"),
    "quantise_bytes": ("B", "w_q", 1e-4, 60.0, "bytes moved to quantise one element of the input"),
    "row_extra": ("1", "m_0", 0.1, 250.0, "rows that each expert's tiles are padded with"),
    "idle": ("1", "u_0", 0.01, 20.0, "slowdown of products of few tiles"),
    "weight_extra": ("1", "n_w", 0.1, 2500.0, "columns' worth of weights read beyond those there are"),
    "span_extra": ("1", "s_0", 1.0, 2500.0, "context tokens that starting a tile of queries costs"),
    "span_latency": ("s", r"\ell_s", 1e-12, 1e-6, "time of one token of context in one tile"),
    "tile_cost": ("s", "t_c", 1e-10, 2e-5, "time of one wave of tiles"),
    "packing": ("1", "p_q", 0.0, 1.0, "part of the heads whose queries share a tile where they share a key head"),
    "token_cost": ("s", "t_k", 1e-14, 5e-8, "time of writing one token's keys and values into the cache"),
    "sequence_cost": ("s", "t_b", 1e-12, 5e-7, "time of one sequence of a batch"),
    "split_span": ("1", "s_s", 1.0, 2e5, "context tokens after which splitting a sequence pays"),
    "latency_factor": ("1", r"\lambda", 0.01, 10.0, "latency of a step of a ring over that stated of the link"),
    "growth": ("1", "d_r", -1.0, 1.0, "power of half the ranks by which the reached bandwidth grows, to 8 ranks"),
}  # fmt: skip

CORRECTIONS = {
    "gemm": 11,
    "grouped_gemm": 6,
    "attention": 6,
    "decode": 6,
    "latent": 3,
    "transfer": 3,
}
"""Kind of formula → how many corrections it has: coefficients of bounded functions of the sizes, 0 for none."""

_MEANINGS |= {
    f"bend_{number}": ("1", rf"\beta_{{{number}}}", -1.0, 1.0, f"correction {number} of the logarithm of a time")
    for number in range(1, max(CORRECTIONS.values()) + 1)
}

GEMM = {
    "launch": 2.6e-6, "compute_efficiency": 0.88, "memory_efficiency": 0.82, "sharpness": 2.0, "depth_extra": 120.0,
    "tile_latency": 1.5e-9, "latency_depth": 3000.0, "throttle": 0.14, "wave": 0.1, "floor": 0.03, "wide_wave": 0.08,
    "weight_cache": 0.55, "weight_gain": 1.7, "warm_cache": 0.55, "warm_gain": 1.3, "row_cost": 1e-11,
    "quantise_bytes": 0.02,
}  # fmt: skip
GROUPED = {
    "launch": 8e-6, "compute_efficiency": 0.7, "memory_efficiency": 0.85, "sharpness": 2.0, "depth_extra": 300.0,
    "width_extra": 150.0, "row_extra": 15.0, "idle": 1.5, "tile_latency": 2e-9, "weight_extra": 5.0, "row_cost": 1e-10,
}  # fmt: skip
CONTEXT = {
    "launch": 1e-5, "compute_efficiency": 0.62, "memory_efficiency": 0.45, "core_sharpness": 1.4, "sharpness": 1.4,
    "span_extra": 200.0, "span_latency": 8e-9, "wave": 0.7, "tile_cost": 1e-8, "packing": 0.3, "token_cost": 1e-11,
}  # fmt: skip
DECODE = {
    "launch": 8.5e-6, "memory_efficiency": 0.85, "sharpness": 2.0, "sequence_cost": 5e-9, "tile_cost": 3e-6,
    "wave": 0.5, "span_latency": 5e-9, "split_span": 1000.0, "weight_gain": 2.0, "weight_cache": 0.8,
}  # fmt: skip
LATENT_CONTEXT = {
    "launch": 1.3e-5, "compute_efficiency": 0.62, "memory_efficiency": 0.65, "core_sharpness": 1.1, "sharpness": 1.6,
    "span_extra": 200.0, "span_latency": 1e-8, "wave": 0.5,
}  # fmt: skip
LATENT_DECODE = {
    "launch": 1.2e-5, "compute_efficiency": 0.7, "memory_efficiency": 0.85, "sharpness": 2.0, "sequence_cost": 2e-8,
    "tile_cost": 4e-6, "wave": 0.6, "span_latency": 2e-9, "split_span": 10000.0, "weight_gain": 1.5,
    "weight_cache": 0.6,
}  # fmt: skip
CHAIN = {
    "launch": 2.5e-6, "compute_efficiency": 0.8, "memory_efficiency": 0.82, "unfused_share": 0.0, "warm_cache": 0.55,
    "warm_gain": 1.0,
}  # fmt: skip
PASS = {"launch": 2.5e-6, "compute_efficiency": 0.8, "memory_efficiency": 0.82}
RING = {"launch": 4.5e-6, "sharpness": 0.6, "latency_factor": 0.45, "growth": 0.28}

DEFAULTS: dict[str, dict[str, float]] = {
    "gemm": GEMM,
    "grouped_gemm": GROUPED,
    "attention.context": CONTEXT,
    "attention.decode": DECODE,
    "attention.backward": CONTEXT | {"compute_efficiency": 0.5, "launch": 1.5e-5},
    "latent.context": LATENT_CONTEXT,
    "latent.decode": LATENT_DECODE,
    "pointwise": CHAIN,
    "permute": PASS,
    "lookup": PASS,
    "optimizer": PASS,
    "all_reduce": RING | {"link_efficiency": 0.66, "growth": 0.26},
    "all_gather": RING | {"link_efficiency": 0.6},
    "reduce_scatter": RING | {"link_efficiency": 0.54, "growth": 0.3},
    "all_to_all": RING | {"link_efficiency": 0.7, "growth": 0.05},
    "send": RING | {"link_efficiency": 0.8, "growth": 0.0, "sharpness": 1.0},
}
"""Slot → parameter → stated value; corrections, which are 0, stand in ``CORRECTIONS``."""

_KINDS = {
    "attention.context": "attention", "attention.backward": "attention", "attention.decode": "decode",
    "latent.context": "latent", "latent.decode": "latent", "all_reduce": "transfer", "all_gather": "transfer",
    "reduce_scatter": "transfer", "all_to_all": "transfer", "send": "transfer",
}  # fmt: skip


def stated(slot: str) -> dict[str, float]:
    """Every parameter of a slot's formula with its stated value, corrections last.

    >>> stated("gemm")["memory_efficiency"], stated("gemm")["bend_1"], stated("pointwise").get("bend_1")
    (0.82, 0.0, None)
    """
    count = CORRECTIONS.get(_KINDS.get(slot, slot), 0)
    return DEFAULTS[slot] | {f"bend_{number}": 0.0 for number in range(1, count + 1)}


def unit_of(parameter: str) -> str:
    """The unit of a parameter."""
    return _MEANINGS[parameter][0]


def parameters(slot: str) -> tuple[Parameter, ...]:
    """The declared parameters of a slot's formula."""
    from slipstick.core.algebra.formula import Parameter  # here: a cached answer needs no formula

    made = []
    for name, value in stated(slot).items():
        unit, latex, lower, upper, meaning = _MEANINGS[name]
        made.append(Parameter(name, unit, meaning, value, lower, upper, latex))
    return tuple(made)


def _register() -> None:
    from slipstick.core.algebra.symbols import TABLE
    from slipstick.core.model import symbols as _law  # noqa: F401  # what the law knows by name is its own

    for name, (unit, latex, lower, upper, meaning) in _MEANINGS.items():
        known = TABLE.get(name)
        if known is None or known.name != name:
            register(SymbolInfo(name, latex, unit, meaning, lower, upper), OWNER)


_register()
