"""Coefficients of stacks from measured runs: shared ones, and how each device departs from them.

Floor: calibration. numpy and scipy inside functions.

A coefficient is a positive number with a log-normal prior: over all runs its prior is broad and physical; a stack
departs from that by about 15 %, a device from its stack by about 10 % (standard deviations of the logarithm). With
few runs a device therefore keeps its stack's values, with many it gets its own: shrinkage is what makes a new model
or a new device come out right. No coefficient knows a model's name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.records.fitted import ErrorSummary
from slipstick.core.study.intervals import LEVEL, Z

from .fit_stats import summary as errors_of
from .stack_parts import SERVING, TRAINING, UNFUSED, Parts
from .threads import one_thread

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

PRIORS: dict[str, dict[str, tuple[float, float]]] = {
    "serve": {
        "time_factor": (1.1, 0.25), "kernel_overhead": (2e-6, 1.0), "collective_factor": (1.0, 0.5),
        "step_overhead": (3e-4, 1.5), "sequence_overhead": (1e-5, 1.2), "prefill_factor": (1.2, 0.4),
    },
    "train": {
        "time_factor": (1.1, 0.3), "kernel_overhead": (2e-5, 2.0), "launch_time": (8e-5, 1.0),
        "collective_factor": (1.0, 0.6), "attention_factor": (1.2, 0.5), UNFUSED: (0.4, 0.8),
        "exposed_share": (0.3, 0.8), "step_overhead": (3e-3, 1.0),
    },
}  # fmt: skip
"""Task → coefficient → median and standard deviation of ln of its prior: kernels run a little slower than alone, gaps
between kernels are microseconds, a step costs the host a fraction of a millisecond when it serves and some when it
trains, where the host launches each operation's kernels in tens of microseconds."""

SHARES_AT_MOST_1 = (UNFUSED, "exposed_share")
"""Coefficients that are parts of a whole."""

Spread = float | Mapping[str, float]

STACK, DEVICE = 0.15, 0.10
NOISE = 0.1
"""Scale of a run's residual [ln]: what is far beyond it counts linearly (soft L1)."""


@frozen(eq=False)
class Fit:
    """``shared``: coefficient → value over all stacks; ``stacks``: stack → its values for a device without runs;
    ``devices``: (stack, device) → values. A stack has values for what was fitted of it."""

    task: str
    shared: dict[str, float]
    stacks: dict[str, dict[str, float]]
    devices: dict[tuple[str, str], dict[str, float]]

    def values(self, stack: str, device: str) -> dict[str, float]:
        """The coefficients that stand for a stack on a device."""
        return self.devices.get((stack, device)) or self.stacks.get(stack) or self.shared


