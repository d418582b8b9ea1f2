"""Measured runs as functions of a stack's coefficients: time and slopes, row by row.

Floor: calibration. Uses the studies' questions and compiled programs; numpy inside functions.

The time of a serving step is a sum over its coefficients: kernels times ``time_factor``, their number times
``kernel_overhead``, collectives times ``collective_factor``, the host's part, and prefills beside it. A training step
hides transfers and launches behind computation, so which of them counts depends on the coefficients: its parts are a
tangent, exact at the point where they were taken and along the branches that hold there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from slipstick.core.model.interfaces.stack import NEUTRAL
from slipstick.core.study.case import Case
from slipstick.core.study.intervals import weighed
from slipstick.core.study.tree import shown_tree
from slipstick.core.study.validation.run import admitted

if TYPE_CHECKING:
    import numpy as np

    from slipstick.core.study.validation.scenarios import Question

    Array = np.ndarray[Any, np.dtype[np.float64]]

UNFUSED = "unfused_share@pointwise"
"""What the kernel family calls the part of a chain of passes that software runs as kernels of their own."""

SERVING = (
    "time_factor", "kernel_overhead", "collective_factor", "step_overhead", "sequence_overhead", "prefill_factor",
)  # fmt: skip
TRAINING = (
    "time_factor", "kernel_overhead", "launch_time", "collective_factor", "attention_factor", UNFUSED, "exposed_share",
    "step_overhead",
)  # fmt: skip
"""The coefficients that time depends on, by task."""

REFERENCE = {name: NEUTRAL[name] for name in dict.fromkeys((*SERVING, *TRAINING)) if name != UNFUSED}
"""The point at which derivatives are taken first: kernels as measured alone, no other cost."""

_STEP = {"kernel_overhead": 1e-9, "step_overhead": 1e-6, "sequence_overhead": 1e-9, "launch_time": 1e-9}


@frozen(eq=False)
class Parts:
    """What the coefficients make of rows 0 … n − 1 (arrays of n).

    ``own``: coefficient → its derivative in the step's time, and ``base``: what is there besides; ``beside``: the same
    for one prefill, and ``weight``: how many prefills stand beside one step for a ``prefill_factor`` of 1 (serving).
    ``at``: coefficient → the value at which the derivatives were taken (training); ``kernels``: standard deviation of
    ln(time) that the kernels' residuals make.
    """

    task: str
    own: dict[str, Array]
    beside: dict[str, Array]
    weight: Array
    base: Array
    kernels: Array
    at: dict[str, Array] = field(factory=dict)

    def take(self, rows: Any) -> Parts:
        """The chosen rows, by number or as a mask."""
        import numpy as np

        rows = np.asarray(rows) if len(rows) else np.zeros(0, int)
        own, beside, at = ({n: v[rows] for n, v in part.items()} for part in (self.own, self.beside, self.at))
        return Parts(self.task, own, beside, self.weight[rows], self.base[rows], self.kernels[rows], at)

    def time(self, values: Mapping[str, Any]) -> Array:
        """Seconds of a step (training) or of an output token (serving) for values of the coefficients."""
        own = self.base + _sum(self.own, values)
        if self.task == "serve":
            own = own + values["prefill_factor"] * self.weight * _sum(self.beside, values)
        return own

    def slopes(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """The derivative of ``time`` by each coefficient."""
        found = dict(self.own)
        if self.task == "serve":
            share = values["prefill_factor"] * self.weight
            found.update({name: part + share * self.beside[name] for name, part in self.own.items()
                          if name in self.beside})  # fmt: skip
            found["prefill_factor"] = self.weight * _sum(self.beside, values)
        return found


def _sum(parts: Mapping[str, Array], values: Mapping[str, Any]) -> Array:
    total: Any = sum(values[name] * part for name, part in parts.items())
    found: Array = total
    return found


def parts_of(
    task: str, questions: Sequence[Question], at: Mapping[str, Any] | None = None, kernels: Array | None = None
) -> Parts:
    """The parts of every question, in their order; all must be of ``task``.

    ``at``: coefficient → where its derivative is taken, a number or an array over the rows; what it lacks is as on an
    ideal stack, or as the device states it. ``kernels``: of earlier parts of the same rows, which do not depend on it.
    """
    import numpy as np

    n = len(questions)
    linear = _LINEAR if task == "serve" else TRAINING
    own = {name: np.zeros(n) for name in linear}
    beside = {name: np.zeros(n) for name in linear if task == "serve" and name in _KERNELS}
    weight, base, spread = np.zeros(n), np.zeros(n), np.zeros(n) if kernels is None else kernels
    point = {name: np.zeros(n) for name in linear}
    for rows in _groups(questions):
        case = questions[rows[0]].case
        settings = _columns([questions[row].settings for row in rows])
        settings.pop("straggler", None)  # it multiplies a coefficient, which is wanted as it is; no run states one
        figures = ["tpot", "ttft"] if task == "serve" else ["step_time"]
        if task == "serve":
            alone = case.complete({**settings, "concurrency": 1})
            most = admitted(alone, case.program.evaluate(alone, ["kv_capacity_tokens"])["kv_capacity_tokens"])
            wanted = np.asarray(settings["concurrency"], float)
            settings["concurrency"] = np.where(most >= 1, np.minimum(wanted, np.maximum(most, 1)), wanted)
        values = case.complete({**settings, **REFERENCE})
        start_at = {name: _at(at, name, rows, float(values[name])) for name in linear}
        steps = {name: max(1e-4 * start_at[name], _STEP.get(name, 1e-4)) for name in linear}
        tried = [{}, *({name: start_at[name] + step} for name, step in steps.items())]
        if task == "serve":
            tried.append({"prefill_factor": 1.0})
        times = _times(case, {**values, **start_at}, tried, figures, len(rows))
        for found, name in zip(times[1:], linear, strict=False):
            point[name][rows] = start_at[name]
            own[name][rows] = (found[0] - times[0][0]) / steps[name]
            if name in beside:
                beside[name][rows] = (found[1] - times[0][1]) / steps[name]
        if task == "serve":
            one = times[0][1]
            weight[rows] = np.divide(times[-1][0] - times[0][0], one, out=np.zeros(len(rows)), where=one > 0)
        else:
            base[rows] = times[0][0] - sum(own[name][rows] * start_at[name] for name in linear)
        if kernels is None:
            spread[rows] = _kernel_spread(case, questions[rows[len(rows) // 2]].settings)
    return Parts(task, own, beside, weight, base, spread, point if task == "train" else {})


_KERNELS = ("time_factor", "kernel_overhead", "collective_factor")
_LINEAR = (*_KERNELS, "step_overhead", "sequence_overhead")


def _groups(questions: Sequence[Question]) -> Iterable[list[int]]:
    """Rows that one compiled case answers, with the same settings given."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, question in enumerate(questions):
        found.setdefault((id(question.case), *sorted(question.settings)), []).append(row)
    return found.values()


