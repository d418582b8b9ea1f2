"""Measured runs as sums over the coefficients of a stack: what each coefficient multiplies, row by row.

Floor: calibration. Uses the studies' questions and compiled programs; numpy inside functions.

A step's time is linear in the coefficients wherever the same branch of every choice is taken: kernels times
``time_factor``, their number times ``kernel_overhead``, collectives times ``collective_factor``, and the host's part.
So the derivatives at one point are all that a fit needs, and thousands of runs are fitted in a second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.model.interfaces.stack import NEUTRAL
from slipstick.core.study.case import Case
from slipstick.core.study.intervals import kernel_spread
from slipstick.core.study.tree import valued_tree
from slipstick.core.study.validation.run import admitted

if TYPE_CHECKING:
    import numpy as np

    from slipstick.core.study.validation.scenarios import Question

    Array = np.ndarray[Any, np.dtype[np.float64]]

SERVING = (
    "time_factor", "kernel_overhead", "collective_factor", "step_overhead", "sequence_overhead", "prefill_factor",
)  # fmt: skip
TRAINING = ("time_factor", "kernel_overhead", "collective_factor", "step_overhead", "gradient_exposed")
"""The coefficients that time depends on, by task."""

REFERENCE = {name: NEUTRAL[name] for name in dict.fromkeys((*SERVING, *TRAINING))}
"""The point at which derivatives are taken: kernels as measured alone, no other cost."""

_STEP = {"kernel_overhead": 1e-9, "step_overhead": 1e-6, "sequence_overhead": 1e-9}


@frozen(eq=False)
class Parts:
    """What the coefficients multiply, for rows 0 … n − 1 (arrays of n).

    ``own``: coefficient → its derivative in the step's time; ``beside``: the same for one prefill, and ``weight``: how
    many prefills stand beside one step for a ``prefill_factor`` of 1 (serving); ``reduction``: time of the gradient
    reduction (training). ``kernels``: standard deviation of ln(time) that the kernels' residuals make.
    """

    task: str
    own: dict[str, Array]
    beside: dict[str, Array]
    weight: Array
    reduction: Array
    kernels: Array

    def take(self, rows: Any) -> Parts:
        """The chosen rows, by number or as a mask."""
        import numpy as np

        rows = np.asarray(rows) if len(rows) else np.zeros(0, int)
        return Parts(
            self.task, {n: v[rows] for n, v in self.own.items()}, {n: v[rows] for n, v in self.beside.items()},
            self.weight[rows], self.reduction[rows], self.kernels[rows],
        )  # fmt: skip

    def time(self, values: dict[str, Any]) -> Array:
        """Seconds of a step (training) or of an output token (serving) for values of the coefficients."""
        own = _sum(self.own, values)
        more: Array
        if self.task == "serve":
            more = values["prefill_factor"] * self.weight * _sum(self.beside, values)
        else:
            more = (values["gradient_exposed"] - 1) * values["collective_factor"] * self.reduction
        return own + more

    def slopes(self, values: dict[str, Any]) -> dict[str, Array]:
        """The derivative of ``time`` by each coefficient."""
        found = dict(self.own)
        if self.task == "serve":
            share = values["prefill_factor"] * self.weight
            found.update({name: part + share * self.beside[name] for name, part in self.own.items()
                          if name in self.beside})  # fmt: skip
            found["prefill_factor"] = self.weight * _sum(self.beside, values)
        else:
            hidden = (1 - values["gradient_exposed"]) * self.reduction
            found["collective_factor"] = self.own["collective_factor"] - hidden
            found["gradient_exposed"] = values["collective_factor"] * self.reduction
        return found


def _sum(parts: dict[str, Array], values: dict[str, Any]) -> Array:
    total: Any = sum(values[name] * part for name, part in parts.items())
    found: Array = total
    return found


def parts_of(task: str, questions: Sequence[Question]) -> Parts:
    """The parts of every question, in their order; all must be of ``task``."""
    import numpy as np

    n = len(questions)
    linear = [name for name in (SERVING if task == "serve" else TRAINING) if name in _LINEAR]
    own = {name: np.zeros(n) for name in linear}
    beside = {name: np.zeros(n) for name in linear if task == "serve" and name in _KERNELS}
    weight, reduction, kernels = np.zeros(n), np.zeros(n), np.zeros(n)
    for rows in _groups(questions):
        case = questions[rows[0]].case
        settings = _columns([questions[row].settings for row in rows])
        figures = ["tpot", "ttft"] if task == "serve" else ["step_time"]
        if task == "serve":
            alone = case.complete({**settings, "concurrency": 1})
            most = admitted(alone, case.program.evaluate(alone, ["kv_capacity_tokens"])["kv_capacity_tokens"])
            wanted = np.asarray(settings["concurrency"], float)
            settings["concurrency"] = np.where(most >= 1, np.minimum(wanted, np.maximum(most, 1)), wanted)

        def at(changes: dict[str, float], case: Case = case, settings: dict[str, Any] = settings,
               figures: list[str] = figures, count: int = len(rows)) -> list[Any]:  # fmt: skip
            out = case.evaluate({**settings, **REFERENCE, **changes}, figures)
            return [np.broadcast_to(np.asarray(out[name], float), (count,)) for name in figures]

        start = at({})
        for name in linear:
            change = _STEP.get(name, 1e-3)
            moved = at({name: REFERENCE[name] + change})
            own[name][rows] = (moved[0] - start[0]) / change
            if name in beside:
                beside[name][rows] = (moved[1] - start[1]) / change
        if task == "serve":
            joined = at({"prefill_factor": 1.0})[0] - start[0]
            weight[rows] = np.divide(joined, start[1], out=np.zeros(len(rows)), where=start[1] > 0)
        else:
            reduction[rows] = start[0] - at({"gradient_exposed": 0.0})[0]
        kernels[rows] = _kernel_spread(case, questions[rows[len(rows) // 2]].settings)
    return Parts(task, own, beside, weight, reduction, kernels)


_KERNELS = ("time_factor", "kernel_overhead", "collective_factor")
_LINEAR = (*_KERNELS, "step_overhead", "sequence_overhead")


def _groups(questions: Sequence[Question]) -> Iterable[list[int]]:
    """Rows that one compiled case answers, with the same settings given."""
    found: dict[tuple[Any, ...], list[int]] = {}
    for row, question in enumerate(questions):
        found.setdefault((id(question.case), *sorted(question.settings)), []).append(row)
    return found.values()


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
    parameters = {name: float(v) for name, v in values.items() if isinstance(v, int | float)}
    name = "step" if case.task == "train" else "tpot"
    return kernel_spread(valued_tree(case.program, case.program.roots[name], out, parameters), case.trust)