def fit(
    parts: Parts, measured: Array, stacks: Sequence[str], devices: Sequence[str], *,
    priors: dict[str, tuple[float, float]] | None = None, stack_spread: Spread = STACK, device_spread: Spread = DEVICE,
    free: Mapping[str, Sequence[str]] | None = None, weights: Array | None = None,
) -> Fit:  # fmt: skip
    """Fit to ``measured`` [s] of n rows, each of a stack and a device. Deterministic.

    ``free``: stack → the coefficients that are fitted of it, all where it is not named; the others stay where the
    parts were taken. ``weights``: how much each run counts, 1 where none are given.
    """
    import numpy as np
    from scipy.optimize import least_squares

    names = SERVING if parts.task == "serve" else TRAINING
    priors = {**PRIORS[parts.task], **(priors or {})}
    centre = np.log([priors[name][0] for name in names])
    broad = np.array([priors[name][1] for name in names])
    kinds = sorted(set(stacks))
    pairs = sorted(set(zip(stacks, devices, strict=True)))
    of_kind = np.array([kinds.index(s) for s in stacks], int)
    of_pair = np.array([pairs.index(p) for p in zip(stacks, devices, strict=True)], int)
    kind_of_pair = np.array([kinds.index(s) for s, _ in pairs], int)
    size = len(names)
    target = np.log(measured)
    root_weight = np.ones(len(target)) if weights is None else np.sqrt(weights)
    own_of = [names if free is None else free.get(kind, names) for kind in kinds]
    fitted = np.array([[name in own for name in names] for own in own_of], bool).reshape(-1, size)[of_kind]
    kept = np.stack([parts.at.get(name, np.zeros(len(target))) for name in names], axis=1)
    most = np.array([1.0 if name in SHARES_AT_MOST_1 else np.inf for name in names])
    of_stack, of_device = (
        np.array([s if isinstance(s, float | int) else s[name] for name in names])
        for s in (stack_spread, device_spread)
    )

    def split(x: Array) -> tuple[Array, Array, Array]:
        table = x.reshape(-1, size)
        return table[0], table[1 : 1 + len(kinds)], table[1 + len(kinds) :]

    def coefficients(x: Array) -> Array:
        shared, own, device = split(x)
        logs: Array = centre + broad * shared + of_stack * own[of_kind] + of_device * device[of_pair]
        return np.where(fitted, np.minimum(np.exp(np.clip(logs, -40, 10)), most), kept)

    def residuals(x: Array) -> Array:
        table = coefficients(x)
        time = parts.time({name: table[:, i] for i, name in enumerate(names)})
        runs = (np.log(np.maximum(time, 1e-12)) - target) / NOISE
        # Soft L1 on the runs alone; the priors stay quadratic.
        soft = np.sign(runs) * np.sqrt(2 * (np.sqrt(1 + runs * runs) - 1))
        return np.concatenate([root_weight * soft, x])

    levels = [
        (0, np.zeros(len(target), int), broad), (1, of_kind, of_stack), (1 + len(kinds), of_pair, of_device),
    ]  # fmt: skip

    def slopes(x: Array) -> Array:
        table = coefficients(x)
        values = {name: table[:, i] for i, name in enumerate(names)}
        time = np.maximum(parts.time(values), 1e-12)
        runs = (np.log(time) - target) / NOISE
        root = np.sqrt(1 + runs * runs)
        soft = np.sqrt(2 * (root - 1))
        outer = np.where(soft > 1e-9, np.abs(runs) / np.where(soft > 1e-9, soft * root, 1.0), 1.0) / NOISE
        outer = root_weight * outer
        slope = parts.slopes(values)
        moves = fitted & (table < most)
        full = np.zeros((len(target) + x.size, x.size))
        full[len(target) :, :] = np.eye(x.size)
        rows = np.arange(len(target))
        for first, group, scale in levels:
            for i, name in enumerate(names):
                pull = np.where(moves[:, i], values[name] * slope[name] / time, 0.0)
                full[rows, (first + group) * size + i] = outer * pull * scale[i]
        return full

    start = np.zeros((1 + len(kinds) + len(pairs)) * size)
    with one_thread():
        found = least_squares(residuals, start, jac=slopes, max_nfev=60)
    shared, own, device = split(found.x)
    logs = centre + broad * shared

    def told(values: Array, wanted: Sequence[str] = names) -> dict[str, float]:
        values = np.minimum(np.exp(values), most)
        return {name: float(value) for name, value in zip(names, values, strict=True) if name in wanted}

    return Fit(
        parts.task, told(logs), {kind: told(logs + of_stack * own[i], own_of[i]) for i, kind in enumerate(kinds)},
        {pair: told(logs + of_stack * own[kind_of_pair[i]] + of_device * device[i], own_of[kind_of_pair[i]])
         for i, pair in enumerate(pairs)},
    )  # fmt: skip


def predicted(found: Fit, parts: Parts, stacks: Sequence[str], devices: Sequence[str]) -> Array:
    """Seconds of every row under a fit."""
    return parts.time(values_of(found, parts, stacks, devices))


def values_of(found: Fit, parts: Parts, stacks: Sequence[str], devices: Sequence[str]) -> dict[str, Array]:
    """Every row's coefficients under a fit; what was not fitted of its stack is where the parts were taken."""
    import numpy as np

    names = SERVING if parts.task == "serve" else TRAINING
    own = [found.values(stack, device) for stack, device in zip(stacks, devices, strict=True)]
    return {n: np.array([v[n] if n in v else parts.at[n][i] for i, v in enumerate(own)], float) for n in names}


