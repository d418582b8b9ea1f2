"""The compiler: sympy expressions and nodes of a cost tree into one tape, shared parts computed once.

Floor: algebra, on top of tape and symbols. sympy objects come in as arguments; nothing here imports it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import PluginError, shown
from .symbols import UNIT_SYMBOLS
from .tape import Tape, apply

if TYPE_CHECKING:
    import sympy

_COMMUTATIVE = {"add", "mul", "max", "min", "or_max", "eq"}
_LARGEST_POWER = 16


def compile_expressions(roots: Mapping[str, sympy.Expr], order: Iterable[str] = ()) -> Tape:
    """One tape with an output for each of ``roots``; ``order`` as for Builder.

    >>> from slipstick.core.algebra.symbols import symbol
    >>> tape = compile_expressions({"tokens": symbol("batch") * symbol("sequence")})
    >>> tape.evaluate({"batch": 4, "sequence": 8192})
    {'tokens': 32768.0}
    """
    builder = Builder(order)
    for name, expr in roots.items():
        builder.output(name, builder.expr(expr))
    return builder.finish()


class Builder:
    """Collects instructions; the same operation on the same slots is one instruction.

    ``order`` names inputs from the one that changes least to the one that changes most. Sums and products are chained
    in that order, so that what depends on fixed inputs only is computed once for all points.

    >>> builder = Builder()
    >>> x, y = builder.input("x"), builder.input("y")
    >>> builder.output("z", builder.max([builder.add([x, y]), builder.mul(x, y), builder.add([y, x])]))
    >>> builder.finish().evaluate({"x": 2, "y": 3})
    {'z': 6.0}
    """

    def __init__(self, order: Iterable[str] = ()) -> None:
        self._nodes: list[tuple[Any, ...]] = []
        self._slots: dict[tuple[Any, ...], int] = {}
        self._ranks: list[int] = []
        self._order = {name: rank for rank, name in enumerate(order)}
        self._bound: dict[str, int] = {}
        self._seen: set[str] = set()
        self._memo: dict[Any, int] = {}
        self._outputs: dict[str, int] = {}

    # leaves

    def input(self, name: str) -> int:
        """The slot of the input ``name``; the bound slot where ``bind`` gave it one; 1 for a unit symbol."""
        self._seen.add(name)
        if name in self._bound:
            return self._bound[name]
        if name in UNIT_SYMBOLS:
            return self.constant(1.0)
        return self._node(("input", name), self._order.get(name, len(self._order)))

    def constant(self, value: float) -> int:
        """The slot of a number."""
        value = float(value)
        # the text keeps 0.0 and -0.0 apart, and NaN equal to itself
        return self._node(("constant", repr(value)), -1)

    def bind(self, name: str, slot: int) -> None:
        """From now on the symbol ``name`` in an expression stands for the value of ``slot``."""
        if name in self._seen:
            self._memo.clear()
        self._bound[name] = slot

    # operations

    def add(self, slots: Iterable[int]) -> int:
        """The sum; 0 of nothing."""
        return self._chain("add", slots, 0.0)

    def mul(self, *slots: int) -> int:
        """The product; 1 of nothing."""
        return self._chain("mul", slots, 1.0)

    def max(self, slots: Iterable[int]) -> int:
        """The greatest; minus infinity of nothing."""
        return self._chain("max", dict.fromkeys(slots), -math.inf)

    def min(self, slots: Iterable[int]) -> int:
        """The least; infinity of nothing."""
        return self._chain("min", dict.fromkeys(slots), math.inf)

    def sub(self, a: int, b: int) -> int:
        """a - b."""
        return self.op("sub", a, b)

    def div(self, a: int, b: int) -> int:
        """a / b."""
        return self.op("div", a, b)

    def where(self, condition: int, x: int, y: int) -> int:
        """x where ``condition`` is above zero, else y."""
        return self.op("where", condition, x, y)

    def pnorm(self, q: int, slots: Iterable[int]) -> int:
        """(sum of x^q)^(1/q) of non-negative x, scaled by the greatest so that nothing overflows."""
        terms = list(slots)
        if len(terms) == 1:
            return terms[0]
        largest = self.max(terms)
        if len(terms) == 2:
            # the greater one contributes 1: one power less, and an infinity stays an infinity
            least = self.min(terms)
            total = self.add([self.constant(1.0), self.power(self.op("div", least, largest), q)])
        else:
            total = self.add([self.power(self.op("div", term, largest), q) for term in terms])
        value = self.mul(largest, self.power(total, self.op("div", self.constant(1.0), q)))
        # all zero, or an infinity among three, gives 0/0: then the maximum is the answer; and rounding never takes
        # the norm below it
        return self.op("or_max", largest, value)

    def power(self, base: int, exponent: int) -> int:
        """base ** exponent; small whole and half constants become multiplications and a root."""
        value = self._value(exponent)
        if value is None or value != value or abs(value) > _LARGEST_POWER or value * 2 != int(value * 2):
            return self.op("pow", base, exponent)
        if value < 0:
            return self.op("div", self.constant(1.0), self.power(base, self.constant(-value)))
        if value != int(value):
            root = self.op("sqrt", base)
            return self.mul(root, self.power(base, self.constant(value - 0.5))) if value > 0.5 else root
        result, square, count = self.constant(1.0), base, int(value)
        while count:
            if count & 1:
                result = self.op("mul", result, square)
            count >>= 1
            if count:
                square = self.op("mul", square, square)
        return result

    def op(self, name: str, *slots: int) -> int:
        """The operation ``name`` of the table of tape on ``slots``; folded where all are constants."""
        values = [self._value(slot) for slot in slots]
        if all(value is not None for value in values):
            return self.constant(apply(name, [value for value in values if value is not None]))
        same = self._same(name, slots, values)
        if same is not None:
            return same
        if name in _COMMUTATIVE and (self._ranks[slots[0]], slots[0]) > (self._ranks[slots[1]], slots[1]):
            slots = (slots[1], slots[0])
        return self._node((name, *slots), max(self._ranks[slot] for slot in slots))

    # expressions and the end

    def expr(self, expr: sympy.Expr, local: Mapping[str, int] | None = None) -> int:
        """The slot of a sympy expression (or a number); ``local`` binds names to slots in this expression only.

        Raises PluginError for a function that is not in the table.
        """
        if isinstance(expr, (int, float)):
            return self.constant(expr)
        if not local:
            return self._visit(expr)
        bound, memo = self._bound, self._memo
        self._bound, self._memo = {**bound, **local}, {}
        try:
            return self._visit(expr)
        finally:
            self._bound, self._memo = bound, memo

    def inline(self, tape: Tape, local: Mapping[str, int]) -> dict[str, int]:
        """The instructions of a compiled formula once more, its inputs being the slots ``local``; its outputs' slots.

        The same as ``expr`` of what the formula was compiled from, without walking that again.
        """
        slots = [*(local[name] for name in tape.inputs), *map(self.constant, tape.constants)]
        for name, *args in tape.instructions:
            slots.append(self.op(name, *(slots[arg] for arg in args)))
        return {name: slots[slot] for name, slot in tape.outputs.items()}

    def output(self, name: str, slot: int) -> None:
        """Make ``slot`` the output ``name``."""
        if not 0 <= slot < len(self._nodes):
            raise PluginError(f"output {name!r}: no slot {slot}")
        self._outputs[name] = slot

    def finish(self) -> Tape:
        """The tape of all outputs, without what none of them needs."""
        live = bytearray(len(self._nodes))
        for slot in self._outputs.values():
            live[slot] = 1
        for slot in range(len(self._nodes) - 1, -1, -1):
            if live[slot] and self._nodes[slot][0] not in ("input", "constant"):
                for arg in self._nodes[slot][1:]:
                    live[arg] = 1
        kept = [slot for slot in range(len(self._nodes)) if live[slot]]
        inputs = [slot for slot in kept if self._nodes[slot][0] == "input"]
        inputs.sort(key=lambda slot: (self._ranks[slot], self._nodes[slot][1]))
        constants = [slot for slot in kept if self._nodes[slot][0] == "constant"]
        rest = [slot for slot in kept if self._nodes[slot][0] not in ("input", "constant")]
        number = {slot: position for position, slot in enumerate([*inputs, *constants, *rest])}
        return Tape(
            inputs=tuple(self._nodes[slot][1] for slot in inputs),
            constants=tuple(float(self._nodes[slot][1]) for slot in constants),
            instructions=tuple(
                (self._nodes[slot][0], *(number[arg] for arg in self._nodes[slot][1:])) for slot in rest
            ),
            outputs={name: number[slot] for name, slot in self._outputs.items()},
        )

    # inside

    def _node(self, node: tuple[Any, ...], rank: int) -> int:
        slot = self._slots.get(node)
        if slot is None:
            slot = self._slots[node] = len(self._nodes)
            self._nodes.append(node)
            self._ranks.append(rank)
        return slot

    def _value(self, slot: int) -> float | None:
        node = self._nodes[slot]
        return float(node[1]) if node[0] == "constant" else None

    def _chain(self, name: str, slots: Iterable[int], neutral: float) -> int:
        """A binary chain in canonical order, so that sums and products with a common beginning share it."""
        ordered = sorted(slots, key=lambda slot: (self._ranks[slot], slot))
        if not ordered:
            return self.constant(neutral)
        result = ordered[0]
        for slot in ordered[1:]:
            result = self.op(name, result, slot)
        return result

    def _same(self, name: str, slots: tuple[int, ...], values: list[float | None]) -> int | None:
        """The slot that the operation is equal to without computing anything, where there is one."""
        if name == "where":
            if slots[1] == slots[2]:
                return slots[1]
            return None if values[0] is None else slots[1] if values[0] > 0 else slots[2]
        if len(slots) == 1:
            return None
        (a, b), (x, y) = slots, values
        if name in ("max", "min", "or_max") and a == b:
            return a
        if name == "add":
            return b if x == 0 else a if y == 0 else None
        if name == "mul":
            if x == 1 or y == 0:
                return b
            return a if y == 1 or x == 0 else None
        if (name == "sub" and y == 0) or (name in ("div", "pow") and y == 1):
            return a
        return None

    def _visit(self, expr: Any) -> int:
        slot = self._memo.get(expr)
        if slot is None:
            slot = self._memo[expr] = self._compile(expr)
        return slot

    def _compile(self, expr: Any) -> int:
        if expr.is_Symbol:
            return self.input(expr.name)
        if expr.is_Add:
            return self._sum(expr)
        if expr.is_Mul:
            return self._product(expr)
        if expr.is_Pow:
            return self._raise(expr.base, expr.exp)
        function = _FUNCTIONS.get(type(expr).__name__)
        if function is not None:
            return function(self, [self._visit(arg) for arg in expr.args])
        try:
            return self.constant(float(expr))
        except TypeError:
            raise PluginError(
                f"cannot compile {type(expr).__name__} in {shown(expr, 80)}; "
                "use the functions of slipstick.core.algebra.functions"
            ) from None

    def _sum(self, expr: Any) -> int:
        plus: list[int] = []
        minus: list[int] = []
        for arg in expr.args:
            negative = arg.as_coeff_Mul()[0].is_negative
            (minus if negative else plus).append(self._visit(-arg if negative else arg))
        total = self.add(plus)
        return self.sub(total, self.add(minus)) if minus else total

    def _product(self, expr: Any) -> int:
        """Numerators over denominators with one division: x/3 stays exact where x*(1/3) would not."""
        above, below = [], []
        for factor in expr.args:
            if factor.is_Rational:
                above.append(self.constant(int(factor.p)))
                below.append(self.constant(int(factor.q)))
            elif factor.is_Pow and factor.exp.could_extract_minus_sign():
                below.append(self._raise(factor.base, -factor.exp))
            else:
                above.append(self._visit(factor))
        return self.op("div", self.mul(*above), self.mul(*below))

    def _raise(self, base: Any, exponent: Any) -> int:
        if exponent.could_extract_minus_sign():
            return self.op("div", self.constant(1.0), self._raise(base, -exponent))
        return self.power(self._visit(base), self._visit(exponent))


_FUNCTIONS: dict[str, Callable[[Builder, list[int]], int]] = {
    "fmax": lambda b, args: b.max(args),
    "Max": lambda b, args: b.max(args),
    "fmin": lambda b, args: b.min(args),
    "Min": lambda b, args: b.min(args),
    "cdiv": lambda b, args: b.op("ceil", b.op("div", *args)),
    "fdiv": lambda b, args: b.op("floor", b.op("div", *args)),
    "ceil_": lambda b, args: b.op("ceil", *args),
    "ceiling": lambda b, args: b.op("ceil", *args),
    "floor_": lambda b, args: b.op("floor", *args),
    "floor": lambda b, args: b.op("floor", *args),
    "pnorm": lambda b, args: b.pnorm(args[0], args[1:]),
    "where": lambda b, args: b.op("where", *args),
    "eq": lambda b, args: b.op("eq", *args),
    "le": lambda b, args: b.op("le", *args),
    "lt": lambda b, args: b.op("lt", *args),
    "log2": lambda b, args: b.op("log2", *args),
    "log": lambda b, args: b.op("log", *args),
    "exp_": lambda b, args: b.op("exp", *args),
    "exp": lambda b, args: b.op("exp", *args),
    "Abs": lambda b, args: b.op("abs", *args),
    # the slope of Abs
    "sign": lambda b, args: b.sub(b.op("lt", b.constant(0.0), *args), b.op("lt", *args, b.constant(0.0))),
}
