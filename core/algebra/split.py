"""A tape in two parts: what does not depend on a few varying inputs is computed once, the rest again and again.

Floor: algebra, on top of the tape; numpy inside functions. For a fit, which evaluates one formula at the same rows a
hundred times with other parameters: the sizes of the rows are prepared, and each evaluation is one pass over a fixed
program with fixed buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import UserError
from .tape import SCALAR, Tape

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Array: TypeAlias = npt.NDArray[np.float64]

_PREFIX = "slot_"


class Split:
    """``tape`` split by its ``varying`` inputs.

    >>> import numpy as np
    >>> tape = Tape(("x", "a"), (2.0,), (("mul", 0, 2), ("pow", 3, 1)), {"y": 4})
    >>> ready = Split(tape, ["a"]).prepare({"x": np.array([1.0, 2.0])}, 2)
    >>> ready.evaluate({"a": 2.0})["y"].tolist(), ready.evaluate({"a": 1.0})["y"].tolist()
    ([4.0, 16.0], [2.0, 4.0])
    """

    def __init__(self, tape: Tape, varying: Iterable[str], outputs: Iterable[str] | None = None) -> None:
        self.tape = tape
        self.outputs = {name: tape.outputs[name] for name in (tape.outputs if outputs is None else outputs)}
        self.varying = {name: slot for slot, name in enumerate(tape.inputs) if name in set(varying)}
        first = len(tape.inputs) + len(tape.constants)
        moving = set(self.varying.values())
        for position, (_, *args) in enumerate(tape.instructions):
            if not moving.isdisjoint(args):
                moving.add(first + position)
        needed = set(self.outputs.values())
        for position in range(len(tape.instructions) - 1, -1, -1):
            if first + position in needed:
                needed.update(tape.instructions[position][1:])
        self.first = first
        self.steps = [slot for slot in range(first, first + len(tape.instructions)) if slot in moving & needed]
        read = {arg for slot in self.steps for arg in tape.instructions[slot - first][1:]}
        self.fixed = sorted((read | set(self.outputs.values())) - moving)

    def prepare(self, values: Mapping[str, Any], points: int) -> Prepared:
        """The part that does not vary, for arrays of ``points`` values (or numbers) of the other inputs.

        Errors: UserError for an input without a value, and for arrays of another length.
        """
        outputs = {f"{_PREFIX}{slot}": slot for slot in self.fixed}
        part = Tape(self.tape.inputs, self.tape.constants, self.tape.instructions, outputs)
        found = part.evaluate({name: value for name, value in values.items() if name not in self.varying})
        return Prepared(self, {slot: found[name] for name, slot in outputs.items()}, points)


class Prepared:
    """The varying part of a tape, bound to buffers; made by ``Split.prepare``."""

    def __init__(self, split: Split, fixed: Mapping[int, Any], points: int) -> None:
        import numpy as np

        from ._vector import OPERATIONS

        tape, self._points = split.tape, points
        self._outputs = split.outputs
        self._scalars: list[tuple[int, Callable[[float, float], float] | None, tuple[int, ...]]] = []
        self._numbers: dict[int, Any] = {}  # slots that are one number: as 0-d arrays, which numpy need not convert
        self._arrays: dict[int, Array] = {}
        self._program: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self._varying = split.varying
        for slot, value in fixed.items():
            if getattr(value, "ndim", 0) and value.size != 1:
                if value.shape != (points,):
                    raise UserError(f"an input has {value.size} values for {points} points")
                self._arrays[slot] = np.ascontiguousarray(value)
            else:
                self._numbers[slot] = np.array(float(np.asarray(value).reshape(())), dtype=np.float64)
        for slot in split.varying.values():
            self._numbers[slot] = np.array(0.0)
        last = {arg: slot for slot in split.steps for arg in tape.instructions[slot - split.first][1:]}
        kept = set(self._outputs.values()) | set(self._arrays)
        free: list[Array] = []
        for slot in split.steps:
            name, *args = tape.instructions[slot - split.first]
            if all(arg in self._numbers for arg in args):
                self._numbers[slot] = np.array(0.0)
                function = None if name == "where" else SCALAR[name][1]
                self._scalars.append((slot, function, tuple(args)))
                continue
            values = tuple(self._numbers[arg] if arg in self._numbers else self._arrays[arg] for arg in args)
            dying = [
                self._arrays[arg] for arg in dict.fromkeys(args)
                if arg in self._arrays and arg not in kept and last[arg] == slot
            ]  # fmt: skip
            if name != "where":  # a ufunc may write where it reads, `where` writes in two passes
                free += dying
            out = free.pop() if free else np.empty(points)
            if name == "where":
                free += dying
            self._arrays[slot] = out
            self._program.append((OPERATIONS[name], (*values, out)))

    def evaluate(self, varying: Mapping[str, float]) -> dict[str, Any]:
        """The outputs for numbers of the varying inputs: arrays that the next evaluation overwrites, or numbers."""
        import numpy as np

        numbers = self._numbers
        for name, slot in self._varying.items():
            numbers[slot][...] = varying[name]
        for slot, function, args in self._scalars:
            if function is None:
                numbers[slot][...] = numbers[args[1]] if numbers[args[0]] > 0 else numbers[args[2]]
            else:
                numbers[slot][...] = function(float(numbers[args[0]]), float(numbers[args[-1]]))
        with np.errstate(all="ignore"):
            for operation, operands in self._program:
                operation(*operands)
        return {
            name: self._arrays[slot] if slot in self._arrays else float(numbers[slot])
            for name, slot in self._outputs.items()
        }
