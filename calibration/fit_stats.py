"""Figures of a fit: errors, spread of the parameters, outliers, and where predictions are wrong in a body.

Floor: calibration. Uses numpy inside functions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.records.fitted import ErrorSummary

if TYPE_CHECKING:
    import numpy.typing as npt

    from .fit_model import Model
    from .fit_rows import Array, Rows

TIGHT = 0.05
"""Scale of the robust loss in ln(time): residuals far above it count by their size, not by its square."""

NORMAL_80 = 1.2816
"""A normal law holds 80 % within so many standard deviations of its mean."""

LOOSE = 0.7
"""A parameter whose logarithm is spread by more is not identified: it could as well be twice or half of it."""

EDGE = 1e-3
SWITCH = math.log(1.25)
SLOW = math.log(1.7)
MOST_TRIMMED = 0.15
"""Share of the rows that may be set aside as slow configurations; more than that is the formula's own error."""


def summary(residuals: Array) -> ErrorSummary:
    """Errors of ln(predicted/measured) ``residuals``.

    >>> import numpy as np
    >>> summary(np.log(np.array([1.1, 0.9, 1.0]))).median
    0.09999999999999998
    """
    import numpy as np

    ratio = np.exp(np.minimum(residuals, 50.0)) - 1.0
    size = np.abs(ratio)
    if not len(size):
        return ErrorSummary(0, math.nan, math.nan, math.nan, math.nan)
    return ErrorSummary(
        len(size), float(size.mean()), float(np.median(size)), float(np.quantile(size, 0.9)), float(ratio.mean())
    )


def sigma_of(residuals: Array) -> float:
    """The sigma of a fitted record: 80 % of the rows lie within 1.2816 times it, in ln(measured/predicted)."""
    import numpy as np

    return float(np.quantile(np.abs(residuals), 0.8)) / NORMAL_80


def robust_sigma(residuals: Array) -> float:
    """The standard deviation of a normal law with the same median deviation from the median."""
    import numpy as np

    return 1.4826 * float(np.median(np.abs(residuals - np.median(residuals))))


@frozen
class Identified:
    """``spread``: parameter → standard deviation of its logarithm (of itself over its expected width, where it is not
    fitted as a logarithm); ``unidentified``: those that the data leave open."""

    spread: Mapping[str, float]
    unidentified: tuple[str, ...]


def identified(model: Model, places: Any, columns: Array, residuals: Array) -> Identified:
    """What the data say of each free parameter at the solution, from the slopes and the robust residuals."""
    import numpy as np

    if not model.coordinates:
        return Identified({}, ())
    weights = 1.0 / np.sqrt(1.0 + (residuals / TIGHT) ** 2)  # of the soft L1 loss
    freedom = max(float(weights.sum()) - len(model.coordinates), 1.0)
    noise = max(float((weights * residuals**2).sum()) / freedom, 1e-10)
    scales = np.array([c.scale for c in model.coordinates])
    scaled = columns * scales
    information = (scaled * weights[:, None]).T @ scaled / noise
    expected = np.array([(c.scale / c.width) ** 2 if c.width else 0.0 for c in model.coordinates])
    information += np.diag(expected + 1e-12)
    deviation = np.sqrt(np.maximum(np.diag(np.linalg.pinv(information, hermitian=True)), 0.0))
    spread, loose = {}, []
    for c, place, sd, column in zip(model.coordinates, places, deviation, scaled.T, strict=True):
        spread[c.name] = min(float(sd), 99.0)
        flat = float(np.abs(column).max(initial=0.0)) < 1e-9
        span = min(c.upper - c.lower, 1.0 if c.log else c.upper - c.lower)
        reach = EDGE * span if math.isfinite(span) else 0.0
        if flat or sd > LOOSE or place - c.lower <= reach or c.upper - place <= reach:
            loose.append(c.name)
    return Identified(spread, tuple(loose))


def outliers(residuals: Array, rows: Rows, most: int = 3) -> tuple[int, tuple[str, ...]]:
    """How many rows lie beyond five robust standard deviations, and the worst of them in words."""
    import numpy as np

    far = np.abs(residuals - np.median(residuals)) > 5 * max(robust_sigma(residuals), 1e-9)
    order = np.argsort(-np.abs(residuals), kind="stable")
    worst = [int(i) for i in order[: int(far.sum())]][:most]
    return int(far.sum()), tuple(f"{rows.text(i)}: {_times(-residuals[i])}" for i in worst)


