"""Dimensional analysis: the dimension of a sympy expression, from the units of its symbols.

Floor: algebra, on top of units and symbols. sympy objects come in as arguments; nothing here imports it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import UserError, shown
from .symbols import TABLE
from .units import Dimension, dimension_of_unit

if TYPE_CHECKING:
    import sympy

_ONE = Dimension()


class DimensionError(UserError):
    """A formula adds, compares or raises quantities in a way that their units forbid."""


def dimension(expr: sympy.Expr, units: Mapping[str, str] | None = None) -> Dimension:
    """The dimension of ``expr``; ``units`` gives those of names that the symbol table lacks or that mean another thing.

    0 and infinity have every dimension; other numbers have none. Raises DimensionError naming the part at fault.

    >>> from slipstick.core.algebra.symbols import symbol
    >>> dimension(symbol("weight_width") * symbol("hidden") ** 2 / symbol("hbm_bandwidth"))
    Dimension('s')
    >>> dimension(symbol("launch") + symbol("weight_width"))
    Traceback (most recent call last):
    ...
    slipstick.core.algebra.dimension.DimensionError: in 'launch + weight_width': launch is in s, weight_width in B
    """
    found = _Analysis(units or {}).visit(expr)
    return _ONE if found is None else found


def check(expr: sympy.Expr, unit: str, units: Mapping[str, str] | None = None) -> None:
    """Raise DimensionError unless ``expr`` has the dimension of ``unit``."""
    found, wanted = _Analysis(units or {}).visit(expr), dimension_of_unit(unit)
    if found is not None and found != wanted:
        raise DimensionError(f"{shown(expr)} is in {found}, not in {wanted}")


class _Analysis:
    """One pass over a tree. None stands for a number that has every dimension (0, infinity)."""

    def __init__(self, units: Mapping[str, str]) -> None:
        self.units = units
        self.memo: dict[Any, Dimension | None] = {}

    def visit(self, expr: Any) -> Dimension | None:
        if isinstance(expr, (int, float)):
            return None if expr == 0 or abs(expr) == float("inf") else _ONE
        if expr not in self.memo:
            self.memo[expr] = self._of(expr)
        return self.memo[expr]

    def _of(self, expr: Any) -> Dimension | None:
        if expr.is_Symbol:
            unit = self.units.get(expr.name)
            return dimension_of_unit(TABLE.info(expr.name).unit if unit is None else unit)
        if expr.is_number and not expr.args:
            return None if expr.is_zero or expr.is_finite is False else _ONE
        if expr.is_Add:
            return self._alike(expr, expr.args)
        if expr.is_Mul:
            return self._product(expr)
        if expr.is_Pow:
            return self._power(expr)
        rule = _RULES.get(type(expr).__name__)
        if rule is None:
            raise DimensionError(f"no rule for the dimension of {type(expr).__name__} in {shown(expr)}")
        return rule(self, expr)

    def _alike(self, expr: Any, parts: Iterable[Any]) -> Dimension | None:
        first: tuple[Any, Dimension] | None = None
        for part in parts:
            found = self.visit(part)
            if found is None:
                continue
            if first is None:
                first = part, found
            elif found != first[1]:
                raise DimensionError(f"in {shown(expr)}: {_cut(first[0])} is in {first[1]}, {_cut(part)} in {found}")
        return first[1] if first else None

    def _product(self, expr: Any) -> Dimension | None:
        total, every = _ONE, False
        for part in expr.args:
            found = self.visit(part)
            every = every or found is None
            total = total if found is None else total * found
        return None if every else total

    def _power(self, expr: Any) -> Dimension | None:
        base, exponent = self.visit(expr.base), expr.exp
        self._plain(expr, exponent)
        if base is None or not base:
            return base
        from fractions import Fraction  # 4 ms, and only an analysis needs it

        if exponent.is_Rational:
            return base ** Fraction(int(exponent.p), int(exponent.q))
        if exponent.is_Float:
            return base ** Fraction(float(exponent)).limit_denominator(1000)
        raise DimensionError(
            f"in {shown(expr)}: {_cut(expr.base)} is in {base}; only a number may be raised to a symbol"
        )

    def _plain(self, expr: Any, *parts: Any) -> None:
        for part in parts:
            found = self.visit(part)
            if found:
                raise DimensionError(f"in {shown(expr)}: {_cut(part)} is in {found}, not a plain number")

    def _of_plain(self, expr: Any) -> Dimension | None:
        self._plain(expr, *expr.args)
        return _ONE

    def _compared(self, expr: Any) -> Dimension | None:
        self._alike(expr, expr.args)
        return _ONE

    def _norm(self, expr: Any) -> Dimension | None:
        self._plain(expr, expr.args[0])
        return self._alike(expr, expr.args[1:])

    def _choice(self, expr: Any) -> Dimension | None:
        self.visit(expr.args[0])
        return self._alike(expr, expr.args[1:])

    def _same(self, expr: Any) -> Dimension | None:
        return self._alike(expr, expr.args)


# A quotient is rounded to a whole number of something, so both parts are measured in the same unit.
_RULES: dict[str, Callable[[_Analysis, Any], Dimension | None]] = {
    **dict.fromkeys(("fmax", "fmin", "Max", "Min", "Abs"), _Analysis._same),
    **dict.fromkeys(("cdiv", "fdiv", "eq", "le", "lt", "sign"), _Analysis._compared),
    **dict.fromkeys(("ceil_", "floor_", "ceiling", "floor", "log", "log2", "exp_", "exp"), _Analysis._of_plain),
    "pnorm": _Analysis._norm,
    "where": _Analysis._choice,
}


def _cut(expr: object) -> str:
    text = str(expr)
    return text if len(text) <= 60 else text[:60] + "…"
