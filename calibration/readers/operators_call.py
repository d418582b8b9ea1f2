"""One call of a PyTorch operator as a profiler recorded it: name, extents and types of its inputs, and plain values.

Calibration; data only. What was recorded is data: nothing of it is executed.
"""

from __future__ import annotations

import math
from typing import TypeGuard

from attrs import frozen

from .kernel_names import number_format


class Unclear(Exception):
    """The kind of work is known, and what was recorded of the call does not tell its shape; the text says why."""


@frozen
class Operand:
    """An array: its extents, the name of its number format, and the bytes of one element [B]."""

    dims: tuple[int, ...]
    format: str
    size: float

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return math.prod(self.dims)

    @property
    def bytes(self) -> float:
        """What it takes in memory [B]."""
        return self.elements * self.size


@frozen
class Call:
    """``dims``: of each input its extents (of a list of tensors: those of each), () for none; ``types``: of each input
    as the profiler writes it (float, c10::BFloat16, Scalar, TensorList); ``values``: of each input its plain value as
    text, "" for a tensor."""

    name: str
    dims: tuple[object, ...] = ()
    types: tuple[str, ...] = ()
    values: tuple[str, ...] = ()
    format: str = ""
    """Number format of all inputs, where the source has no types and something else tells it."""

    def array(self, place: int) -> Operand:
        """The tensor that is input ``place``.

        Errors: Unclear where none was recorded there.
        """
        found = self._operand(place)
        if found is None:
            why = (
                "no shapes; record with record_shapes=True" if not self.dims else f"input {place} has no shape or type"
            )
            raise Unclear(why)
        return found

    def arrays(self) -> list[Operand]:
        """All inputs that are tensors.

        Errors: Unclear where no shapes were recorded.
        """
        if not self.dims:
            raise Unclear("no shapes; record with record_shapes=True")
        return [found for place in range(len(self.dims)) if (found := self._operand(place)) is not None]

    def lists(self, place: int) -> list[tuple[int, ...]]:
        """Extents of each tensor of the list that is input ``place``.

        Errors: Unclear where no list was recorded there.
        """
        dims = self.dims[place] if place < len(self.dims) else ()
        if not isinstance(dims, tuple) or not dims or not all(_extents(item) for item in dims):
            raise Unclear("no shapes; record with record_shapes=True")
        return [item for item in dims if _extents(item)]

    def whole(self, place: int) -> int | None:
        """The whole number that is input ``place``, None where it isn't recorded."""
        text = self.values[place] if place < len(self.values) else ""
        try:
            return int(text)
        except ValueError:
            return None

    def truth(self, place: int) -> bool | None:
        """The truth value that is input ``place``, None where it isn't recorded."""
        text = self.values[place] if place < len(self.values) else ""
        return {"True": True, "False": False}.get(text)

    def _operand(self, place: int) -> Operand | None:
        if place >= len(self.dims):
            return None
        dims = self.dims[place]
        if not _extents(dims):
            return None
        if self.types:
            known = number_format(self.types[place]) if place < len(self.types) else None
            return Operand(dims, *known) if known else None
        if not self.format or not dims:
            return None  # without types a scalar looks like a tensor without axes
        known = number_format(
            {"bf16": "bfloat16", "fp16": "half", "fp32": "float", "fp8": "fp8_e4m3"}.get(self.format, "")
        )
        return Operand(dims, self.format, known[1] if known else 4)


def _extents(dims: object) -> TypeGuard[tuple[int, ...]]:
    return isinstance(dims, tuple) and all(type(extent) is int and extent >= 0 for extent in dims)
