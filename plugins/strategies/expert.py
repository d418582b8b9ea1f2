"""Expert parallelism: routed experts split over devices that data and tensor parallelism use for everything else.

The same devices are seen in two factorisations: expert ranks are taken from the data parallel group first, and from the
tensor parallel group where that is not enough; what is left of the latter splits each expert's width. With
``--expert-tensor none`` they are taken from the tensor parallel group first, so that experts stay whole.
Source: Lepikhin et al., arXiv:2006.16668 (GShard); Singh et al., arXiv:2303.06318 (tensor, expert and data parallel).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Strategy, divides
from slipstick.core.model.layout import Beside, Rules, Split
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
        Option(
            "expert_tensor",
            "experts' width is split by what ep leaves of the tensor parallel group (rest, Megatron-LM's default), or "
            "they are spread over that group first and stay whole (none: its --expert-tensor-parallel-size 1)",
            "rest", ("rest", "none"),
        ),
        Option("expert_overlap", "run their all-to-alls beside the computation of another micro-batch", False,
               tasks=("train",)),
    )  # fmt: skip

    def mesh(self, options: Mapping[str, Any]) -> tuple[Dimension, ...]:
        (dimension,) = self.dimensions
        return (evolve(dimension, lenders=("tp", "dp")) if self._whole(options) else dimension,)

    def _whole(self, options: Mapping[str, Any]) -> bool:
        return bool(options.get("expert_tensor", "rest") == "none")

    def rules(self, options: Mapping[str, Any]) -> Rules:
        splits = (Split("experts", "ep", once=options.get("dispatch") == "once"),)
        return Rules(splits, beside=(Beside("ep"),) if options.get("expert_overlap") else ())

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        first = "tp" if self._whole(options) else "dp"
        return (
            divides("ep", "experts", "ep must divide the number of experts"),
            divides("ep", ("dp", "tp"), "ep must divide dp times tp: expert ranks are taken from those groups"),
            Constraint("either_divides", ("ep",), (first,), f"ep and {first} must divide one another"),
        )

    def applies(self, sizes: Mapping[str, int]) -> bool:
        return "experts" in sizes


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Expert parallelism."""
    return [ExpertParallel()]
