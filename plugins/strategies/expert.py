"""Expert parallelism: routed experts split over devices that data and tensor parallelism use for everything else.

The same devices are seen in two factorisations: expert ranks are taken from the data parallel group first, and from the
tensor parallel group where that is not enough; what is left of the latter splits each expert's width.
Source: Lepikhin et al., arXiv:2006.16668 (GShard); Singh et al., arXiv:2303.06318 (tensor, expert and data parallel).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Strategy, divides
from slipstick.core.model.layout import Rules, Split
from slipstick.core.model.mesh import Dimension


class ExpertParallel(Strategy):
    """``experts`` over ep; tokens reach them copy by copy, or cross to each node once (``dispatch``)."""

    name = "expert"
    dimensions = (Dimension("ep", "expert parallel degree", order=25, lenders=("dp", "tp")),)

    options = (
        Option(
            "dispatch",
            "how tokens reach their experts: each copy on its own way, or a token once to each node (DeepEP, HybridEP)",
            "copies", ("copies", "once"),
        ),
    )  # fmt: skip

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("experts", "ep", once=options.get("dispatch") == "once"),))

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (
            divides("ep", "experts", "ep must divide the number of experts"),
            divides("ep", ("dp", "tp"), "ep must divide dp times tp: expert ranks are taken from those groups"),
            Constraint("either_divides", ("ep",), ("dp",), "ep and dp must divide one another"),
        )

    def applies(self, sizes: Mapping[str, int]) -> bool:
        return "experts" in sizes


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Expert parallelism."""
    return [ExpertParallel()]
