"""Tensor parallelism: heads, feed-forward width and vocabulary split; with sequence parallelism the stream too.

Source: Shoeybi et al., arXiv:1909.08053 (tensor parallelism); Korthikanti et al., arXiv:2205.05198 (sequence
parallelism of the residual stream). Their collectives are derived, not written here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Strategy, divides
from slipstick.core.model.layout import Beside, Distribution, Rules, Split, Store
from slipstick.core.model.mesh import Dimension


class TensorParallel(Strategy):
    """``heads``, ``ffn`` and ``vocab`` over tp; key/value heads too, replicated where they are fewer than tp."""

    name = "tensor"
    dimensions = (Dimension("tp", "tensor parallel degree", order=10),)
    options = (
        Option(
            "sequence_parallel",
            "store the residual stream split over the tensor parallel group as well",
            default=True,
            tasks=("train",),
        ),
        Option("tp_overlap", "run its collectives beside matrix products (ring exchange, asynchronous)", False,
               tasks=("train",)),
    )  # fmt: skip

    def rules(self, options: Mapping[str, Any]) -> Rules:
        splits = (
            Split("heads", "tp"),
            Split("kv_heads", "tp", Distribution.REPLICATED),
            Split("ffn", "tp"),
            Split("vocab", "tp"),
        )
        stores = (Store("stream", "query", "tp"),) if options.get("sequence_parallel") else ()
        beside = (Beside("tp", ("gemm", "grouped_gemm")),) if options.get("tp_overlap") else ()
        return Rules(splits, stores, beside=beside)

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (
            divides("tp", "heads", "tp must divide the number of attention heads"),
            at_least_one_way("tp", "kv_heads", "tp and the number of key/value heads must divide one another"),
        )


def at_least_one_way(left: str, right: str, message: str) -> Constraint:
    """Either value divides the other: key/value heads are split, or replicated a whole number of times."""
    return Constraint("either_divides", (left,), (right,), message)


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Tensor parallelism."""
    return [TensorParallel()]
