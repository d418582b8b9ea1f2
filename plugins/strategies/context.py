"""Context parallelism: the tokens of a sequence split over devices.

Keys and values are gathered for attention, and their gradients scattered back; weight gradients are partial sums over
the group, and what ZeRO keeps split over data parallel ranks is split over these as well. Tokens are dealt out so that
every device has its share of near and of far ones (zigzag): under a causal mask each does the same work, which is the
mean that the law prices.

Source: Liu et al., Ring Attention, arXiv:2310.01889; Dubey et al., Llama 3, arXiv:2407.21783, section 3.3.2 (keys and
values gathered, 2 x cp chunks dealt out in pairs).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Strategy, divides
from slipstick.core.model.layout import Rules, Split
from slipstick.core.model.mesh import Dimension

from .data import zero_stores


class ContextParallel(Strategy):
    """``query`` over cp."""

    name = "context"
    tasks = ("train",)
    dimensions = (Dimension("cp", "context parallel degree", order=20),)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("query", "cp"),), zero_stores(options, "cp"))

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (divides("cp", "sequence", "cp must divide the sequence length"),)


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Context parallelism."""
    return [ContextParallel()]
