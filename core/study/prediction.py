"""One prediction as users hold it: figures, tree, ledger, formula, explanation.

Floor: study. sympy is imported only for formulas and for settings that are symbols.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import unknown
from ..records.prediction import Answer, TreeNode
from .answers import answer
from .case import Case

if TYPE_CHECKING:
    from sympy import Expr


class Prediction:
    """The answer to one question.

    ``time``: seconds of a training step or of an output token; ``memory``: bytes of the fullest device; both are
    expressions where a setting was left as a symbol. ``tree``: the cost tree with values; ``formula``: the time as an
    expression of symbols; ``answer``: all figures as plain data.
    """

    def __init__(self, case: Case, settings: Mapping[str, Any]) -> None:
        self.case = case
        self.settings = dict(settings)
        self._answer: Answer | None = None

    def __repr__(self) -> str:
        return f"<Prediction {self.case.task} {self.case.graph.name} on {self.case.machine.name}>"

    @property
    def is_symbolic(self) -> bool:
        """Whether a setting is a symbol or an expression."""
        return any(hasattr(value, "free_symbols") for value in self.settings.values())

    @property
    def answer(self) -> Answer:
        """All figures. Raises TypeError where a setting is a symbol: there are only formulas then."""
        if self.is_symbolic:
            raise TypeError("a setting is a symbol: use .time, .memory or .figure(name), which are expressions")
        if self._answer is None:
            self._answer = answer(self.case, self.settings)
        return self._answer

    def figure(self, name: str) -> float | Expr:
        """One figure in SI units (a key of the JSON schema, or ``memory_peak_bytes``); an expression under symbols.

        Errors: UserError for a name that is none.
        """
        if self.is_symbolic:
            from .symbolic import figure_expression, kept, substituted

            whole = figure_expression(self.case, name, kept(self.settings))
            return substituted(self.case, whole, self.settings)
        answer = self.answer
        figures = {**answer.figures, "memory_peak_bytes": answer.peak, "memory_headroom_bytes": answer.headroom}
        if name not in figures:
            raise unknown("figure", name, figures)
        return float(figures[name])

    @property
    def main_figure(self) -> str:
        """The figure that ``time`` stands for."""
        return "step_time_s" if self.case.task == "train" else "tpot_s"

    @property
    def time(self) -> float | Expr:
        """Step time of training, time per output token of serving [s]."""
        return self.figure(self.main_figure)

    @property
    def memory(self) -> float | Expr:
        """Peak bytes of the fullest device [B]."""
        return self.figure("memory_peak_bytes")

    @property
    def feasible(self) -> bool:
        """Whether every condition holds and memory suffices."""
        return self.answer.feasible

    @property
    def tree(self) -> TreeNode:
        """The cost tree behind ``time`` with its values."""
        return self.answer.trees["step" if self.case.task == "train" else "tpot"]

    @property
    def formula(self) -> Expr:
        """The time as one expression of named symbols, nothing put in."""
        from .symbolic import figure_expression, kept

        return figure_expression(self.case, self.main_figure, kept(self.settings))

    def explain(self, depth: int = 4) -> str:
        """The tree as text: name, time, share, what binds it, and the formula of each leaf within ``depth``."""
        from .explain import explain_text

        return explain_text(self.answer, depth)

    def to_json(self, *, tree: bool = True) -> dict[str, Any]:
        """The documented JSON schema."""
        return self.answer.to_json(tree=tree)
