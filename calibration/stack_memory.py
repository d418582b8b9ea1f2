"""What a training stack keeps of a device's memory beside the ledger, from measured peaks.

Floor: calibration. numpy inside functions. A peak that a tool outside the framework saw (nvidia-smi) holds the driver's
context, communicators, buffers of reductions and what the allocator cannot use; the ledger knows none of these. Peaks
that the framework's own allocator counted say nothing about it and are left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path

from attrs import frozen

from slipstick.core.host.host import Host
from slipstick.core.records.fitted import ErrorSummary
from slipstick.core.study.prediction import Prediction
from slipstick.core.study.validation.names import Skipped
from slipstick.core.study.validation.points import read_file
from slipstick.core.study.validation.scenarios import Question, Scenarios

from .stack_fit import summary
from .stack_runs import is_fitted

LEAST = 5
"""Fewest fitted peaks that a reserve is taken from."""


@frozen
class Reserve:
    """``value`` [B]: median of what measured peaks hold beside the ledger, over ``rows`` of them; ``spread``: standard
    deviation of ln(measured/predicted) and ``errors`` on the peaks that it was not taken from."""

    value: float
    rows: int
    spread: float
    errors: ErrorSummary


def reserves(file: Path, host: Host, wanted: Callable[[Question], bool]) -> dict[str, Reserve]:
    """Stack → its reserve, where enough peaks were measured."""
    scenarios = Scenarios(host)
    found: dict[str, list[tuple[Question, float]]] = {}
    for point in read_file(file, host).points:
        if point.metric != "memory" or point.setting.get("task", "train") != "train":
            continue
        try:
            question = scenarios.question(point)
        except Skipped:
            continue  # counted by ``slipstick validate``
        if wanted(question) and question.said.get("reserve") != "left out":
            answer = Prediction(question.case, question.settings).answer
            ledger = answer.peak - sum(row.bytes for row in answer.ledger if row.name == "reserve")
            found.setdefault(str(question.case.structure.get("stack")), []).append((question, ledger))
    made = {stack: _reserve(peaks) for stack, peaks in found.items()}
    return {stack: reserve for stack, reserve in made.items() if reserve is not None}


def _reserve(peaks: Sequence[tuple[Question, float]]) -> Reserve | None:
    import numpy as np

    chosen = np.array(is_fitted([question for question, _ in peaks]))
    if int(chosen.sum()) < LEAST or chosen.all():
        return None
    ledgers = np.array([ledger for _, ledger in peaks])
    measured = np.array([question.point.value for question, _ in peaks])
    value = float(max(np.median((measured - ledgers)[chosen]), 0.0))
    errors = summary((ledgers + value)[~chosen], measured[~chosen])
    off = np.log(measured / (ledgers + value))[~chosen]
    return Reserve(value, int(chosen.sum()), math.sqrt(float(np.mean(off * off))), errors)
