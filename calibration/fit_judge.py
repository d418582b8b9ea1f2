"""Whether a fit may be called calibrated: errors on rows and on whole shapes that it has not seen, and the gate.

Floor: calibration. Uses the fitter; numpy inside functions. Which rows are held out depends on their shapes alone:
measurements of one shape are all fitted or all held out. The parameters that are kept are fitted to all rows
afterwards; the errors that are told stay those of the fits that did not see the rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.records.fitted import ErrorSummary

from .fit import Fit, fit_rows, residuals_of
from .fit_stats import regimes, sigma_of, slow_groups, summary, switches

if TYPE_CHECKING:
    import numpy.typing as npt

    from slipstick.core.algebra.formula import Formula

    from .fit import Held
    from .fit_rows import Array, Rows

FOLDS = 5
"""One part in five is held out."""

SMALL = 300
"""Below this many shapes every fifth of them is held out in turn, and the errors of all are told."""

FEWEST = 12
WORST_MEDIAN = 0.15
WORST_P90 = 0.60
GOOD = 0.05
"""A median error below this one is good whatever the defaults would give."""

GROUPS: dict[str, tuple[str, ...]] = {
    "gemm": ("n", "k"),
    "grouped_gemm": ("hidden", "ffn", "experts", "top_k"),
    "attention": ("heads", "kv_heads", "head_dim"),
    "attention_backward": ("heads", "kv_heads", "head_dim"),
    "latent_attention": ("heads",),
    "all_reduce": ("bytes",),
    "all_gather": ("bytes",),
    "reduce_scatter": ("bytes",),
    "all_to_all": ("bytes",),
    "send": ("bytes",),
}
"""Kernel → what is the same in all of a group of shapes that a structured hold-out leaves out as a whole: weights,
heads, sizes that the fit has never seen."""

CONFIGURATION = ("hidden", "ffn", "experts", "top_k", "tp", "ep", "skew", "distribution")
"""What one tuning of a grouped GEMM belongs to; a whole configuration may run slow (a tuner's fallback)."""


@frozen(eq=False)
class Judged:
    """A fit to all rows with what it is worth.

    ``errors``: train, held_out, held_out.decode, ..., held_out.trimmed, unseen_shapes, constant, default → errors;
    ``sigma`` as in FittedRecord; ``calibrated`` and the ``reason`` why not; ``notes``: what a person should know.
    """

    fit: Fit
    errors: Mapping[str, ErrorSummary]
    sigma: float
    calibrated: bool
    reason: str
    notes: tuple[str, ...]


def judge(
    formula: Formula,
    slot: str,
    rows: Rows,
    *,
    held: Held | None = None,
    stated: Formula | None = None,
    seed: int = 0,
    starts: int = 3,
) -> Judged:
    """Fit ``formula`` to rows that are pooled already, judge it on rows held out, and fit it to all of them.

    ``stated``: the formula with the defaults that hold without measurements, where those of ``formula`` are others.
    Errors: UserError where no row has the kernel of the slot.
    """
    import numpy as np

    notes: list[str] = []
    fold = (rows.hash(seed) >> np.uint64(32)) % np.uint64(FOLDS)
    slow = np.zeros(len(rows), dtype=bool)
    start: Mapping[str, float] | None = None
    if rows.kernel == "grouped_gemm":
        slow, start = _slow(formula, slot, rows, held, seed, starts)
        notes += _slow_notes(rows, slow)
    out = np.full(len(rows), np.nan)
    seen: list[Array] = []
    last = start
    for number in range(FOLDS) if len(rows) <= SMALL else (0,):
        train = (fold != number) & ~slow
        test = fold == number
        if not train.any() or not test.any():
            continue
        # each part from the declared values, not from a fit that has seen the rows held out here
        part = fit_rows(formula, slot, rows.take(train), held=held, seed=seed, starts=starts)
        last = part.parameters
        seen.append(part.residuals)
        out[test] = residuals_of(formula, slot, part.parameters, rows.take(test), held)
    known = ~np.isnan(out)
    final = fit_rows(formula, slot, rows.take(~slow), start=last, held=held, seed=seed, starts=1 if last else starts)
    errors: dict[str, ErrorSummary] = {}
    if seen:
        errors["train"] = summary(np.concatenate(seen))
    if known.any():
        errors["held_out"] = summary(out[known])
        for name, mask in regimes(rows):
            if (mask & known).any():
                errors[f"held_out.{name}"] = summary(out[mask & known])
        if slow.any() and (known & ~slow).any():
            errors["held_out.trimmed"] = summary(out[known & ~slow])
    unseen = _unseen(formula, slot, rows, slow, final, held, seed)
    if unseen is not None:
        errors["unseen_shapes"] = unseen
    times = np.log(rows.seconds)
    errors["constant"] = summary(np.median(times) - times)
    defaults = {p.name: p.default for p in (stated or formula).parameters}
    errors["default"] = summary(residuals_of(formula, slot, defaults, rows, held))
    reason = _reason(formula, rows, errors, final)
    notes += [f"shape {line}" for line in switches(residuals_of(formula, slot, final.parameters, rows, held), rows)]
    if final.outliers:
        told = f"; the farthest: {'; '.join(final.worst)}" if final.worst else ""
        notes.append(f"{final.outliers} of {len(rows)} rows lie beyond five robust standard deviations{told}")
    sigma = sigma_of(out[known]) if known.any() else sigma_of(final.residuals)
    return Judged(final, errors, sigma, not reason, reason, tuple(notes))


def _reason(formula: Formula, rows: Rows, errors: Mapping[str, ErrorSummary], fit: Fit) -> str:
    """Why the fit may not be called calibrated; empty where it may."""
    if len(rows) < FEWEST:
        return f"{len(rows)} different shapes were measured; at least {FEWEST} are needed"
    free = len(formula.parameters) - len(fit.frozen)
    if free == 0 or len(rows) < 2 * free:
        return f"{len(rows)} shapes for {free} parameters; two for each are needed"
    held = errors.get("held_out")
    if held is None:
        return "no row could be held out"
    if not held.median <= WORST_MEDIAN:
        return f"the median error on held-out rows is {_percent(held.median)}, above {WORST_MEDIAN:.0%}"
    tail = errors.get("held_out.trimmed", held).p90  # slow configurations are told apart, and widen sigma
    if not tail <= WORST_P90:
        return f"one held-out row in ten is off by more than {_percent(tail)}, above {WORST_P90:.0%}"
    constant, default = errors["constant"], errors["default"]
    if held.median >= constant.median:
        return f"one time for all rows would be no worse: median error {_percent(constant.median)}"
    if held.median > max(default.median, GOOD) and held.p90 > default.p90:
        return f"the stated defaults are closer: median error {_percent(default.median)}, not {_percent(held.median)}"
    return ""


def _unseen(
    formula: Formula, slot: str, rows: Rows, slow: npt.NDArray[Any], final: Fit, held: Held | None, seed: int
) -> ErrorSummary | None:
    """Errors on whole groups of shapes after a fit to the other groups; None where there are too few groups."""
    import numpy as np

    names = [name for name in GROUPS.get(rows.kernel, ()) if name in rows.shape]
    if not names:
        return None
    group = rows.hash(seed, names)
    distinct = np.unique(group)
    if len(distinct) < FOLDS:
        return None
    # the fifth of the groups with the least hashes: a number that does not depend on chance
    left = np.isin(group, np.sort(distinct)[: max(len(distinct) // FOLDS, 1)])
    train = ~left & ~slow
    if train.sum() < FEWEST:
        return None
    # From the declared values, not from the fit to all rows, which has seen these groups.
    part = fit_rows(formula, slot, rows.take(train), held=held, seed=seed, starts=1, max_rows=2000)
    return summary(residuals_of(formula, slot, part.parameters, rows.take(left), held))


def _slow(
    formula: Formula, slot: str, rows: Rows, held: Held | None, seed: int, starts: int
) -> tuple[npt.NDArray[Any], Mapping[str, float] | None]:
    """The rows of configurations that are slow as a whole, and parameters fitted without them."""
    import numpy as np

    names = [name for name in CONFIGURATION if name in rows.shape]
    groups = rows.hash(seed, names)
    slow = np.zeros(len(rows), dtype=bool)
    start: Mapping[str, float] | None = None
    for _ in range(2):  # the second time with a fit that the slow ones no longer bend
        fit = fit_rows(
            formula, slot, rows.take(~slow), start=start, held=held, seed=seed, starts=1 if start else starts,
            max_rows=3000,
        )  # fmt: skip
        start = fit.parameters
        slow = slow_groups(residuals_of(formula, slot, start, rows, held), groups)
    return slow, start if slow.any() else None


def _slow_notes(rows: Rows, slow: npt.NDArray[Any]) -> list[str]:
    import numpy as np

    if not slow.any():
        return []
    names = [name for name in CONFIGURATION if name in rows.shape]
    _, first = np.unique(rows.hash(0, names)[slow], return_index=True)
    where = np.flatnonzero(slow)[np.sort(first)]
    told = "; ".join(", ".join(f"{name} {rows.shape[name][i]:g}" for name in names) for i in where[:3])
    share = _percent(float(slow.mean()))
    return [
        f"{len(where)} configurations ({share} of the rows) run slower than 1.7 times the fit as a whole and were not "
        f"fitted; errors count them unless they say trimmed: {told}"
    ]


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if math.isfinite(value) else "unknown"
