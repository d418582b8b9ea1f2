"""Fits of stacks whose time is no sum over the coefficients: the parts are taken anew where each fit ends.

Floor: calibration. numpy inside functions.

What hides behind what depends on the coefficients, so a step's time has kinks. Between them a tangent is the time
itself; each round fits along tangents and moves the point by at most so many factors of e, less each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .stack_fit import Fit, fit, values_of
from .stack_parts import Parts, parts_of
from .stack_runs import Runs

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

LIMITS = (1.5, 1.0, 0.7, 0.5, 0.35, 0.25, 0.15, 0.1)
"""How far the logarithm of a coefficient may move in each round."""

ENOUGH = 1e-3
"""Rounds end where no coefficient's logarithm moves further."""


def followed(
    found: Runs, chosen: Sequence[int], start: Mapping[str, Any], stacks: Sequence[str], devices: Sequence[str],
    weights: Array | None = None, **how: Any,
) -> tuple[Fit, Parts]:  # fmt: skip
    """A fit to the chosen rows, and the parts of all rows where it ends.

    ``start``: coefficient → where the parts are taken first, a number or an array over the rows. What serves is a sum
    already, and is fitted once. ``how``: as for ``fit``.
    """
    import numpy as np

    rows = [int(i) for i in chosen]
    own = [stacks[i] for i in rows], [devices[i] for i in rows]

    def fitted(parts: Parts) -> Fit:
        own_weights = None if weights is None else weights[rows]
        return fit(parts.take(rows), found.measured[rows], *own, weights=own_weights, **how)

    if found.task == "serve":
        return fitted(found.parts), found.parts
    parts = parts_of(found.task, found.questions, start, found.parts.kernels)
    for limit in LIMITS:
        wanted = values_of(fitted(parts), parts, stacks, devices)
        moved: dict[str, Array] = {}
        furthest = 0.0
        for name, now in parts.at.items():
            step = np.zeros(len(now))
            both = (now > 0) & (wanted[name] > 0)
            step[both] = np.clip(np.log(wanted[name][both] / now[both]), -limit, limit)
            moved[name] = now * np.exp(step)
            furthest = max(furthest, float(np.abs(step).max(initial=0.0)))
        if furthest < ENOUGH:
            break
        parts = parts_of(found.task, found.questions, moved, found.parts.kernels)
    return fitted(parts), parts
