"""Scores of predictions beside what was measured: errors, coverage, ranks, regret, and what a constant would score.

Floor: study. numpy is imported inside functions. Every score is of relative errors, so that metrics may be mixed, apart
from ranks, which compare rows of one metric.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..intervals import LEVEL
from .figures import HIGHER_IS_BETTER, SPEEDS
from .run import Predicted

WITHOUT_CHOICE = frozenset(("memory", "oom", "kv_capacity", "kv_bytes", "max_concurrency", "step"))
"""Metrics by which nobody picks a setting."""


def described(signed: Sequence[float]) -> dict[str, Any]:
    """Number of errors, mean, median and 90th percentile of their size, and their mean with the sign.

    >>> found = described([0.25, -0.75])
    >>> found["mean_abs_error"], found["bias"]
    (0.5, -0.25)
    """
    if not signed:
        return {"n": 0, "mean_abs_error": None, "median_abs_error": None, "p90_abs_error": None, "bias": None}
    import numpy as np

    size = np.abs(np.array(signed))
    return {
        "n": len(signed),
        "mean_abs_error": float(size.mean()),
        "median_abs_error": float(np.median(size)),
        "p90_abs_error": float(np.percentile(size, 90)),
        "bias": float(np.mean(signed)),
    }


def intervals(rows: Iterable[Predicted]) -> dict[str, Any]:
    """How the 80 % intervals fare: part of the rows inside, median width over the prediction, mean interval score.

    The score of one row, relative to its measurement, is the width and, outside, 2/(1 - 0.8) times the distance.
    Source: Gneiting and Raftery, J. Am. Stat. Assoc. 102 (2007) 359, equation 43.
    """
    own = [row for row in rows if row.has_interval and row.point.metric != "oom"]
    if not own:
        return {"coverage": None, "n_intervals": 0, "median_interval_width": None, "interval_score": None}
    import numpy as np

    measured = np.array([row.point.value for row in own])
    low, high = np.array([row.low for row in own]), np.array([row.high for row in own])
    value = np.array([row.value for row in own])
    outside = np.maximum(low - measured, 0) + np.maximum(measured - high, 0)
    score = (high - low + 2 / (1 - LEVEL) * outside) / measured
    width = (high - low) / np.where(value > 0, value, np.inf)
    return {
        "coverage": float(((low <= measured) & (measured <= high)).mean()),
        "n_intervals": len(own),
        "median_interval_width": float(np.median(width)),
        "interval_score": float(score.mean()),
    }


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rank correlation, ties at their mean rank; None for fewer than three, or where all are equal.

    >>> rank_correlation([1.0, 2.0, 3.0], [10.0, 30.0, 20.0])
    0.5
    """
    if len(first) < 3:
        return None
    import numpy as np

    ranked = []
    for values in (first, second):
        _, inverse, counts = np.unique(np.array(values), return_inverse=True, return_counts=True)
        ranked.append((np.cumsum(counts) - (counts - 1) / 2.0)[inverse])
    centred = [ranks - ranks.mean() for ranks in ranked]
    scale = math.sqrt(float((centred[0] ** 2).sum() * (centred[1] ** 2).sum()))
    return float((centred[0] * centred[1]).sum()) / scale if scale > 0 else None


def ranks(rows: Sequence[Predicted]) -> float | None:
    """Rank correlation of predicted and measured values; None where the rows are of several metrics."""
    if len({row.point.metric for row in rows}) != 1:
        return None
    return rank_correlation([row.value for row in rows], [row.point.value for row in rows])


def alternatives(row: Predicted) -> tuple[Any, ...]:
    """What rows have in common among which a person would choose a layout: model, devices, batch, lengths, formats."""
    setting = row.point.setting
    named = ("devices", "global_batch", "concurrency", "sequence", "input_tokens", "output_tokens", "precision")
    return (
        row.point.source, row.point.metric, row.point.model, row.point.device, row.point.facts.get("engine", ""),
        *(setting.get(name) for name in (*named, "layers", "hidden")),
    )  # fmt: skip


