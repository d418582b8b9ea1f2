"""Every measured point with what slipstick predicts for it, or with the reason why it does not.

Floor: study. Points that ask the same are answered once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from ...errors import SlipstickError, unknown
from ...host.host import Host
from ...records.measured import MeasuredPoint
from ...records.prediction import Answer
from ..prediction import Prediction
from .figures import metric_of, with_interval
from .names import Skipped
from .points import Passed, Points
from .scenarios import Question, Scenarios

BATCHES = 2048
"""Most sequences of one replica where a row says "as many as fit": what engines allow by default at most."""
ROUNDS = 60
"""Most rounds of the fixed point between the rate of an open load and the requests in flight."""
KEPT = 32


@frozen
class Predicted:
    """One point with its prediction, both in SI.

    ``low``, ``high``: the 80 % interval (equal where the answer has none); ``rate`` [FLOP/s]: hardware FLOPs of a
    device in the predicted time, 0 where that has no meaning; ``fits``: whether it is predicted to fit in memory;
    ``notes``: what was taken for granted; ``missing_stack``: software that the row names and nobody brings.
    """

    point: MeasuredPoint
    value: float
    low: float
    high: float
    rate: float
    fits: bool
    calibrated: bool
    stack: str
    notes: tuple[str, ...]
    missing_stack: str = ""

    @property
    def error(self) -> float:
        """Predicted over measured minus 1; of a yes or no, their difference."""
        if self.point.metric == "oom":
            return self.value - self.point.value
        return self.value / self.point.value - 1

    @property
    def has_interval(self) -> bool:
        """Whether the prediction came with an interval."""
        return self.high > self.low

    @property
    def name(self) -> str:
        """The row's id."""
        return self.point.name


