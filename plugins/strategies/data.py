"""Data parallelism, with the optimizer state (ZeRO-1), gradients (ZeRO-2) and weights (ZeRO-3) stored split over it.

Source: Rajbhandari et al., arXiv:1910.02054 (ZeRO); stage 1 is what Megatron calls the distributed optimizer; Zhao et
al., PyTorch FSDP, arXiv:2304.11277, sections 3.2 and 3.3 (hybrid sharding, prefetching, resharding after forward).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Strategy, divides, never
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
        Option("shard_size", "data parallel ranks of a group that --zero splits over, with copies between groups "
               "(HSDP); 0: all of them", 0, unit="devices", tasks=("train",)),
        Option("reshard", "under --zero 3: drop gathered weights after a forward pass and gather them again", True,
               tasks=("train",)),
        Option("prefetch", "under --zero 3: gather weights beside the computation before them", True, tasks=("train",)),
    )  # fmt: skip

    def mesh(self, options: Mapping[str, Any]) -> tuple[Dimension, ...]:
        size = int(options.get("shard_size", 0))
        group = Dimension("shard", "ranks that ZeRO splits over", order=30, lenders=("dp",), size=size)
        return (*self.dimensions, group) if size > 0 else self.dimensions

    def rules(self, options: Mapping[str, Any]) -> Rules:
        over = "shard" if int(options.get("shard_size", 0)) > 0 else "dp"
        return Rules((Split("batch", "dp"),), zero_stores(options, over))

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        size = int(options.get("shard_size", 0))
        groups: tuple[Constraint, ...] = () if size <= 0 else (
            divides(str(size), "dp", f"--shard-size {size} must divide the data parallel degree"),
            Constraint("either_divides", ("ep",), (str(size),), f"ep and --shard-size {size} must divide one another"),
        )  # fmt: skip
        zero = int(options.get("zero", 0))
        idle = {
            f"--shard-size {size}: --zero 0 splits nothing": size > 0 and zero == 0,
            "--no-reshard is of gathered weights: add --zero 3": not options.get("reshard", True) and zero < 3,
            "--no-prefetch is of gathered weights: add --zero 3": not options.get("prefetch", True) and zero < 3,
        }
        groups += tuple(never(told, "dp") for told, broken in idle.items() if broken)
        return (
            *groups,
            divides(
                ("dp", "micro_batch"),
                "global_batch",
                "data parallel degree times micro batch must divide the global batch",
            ),
        )


def zero_stores(options: Mapping[str, Any], dimension: str) -> tuple[Store, ...]:
    """What the option ``zero`` keeps split over a dimension along which every rank has the same weights."""
    kinds: tuple[Kind, ...] = ("optimizer", "gradient", "weight")
    kept, waited = not options.get("reshard", True), not options.get("prefetch", True)
    return tuple(Store(kind, "flat", dimension, kept, waited) for kind in kinds[: int(options.get("zero", 0))])


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Data parallelism."""
    return [DataParallel()]
