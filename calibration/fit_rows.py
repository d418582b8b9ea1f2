"""Measured rows as the fitter sees them: a time each, and the kernels whose times add up to it.

Floor: calibration. Uses numpy, inside functions, and the kernel family's parts as plain arrays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import evolve, field, frozen

from slipstick.core.errors import UserError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.float64]

_MIX = (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""Multipliers of the finaliser of splitmix64, which spreads every bit of its argument over all others."""


@frozen(eq=False)
class PartRows:
    """One kernel of the rows: ``inputs`` of the slot's formula, numbers or arrays over ``index``.

    ``index``: the rows that have this kernel, None for all of them.
    """

    slot: str
    inputs: Mapping[str, Array | float]
    index: npt.NDArray[np.intp] | None = None


@frozen(eq=False)
class Rows:
    """``seconds`` [s] of n measurements, ``parts`` whose times add up to each, ``shape``: what the trace says of it.

    ``shape`` is for people and for hold-outs; formulas see the inputs of the parts alone. ``counts``: measurements
    that a row stands for, after ``pooled``.
    """

    seconds: Array
    parts: tuple[PartRows, ...]
    shape: Mapping[str, Array] = field(factory=dict)
    kernel: str = ""
    counts: Array | None = None

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def measurements(self) -> int:
        """How many measurements the rows stand for."""
        return len(self) if self.counts is None else int(self.counts.sum())

    def take(self, chosen: npt.NDArray[Any]) -> Rows:
        """The rows at the positions ``chosen`` (or where the mask ``chosen`` holds), in that order."""
        import numpy as np

        positions = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        place = np.full(len(self), -1, dtype=np.intp)
        place[positions] = np.arange(len(positions))
        parts = []
        for part in self.parts:
            if part.index is None:
                inputs = {name: _at(value, positions) for name, value in part.inputs.items()}
                parts.append(evolve(part, inputs=inputs))
                continue
            kept = np.flatnonzero(place[part.index] >= 0)
            # in the order of the new rows, so that equal rows make equal sums
            kept = kept[np.argsort(place[part.index[kept]], kind="stable")]
            inputs = {name: _at(value, kept) for name, value in part.inputs.items()}
            parts.append(evolve(part, inputs=inputs, index=place[part.index[kept]]))
        return evolve(
            self,
            seconds=self.seconds[positions],
            parts=tuple(parts),
            shape={name: values[positions] for name, values in self.shape.items()},
            counts=None if self.counts is None else self.counts[positions],
        )

    def hash(self, seed: int = 0, names: Iterable[str] | None = None) -> npt.NDArray[np.uint64]:
        """A number of 64 random-looking bits for each row, equal for equal shapes (in ``names``, or in all)."""
        import numpy as np

        mask = (1 << 64) - 1
        total = np.full(len(self), (0x9E3779B97F4A7C15 * (seed + 1)) & mask, dtype=np.uint64)
        for name in sorted(self.shape if names is None else names):
            column = np.ascontiguousarray(self.shape[name], dtype=np.float64) + 0.0  # -0.0 becomes 0.0
            total = _mixed(total ^ _mixed(column.view(np.uint64) + np.uint64(sum(map(ord, name)))))
        return _mixed(total)

    def pooled(self) -> Rows:
        """Rows of one shape as one row: the median of their times."""
        import numpy as np

        if not len(self) or not self.shape:
            return self
        _, first, inverse, counts = np.unique(self.hash(), return_index=True, return_inverse=True, return_counts=True)
        if len(first) == len(self):
            return self
        order = np.argsort(inverse, kind="stable")
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        medians = np.array([np.median(self.seconds[order[s : s + c]]) for s, c in zip(starts, counts, strict=True)])
        ranks = np.argsort(first, kind="stable")  # the order of the trace
        pooled = self.take(first[ranks])
        return evolve(pooled, seconds=medians[ranks], counts=counts[ranks].astype(np.float64))

    def text(self, position: int) -> str:
        """The shape of one row, for a person: ``m 16, n 4096, k 4096``."""
        return ", ".join(f"{name} {values[position]:g}" for name, values in self.shape.items())


def joined(several: Iterable[Rows]) -> Rows:
    """The rows of ``several``, one after the other. Errors: UserError where there are none."""
    import numpy as np

    pieces = [rows for rows in several if len(rows)]
    if not pieces:
        raise UserError("no measured row to fit; the trace holds none that slipstick has a formula for")
    if len(pieces) == 1:
        return pieces[0]
    names = list(dict.fromkeys(name for rows in pieces for name in rows.shape))
    parts = []
    start = 0
    for rows in pieces:
        whole = np.arange(start, start + len(rows))
        for part in rows.parts:
            parts.append(evolve(part, index=whole if part.index is None else part.index + start))
        start += len(rows)
    counted = any(rows.counts is not None for rows in pieces)
    return Rows(
        np.concatenate([rows.seconds for rows in pieces]),
        tuple(parts),
        {name: np.concatenate([rows.shape.get(name, np.zeros(len(rows))) for rows in pieces]) for name in names},
        pieces[0].kernel,
        np.concatenate([np.ones(len(r)) if r.counts is None else r.counts for r in pieces]) if counted else None,
    )


def chosen(rows: Rows, most: int, seed: int, strata: npt.NDArray[Any] | None = None) -> npt.NDArray[np.intp]:
    """Positions of at most ``most`` rows to fit: half of them at random, half spread over the ``strata``.

    Tables hold many times more small shapes than large ones; a fit to a plain sample would hardly see the rest.
    """
    import numpy as np

    n = len(rows)
    if n <= most:
        return np.arange(n)
    order = np.lexsort((np.arange(n), rows.hash(seed)))  # equal shapes keep the order of the trace
    if strata is None:
        return np.sort(order[:most])
    first, rest = order[: most // 2], order[most // 2 :]
    _, which, counts = np.unique(strata[rest], return_inverse=True, return_counts=True)
    quota = _filled(counts, most - len(first))
    place = np.empty(len(rest), dtype=np.intp)  # position of each row within its stratum
    by_stratum = np.argsort(which, kind="stable")
    starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
    place[by_stratum] = np.arange(len(rest)) - np.repeat(starts, counts)
    return np.sort(np.concatenate((first, rest[place < quota[which]])))


def _filled(counts: npt.NDArray[Any], total: int) -> npt.NDArray[Any]:
    """How many of each stratum make ``total``: as many of each, the small ones whole."""
    import numpy as np

    low, high = 0, int(counts.max())
    while low < high:
        level = (low + high + 1) // 2
        if int(np.minimum(counts, level).sum()) <= total:
            low = level
        else:
            high = level - 1
    filled: npt.NDArray[Any] = np.minimum(counts, low)
    return filled


def _at(value: Array | float, positions: npt.NDArray[Any]) -> Array | float:
    return value[positions] if getattr(value, "ndim", 0) else value  # type: ignore[index]  # a float has no ndim


def _mixed(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    import numpy as np

    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX[0])
    values = (values ^ (values >> np.uint64(27))) * np.uint64(_MIX[1])
    return values ^ (values >> np.uint64(31))
