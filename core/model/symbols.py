"""Symbols that the law adds to the table: sizes of models, widths by format role, settings of the law.

Floor: model. Importing it registers them (no sympy).
"""

from __future__ import annotations

from ..algebra.symbols import SymbolInfo, register
from .device import CACHE, UNITS

OWNER = "slipstick law"

_SIZES = (
    ("latent", "d_c", "width of a compressed (latent) projection"),
    ("window", "w", "tokens that a sliding or chunked attention layer looks back"),
    ("positions", "n_{pos}", "rows of a learned position table"),
    ("stream", "h_e", "width of an embedding that differs from the residual stream"),
)
_WIDTHS = (
    ("expert_width", "w_e", "bytes of one element of a routed expert's weights"),
    ("high_width", "w_h", "bytes of one weight element that quantisation leaves alone"),
    ("frozen_width", "w_{fr}", "bytes of one weight element of a linear layer that is not trained"),
    ("mask_width", "w_{mask}", "bytes of one element of a dropout mask"),
    ("wide_width", "w_{wide}", "bytes of one element kept in high precision (loss, statistics)"),
)


def _register() -> None:
    for name, latex, meaning in _SIZES:
        register(SymbolInfo(name, latex, "1", meaning, lower=1, integer=True), OWNER)
    for name, latex, meaning in _WIDTHS:
        register(SymbolInfo(name, latex, "B", meaning, upper=64), OWNER)
    register(
        SymbolInfo(
            "load_skew", "\\kappa", "1", "token copies of the busiest expert rank over the mean", lower=1, default=1.0
        ),
        OWNER,
    )
    for name, latex, what in (
        ("capacity_factor", "C_e", "most token copies that an expert rank takes over the mean"),
        ("straggler", "f_{slow}", "time of kernels on the slowest device over that on the typical one"),
    ):
        register(SymbolInfo(name, latex, "1", what, lower=1), OWNER)
    for engine, what in (("expert", "routed experts"), ("high", "layers that quantisation leaves alone")):
        register(SymbolInfo(f"{engine}_rate", f"R_{{{engine}}}", "FLOP/s", f"dense matrix rate of {what}"), OWNER)
    for name, latex, what in (
        ("step_overhead", "t_{step}", "time on the host for each step"),
        ("sequence_overhead", "t_{seq}", "time on the host for each sequence of a serving step"),
        ("kernel_overhead", "t_{kernel}", "time between one kernel and the next that the software does not hide"),
        ("launch_time", "t_{launch}", "time on the host to launch the kernels of one operation"),
    ):
        register(SymbolInfo(name, latex, "s", what, default=0.0), OWNER)
    for name, latex, what in (
        ("time_factor", "f_{kernel}", "time of a kernel in the running software over its time measured alone"),
        ("collective_factor", "f_{coll}", "time of a collective that stays exposed over its time measured alone"),
        ("prefill_factor", "f_{pre}", "share of the prefills beside a decode step that its tokens wait for"),
        ("attention_factor", "f_{att}", "time of the attention kernel that the software ships over the one measured"),
        ("exposed_share", "f_{exp}", "share of transfers beside computation that shows nevertheless"),
        ("routed_unfused", "f_{r}", "part of what routed experts add to products that runs as kernels of its own"),
        ("launch_exposed", "f_{launch}", "share of launches beside kernels that shows nevertheless"),
    ):
        register(SymbolInfo(name, latex, "1", what), OWNER)
    register(SymbolInfo("device_units", "N_{SM}", "1", "processors of a device (SMs, cores)", 1, default=UNITS), OWNER)
    register(SymbolInfo("device_cache", "C_{L2}", "B", "last-level cache of a device", default=CACHE), OWNER)
    register(
        SymbolInfo("unfused_share", "f_u", "1", "part of the passes of a chain that are kernels of their own", 0, 1),
        OWNER,
    )
    register(SymbolInfo("memory_utilisation", "u", "1", "fraction of device memory that a server may use", 0, 1), OWNER)
    register(  # not declared whole: it stands for documents of any lengths
        SymbolInfo("document_tokens", "s_d", "1", "tokens of a document that attention stays inside", lower=1), OWNER
    )
    register(
        SymbolInfo("prefill_tokens", "n_{pre}", "1", "most tokens that one prefill pass computes at once", lower=1),
        OWNER,
    )


_register()
