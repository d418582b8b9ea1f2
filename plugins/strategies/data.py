"""Data parallelism, with the optimizer state (ZeRO-1), gradients (ZeRO-2) and weights (ZeRO-3) stored split over it.

Source: Rajbhandari et al., arXiv:1910.02054 (ZeRO); stage 1 is what Megatron calls the distributed optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Strategy, divides
from slipstick.core.model.layout import Kind, Rules, Split, Store
from slipstick.core.model.mesh import Dimension


class DataParallel(Strategy):
    """``batch`` over dp; state stored flat over dp from the given ZeRO stage on."""

    name = "data"
    dimensions = (Dimension("dp", "data parallel degree", order=30, fills=True),)
    options = (
        Option(
            "zero",
            "what is stored split over data parallel ranks: "
            "1 optimizer state, 2 and gradients, 3 and weights; 0 nothing",
            default=1,
            choices=(0, 1, 2, 3),
            tasks=("train",),
        ),
    )

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("batch", "dp"),), zero_stores(options, "dp"))

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (
            divides(
                ("dp", "micro_batch"),
                "global_batch",
                "data parallel degree times micro batch must divide the global batch",
            ),
        )


def zero_stores(options: Mapping[str, Any], dimension: str) -> tuple[Store, ...]:
    """What the option ``zero`` keeps split over a dimension along which every rank has the same weights."""
    kinds: tuple[Kind, ...] = ("optimizer", "gradient", "weight")
    return tuple(Store(kind, "flat", dimension) for kind in kinds[: int(options.get("zero", 0))])


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Data parallelism."""
    return [DataParallel()]