@define(eq=False)
class Run:
    """Predictions for measured points. ``stack``: in place of the one that a row names."""

    host: Host
    stack: str | None = None
    _scenarios: Scenarios = field(init=False)
    _answers: dict[tuple[Any, ...], tuple[Answer, dict[str, float], tuple[str, ...]]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._scenarios = Scenarios(self.host, self.stack)

    def __call__(
        self, points: Points, progress: Callable[[int, int], None] | None = None
    ) -> tuple[list[Predicted], list[Passed]]:
        """Every point of ``points``, predicted or passed over with its reason; ``progress``: told how many are done."""
        predicted: list[Predicted] = []
        passed = list(points.passed)
        for number, point in enumerate(points.points, start=1):
            try:
                predicted.append(self.predict(point))
            except Skipped as reason:
                passed.append(Passed(point.name, point.metric, str(reason), point.source))
            if progress is not None:
                progress(number, len(points.points))
        return predicted, passed

    def predict(self, point: MeasuredPoint) -> Predicted:
        """The prediction for one point. Raises Skipped with the reason where there is none."""
        question = self._scenarios.question(point)
        answer, extra, notes = self._answer(question)
        laid_out = [o for o in answer.obstacles if o.layout]
        if laid_out:
            raise Skipped(f"can't be laid out: {laid_out[0].reason}")
        value, low, high = with_interval(metric_of(question, answer), answer, extra)
        if not math.isfinite(value) or value < 0:
            raise Skipped(f"the prediction is {value}")
        rate = float(answer.figures.get("hardware_tflops_per_device", 0.0)) * 1e12
        fits = answer.peak <= answer.capacity
        told = (*question.notes, *notes, *(("predicted not to fit in memory",) if not fits else ()))
        return Predicted(
            point, value, low, high, rate, fits, answer.calibrated, str(question.case.structure.get("stack", "")), told,
            question.missing_stack,
        )  # fmt: skip

    def _answer(self, question: Question) -> tuple[Answer, dict[str, float], tuple[str, ...]]:
        key = question.key
        if key not in self._answers:
            if len(self._answers) >= KEPT:  # rows that ask the same stand near one another
                self._answers.pop(next(iter(self._answers)))
            try:
                self._answers[key] = _answered(question)
            except SlipstickError as error:
                raise Skipped(str(error)) from None
        return self._answers[key]


def _answered(question: Question) -> tuple[Answer, dict[str, float], tuple[str, ...]]:
    """The answer, figures beside its own, and notes."""
    settings = dict(question.settings)
    notes: tuple[str, ...] = ()
    if question.load == "max":
        settings["concurrency"] = _most(question, settings)
    elif question.load == "rate":
        settings["concurrency"], notes = _in_flight(question, settings)
    elif question.load == "closed" and question.case.task == "serve":
        settings["concurrency"], notes = _running(question, settings)
    answer = Prediction(question.case, settings).answer
    extra: dict[str, float] = {}
    if question.load == "static":
        extra["batch_ttft_s"] = _batch_ttft(question, settings, answer)
    return answer, extra, notes


def _running(question: Question, settings: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Of the requests in flight those that run: the others wait until the keys and values of one are given up."""
    asked = int(settings["concurrency"])
    values = question.case.complete({**settings, "concurrency": 1})
    most = int(admitted(values, question.case.program.evaluate(values, ["kv_capacity_tokens"])["kv_capacity_tokens"]))
    if asked <= most or most < 1:
        return asked, ()
    return most, (f"{most:,} of {asked:,} requests run at once, the others wait for room in the cache",)


def admitted(values: Mapping[str, Any], capacity: Any) -> Any:
    """Sequences that run at once where the cache holds ``capacity`` tokens: they are ``GROWN`` grown on average."""
    return capacity // (values["input_tokens"] + GROWN * values["output_tokens"])


GROWN = 0.6
"""How much of its output a running sequence has generated when another asks for room; half of it is the mean."""


def _most(question: Question, settings: Mapping[str, Any]) -> int:
    """Requests in flight that fit, at most ``BATCHES`` a replica and at least one."""
    values = question.case.complete({**settings, "concurrency": 1})
    fit = float(question.case.program.evaluate(values, ["max_concurrency"])["max_concurrency"])
    return max(1, int(min(fit, BATCHES * float(values["dp"]))))


def _in_flight(question: Question, settings: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
    """Requests in flight under an open load: rate times latency (Little's law), found by repetition."""
    most = _most(question, settings)
    flight = 1.0
    for _ in range(ROUNDS):
        out = question.case.evaluate({**settings, "concurrency": max(1, round(flight))}, ["ttft", "tpot"])
        latency = float(out["ttft"]) + (settings["output_tokens"] - 1) * float(out["tpot"])
        found = min(question.rate * latency, float(most))
        if abs(found - flight) < 0.5:
            break
        flight = (flight + found) / 2
    told = f"{question.rate:g} requests/s: {max(1, round(flight)):,} in flight by Little's law"
    return max(1, round(flight)), (told,)


def _batch_ttft(question: Question, settings: Mapping[str, Any], answer: Answer) -> float:
    """Prefill of a whole batch: the lesser of two upper bounds.

    One prompt after the other reads the weights too often; one prompt as long as all together has too much attention.
    """
    each: int = max(1, math.ceil(settings["concurrency"] / answer.setting.get("dp", 1)))
    one: float = float(answer.figures["ttft_s"])
    if each == 1:
        return one
    longer = {**settings, "input_tokens": settings["input_tokens"] * each}
    at_once: float = float(question.case.evaluate(longer, ["ttft"])["ttft"])
    return min(each * one, at_once)


OWN_COLUMNS = ("model", "device", "source", "metric")


def check_columns(points: Points, wanted: Mapping[str, Iterable[str]]) -> None:
    """Errors: UserError for a column that no point has, naming the option that asks for it."""
    known = dict.fromkeys((*OWN_COLUMNS, *(name for p in points.points for name in (*p.facts, *p.setting))))
    for option, columns in wanted.items():
        for column in columns:
            if column not in known:
                raise unknown("column", column, known, f"asked for by {option}")


def completed(points: Points, machine: str | None, settings: Mapping[str, float | str]) -> Points:
    """The points with what their files leave out: an accelerator, settings under slipstick's names."""
    if machine is None and not settings:
        return points
    kept = [
        evolve(point, device=point.device or machine or "", setting={**settings, **point.setting})
        for point in points.points
    ]
    return evolve(points, points=tuple(kept))


def limited(points: Points, limit: int | None, metrics: Iterable[str], columns: Mapping[str, str]) -> Points:
    """The points that are asked for: of some metrics, with some columns' values, the first ``limit``.

    What was passed over while reading stays only where nothing is left out: its columns are not known.
    """
    wanted = frozenset(metrics)
    kept = [
        point for point in points.points
        if (not wanted or point.metric in wanted or point.facts.get("metric") in wanted)
        and all(value_of(point, name).casefold() == value.casefold() for name, value in columns.items())
    ]  # fmt: skip
    whole = not wanted and not columns and limit is None
    return Points(tuple(kept[:limit]), points.passed if whole else ())


def value_of(point: MeasuredPoint, column: str) -> str:
    """What a point has under a column: of its file, of its setting, or its model, device, source or metric."""
    own = {"model": point.model, "device": point.device, "source": point.source, "metric": point.metric}
    if column in own:
        return own[column]
    return point.facts.get(column, str(point.setting.get(column, "")))
