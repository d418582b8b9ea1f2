"""Pipeline parallelism: layers split into stages, micro-batches in one of several orders.

Source: Narayanan et al., arXiv:2104.04473, section 2.2 (1F1B with flush); Huang et al., arXiv:1811.06965 (GPipe).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from slipstick.core.algebra.functions import functions
from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import (
    Constraint,
    Option,
    Pass,
    Schedule,
    Strategy,
    at_most,
    divides,
)
from slipstick.core.model.layout import Rules, Split
from slipstick.core.model.mesh import Dimension

from ._zero_bubble import SPLIT

if TYPE_CHECKING:
    from sympy import Expr


def one_and_one(warm: int, forward: Sequence[Pass], backward: Sequence[Pass]) -> tuple[Pass, ...]:
    """So many forward passes, then one forward and one backward in turn, then the backward passes that are left."""
    steady = [one for pair in zip(forward[warm:], backward, strict=False) for one in pair]
    return (*forward[:warm], *steady, *backward[len(forward) - warm :])


def _both(micro_batches: int) -> tuple[list[Pass], list[Pass]]:
    return [Pass("forward", m) for m in range(micro_batches)], [Pass("backward", m) for m in range(micro_batches)]


class OneForwardOneBackward(Schedule):
    """1F1B: after its warm-up a stage holds as many micro-batches as stages lie from it to the end."""

    name = "1f1b"
    dimension = "pp"

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        return functions().fmin(micro_batches, stages - stage)

    def idle(self, stages: Expr, micro_batches: Expr) -> Expr:
        return (stages - 1) / micro_batches

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        return one_and_one(min(stages - stage - 1, micro_batches), *_both(micro_batches))


class Interleaved(OneForwardOneBackward):
    """Interleaved 1F1B: a device holds ``chunks`` parts of the model; its warm-up is longer, the bubble shorter.

    In flight on device i of p, in chunks: 2(p - i - 1) of the warm-up, p for each further chunk, and the one at work;
    on the first device p + (p - 1)/v micro-batches. Source: Narayanan et al., arXiv:2104.04473, section 2.2.2;
    Korthikanti et al., arXiv:2205.05198, section 4.2.3 (the factor 1 + (p - 1)/(p v)).
    """

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        warm = 2 * (stages - stage - 1) + (self.chunks - 1) * stages + 1
        several = functions().fmin(micro_batches, warm / self.chunks)
        return functions().where(stages - 1, several, 1)

    def idle(self, stages: Expr, micro_batches: Expr) -> Expr:
        return (stages - 1) / (micro_batches * self.chunks)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        chunks = self.chunks
        group = stages * chunks  # so many passes take p micro-batches through all parts of a device
        passes = [divmod(k, group) for k in range(micro_batches * chunks)]
        forward = [Pass("forward", which * stages + k % stages, k // stages) for which, k in passes]
        backward = [Pass("backward", which * stages + k % stages, chunks - 1 - k // stages) for which, k in passes]
        warm = min(2 * (stages - stage - 1) + (chunks - 1) * stages, micro_batches * chunks)
        return one_and_one(0 if stages == 1 and chunks == 1 else warm, forward, backward)


class GPipe(OneForwardOneBackward):
    """GPipe: all forward passes first; a stage holds every micro-batch (one stage alone has no reason to)."""

    name = "gpipe"

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        return functions().where(stages - 1, micro_batches, 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        return one_and_one(micro_batches if stages > 1 else 0, *_both(micro_batches))


SCHEDULES: dict[str, Schedule] = {s.name: s for s in (OneForwardOneBackward(), GPipe(), *SPLIT.values())}

_MICRO_BATCHES: dict[str, tuple[Constraint, ...]] = {
    "zb-h1": (at_most("pp", "micro_batches", "zb-h1 needs at least as many micro-batches as stages", "pp"),),
    "zb-v": (at_most(("2", "pp"), "micro_batches", "zb-v needs at least 2 pp - 1 micro-batches", "pp", 1),),
    "dualpipe": (
        divides("2", "pp", "dualpipe needs an even number of stages", "pp"),
        divides("2", "micro_batches", "dualpipe needs an even number of micro-batches", "pp"),
        at_most(("2", "pp"), "micro_batches", "dualpipe needs at least two micro-batches a stage", "pp"),
    ),
    "dualpipe-v": (at_most(("2", "pp"), "micro_batches", "dualpipe-v needs at least two micro-batches a stage", "pp"),),
}


class PipelineParallel(Strategy):
    """``layers`` over pp in blocks with remainder."""

    name = "pipeline"
    dimensions = (Dimension("pp", "pipeline parallel degree", order=40),)
    options = (
        Option("schedule", "order of micro-batches", default="1f1b", choices=tuple(SCHEDULES), tasks=("train",)),
        Option(
            "interleave",
            "parts of the model that a device holds, under 1f1b",
            default=1,
            choices=(1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24),
            tasks=("train",),
        ),
        Option("first_layers", "layers of the first stage; 0: an even share", 0, unit="layers", tasks=("train",)),
        Option("last_layers", "layers of the last stage; 0: an even share", 0, unit="layers", tasks=("train",)),
    )

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("layers", "pp"),))

    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        schedule = self.schedule(options)
        given = [count for count in schedule.ends if count]
        parts, layers = str(schedule.chunks), "a pipeline stage needs at least one layer"
        if schedule.chunks > 1:
            layers = f"each of the {parts} parts of a stage needs at least one layer"
        if given:
            layers = "with so many layers on the first or the last stage, every other one needs at least one"
        found: tuple[Constraint, ...] = (at_most(("pp", parts), "layers_total", layers, "pp", len(given) - sum(given)),)
        if len(given) == 2:
            both = "--first-layers and --last-layers leave no stage between: give one of them"
            found += (at_most("3", "pp", both, "pp"),)
        if isinstance(schedule, Interleaved):
            found += (divides("pp", "micro_batches", "interleaved, pp must divide the number of micro-batches"),)
        return found + _MICRO_BATCHES.get(schedule.name, ())

    def schedule(self, options: Mapping[str, Any]) -> Schedule:
        name, chunks = str(options.get("schedule", "1f1b")), int(options.get("interleave", 1))
        ends = (int(options.get("first_layers", 0)), int(options.get("last_layers", 0)))
        if chunks > 1 and name != "1f1b":
            held = "two parts" if SCHEDULES[name].chunks > 1 else "one part"
            raise UserError(f"--interleave {chunks}: the schedule {name} holds {held} of the model a device; use 1f1b")
        schedule = SCHEDULES[name] if chunks == 1 else Interleaved(chunks)
        if not any(ends):
            return schedule
        if schedule.chunks > 1 or schedule.opposite:
            raise UserError(
                "--first-layers and --last-layers are of stages that hold one part of the model each: take the "
                "schedule 1f1b, gpipe or zb-h1 without --interleave"
            )
        if min(ends) < 0:
            raise UserError(f"--first-layers and --last-layers: {min(ends)} layers make no stage; 0 is an even share")
        return schedule.with_ends(*ends)


@hookimpl
def slipstick_strategies() -> list[Strategy]:
    """Pipeline parallelism."""
    return [PipelineParallel()]
