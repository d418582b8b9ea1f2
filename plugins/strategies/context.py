"""Context parallelism: the tokens of a sequence split over devices.

Keys and values are gathered for attention and their gradients scattered back, before the core (``all_gather``) or round
a ring beside it (``p2p``: the same bytes); or queries, keys and values change from tokens to heads and the output back
(``a2a``). Weight gradients are partial sums over the group, and what ZeRO keeps split over data parallel ranks is split
over these as well. Tokens are dealt out so that every device has its share of near and of far ones (zigzag): under a
causal mask each does the same work, which is the mean that the law prices.

Source: Liu et al., Ring Attention, arXiv:2310.01889; Dubey et al., Llama 3, arXiv:2407.21783, section 3.3.2 (keys and
values gathered, 2 x cp chunks dealt out in pairs); Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509 (all-to-all). The
names of the forms are Megatron-LM's --cp-comm-type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Strategy, at_most, divides
from slipstick.core.model.layout import Beside, Rules, Split, Swap
from slipstick.core.model.mesh import Dimension

from .data import zero_stores


class ContextParallel(Strategy):
    """``query`` over cp."""

    name = "context"
    tasks = ("train",)
    dimensions = (Dimension("cp", "context parallel degree", order=20),)
    options = (
        Option(
            "cp_comm_type",
            "how attention sees the whole context: keys and values gathered before it, passed round a ring beside it "
            "(p2p), or heads in exchange for tokens (a2a, Ulysses)",
            "all_gather", ("all_gather", "p2p", "a2a"), tasks=("train",),
        ),
    )  # fmt: skip

    def rules(self, options: Mapping[str, Any]) -> Rules:
        form = options.get("cp_comm_type", "all_gather")
        return Rules(
            (Split("query", "cp"),), zero_stores(options, "cp"), (Swap("cp"),) if form == "a2a" else (),
            (Beside("cp", ("attention",)),) if form == "p2p" else (),
        )  # fmt: skip

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        found = (divides("cp", "sequence", "cp must divide the sequence length"),)
        if options.get("cp_comm_type") != "a2a":
            return found
        latent = "--cp-comm-type a2a deals out heads; latent attention has one latent for all of them: take p2p"
        return (
            *found,
            divides(("tp", "cp"), "heads", "--cp-comm-type a2a: tp times cp must divide the number of attention heads"),
            at_most(("cp", "latent@kv"), "latent@kv", latent),
        )


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Context parallelism."""
    return [ContextParallel()]
