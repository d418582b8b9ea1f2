"""The default kernel family: a roofline with a launch time, its efficiencies stated and the same for every device.

It needs nothing but a datasheet, so it works for an accelerator that nobody has measured; every figure it gives is
uncalibrated. Uses the algebra; sympy only where a formula is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.kernels import KernelFamily, Priced
from slipstick.core.records.provenance import Quantity, Source

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Formula
    from slipstick.core.model.work import Work

STATED = Source(
    key="default",
    title="slipstick's stated default, between published kernel efficiencies (docs/efficiency.md)",
    url="docs/efficiency.md",
    date="2026-11-30",
    kind="default",
)

# Fractions of the datasheet rate, one for each kind of kernel. Fits of public kernel measurements give 0.72 to 0.93
# for large BF16 matrix products, 0.57 to 0.68 for attention, 0.76 to 0.86 for memory, 0.7 to 0.85 for collectives.
DEFAULTS = {
    "compute_efficiency@gemm": 0.78,
    "compute_efficiency@grouped_gemm": 0.60,
    "compute_efficiency@attention": 0.60,
    "compute_efficiency@pointwise": 0.80,
    "memory_efficiency": 0.82,
    "link_efficiency": 0.80,
    "launch": 2.5e-6,
}
_KINDS = {"gemm": "gemm", "grouped_gemm": "grouped_gemm", "attention": "attention"}


def _roofline(n: Any) -> Any:
    compute = n.flops / (n.compute_efficiency * n.rate)
    memory = n.bytes / (n.memory_efficiency * n.bandwidth)
    return n.launch + n.fmax(compute, memory), {"compute": compute, "memory": memory, "latency": n.launch}


def _transfer(n: Any) -> Any:
    link = n.volume / (n.link_efficiency * n.bandwidth)
    latency = n.hops * n.latency
    return link + latency, {"link": link, "latency": latency}


@cache
def roofline() -> Formula:
    """The roofline of one kernel. Source: Williams, Waterman, Patterson, CACM 52(4) 2009."""
    from slipstick.core.algebra.formula import Formula, Parameter  # here: a cached answer needs no formula

    return Formula(
        "roofline",
        inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
        parameters=(
            Parameter("compute_efficiency", "1", "fraction of the arithmetic rate reached", 0.78, 0.01, 1.0),
            Parameter("memory_efficiency", "1", "fraction of the memory bandwidth reached", 0.82, 0.01, 1.0),
            Parameter("launch", "s", "time a kernel costs before it works", 2.5e-6, 0.0, 1e-3),
        ),
        build=_roofline,
        unit="s",
        validity="one kernel that reads and writes each tensor once",
        source="williams2009",
    )


@cache
def transfer() -> Formula:
    """Latency and bandwidth of one transfer. Source: Hockney, Parallel Computing 20(3) 1994."""
    from slipstick.core.algebra.formula import Formula, Parameter

    return Formula(
        "transfer",
        inputs={"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s"},
        parameters=(Parameter("link_efficiency", "1", "fraction of the link's bandwidth reached", 0.80, 0.01, 1.0),),
        build=_transfer,
        unit="s",
        validity="volume: bytes that cross the busiest link of one device",
        source="hockney1994",
    )


class Roofline(KernelFamily):
    """launch + max(FLOPs over rate, bytes over bandwidth), each de-rated by a stated efficiency."""

    name = "roofline"

    def price(self, work: Work) -> Priced:
        from slipstick.core.algebra.symbols import symbol

        kind = _KINDS.get(work.kind, "pointwise")
        return Priced(
            roofline(),
            {
                "flops": work.flops,
                "bytes": work.bytes,
                "rate": symbol(f"{work.engine}_rate"),
                "bandwidth": symbol("hbm_bandwidth"),
            },
            {
                "compute_efficiency": f"compute_efficiency@{kind}",
                "memory_efficiency": "memory_efficiency",
                "launch": "launch",
            },
        )

    def transfer(self) -> Formula:
        return transfer()

    def transfer_parameters(self) -> Mapping[str, str]:
        return {"link_efficiency": "link_efficiency"}

    def defaults(self) -> Mapping[str, Quantity]:
        return {
            name: Quantity(value, "s" if name == "launch" else "1", STATED, str(value))
            for name, value in DEFAULTS.items()
        }

    def formulas(self) -> tuple[Formula, ...]:
        return (roofline(), transfer())


@hookimpl
def slipstick_hardware() -> list[KernelFamily]:
    """The roofline family."""
    return [Roofline()]
