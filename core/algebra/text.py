"""Expressions as text, fast: one printer for a whole build remembers every part it has printed.

Floor: algebra. Imports sympy on first use. The formulas of one tree share most of their parts; sympy's own ``str``
sorts and prints each of them again every time, which took most of the time of a build.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sympy import Expr


def text_printer() -> Callable[[Expr], str]:
    """A function from expressions to text (terms in sympy's stored order), with a memory of its own.

    >>> from slipstick.core.algebra.symbols import symbol
    >>> text_printer()(2 * symbol("hidden") / symbol("tp"))
    '2*hidden/tp'
    """
    from sympy.printing.str import StrPrinter

    class Remembering(StrPrinter):  # type: ignore[misc]  # sympy ships no type information
        def __init__(self) -> None:
            super().__init__({"order": "none"})
            self.remembered: dict[object, str] = {}

        def _print(self, expr: object, **kwargs: object) -> str:
            if kwargs or getattr(expr, "args", None) in (None, ()):
                return str(super()._print(expr, **kwargs))
            found = self.remembered.get(expr)
            if found is None:
                found = self.remembered[expr] = str(super()._print(expr))
            return found

    printer = Remembering()

    def text(expr: Expr) -> str:
        return expr.__str__() if isinstance(expr, (int, float)) else printer.doprint(expr)

    return text
