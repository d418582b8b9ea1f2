"""A formula as data: named inputs and parameters with units, a sympy expression built on demand, its source.

Floor: algebra. sympy is imported when a formula is first built, not when it is declared: plugins declare many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import Factory, evolve, field, frozen

from ..errors import PluginError, UserError, shown, unknown
from .dimension import DimensionError, check
from .functions import NAMES, functions
from .symbols import TABLE, UNIT_SYMBOLS
from .units import dimension_of_unit

if TYPE_CHECKING:
    import sympy

    from .tape import Tape

    Bindable: TypeAlias = "sympy.Expr | float | str"

COMBINED = "value"
"""The name of the combined expression among the outputs of ``Formula.tape``."""


@frozen
class Parameter:
    """A number of a formula that measurements can fit: ``default`` within [``lower``, ``upper``], in ``unit``."""

    name: str
    unit: str
    meaning: str
    default: float
    lower: float = 0.0
    upper: float = math.inf
    latex: str | None = None

    def __attrs_post_init__(self) -> None:
        if not self.lower <= self.default <= self.upper:
            raise PluginError(
                f"parameter {self.name!r}: the default {self.default:g} is outside {self.lower:g} to {self.upper:g}"
            )


@frozen(eq=False)
class Bound:
    """A formula with its inputs replaced: the combined expression, and its labelled terms where it has any."""

    expr: sympy.Expr
    terms: dict[str, sympy.Expr]


class Namespace:
    """What ``build`` of a formula is given: its inputs and parameters as symbols, the functions, the unit symbols."""

    def __init__(self, symbols: Mapping[str, sympy.Symbol]) -> None:
        self._symbols = symbols

    def __getattr__(self, name: str) -> Any:
        if name in self._symbols:
            return self._symbols[name]
        if name in NAMES:
            return getattr(functions(), name)
        if name in UNIT_SYMBOLS:
            return TABLE.symbol(name)
        raise AttributeError(f"the formula declares no input or parameter {name!r}")


@frozen(eq=False)
class Formula:
    """``build`` makes, from a namespace of symbols, an expression in ``unit``, or (combined, {label: expression}) with
    a term a resource ("compute", "memory", "latency", "link"), all in ``unit``.

    ``inputs``: name to unit. ``source``: where the formula is published or derived. ``validity``: when it holds.

    >>> roofline = Formula(
    ...     "roofline",
    ...     inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
    ...     parameters=(Parameter("launch", "s", "time of an empty kernel", 2e-6),),
    ...     build=lambda n: n.launch + n.fmax(n.flops / n.rate, n.bytes / n.bandwidth),
    ...     unit="s",
    ...     source="williams2009",
    ... )
    >>> roofline.check()
    >>> roofline.text()
    'roofline = launch + max(flops/rate, bytes/bandwidth)'
    >>> roofline.bind(flops=2e12, bytes=1e9, rate=1e15, bandwidth=1e12, launch=0).expr
    1/500
    """

    name: str
    inputs: dict[str, str]
    parameters: tuple[Parameter, ...]
    build: Callable[[Any], Any]
    unit: str
    source: str
    validity: str = ""
    _made: dict[str, Any] = field(default=Factory(dict), init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        names = [*self.inputs, *(parameter.name for parameter in self.parameters)]
        for name in names:
            if not name.isidentifier() or name in NAMES or name in UNIT_SYMBOLS or name.startswith("_"):
                raise PluginError(f"formula {self.name!r}: {name!r} cannot name an input or parameter")
            if names.count(name) > 1:
                raise PluginError(f"formula {self.name!r} declares {name!r} twice")
        for unit in (self.unit, *self.units.values()):
            try:
                dimension_of_unit(unit)
            except UserError as error:
                raise PluginError(f"formula {self.name!r}: {error}") from None

    @property
    def units(self) -> dict[str, str]:
        """Name to unit of every input and parameter."""
        return {**self.inputs, **{parameter.name: parameter.unit for parameter in self.parameters}}

    @property
    def symbols(self) -> dict[str, sympy.Symbol]:
        """Name to sympy symbol of every input and parameter; positive, and the formula's own."""
        if "symbols" not in self._made:
            import sympy

            self._made["symbols"] = {name: sympy.Symbol(name, positive=True) for name in self.units}
        symbols: dict[str, sympy.Symbol] = self._made["symbols"]
        return symbols

    @property
    def expr(self) -> sympy.Expr:
        """The combined expression."""
        return self._build().expr

    @property
    def terms(self) -> dict[str, sympy.Expr]:
        """The labelled terms; empty where ``build`` gives none."""
        return self._build().terms

    def bind(self, **values: Bindable) -> Bound:
        """The formula with every input replaced by an expression, a number or the symbol of a name.

        A parameter that is not given takes its default. Raises UserError for a missing or unknown name, or a number
        that is not one.
        """
        rule, built = self._rule(values), self._build()
        return Bound(built.expr.xreplace(rule), {label: term.xreplace(rule) for label, term in built.terms.items()})

    def bound_expr(self, **values: Bindable) -> sympy.Expr:
        """The combined expression of ``bind`` alone: its terms take as long again."""
        return self.expr.xreplace(self._rule(values))

    def _rule(self, values: Mapping[str, Bindable]) -> dict[sympy.Symbol, sympy.Expr]:
        known = self.units
        for name in values:
            if name not in known:
                raise unknown(f"input of formula {self.name!r}", name, known)
        absent = [name for name in self.inputs if name not in values]
        if absent:
            raise UserError(f"formula {self.name!r}: no value for {', '.join(absent)}")
        given = {parameter.name: parameter.default for parameter in self.parameters} | dict(values)
        return {self.symbols[name]: self._expression(name, value) for name, value in given.items()}

    def with_defaults(self, values: Mapping[str, float]) -> Formula:
        """The same formula with other defaults for some parameters, within their bounds; nothing is derived again."""
        parameters = tuple(
            evolve(p, default=min(max(float(values.get(p.name, p.default)), p.lower), p.upper)) for p in self.parameters
        )
        if parameters == self.parameters:
            return self
        made = evolve(self, parameters=parameters)
        made._made.update(self._made)
        return made

    def tape(self) -> Tape:
        """The formula compiled: inputs and parameters in, ``value`` and the terms out."""
        if "tape" not in self._made:
            from .compile import compile_expressions

            order = [*(parameter.name for parameter in self.parameters), *self.inputs]
            self._made["tape"] = compile_expressions({COMBINED: self.expr, **self.terms}, order)
        tape: Tape = self._made["tape"]
        return tape

    def check(self) -> None:
        """Raise DimensionError unless the expression and each of its terms come out in ``unit``."""
        if "checked" in self._made:  # a tree asks for every leaf
            return
        for label, expr in {"": self.expr, **self.terms}.items():
            try:
                check(expr, self.unit, self.units)
            except DimensionError as error:
                part = f", term {label!r}" if label else ""
                raise DimensionError(f"formula {self.name!r}{part}: {error}") from None
        self._made["checked"] = True

    def text(self) -> str:
        """The formula on one line, for a terminal."""
        if "text" not in self._made:  # a tree asks once for every leaf
            self._made["text"] = f"{self.name} = {self.expr}"
        text: str = self._made["text"]
        return text

    def latex(self) -> str:
        """The expression in LaTeX, with the symbols of the table where a name stands there."""
        import sympy

        own = {parameter.name: parameter.latex for parameter in self.parameters}
        names = {}
        for name, symbol in self.symbols.items():
            entry = TABLE.get(name)
            plain = name.replace("_", r"\_")
            names[symbol] = own.get(name) or (entry.latex if entry else rf"\mathrm{{{plain}}}")
        for name in UNIT_SYMBOLS:
            names[TABLE.symbol(name)] = TABLE.info(name).latex
        return str(sympy.latex(self.expr, symbol_names=names))

    def _build(self) -> Bound:
        if "built" not in self._made:
            import sympy

            result = self.build(Namespace(self.symbols))
            expr, terms = result if isinstance(result, tuple) else (result, {})
            built = Bound(sympy.sympify(expr, strict=True), dict(terms))
            strange = built.expr.free_symbols - set(self.symbols.values()) - set(map(TABLE.symbol, UNIT_SYMBOLS))
            if strange:
                told = ", ".join(sorted(map(str, strange)))
                raise PluginError(f"formula {self.name!r} uses {told}, which it does not declare as an input")
            if COMBINED in built.terms:
                raise PluginError(f"formula {self.name!r}: no term may be called {COMBINED!r}")
            self._made["built"] = Bound(
                built.expr, {label: sympy.sympify(term, strict=True) for label, term in built.terms.items()}
            )
        result_: Bound = self._made["built"]
        return result_

    def _expression(self, name: str, value: Any) -> sympy.Expr:
        import sympy

        if isinstance(value, str):
            # a name outside the table stays a plain symbol: the evaluator asks for its value by this name
            return TABLE.symbol(value) if TABLE.get(value) else sympy.Symbol(value, positive=True)
        if isinstance(value, sympy.Expr):
            return value
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if math.isnan(number):
            raise UserError(f"formula {self.name!r}: {name} is {shown(value)}; give a number, an expression or a name")
        if math.isinf(number):
            return sympy.oo if number > 0 else -sympy.oo
        # a whole number as an Integer: an exponent of 2 is then a multiplication
        return sympy.Integer(int(number)) if number == int(number) else sympy.Float(number)
