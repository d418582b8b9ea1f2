"""A formula over measured rows: its value and its slopes, in the coordinates that the fit works in.

Floor: calibration. Uses the compiled formulas of the algebra; numpy and sympy inside functions. A parameter with a
lower bound of zero or more and a default above zero is fitted as its logarithm, any other one as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.algebra.formula import COMBINED, Formula, Parameter
from slipstick.core.algebra.split import Prepared, Split
from slipstick.core.errors import UserError, unknown

if TYPE_CHECKING:
    from sympy import Expr, Symbol

    from slipstick.core.algebra.tape import Tape

    from .fit_rows import Array, Rows

SPAN = 12.0
"""How far, in e-folds, a parameter without a bound of its own may move from its default."""

WIDTH = 3.0
"""E-folds by which a parameter is thought to differ from its default before anything is measured: so wide that it
only holds what the data leave open."""

NARROW = 1.0
"""The same where there are few rows."""

FEW = 50
"""Below this many rows the narrow width holds."""

FLOOR = 1e-30


@frozen
class Coordinate:
    """One free parameter: ``name``, whether the fit sees its logarithm, and its bounds there.

    ``centre`` and ``width``: where it is expected before anything is measured, and how sure that is; width 0 for no
    expectation.
    """

    name: str
    log: bool
    lower: float
    upper: float
    centre: float
    width: float

    def inside(self, value: float) -> float:
        """A value of the parameter in this coordinate, within the bounds."""
        place = math.log(max(value, FLOOR)) if self.log else value
        return min(max(place, self.lower), self.upper)

    def outside(self, place: float) -> float:
        """The parameter's value at a place of this coordinate."""
        return math.exp(place) if self.log else place

    @property
    def scale(self) -> float:
        """What one step is in this coordinate: an e-fold, or the expected width."""
        return 1.0 if self.log else self.width or 1.0


def coordinate(parameter: Parameter, few: bool) -> Coordinate:
    """How a parameter is fitted.

    >>> coordinate(Parameter("launch", "s", "...", 2e-6, 0, 1e-3), few=False).log
    True
    >>> coordinate(Parameter("bend", "1", "...", 0.0, -1.0, 1.0), few=False).log
    False
    """
    default, lower, upper = parameter.default, parameter.lower, parameter.upper
    if lower >= 0 and default > 0:
        centre = math.log(default)
        low = math.log(lower) if lower > 0 else centre - SPAN
        high = math.log(upper) if math.isfinite(upper) else centre + SPAN
        return Coordinate(parameter.name, True, low, high, centre, NARROW if few else WIDTH)
    spans = [abs(bound - default) for bound in (lower, upper) if math.isfinite(bound) and bound != default]
    width = min(spans) if spans else (max(abs(default), 1.0) if lower < 0 else 0.0)
    return Coordinate(parameter.name, False, lower, upper, default, width)


def slopes(formula: Formula) -> Tape | None:
    """The formula's value and its derivative by each parameter as one compiled tape; None where it has none.

    A rounded quotient differentiates like the quotient: a fit follows its trend.
    """
    return _slopes(formula.expr, tuple(formula.symbols[p.name] for p in formula.parameters), tuple(formula.inputs))


@lru_cache(maxsize=64)
def _slopes(expr: Expr, parameters: tuple[Symbol, ...], inputs: tuple[str, ...]) -> Tape | None:
    from slipstick.core.algebra.compile import compile_expressions
    from slipstick.core.errors import SlipstickError

    try:
        roots = {COMBINED: expr} | {f"d_{symbol.name}": expr.diff(symbol) for symbol in parameters}
        return compile_expressions(roots, [*(symbol.name for symbol in parameters), *inputs])
    except (SlipstickError, TypeError, ValueError, NotImplementedError):
        return None  # a function without a derivative: differences do


@frozen(eq=False)
class Model:
    """``formula`` of ``slot`` over rows whose other kernels cost what ``held`` says.

    ``fixed``: parameters that are not fitted. ``held``: slot → (formula, parameter → value) of the other parts.
    """

    formula: Formula
    slot: str
    coordinates: tuple[Coordinate, ...]
    fixed: Mapping[str, float]
    held: Mapping[str, tuple[Formula, Mapping[str, float]]]

    @property
    def names(self) -> tuple[str, ...]:
        """The free parameters."""
        return tuple(c.name for c in self.coordinates)

    def inside(self, values: Mapping[str, float]) -> list[float]:
        """Parameter values as places of the coordinates."""
        return [c.inside(values[c.name]) for c in self.coordinates]

    def outside(self, places: Sequence[float]) -> dict[str, float]:
        """All parameter values, in the formula's order, at places of the coordinates."""
        free = {c.name: c.outside(float(p)) for c, p in zip(self.coordinates, places, strict=True)}
        return {p.name: free.get(p.name, self.fixed.get(p.name, p.default)) for p in self.formula.parameters}

    def predict(self, values: Mapping[str, float], rows: Rows) -> Array:
        """Seconds of every row for parameter values."""
        total = self.rest(rows)
        for part in rows.parts:
            if part.slot == self.slot:
                found = self.formula.tape().evaluate({**part.inputs, **values}, [COMBINED])[COMBINED]
                _add(total, part.index, found)
        return total

    def rest(self, rows: Rows) -> Array:
        """Seconds of the kernels that are not fitted. Errors: UserError for a slot that nothing is known of."""
        import numpy as np

        total = np.zeros(len(rows))
        for part in rows.parts:
            if part.slot == self.slot:
                continue
            if part.slot not in self.held:
                raise unknown("kernel of a measured row", part.slot, self.held)
            formula, values = self.held[part.slot]
            known = {p.name: values.get(p.name, p.default) for p in formula.parameters}
            _add(total, part.index, formula.tape().evaluate({**part.inputs, **known}, [COMBINED])[COMBINED])
        return total

    def over(self, rows: Rows) -> Over:
        """The model bound to rows, for many evaluations."""
        return Over(self, rows)


