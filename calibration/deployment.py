"""A deployment of one's own: six or more measured points re-fit the coefficients of its stack.

Floor: calibration. numpy inside functions. The stack's shipped coefficients are the prior: with few points little
moves, and what moves is judged by leaving out one point at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.model.recorded_stack import unit_of
from slipstick.core.records.fitted import ErrorSummary
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.stack import StackFit, StackRecord

from .stack_fit import PRIORS, held_out, predicted, spreads, summary
from .stack_parts import SERVING, TRAINING, parts_of
from .stack_runs import Runs, configuration, runs
from .stack_tangent import followed

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

LEAST = 6
"""Fewest points of different settings that a fit is made of."""

LOOSE = 0.5
"""Standard deviation of ln of a coefficient around the stack's own value."""

ALWAYS = ("kernel_overhead", "exposed_share", "step_overhead")
"""Coefficients of training that are fitted even where the stack as shipped has none of them."""


@frozen(kw_only=True)
class Deployment:
    """What the points of one task made of a stack.

    ``before``: errors of the stack as shipped; ``after``: of the fit, each point predicted without itself;
    ``constant``: of the points' geometric mean, the same way; ``values``: coefficient → (before, after).
    """

    task: str
    accelerator: str
    stack: str
    points: int
    before: ErrorSummary
    after: ErrorSummary
    constant: ErrorSummary
    values: dict[str, tuple[float, float]]
    record: StackRecord
    skipped: dict[str, int]

    @property
    def improved(self) -> bool:
        """Whether the fit predicts points that it has not seen better than the stack as shipped did."""
        return self.after.mean < self.before.mean

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        from attrs import asdict

        return {
            "task": self.task, "accelerator": self.accelerator, "stack": self.stack, "points": self.points,
            "before": asdict(self.before), "after": asdict(self.after), "constant": asdict(self.constant),
            "improved": self.improved, "skipped": self.skipped,
            "coefficients": {n: {"before": a, "after": b} for n, (a, b) in self.values.items()},
        }  # fmt: skip


def deployments(files: Sequence[Path], host: Host, stack: str, name: str, date: str) -> list[Deployment]:
    """Fit every task and accelerator of the points. ``stack``: where the fit starts; ``name``: of the new stack.

    Errors: UserError for fewer than ``LEAST`` different settings, and where no point tells a time.
    """
    found = []
    few = 0
    skipped: dict[str, int] = {}
    for task in ("serve", "train"):
        everything = runs(task, files, host, stack=stack)
        skipped.update(everything.skipped)
        for accelerator in sorted(set(everything.devices)):
            own = everything.take(i for i, d in enumerate(everything.devices) if d == accelerator)
            different = len({configuration(q) for q in own.questions})
            if different < LEAST:
                few = max(few, different)
                continue
            found.append(_deployment(own, host, stack, name, date, accelerator, everything.skipped, files))
    if not found:
        told = f"{few} different settings; {LEAST} or more are needed" if few else "no point that tells a time"
        why = "; ".join(f"{count} × {reason}" for reason, count in list(skipped.items())[:3])
        raise UserError(f"{', '.join(f.name for f in files)}: {told}" + (f" (left out: {why})" if why else ""))
    return found


def _deployment(
    own: Runs, host: Host, stack: str, name: str, date: str, accelerator: str, skipped: dict[str, int],
    files: Sequence[Path],
) -> Deployment:  # fmt: skip
    import numpy as np

    base = host.stack(stack)
    stated = base.coefficients(own.task, accelerator)
    known = SERVING if own.task == "serve" else [n for n in TRAINING if n in stated]
    start = {n: float(stated[n].value) if n in stated else 0.0 for n in known}
    priors = {**PRIORS[own.task], **{n: (v, LOOSE) for n, v in start.items() if v > 0}}
    names = [n for n in known if own.task == "serve" or start[n] > 0 or n in ALWAYS]
    how: dict[str, Any] = {"priors": priors, "stack_spread": 0.0, "device_spread": 0.0, "free": {stack: names}}
    labels, devices = [stack] * len(own.questions), [accelerator] * len(own.questions)
    ways = [configuration(q) for q in own.questions]
    at = {n: np.full(len(ways), v) for n, v in start.items()}
    shipped = own.parts if own.task == "serve" else parts_of("train", own.questions, at, own.parts.kernels)
    before = shipped.time({**shipped.at, **at})
    first = {n: v if start[n] > 0 or n not in names else np.full(len(ways), priors[n][0]) for n, v in at.items()}
    whole, parts = followed(own, range(len(ways)), first, labels, devices, **how)
    after = held_out(parts, own.measured, labels, devices, ways, **how)
    values = whole.values(stack, accelerator)
    constant = np.array([
        np.exp(np.mean(np.log([m for m, w in zip(own.measured, ways, strict=True) if w != mine]))) for mine in ways
    ])  # fmt: skip
    told = ", ".join(f.name for f in files)
    source = Source("deployment", f"fitted to {len(ways)} measured points: {told}"[:200], told[:200], date, "fitted")
    figure = "tpot_s" if own.task == "serve" else "step_time_s"
    share, spread = spreads(after, own.measured, parts.kernels)
    told_spread = {"kernels": share, figure: round(spread, 4)}
    if own.task == "serve":
        told_spread |= dict.fromkeys(("output_tokens_per_s", "request_s"), told_spread[figure])
    quantities = dict(stated) | {n: Quantity(v, unit_of(n), source) for n, v in values.items()}
    errors = {"train": summary(predicted(whole, parts, labels, devices), own.measured),
              "held_out": summary(after, own.measured), "before": summary(before, own.measured)}  # fmt: skip
    record = StackRecord(
        name=name, title=f"{base.name[:80]} as deployed", kernels={own.task: base.kernel_sources(own.task)},
        fits=(StackFit(task=own.task, accelerator=accelerator, values=quantities, spread=told_spread, rows=len(ways),
                       errors=errors, command=f"slipstick calibrate deployment {told}"[:400]),),
    )  # fmt: skip
    return Deployment(
        task=own.task, accelerator=accelerator, stack=stack, points=len(ways), before=errors["before"],
        after=errors["held_out"], constant=summary(constant, own.measured),
        values={n: (start[n], values[n]) for n in values}, record=record, skipped=skipped,
    )  # fmt: skip


def joined(found: Sequence[Deployment]) -> StackRecord:
    """One record of all fits that improved."""
    from attrs import evolve

    kept = [d for d in found if d.improved]
    kernels = {task: names for d in kept for task, names in d.record.kernels.items()}
    return evolve(kept[0].record, kernels=kernels, fits=tuple(f for d in kept for f in d.record.fits))
