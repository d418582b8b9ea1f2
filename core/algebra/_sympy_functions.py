"""The function classes behind ``functions``. Floor: algebra; imports sympy, so only ``functions`` imports this file.

sympy's own Max and Min compare their arguments pairwise at construction, which is slow (seconds for 16 branches) and
differentiate into Heaviside; ceiling differentiates into a Subs that no printer knows. These classes stay opaque:
they look at an argument only when all arguments are numbers, flatten nested calls of their own kind, and differentiate
into one another. A rounded quotient differentiates like the quotient, so that slopes and fits see its trend.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sympy import Expr, Float, Function, Integer, Rational, S, exp, log, sqrt
from sympy import ceiling as _ceiling
from sympy import floor as _floor
from sympy.core.function import ArgumentIndexError

__all__ = [
    "cdiv",
    "ceil_",
    "eq",
    "exp",
    "exp_",
    "fdiv",
    "floor_",
    "fmax",
    "fmin",
    "le",
    "log",
    "log2",
    "lt",
    "pnorm",
    "sqrt",
    "where",
]  # fmt: skip


def _numbers(args: Iterable[Expr]) -> bool:
    return all(arg.is_Number for arg in args)


class _Opaque(Function):  # type: ignore[misc]  # sympy ships no type information
    """What all the functions share: printing as ``shown(...)``, numeric evaluation, a real value."""

    shown = ""
    is_extended_real = True

    def _sympystr(self, printer: Any) -> str:
        return f"{self.shown}({', '.join(printer._print(arg) for arg in self.args)})"

    def _latex(self, printer: Any, exp: str | None = None) -> str:
        return _raised(self._tex([printer._print(arg) for arg in self.args]), exp)

    def _tex(self, args: list[str]) -> str:
        return rf"\operatorname{{{self.shown}}}\left({', '.join(args)}\right)"

    def _eval_evalf(self, prec: int) -> Expr:
        return self.func(*[arg._evalf(prec) for arg in self.args])


def _raised(text: str, exp: str | None) -> str:
    return text if exp is None else rf"\left({text}\right)^{{{exp}}}"


class _Extreme(_Opaque):
    """Greatest or least of the arguments: nested calls are flattened, equal arguments count once."""

    @classmethod
    def eval(cls, *args: Expr) -> Expr | None:
        flat: dict[Expr, None] = {}
        for arg in args:
            flat.update(dict.fromkeys(arg.args if isinstance(arg, cls) else (arg,)))
        if not flat:
            raise TypeError(f"{cls.__name__} needs at least one argument")
        if len(flat) == 1:
            return next(iter(flat))
        if S.NaN in flat:
            return S.NaN
        if _numbers(flat):
            best, *others = flat
            for other in others:
                if cls._better(other, best):
                    best = other
            return best
        return cls(*flat) if tuple(flat) != args else None

    @staticmethod
    def _better(one: Expr, other: Expr) -> bool:
        raise NotImplementedError

    def fdiff(self, argindex: int = 1) -> Expr:
        own = self.args[argindex - 1]
        # ties share the slope evenly, so that a maximum of equals moves with each of them
        return eq(own, self) / sum(eq(arg, self) for arg in self.args)

    def _tex(self, args: list[str]) -> str:
        return rf"\{self.shown}\left({', '.join(args)}\right)"


class fmax(_Extreme):
    """Greatest of the arguments."""

    shown = "max"

    @staticmethod
    def _better(one: Expr, other: Expr) -> bool:
        return bool(one > other)

    def _eval_is_positive(self) -> bool | None:
        return True if any(arg.is_positive for arg in self.args) else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if any(arg.is_nonnegative for arg in self.args) else None


class fmin(_Extreme):
    """Least of the arguments."""

    shown = "min"

    @staticmethod
    def _better(one: Expr, other: Expr) -> bool:
        return bool(one < other)

    def _eval_is_positive(self) -> bool | None:
        return True if all(arg.is_positive for arg in self.args) else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if all(arg.is_nonnegative for arg in self.args) else None


class _Quotient(_Opaque):
    """a/b rounded to a whole number; differentiates like a/b."""

    nargs = (2,)

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if _numbers((a, b)):
            if b.is_zero:
                return S.NaN if a.is_zero else a * S.Infinity
            return cls._round(a / b)
        return None

    @staticmethod
    def _round(value: Expr) -> Expr:
        raise NotImplementedError

    def fdiff(self, argindex: int = 1) -> Expr:
        a, b = self.args
        if argindex == 1:
            return 1 / b
        if argindex == 2:
            return -a / b**2
        raise ArgumentIndexError(self, argindex)

    def _sympystr(self, printer: Any) -> str:
        a, b = (printer.parenthesize(arg, 50) for arg in self.args)
        return f"{self.shown}({a}/{b})"

    def _tex(self, args: list[str]) -> str:
        return rf"\left\l{self.shown} \frac{{{args[0]}}}{{{args[1]}}} \right\r{self.shown}"


class cdiv(_Quotient):
    """a/b rounded up."""

    shown = "ceil"

    @staticmethod
    def _round(value: Expr) -> Expr:
        return _ceiling(value)

    def _eval_is_positive(self) -> bool | None:
        return True if all(arg.is_positive for arg in self.args) else None


class fdiv(_Quotient):
    """a/b rounded down."""

    shown = "floor"

    @staticmethod
    def _round(value: Expr) -> Expr:
        return _floor(value)

    def _eval_is_nonnegative(self) -> bool | None:
        return True if self.args[0].is_nonnegative and self.args[1].is_positive else None


class _Rounded(_Opaque):
    """A number rounded to a whole one; differentiates like the number."""

    nargs = (1,)

    def fdiff(self, argindex: int = 1) -> Expr:
        return S.One

    def _tex(self, args: list[str]) -> str:
        return rf"\left\l{self.shown} {args[0]} \right\r{self.shown}"


class ceil_(_Rounded):
    """The least whole number that is not below the argument."""

    shown = "ceil"

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        return _ceiling(x) if x.is_Number else x if isinstance(x, (_Rounded, _Quotient)) else None

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[0].is_positive else None


class floor_(_Rounded):
    """The greatest whole number that is not above the argument."""

    shown = "floor"

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        return _floor(x) if x.is_Number else x if isinstance(x, (_Rounded, _Quotient)) else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if self.args[0].is_nonnegative else None


class pnorm(_Opaque):
    """(sum of x^q)^(1/q) over the arguments after the order q: a smooth maximum of non-negative numbers."""

    shown = "pnorm"

    @classmethod
    def eval(cls, q: Expr, *terms: Expr) -> Expr | None:
        if not terms:
            raise TypeError("pnorm needs an order and at least one argument")
        if len(terms) == 1:
            return terms[0]
        if q is S.Infinity:
            return fmax(*terms)
        if _numbers((q, *terms)):
            largest = fmax(*terms)
            if largest.is_zero or largest is S.Infinity:
                return largest
            value = largest * sum((term / largest) ** q for term in terms) ** (1 / q)
            # exact where it comes out rational (3, 4 -> 5); a radical would only slow everything that follows
            return value if value.is_Number else value.evalf()
        return None

    def fdiff(self, argindex: int = 1) -> Expr:
        q, *terms = self.args
        if argindex == 1:
            # d/dq = pnorm/q * sum of w log(x/pnorm), w = (x/pnorm)^q; a zero term has the limit 0
            parts = [where(term, (term / self) ** q * log(term / self), 0) for term in terms]
            return self / q * sum(parts)
        return (self.args[argindex - 1] / self) ** (q - 1)

    def _eval_is_positive(self) -> bool | None:
        terms = self.args[1:]
        known = all(term.is_nonnegative for term in terms) and any(term.is_positive for term in terms)
        return True if known else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if all(term.is_nonnegative for term in self.args[1:]) else None

    def _tex(self, args: list[str]) -> str:
        inside = " + ".join(rf"\left({arg}\right)^{{{args[0]}}}" for arg in args[1:])
        return rf"\left({inside}\right)^{{1/{args[0]}}}"


class where(_Opaque):
    """The second argument where the first is above zero, else the third."""

    shown = "where"
    nargs = (3,)

    @classmethod
    def eval(cls, condition: Expr, x: Expr, y: Expr) -> Expr | None:
        if condition.is_Number:
            return x if condition > 0 else y
        return x if x == y else None

    def fdiff(self, argindex: int = 1) -> Expr:
        if argindex == 1:
            return S.Zero
        return where(self.args[0], *((1, 0) if argindex == 2 else (0, 1)))

    def _eval_is_positive(self) -> bool | None:
        return True if self.args[1].is_positive and self.args[2].is_positive else None

    def _eval_is_nonnegative(self) -> bool | None:
        return True if self.args[1].is_nonnegative and self.args[2].is_nonnegative else None

    def _tex(self, args: list[str]) -> str:
        return rf"\begin{{cases}}{args[1]} & {args[0]} > 0\\{args[2]} & \text{{otherwise}}\end{{cases}}"


class _Relation(_Opaque):
    """1 where the relation holds, else 0; its slope is 0."""

    nargs = (2,)
    is_nonnegative = True
    sign = ""
    of_equals = S.One

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if a == b:
            return cls.of_equals
        if _numbers((a, b)):
            return Integer(int(cls._holds(a, b)))
        return None

    @staticmethod
    def _holds(a: Expr, b: Expr) -> bool:
        raise NotImplementedError

    def fdiff(self, argindex: int = 1) -> Expr:
        return S.Zero

    def _tex(self, args: list[str]) -> str:
        return rf"\left[{args[0]} {self.sign} {args[1]}\right]"


class eq(_Relation):
    """1 where both arguments are equal, else 0."""

    shown, sign = "eq", "="

    @staticmethod
    def _holds(a: Expr, b: Expr) -> bool:
        # == of sympy numbers is structural: 1 and 1.0 differ
        return bool((a - b).is_zero)


class le(_Relation):
    """1 where the first argument is at most the second, else 0."""

    shown, sign = "le", r"\le"

    @staticmethod
    def _holds(a: Expr, b: Expr) -> bool:
        return bool(a <= b)


class lt(_Relation):
    """1 where the first argument is below the second, else 0."""

    shown, sign = "lt", "<"
    of_equals = S.Zero

    @staticmethod
    def _holds(a: Expr, b: Expr) -> bool:
        return bool(a < b)


class exp_(_Opaque):
    """The exponential, unsimplified: sympy's own asks for the sign of its argument, however long that is."""

    shown = "exp"
    nargs = (1,)
    is_positive = True

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        return exp(x) if x.is_Number else None

    def fdiff(self, argindex: int = 1) -> Expr:
        return self

    def _tex(self, args: list[str]) -> str:
        return rf"e^{{{args[0]}}}"


class log2(_Opaque):
    """Logarithm to base 2."""

    shown = "log2"
    nargs = (1,)

    @classmethod
    def eval(cls, x: Expr) -> Expr | None:
        if isinstance(x, Float):
            return log(x) / log(Integer(2))._evalf(x._prec)
        if isinstance(x, Rational):
            top, bottom = int(x.p), int(x.q)
            if top > 0 and top & (top - 1) == 0 and bottom & (bottom - 1) == 0:
                return Integer(top.bit_length() - bottom.bit_length())
        return log(x) / log(Integer(2)) if x.is_Number else None

    def fdiff(self, argindex: int = 1) -> Expr:
        return 1 / (self.args[0] * log(Integer(2)))

    def _tex(self, args: list[str]) -> str:
        return rf"\log_2\left({args[0]}\right)"