def switches(residuals: Array, rows: Rows, most: int = 5) -> tuple[str, ...]:
    """Where a whole part of the rows is more than 25 % off, by ranges of each name of the shape.

    A kernel that is chosen by a rule that the formula does not know shows like this.
    """
    import numpy as np

    found: list[tuple[float, str]] = []
    fewest = max(10, len(rows) // 200)
    overall = float(np.median(residuals))
    for name, values in rows.shape.items():
        marks = _bins(values)
        if len(marks) < 2:
            continue
        runs: list[list[int]] = []
        medians = []
        for number, mark in enumerate(marks):
            own = residuals[_within(values, mark)]
            middle = float(np.median(own)) if len(own) >= fewest else 0.0
            medians.append(middle)
            if abs(middle - overall) <= SWITCH or abs(middle) <= SWITCH:
                continue
            if runs and runs[-1][-1] == number - 1 and medians[number - 1] * middle > 0:
                runs[-1].append(number)
            else:
                runs.append([number])
        for run in runs:
            span = (marks[run[0]][0], marks[run[-1]][1])
            own = residuals[_within(values, span)]
            told = f"{name} {_span(span)}: {_times(-float(np.median(own)))} ({len(own)} rows)"
            found.append((abs(float(np.median(own))) * len(own) ** 0.5, told))
    found.sort(key=lambda pair: (-pair[0], pair[1]))
    return tuple(told for _, told in found[:most])


def slow_groups(residuals: Array, groups: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Which rows belong to a group that is slower as a whole than 1.7 times the prediction: a mask.

    No row where more than 15 % of them would go: then it is the formula that is wrong.
    """
    import numpy as np

    _, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.lexsort((residuals, which))
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    lower = residuals[order[starts + (counts - 1) // 2]]
    upper = residuals[order[starts + counts // 2]]
    slow = ((lower + upper) / 2 < -SLOW) & (counts >= 3)
    mask: npt.NDArray[Any] = slow[which]
    return mask if mask.mean() <= MOST_TRIMMED else np.zeros(len(residuals), dtype=bool)


def regimes(rows: Rows) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The parts of the rows by how many tokens they work on: decode (up to 64), middle, prefill (2048 and more).

    Attention with one new token a sequence is decoding, whatever its batch. Kernels without tokens have no regimes.
    """
    shape = rows.shape
    if "m" in shape:
        tokens, single = shape["m"], None
    elif "tokens" in shape:
        tokens, single = shape["tokens"], None
    elif "query" in shape:
        tokens, single = shape["query"] * shape.get("batch", 1.0), shape["query"] <= 1
    else:
        return
    small = tokens <= 64
    large = tokens >= 2048
    if single is not None:
        small, large = small | single, large & ~single
    yield "decode", small
    yield "middle", ~small & ~large
    yield "prefill", large


def _bins(values: Array) -> list[tuple[float, float]]:
    import numpy as np

    distinct = np.unique(values)
    if len(distinct) <= 24:
        return [(float(v), float(v)) for v in distinct]
    low = int(np.floor(np.log2(max(float(distinct[distinct > 0][0]), 1e-9))))
    high = int(np.ceil(np.log2(float(distinct[-1]))))
    # (2^k, 2^(k+1)]: tile and dispatch sizes are powers of two and belong to the lower part
    edges = [0.0 if distinct[0] <= 0 else 2.0 ** (low - 1), *(2.0**e for e in range(low, high + 1))]
    return [(_above(distinct, a), b) for a, b in itertools.pairwise(edges) if _any(distinct, a, b)]


def _above(distinct: Array, edge: float) -> float:
    return float(distinct[distinct > edge][0]) if edge > 0 else float(distinct[0])


def _any(distinct: Array, a: float, b: float) -> bool:
    return bool(((distinct > a) & (distinct <= b)).any())


def _within(values: Array, span: tuple[float, float]) -> Any:
    return (values >= span[0]) & (values <= span[1])


def _span(span: tuple[float, float]) -> str:
    return f"{span[0]:g}" if span[0] == span[1] else f"{span[0]:g} to {span[1]:g}"


def _times(ratio: float) -> str:
    """ln(measured/predicted) in words."""
    return f"measured {math.exp(min(ratio, 50.0)):.2f} times the prediction"
