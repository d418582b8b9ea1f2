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
    from .trace_reader import TraceRow


@frozen
class Priced:
    """A formula with the expressions of its inputs, and the symbol that each of its parameters stands for.

    ``slot``: the kind of kernel whose measurements calibrate the formula (a key of the family's ``slots``).
    """

    formula: Formula
    inputs: Mapping[str, Expr]
    parameters: Mapping[str, str] = field(factory=dict)
    slot: str = ""


@frozen
class Part:
    """A measured kernel as the family sees it: the ``slot`` and a value for every input of the slot's formula."""

    slot: str
    inputs: Mapping[str, float]


ENGINE_OF_SLOT = {"gemm": "gemm", "grouped_gemm": "expert", "attention.context": "attention",
                  "attention.decode": "attention", "attention.backward": "attention", "latent.context": "attention",
                  "latent.decode": "attention"}  # fmt: skip
"""Slot → the engine whose number format its kernels usually run in."""

ENGINES_APART = ("high",)
"""Engines that run kernels of a slot in another format than usual (what quantisation leaves alone): those kernels have
parameters of their own, under the slot's name with the engine after a dot."""


def parameter_symbol(parameter: str, slot: str) -> str:
    """The symbol that a parameter of a slot's formula stands for.

    >>> parameter_symbol("launch", "attention.decode")
    'launch@attention.decode'
    """
    return f"{parameter}@{slot}"


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

    def slots(self) -> Mapping[str, Formula]:
        """Slot → the formula that measurements of it calibrate; a fitted record fills ``parameter@slot``.

        Work: gemm, grouped_gemm, attention.context, attention.decode, ...; collectives under their kind (all_reduce).
        A family without slots can't be calibrated.
        """
        return {}

    def measured(self, row: TraceRow, machine: Mapping[str, float]) -> tuple[Part, ...]:
        """The kernels whose times add up to a measured row; empty where the family has no formula for it.

        ``machine``: rate [FLOP/s, in the row's number format], vector_rate [FLOP/s], bandwidth [B/s, device memory],
        units, cache [B], link_bandwidth [B/s], link_latency [s].
        """
        return ()

    def sibling(self, slot: str) -> tuple[str, tuple[str, ...]]:
        """The slot whose fitted values a slot with few rows is expected near, and for which parameters; "" for none."""
        return "", ()

    def transfer_slot(self, kind: str) -> str:
        """The slot of a collective of ``kind`` (all_reduce, all_gather, reduce_scatter, all_to_all, send), "" for none.

        Its formula is ``transfer``; a family with slots has the parameters of each kind apart.
        """
        return ""

    @abstractmethod
    def transfer(self) -> Formula:
        """The formula of one transfer: inputs volume [B], bandwidth [B/s], hops [1], latency [s] (per hop).

        It may also take ``ranks`` [1], the members of the group. With no hop it costs nothing.
        """

    @abstractmethod
    def transfer_parameters(self) -> Mapping[str, str]:
        """The symbol that each parameter of ``transfer`` stands for, where its kind of collective has no slot."""

    @abstractmethod
    def defaults(self) -> Mapping[str, Quantity]:
        """Value and source of every symbol that stands for a parameter; used where nothing better is known."""

    @abstractmethod
    def formulas(self) -> tuple[Formula, ...]:
        """All formulas of the family."""


def stated_parameters(family: KernelFamily) -> dict[str, Quantity]:
    """The family's stated values, for every slot and for kernels of a slot that another engine runs."""
    stated = family.defaults()
    slots = ENGINE_OF_SLOT.keys() & family.slots().keys()
    apart: dict[str, Quantity] = {}
    for name, quantity in stated.items():
        parameter, _, slot = name.partition("@")
        if slot in slots:
            apart.update({parameter_symbol(parameter, f"{slot}.{engine}"): quantity for engine in ENGINES_APART})
    return {**stated, **apart}
