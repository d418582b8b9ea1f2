"""The functions a formula may use: opaque to sympy, with derivatives, evaluated as soon as all arguments are numbers.

Floor: algebra. sympy is imported by the first call of ``functions``, never by importing this file.

``fmax fmin`` (any number of arguments), ``cdiv fdiv`` (quotient rounded up or down), ``ceil_ floor_``, ``pnorm``
(order first), ``where(c, x, y)`` (x where c > 0), ``eq le lt`` (1 or 0), ``log2 exp_``; and sympy's ``exp log sqrt``.
"""

from __future__ import annotations

from types import ModuleType

NAMES = (
    "fmax", "fmin", "cdiv", "fdiv", "ceil_", "floor_", "pnorm", "where", "eq", "le", "lt", "log2",
    "exp_", "exp", "log", "sqrt",
)  # fmt: skip
"""Every function that a formula may use, by name."""


def functions() -> ModuleType:
    """The module whose attributes are the functions of NAMES.

    >>> f = functions()
    >>> f.cdiv(7, 2), f.fmax(1, 3, 2), f.pnorm(2, 3, 4)
    (4, 3, 5)
    """
    from . import _sympy_functions

    return _sympy_functions
