"""How many (query, context) pairs attention computes: exact closed forms for causal, sliding and chunked windows.

Floor: model. Works on numbers and on symbols alike (``fmin`` and ``fdiv`` fall back to exact integers).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..algebra.functions import functions

if TYPE_CHECKING:
    from sympy import Expr


def attention_pairs(
    query: Expr, context: Expr, causal: bool, window: Expr | None = None, chunked: bool = False
) -> Expr:
    """Pairs that the last ``query`` of ``context`` tokens attend to.

    Causal: token j sees min(j + 1, window) tokens; the sum over the last q tokens is S(c) − S(c − q) with
    S(n) = m(m + 1)/2 + (n − m)·w, m = min(n, w). A chunked window starts anew every w tokens. Without ``causal``
    every query sees the context (at most ``window`` tokens of it).
    """
    f = functions()
    if not causal:
        return query * (context if window is None else f.fmin(context, window))
    if window is None:
        return query * context - query * (query - 1) / 2
    reach = _chunked if chunked else _sliding
    return reach(context, window) - reach(context - query, window)


def _sliding(tokens: Expr, window: Expr) -> Expr:
    m = functions().fmin(tokens, window)
    return m * (m + 1) / 2 + (tokens - m) * window


def _chunked(tokens: Expr, window: Expr) -> Expr:
    full = functions().fdiv(tokens, window)
    rest = tokens - full * window
    return full * window * (window + 1) / 2 + rest * (rest + 1) / 2
