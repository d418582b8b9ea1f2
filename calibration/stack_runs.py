"""Measured runs for the fit of stacks: which rows belong to which stack, which are fitted and which only judged.

Floor: calibration. Uses the studies' reading of measured points; numpy inside functions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.host.host import Host
from slipstick.core.study.prediction import Prediction
from slipstick.core.study.validation.figures import metric_of
from slipstick.core.study.validation.names import Skipped
from slipstick.core.study.validation.points import read_file
from slipstick.core.study.validation.scenarios import Question, Scenarios

from .stack_parts import REFERENCE, Parts, parts_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

METRICS = {
    "serve": ("tpot",),
    "train": ("iteration", "tflops", "tokens_per_s", "tokens_per_s_per_device", "mfu"),
}
"""What follows from the time of a step or a token alone."""

SMALL = 40
"""Sets of fewer rows are judged by leaving one configuration out; larger ones are split once and for all."""


@frozen(eq=False)
class Runs:
    """Rows of one task: questions, the measured seconds of a step or token, and the parts that coefficients multiply.

    ``skipped``: reason → rows that could not be asked.
    """

    task: str
    questions: tuple[Question, ...]
    measured: Array
    parts: Parts
    skipped: dict[str, int]

    @property
    def stacks(self) -> list[str]:
        """The stack of each row."""
        return [str(q.case.structure.get("stack", "")) for q in self.questions]

    @property
    def devices(self) -> list[str]:
        """The accelerator of each row."""
        return [q.case.machine.accelerator.name for q in self.questions]

    @property
    def models(self) -> list[str]:
        """The model's structure and size of each row: one model under two names is one model."""
        return [model_of(q) for q in self.questions]

    def take(self, rows: Iterable[int]) -> Runs:
        """The chosen rows."""
        import numpy as np

        chosen = np.asarray(list(rows), int)
        return Runs(
            self.task, tuple(self.questions[i] for i in chosen), self.measured[chosen], self.parts.take(chosen), {}
        )


def model_of(question: Question) -> str:
    """What tells one model from another: its sizes, not its name."""
    sizes = question.case.graph.sizes
    told = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "experts", "expert_ffn", "top_k")
    return "/".join(f"{sizes.get(name, 0):g}" for name in told)


def runs(
    task: str, files: Sequence[Path], host: Host, wanted: Callable[[Question], bool] | None = None,
    stack: str | None = None,
) -> Runs:  # fmt: skip
    """Every row of ``files`` that tells how long a step or a token takes, under ``stack`` or the one that it names."""
    import numpy as np

    scenarios = Scenarios(host, stack)
    metrics = METRICS[task]
    kept: list[Question] = []
    skipped: dict[str, int] = {}
    for file in files:
        for point in read_file(file, host).points:
            if point.metric not in metrics or point.setting.get("task", "train") != task:
                continue
            try:
                question = scenarios.question(point)
            except Skipped as reason:
                skipped[str(reason)] = skipped.get(str(reason), 0) + 1
                continue
            if wanted is None or wanted(question):
                kept.append(question)
    parts = parts_of(task, kept)
    alone = parts.time(parts.at or REFERENCE)
    seconds = [_seconds(question, float(time)) for question, time in zip(kept, alone, strict=True)]
    return Runs(task, tuple(kept), np.asarray(seconds, float), parts, skipped)


def _seconds(question: Question, alone: float) -> float:
    """The measured figure as seconds of a step or token: a rate is what it is at ``alone``, the other way round."""
    point = question.point
    if point.metric in ("iteration", "tpot"):
        return point.value
    answer = Prediction(question.case, {**question.settings, **REFERENCE}).answer
    return alone * metric_of(question, answer)(dict(answer.figures)) / point.value


def configuration(question: Question) -> str:
    """Equal for rows that ask the same."""
    settings = sorted((name, str(value)) for name, value in question.settings.items())
    return f"{model_of(question)} {question.case.machine.name} {question.case.structure} {settings}"


def is_fitted(questions: Sequence[Question]) -> list[bool]:
    """Whether each row may be fitted: the sha256 of its id is 0 modulo 5, identical configurations going together."""
    first: dict[str, str] = {}
    for question in sorted(questions, key=lambda question: question.point.name):
        first.setdefault(configuration(question), question.point.name)
    return [fifth(first[configuration(question)]) == 0 for question in questions]


def fifth(text: str) -> int:
    """A number from 0 to 4 that follows from a text alone.

    >>> fifth("NAR21T1-001")
    3
    """
    return int(hashlib.sha256(text.encode()).hexdigest(), 16) % 5