def regret(rows: Iterable[Predicted]) -> dict[str, Any]:
    """What picking the predicted best costs: its measured value over the best measured one, minus 1, over all choices.

    A choice is a set of rows with the same ``alternatives`` and at least two different predictions; of several that are
    predicted to be equally good, the mean counts.
    """
    choices: dict[tuple[Any, ...], list[Predicted]] = defaultdict(list)
    for row in rows:
        if row.point.metric not in WITHOUT_CHOICE:
            choices[alternatives(row)].append(row)
    lost = []
    for several in choices.values():
        if len({row.value for row in several}) < 2:
            continue
        more = several[0].point.metric in HIGHER_IS_BETTER
        best = (max if more else min)(row.value for row in several)
        chosen = [row.point.value for row in several if row.value == best]
        mean = sum(chosen) / len(chosen)
        ideal = (max if more else min)(row.point.value for row in several)
        lost.append(ideal / mean - 1 if more else mean / ideal - 1)
    return {"regret": sum(lost) / len(lost) if lost else None, "choices": len(lost)}


def group_of(row: Predicted) -> tuple[str, str, str]:
    """Source, metric and accelerator."""
    return row.point.source, row.point.metric, row.point.device


def constant_errors(rows: Iterable[Predicted]) -> dict[int, float]:
    """|error| of the constant baseline, by ``id`` of the row: one value carried over from the rest of its group.

    Of a training run's speed: the geometric mean of the hardware FLOP/s that the group's other rows reached, which
    every row's own FLOPs turn into its metric; of anything else: the geometric mean of the others' values. A row
    alone in its group has none.
    """
    groups: dict[tuple[str, str, str], list[Predicted]] = defaultdict(list)
    for row in rows:
        if row.point.metric != "oom":
            groups[group_of(row)].append(row)
    found: dict[int, float] = {}
    for (_, metric, _), several in groups.items():
        if len(several) < 2:
            continue
        speed = metric in SPEEDS and all(row.rate > 0 for row in several)
        logs = [math.log(_reached(row) if speed else row.point.value) for row in several]
        total = sum(logs)
        for row, own in zip(several, logs, strict=True):
            ratio = math.exp((total - own) / (len(logs) - 1) - own)
            found[id(row)] = abs((1 / ratio if speed and metric == "iteration" else ratio) - 1)
    return found


def _reached(row: Predicted) -> float:
    """Hardware FLOP/s of a device that a measured run reached: the predicted rate, corrected by the measured speed."""
    faster = row.point.value / row.value if row.value > 0 else 1.0
    return row.rate / faster if row.point.metric == "iteration" else row.rate * faster


def mean(values: Iterable[float]) -> float | None:
    """The mean; None of nothing."""
    values = list(values)
    return sum(values) / len(values) if values else None


def scores(rows: Sequence[Predicted], skipped: int, constants: Mapping[int, float]) -> dict[str, Any]:
    """Everything about one group of rows, ``skipped`` more of which could not be predicted."""
    found = described([row.error for row in rows])
    total = len(rows) + skipped
    size = found["mean_abs_error"]
    return {
        **found,
        **intervals(rows),
        "rank_correlation": ranks(rows),
        **regret(rows),
        "constant_mean_abs_error": mean(constants[id(row)] for row in rows if id(row) in constants),
        "skipped": skipped,
        "predicted_share": len(rows) / total if total else None,
        # A row that could not be predicted counts as one that is wrong by all of it.
        "mean_abs_error_with_skipped": ((size or 0.0) * len(rows) + skipped) / total if total else None,
        "approximated": sum(bool(row.notes) for row in rows),
        "calibrated": sum(row.calibrated for row in rows),
        "missing_stack": sum(bool(row.missing_stack) for row in rows),
    }