def held_out(
    parts: Parts, measured: Array, stacks: Sequence[str], devices: Sequence[str], folds: Sequence[Any], *,
    forget_device: bool = False, **how: Any,
) -> Array:  # fmt: skip
    """Predictions of every row by a fit without its fold: rows with one value of ``folds`` are left out together.

    ``forget_device``: rows are predicted with their stack's values, as for a device that nobody has measured.
    """
    import numpy as np

    result = np.full(len(measured), np.nan)
    labels = np.array([str(fold) for fold in folds])
    for label in sorted(set(labels)):
        out = labels == label
        keep = [int(i) for i in np.flatnonzero(~out)]
        if not keep:
            continue
        found = fit(parts.take(keep), measured[keep], [stacks[i] for i in keep], [devices[i] for i in keep], **how)
        rows = [int(i) for i in np.flatnonzero(out)]
        named = ["" if forget_device else devices[i] for i in rows]
        result[rows] = predicted(found, parts.take(rows), [stacks[i] for i in rows], named)
    return result


def summary(predicted: Array, measured: Array) -> ErrorSummary:
    """Errors of predictions against measurements; rows without a prediction are left out."""
    import numpy as np

    off = np.log(predicted / measured)
    off = off[np.isfinite(off)]
    return errors_of(off) if off.size else ErrorSummary(0, 0.0, 0.0, 0.0, 0.0)


SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Candidates for the share of the kernels' spread that a stack leaves."""


def spreads(predicted: Array, measured: Array, kernels: Array) -> tuple[float, float]:
    """The share of the kernels' own spread, and the standard deviation of ln beside it, that make good intervals.

    A stack's ``time_factor`` takes up what all kernels have in common, so that less than their whole spread is left.
    For each share the other part is what makes intervals hold 80 % of the rows; the pair with the best interval score
    is taken (Gneiting, Raftery, JASA 102(477) 2007), since a wide interval holds everything and says nothing.
    """
    import numpy as np

    off = np.log(measured / predicted)
    known = np.isfinite(off)
    off, own = off[known], kernels[known]
    if off.size == 0:
        return 1.0, 0.15
    best = (np.inf, 1.0, 0.15)
    for share in SHARES:
        sigma = _beyond(np.abs(off), share * own)
        half = Z * np.sqrt((share * own) ** 2 + sigma * sigma)
        score = float(np.mean(2 * half + 2 / (1 - LEVEL) * np.maximum(np.abs(off) - half, 0.0)))
        if score < best[0] * (1 - 1e-9):
            best = (score, share, sigma)
    return best[1], best[2]


def _beyond(off: Array, own: Array) -> float:
    """The standard deviation that, with ``own``, makes intervals which hold ``LEVEL`` of the rows."""
    import numpy as np
    from scipy.optimize import brentq

    def inside(sigma: float) -> float:
        return float(np.mean(off <= Z * np.sqrt(own * own + sigma * sigma))) - LEVEL

    return 0.0 if inside(0.0) >= 0 else float(brentq(inside, 0.0, 20.0, xtol=1e-4))


@frozen
class Coverage:
    """How intervals fare on rows whose spread was taken from other rows: ``inside`` [share], ``width`` and ``error``
    (medians, relative to the measurement), ``score`` (mean interval score of ln)."""

    n: int
    inside: float
    width: float
    error: float
    score: float


def coverage(predicted: Array, measured: Array, kernels: Array, folds: Sequence[Any]) -> Coverage:
    """80 % intervals of every row, each with the spreads that the other folds show."""
    import numpy as np

    labels = np.array([str(fold) for fold in folds])
    off = np.log(measured / predicted)
    half = np.full(len(off), np.nan)
    for label in sorted(set(labels)):
        out = labels == label
        if np.isfinite(off[~out]).any():
            share, sigma = spreads(predicted[~out], measured[~out], kernels[~out])
            half[out] = Z * np.sqrt((share * kernels[out]) ** 2 + sigma * sigma)
    known = np.isfinite(off) & np.isfinite(half)
    off, half = off[known], half[known]
    if off.size == 0:
        return Coverage(0, 0.0, 0.0, 0.0, 0.0)
    width = (np.exp(half) - np.exp(-half)) * np.exp(-off)
    score = 2 * half + 2 / (1 - LEVEL) * np.maximum(np.abs(off) - half, 0.0)
    return Coverage(
        int(off.size), float(np.mean(np.abs(off) <= half)), float(np.median(width)),
        float(np.median(np.abs(np.exp(-off) - 1))), float(score.mean()),
    )  # fmt: skip