def _times(
    case: Case, values: Mapping[str, Any], tried: Sequence[Mapping[str, float]], figures: Sequence[str], count: int
) -> list[list[Array]]:
    """The figures of ``count`` rows for each of several changes of the coefficients, in one evaluation."""
    import numpy as np

    many = len(tried)
    joined = {
        name: np.tile(np.broadcast_to(value, (count,)), many) if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }
    for name in dict.fromkeys(name for changes in tried for name in changes):
        joined[name] = np.repeat([float(changes.get(name, values[name])) for changes in tried], count)
    out = case.program.evaluate(joined, figures)
    tables = [np.broadcast_to(np.asarray(out[name], float), (many * count,)).reshape(many, count) for name in figures]
    return [[table[i] for table in tables] for i in range(many)]


def _at(at: Mapping[str, Any] | None, name: str, rows: list[int], stated: float) -> float:
    """A coefficient's value for rows of one case, which have it in common: they are of one stack on one device."""
    import numpy as np

    given = np.asarray((at or {}).get(name, stated), float)
    return float(given if given.ndim == 0 else given[rows[0]])


def _columns(settings: Sequence[Any]) -> dict[str, Any]:
    import numpy as np

    found: dict[str, Any] = {}
    for name in settings[0]:
        values = [one[name] for one in settings]
        if all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
            found[name] = np.asarray(values, float)
        else:
            found[name] = values[0]
    return found


def _kernel_spread(case: Case, settings: Any) -> float:
    """The kernels' part of the spread, at one setting that stands for its group."""
    values = case.complete({**settings, **REFERENCE})
    out = case.program.evaluate(values)
    name = "step" if case.task == "train" else "tpot"
    return weighed(shown_tree(case.program, case.program.roots[name], out), case.trust).spread
