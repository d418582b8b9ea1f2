"""What prices work on an accelerator: a family of kernel formulas, one for each kind of work.

A minimal plugin::

    from slipstick.core.algebra.formula import Formula
    from slipstick.core.algebra.symbols import symbol
    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.kernels import KernelFamily, Priced

    SUM = Formula("sum", inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
                  parameters=(), unit="s", source="...",
                  build=lambda n: (n.flops / n.rate + n.bytes / n.bandwidth,
                                   {"compute": n.flops / n.rate, "memory": n.bytes / n.bandwidth}))

    LINK = Formula("link", inputs={"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s"},
                   parameters=(), unit="s", source="...",
                   build=lambda n: (n.volume / n.bandwidth + n.hops * n.latency,
                                    {"link": n.volume / n.bandwidth, "latency": n.hops * n.latency}))

    class Slow(KernelFamily):
        name = "slow"

        def price(self, work):
            return Priced(SUM, {"flops": work.flops, "bytes": work.bytes, "rate": symbol(f"{work.engine}_rate"),
                                "bandwidth": symbol("hbm_bandwidth")})

        def transfer(self):
            return LINK

        def transfer_parameters(self):
            return {}

        def defaults(self):
            return {}

        def formulas(self):
            return (SUM, LINK)

    @hookimpl
    def slipstick_hardware():
        return [Slow()]

Floor: model. Uses the algebra and the law's work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from attrs import field, frozen

if TYPE_CHECKING:
    from sympy import Expr

    from ...algebra.formula import Formula
    from ...records.provenance import Quantity
    from ..work import Work


@frozen
class Priced:
    """A formula with the expressions of its inputs, and the symbol that each of its parameters stands for."""

    formula: Formula
    inputs: Mapping[str, Expr]
    parameters: Mapping[str, str] = field(factory=dict)


class KernelFamily(ABC):
    """Formulas for each kind of work and for transfers.

    Kinds: gemm, grouped_gemm, attention, pointwise, permute (rows in another order), lookup, optimizer.

    Terms of a formula are named after what binds: compute, memory, link, latency, host. The inputs a formula may use
    are those of the work (flops, bytes, shape) and the machine's symbols (``gemm_rate``, ``attention_rate``,
    ``vector_rate``, ``hbm_bandwidth``).
    """

    name: ClassVar[str]

    @abstractmethod
    def price(self, work: Work) -> Priced:
        """The formula that prices one kernel, bound to this work."""

    @abstractmethod
    def transfer(self) -> Formula:
        """The formula of one transfer: inputs volume [B], bandwidth [B/s], hops [1], latency [s] (per hop)."""

    @abstractmethod
    def transfer_parameters(self) -> Mapping[str, str]:
        """The symbol that each parameter of ``transfer`` stands for."""

    @abstractmethod
    def defaults(self) -> Mapping[str, Quantity]:
        """Value and source of every symbol that stands for a parameter; used where nothing better is known."""

    @abstractmethod
    def formulas(self) -> tuple[Formula, ...]:
        """All formulas of the family."""
