"""Functions that the formulas of the measured kernel family share: hinges in the logarithm of a size, corrections.

Plugin. What is given and returned are sympy expressions of a formula's namespace; nothing here imports sympy.
"""

from __future__ import annotations

from typing import Any

MOST = 0.7
"""The largest correction of the logarithm of a time: whatever the sizes, a factor of two."""


def kept(n: Any, value: Any) -> Any:
    """A value that is never below 0, opaque to the algebra: computed once wherever it stands, not multiplied out."""
    return n.fmax(value, 0)


def stays(n: Any, amount: Any, room: Any) -> Any:
    """The part of ``amount`` that is still in a cache with ``room`` for it: all up to there, none at its double."""
    return n.fmin(n.fmax(2 - amount / room, 0), 1)


def rise(n: Any, octave: Any, start: float, octaves: float = 4.0, most: float = 2.0) -> Any:
    """As ``hinge``, of a size whose logarithm to base 2 is at hand."""
    return n.fmin(n.fmax((octave - start) / octaves, 0), most)


def hinge(n: Any, size: Any, start: float, octaves: float = 4.0, most: float = 2.0) -> Any:
    """How far ``size`` lies beyond 2^``start``, in steps of ``octaves`` doublings: 0 below, at most ``most``."""
    return rise(n, n.log2(size), start, octaves, most)


def bends(n: Any, *features: Any, first: int = 1) -> Any:
    """Σ bend_i · feature_i, counted from ``first``."""
    return sum(getattr(n, f"bend_{number}") * feature for number, feature in enumerate(features, start=first))


def corrected(n: Any, total: Any) -> Any:
    """The factor exp(``total``), never beyond a factor of two."""
    return n.exp_(n.fmin(n.fmax(total, -MOST), MOST))


def labelled(factor: Any, whole: Any, **terms: Any) -> Any:
    """A formula's value and terms, all multiplied by its correction."""
    return whole * factor, {name: term * factor for name, term in terms.items()}
