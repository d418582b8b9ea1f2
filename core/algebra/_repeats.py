"""What repeats among scattered points is computed once. Floor: algebra; imports numpy, so only ``_vector`` imports it.

A million settings of a sweep take few values each: four tensor degrees, sixteen micro batches, 256 lengths. What
depends on those three alone has 16,384 values, not a million. Such instructions are computed on the grid of the
different values of their inputs, and looked up where the rest of the tape needs them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

if TYPE_CHECKING:
    import numpy.typing as npt

    Array = npt.NDArray[np.float64]
    Codes = npt.NDArray[np.uint16]

FEWEST_POINTS = 2**15
"""Below this a sweep is over before it is looked at."""

MOST_VALUES = 2**12
"""An input with more different values than this is taken to have a new one at every point."""

MOST_ENTRIES = 2**17
"""Largest table: its look-ups stay in cache. One entry for each ``SAVING`` points at most, or it would save nothing."""

SAVING = 4
SAMPLE = 2**12


@frozen(eq=False)
class Column:
    """One input: its different ``values``, ascending, and for each point which of them it has."""

    values: Array
    codes: Codes


def column(array: Array) -> Column | None:
    """The different values of a flat array, or None where there are many (or a NaN, which equals nothing).

    >>> found = column(np.array([2.0, 8.0, 2.0]))
    >>> found.values.tolist(), found.codes.tolist()
    ([2.0, 8.0], [0, 1, 0])
    """
    values = np.unique(array[:: max(1, len(array) // SAMPLE)])
    for _ in range(3):  # what the sample has missed shows at the next look
        if len(values) > MOST_VALUES:
            return None
        codes = np.minimum(np.searchsorted(values, array), len(values) - 1).astype(np.uint16)
        missed = array[values[codes] != array]
        if not len(missed):
            return Column(values, codes)
        values = np.union1d(values, np.unique(missed[: SAMPLE * 16]))
    return None


class LookedUp:
    """Values of a table at each point, read block by block."""

    def __init__(self, table: Array, index: Index) -> None:
        self.table, self.index = table, index

    def read(self, block: slice, out: Array) -> None:
        """Fill ``out`` with the values at the points of ``block``."""
        self.table.take(self.index.at(block), out=out, mode="clip")  # a mode without a check needs no buffer


class Index:
    """Where points lie in the tables of the same inputs. ``steps``: codes of an input, how far its next value lies."""

    def __init__(self, steps: Iterable[tuple[Codes, int]]) -> None:
        self.steps = tuple(steps)
        self.known: tuple[slice, Any] = (slice(0, 0), None)

    def at(self, block: slice) -> Any:
        """The place of each point of ``block``; kept for the next table, which is read for the same block."""
        if self.known[0] != block:
            place = np.zeros(block.stop - block.start, np.intp)
            for codes, step in self.steps:
                place += np.multiply(codes[block], step, dtype=np.intp)
            self.known = (block, place)
        return self.known[1]


class Repeats:
    """Which sets of inputs are worth a table. A set is a bit mask over the array inputs, in their order."""

    def __init__(self, arrays: Mapping[int, Any], points: int) -> None:
        self.slots = tuple(arrays)
        self.columns = [column(array) for array in arrays.values()]
        self.most = min(points // SAVING, MOST_ENTRIES)
        self._indices: dict[int, Index] = {}

    @classmethod
    def among(cls, arrays: Mapping[int, Any]) -> Repeats | None:
        """What repeats among flat arrays of one length; None where there are too few points to ask."""
        shapes = {array.shape for array in arrays.values()}
        shape = shapes.pop()
        if shapes or len(shape) != 1 or shape[0] < FEWEST_POINTS:
            return None
        return cls(arrays, shape[0])

    def entries(self, mask: int) -> float:
        """Entries of the table over a set of inputs; infinite where one has too many values."""
        return math.prod(len(own.values) if own else math.inf for _, own in self._members(mask))

    def pays(self, mask: int) -> bool:
        """Whether the table over a set of inputs is small enough."""
        return self.entries(mask) <= self.most

    def groups(self, masks: Iterable[int]) -> list[int]:
        """Few sets, each worth a table, so that every one of ``masks`` lies within one of them."""
        found: list[int] = []
        for mask in sorted(set(masks), key=lambda mask: (-self.entries(mask), mask)):
            joined = next((place for place, group in enumerate(found) if self.pays(mask | group)), None)
            if joined is None:
                found.append(mask)
            else:
                found[joined] |= mask
        return found

    def grid(self, mask: int) -> dict[int, Array]:
        """Input slot → its different values, each input along an axis of its own."""
        members = [(slot, own.values) for slot, own in self._members(mask) if own]
        return {
            slot: values.reshape([-1 if other == place else 1 for other in range(len(members))])
            for place, (slot, values) in enumerate(members)
        }

    def looked_up(self, table: Array, mask: int) -> LookedUp:
        """A table over a set of inputs as values at the points."""
        index = self._indices.get(mask)
        if index is None:
            steps, step = [], 1
            for own in (own for _, own in reversed(self._members(mask)) if own):
                steps.append((own.codes, step))
                step *= len(own.values)
            index = self._indices[mask] = Index(steps)
        return LookedUp(table.reshape(-1), index)

    def _members(self, mask: int) -> list[tuple[int, Column | None]]:
        pairs = zip(self.slots, self.columns, strict=True)
        return [pair for order, pair in enumerate(pairs) if mask >> order & 1]
