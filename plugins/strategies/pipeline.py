"""Pipeline parallelism: layers split into stages, micro-batches in one-forward-one-backward order.

Source: Narayanan et al., arXiv:2104.04473, section 2.2 (1F1B with flush); Huang et al., arXiv:1811.06965 (GPipe).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from slipstick.core.algebra.functions import functions
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Constraint, Option, Schedule, Strategy, at_most
from slipstick.core.model.layout import Rules, Split
from slipstick.core.model.mesh import Dimension

if TYPE_CHECKING:
    from sympy import Expr


class OneForwardOneBackward(Schedule):
    """1F1B: after its warm-up a stage holds as many micro-batches as stages lie from it to the end."""

    name = "1f1b"
    dimension = "pp"

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        return functions().fmin(micro_batches, stages - stage)

    def idle(self, stages: Expr, micro_batches: Expr) -> Expr:
        return (stages - 1) / micro_batches


class GPipe(OneForwardOneBackward):
    """GPipe: all forward passes first; a stage holds every micro-batch (one stage alone has no reason to)."""

    name = "gpipe"

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        return functions().where(stages - 1, micro_batches, 1)


SCHEDULES: dict[str, Schedule] = {s.name: s for s in (OneForwardOneBackward(), GPipe())}


class PipelineParallel(Strategy):
    """``layers`` over pp in blocks with remainder."""

    name = "pipeline"
    dimensions = (Dimension("pp", "pipeline parallel degree", order=40),)
    options = (
        Option("schedule", "order of micro-batches", default="1f1b", choices=tuple(SCHEDULES), tasks=("train",)),
    )

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("layers", "pp"),))

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (at_most("pp", "layers_total", "a pipeline stage needs at least one layer"),)

    def schedule(self, options: Mapping[str, Any]) -> Schedule:
        return SCHEDULES[str(options.get("schedule", "1f1b"))]


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Pipeline parallelism."""
    return [PipelineParallel()]
