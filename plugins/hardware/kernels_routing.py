"""How many experts and rows the busiest rank gets when tokens are routed evenly or by a power law.

Plugin. numpy inside functions. A benchmark of routed experts draws the load of each expert and measures the rank with
the largest one; what the kernel sees are its experts with any token and its rows, whose means are computed here.

Source: the distributions of AIConfigurator's collector (ai-dynamo/aiconfigurator, collector/: ``balanced`` and
``power_law_<alpha>``): loads by inverse transform between 1 and 0.8 times the tokens, or between 0.01 and 2 where there
are fewer choices than experts; rounded, with the rest settled on the busiest ones; the busiest rank is measured.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]

DRAWS = 24
"""Draws whose mean is taken; each takes one load from every equal part of the distribution."""


def exponent(distribution: str) -> float | None:
    """The exponent of a distribution's name, 0 for an even one, None for an unknown one.

    >>> exponent("power_law_1.2"), exponent("balanced"), exponent("zipf")
    (1.2, 0.0, None)
    """
    if distribution in ("", "balanced", "uniform"):
        return 0.0
    kind, _, number = distribution.rpartition("_")
    try:
        return float(number) if kind == "power_law" else None
    except ValueError:
        return None


def busiest(tokens: Any, top_k: Any, experts: Any, ranks: Any, alpha: float) -> tuple[Any, Any]:
    """Experts with any token, and rows, of the busiest rank: means over draws. Numbers, or arrays of one length.

    >>> busiest(1024, 8, 256, 8, 0.0)
    (32.0, 1024.0)
    """
    import numpy as np

    columns = np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in (tokens, top_k, experts, ranks)))
    flat = np.stack([column.ravel() for column in columns], axis=1)
    kinds, where = np.unique(flat, axis=0, return_inverse=True)
    found = np.array([_one(*(max(int(v), 1) for v in kind), alpha) for kind in kinds]).reshape(-1, 2)
    active, rows = (found[where.ravel(), i].reshape(columns[0].shape) for i in (0, 1))
    return (active, rows) if active.ndim else (float(active), float(rows))


@lru_cache(maxsize=8192)
def _one(tokens: int, top_k: int, experts: int, ranks: int, alpha: float) -> tuple[float, float]:
    import numpy as np

    chosen, ranks = tokens * top_k, min(ranks, experts)
    here = experts // ranks
    if not alpha:
        rows = max(chosen / ranks, 1.0)
        return float(min(np.ceil(rows), here) if chosen < experts else here), rows
    loads = _rounded(_drawn(tokens, chosen, experts, alpha), tokens, chosen, experts // max(top_k, 1))
    groups = loads[:, : here * ranks].reshape(DRAWS, ranks, here)
    busy = groups[np.arange(DRAWS), groups.sum(axis=2).argmax(axis=1)]
    return max(float((busy > 0).sum(axis=1).mean()), 1.0), max(float(busy.sum(axis=1).mean()), 1.0)


def _drawn(tokens: int, chosen: int, experts: int, alpha: float) -> Array:
    """Loads of all experts, one row a draw, that add up to the choices made."""
    import numpy as np

    random = np.random.default_rng(0)
    least, most = (1.0, max(0.8 * tokens, 1.0)) if chosen > experts else (0.01, 2.0)
    parts = random.permuted(np.tile(np.arange(experts), (DRAWS, 1)), axis=1)
    places = (parts + random.random((DRAWS, experts))) / experts
    power = 1.0 - alpha
    if abs(power) < 1e-9:
        loads = least * (most / least) ** places
    else:
        loads = ((most**power - least**power) * places + least**power) ** (1.0 / power)
    drawn: Array = loads / loads.sum(axis=1, keepdims=True) * chosen
    return drawn


def _rounded(loads: Array, tokens: int, chosen: int, stride: int) -> Array:
    """Whole loads with the sum kept: what rounding leaves goes to the busiest or comes from the idlest."""
    import numpy as np

    whole = np.rint(loads)
    experts = whole.shape[1]
    spread = np.argsort(np.argsort(np.arange(experts) % max(stride, 1), kind="stable"))  # ties lie far apart
    for row in whole:
        order = np.lexsort((spread, -row))
        rest = int(chosen - row.sum())
        if rest > 0:
            np.add.at(row, order[np.arange(rest) % experts], 1.0)
        taken = 0
        while rest + taken < 0:
            for expert in order[::-1]:
                if rest + taken < 0 and row[expert] > 0:
                    row[expert] -= 1.0
                    taken += 1
    return np.minimum(whole, float(tokens))