class Over:
    """A model over rows: residuals and their slopes at any place; what depends on the rows alone is computed once."""

    def __init__(self, model: Model, rows: Rows) -> None:
        import numpy as np

        self.model, self.rows = model, rows
        self._rest = model.rest(rows)
        self._measured = np.log(rows.seconds)
        self._values = self._prepared(model.formula.tape(), [COMBINED])
        self._slopes: list[tuple[Any, Prepared]] | None = None

    def _prepared(self, tape: Tape, outputs: list[str]) -> list[tuple[Any, Prepared]]:
        model = self.model
        split = Split(tape, model.names, outputs)
        kept = {p.name: model.fixed.get(p.name, p.default) for p in model.formula.parameters}
        found = []
        for part in self.rows.parts:
            if part.slot == model.slot:
                count = len(self.rows) if part.index is None else len(part.index)
                found.append((part.index, split.prepare({**kept, **part.inputs}, count)))
        return found

    def residuals(self, places: Sequence[float]) -> Array:
        """ln(predicted/measured) of every row."""
        free = self._free(places)
        total = self._rest.copy()
        for index, prepared in self._values:
            _add(total, index, prepared.evaluate(free)[COMBINED])
        return _log(total, self._measured)

    def jacobian(self, places: Sequence[float]) -> Array:
        """The derivative of ``residuals`` by each coordinate: one column a free parameter."""
        import numpy as np

        model = self.model
        if self._slopes is None:
            tape = slopes(model.formula)
            if tape is None:
                return self._differences(places)
            self._slopes = self._prepared(tape, [COMBINED, *(f"d_{name}" for name in model.names)])
        free = self._free(places)
        total = self._rest.copy()
        columns = np.zeros((len(model.coordinates), len(self.rows)))
        for index, prepared in self._slopes:
            found = prepared.evaluate(free)
            _add(total, index, found[COMBINED])
            for column, name in zip(columns, model.names, strict=True):
                _add(column, index, found[f"d_{name}"])
        factors = [math.exp(p) if c.log else 1.0 for c, p in zip(model.coordinates, places, strict=True)]
        with np.errstate(all="ignore"):
            columns *= np.array(factors)[:, None] / np.maximum(total, FLOOR)
        # a slope that is no number belongs to a corner (0 to a power, an unused branch): no direction, not an end
        columns[~np.isfinite(columns)] = 0.0
        return columns.T

    def _free(self, places: Sequence[float]) -> dict[str, float]:
        return {c.name: c.outside(float(p)) for c, p in zip(self.model.coordinates, places, strict=True)}

    def _differences(self, places: Sequence[float]) -> Array:
        import numpy as np

        here = self.residuals(places)
        columns = np.empty((len(here), len(places)))
        for column, c in enumerate(self.model.coordinates):
            moved = list(places)
            step = 1e-6 * c.scale * (1 if moved[column] + 1e-6 * c.scale <= c.upper else -1)
            moved[column] += step
            columns[:, column] = (self.residuals(moved) - here) / step
        return np.where(np.isfinite(columns), columns, 0.0)


def model_of(
    formula: Formula,
    slot: str,
    rows: int,
    fixed: Mapping[str, float] | None = None,
    held: Mapping[str, tuple[Formula, Mapping[str, float]]] | None = None,
    free: Iterable[str] | None = None,
) -> Model:
    """The model of ``formula`` for that many ``rows``; ``free``: the parameters to fit, by default all not ``fixed``.

    Errors: UserError for a name that is no parameter, or a fixed value outside the parameter's bounds.
    """
    known = {p.name: p for p in formula.parameters}
    given = dict(fixed or {})
    for name in (*given, *(free or ())):
        if name not in known:
            raise unknown(f"parameter of formula {formula.name!r}", name, known)
    for name, value in given.items():
        if not known[name].lower <= value <= known[name].upper:
            span = f"{known[name].lower:g} to {known[name].upper:g}"
            raise UserError(f"{name} of {formula.name} is held at {value:g}; its range is {span}")
    wanted = set(known) if free is None else set(free)
    coordinates = tuple(
        coordinate(p, rows < FEW)
        for p in formula.parameters
        if p.name in wanted and p.name not in given and p.lower < p.upper
    )
    return Model(formula, slot, coordinates, given, dict(held or {}))


def _add(total: Array, index: Any, value: Any) -> None:
    if index is None:
        total += value
    else:
        total[index] += value  # a part has each row once


def _log(predicted: Array, measured: Array) -> Array:
    import numpy as np

    with np.errstate(all="ignore"):
        found = np.log(np.maximum(predicted, FLOOR)) - measured
    # what is no number is as wrong as anything can be, and no reason to stop
    return np.where(np.isfinite(found), found, 50.0)


def residuals_of(model: Model, values: Mapping[str, float], rows: Rows) -> Array:
    """ln(predicted/measured) of rows for parameter values."""
    import numpy as np

    return _log(model.predict(values, rows), np.log(rows.seconds))
