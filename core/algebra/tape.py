"""A compiled set of formulas as plain data: a list of instructions, read by an interpreter over a fixed table.

Floor: algebra, on top of errors. No sympy; numpy only where an input is an array. Nothing is ever generated as
Python source or executed: a tape that comes from a file can compute wrong numbers, but cannot run code.
"""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from attrs import field, frozen

from ..errors import UserError, shown, unknown

if TYPE_CHECKING:
    import numpy.typing as npt

    Value: TypeAlias = "float | npt.NDArray[Any]"

FORMAT = 1
CHUNK = 8192
"""Points evaluated at once: large enough to hide the cost of a call, small enough that the buffers stay in cache."""


def _div(a: float, b: float) -> float:
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)


def _pow(a: float, b: float) -> float:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:  # a negative base with a broken exponent, or zero with a negative one
        return math.inf if a == 0 else math.nan


def _max(a: float, b: float) -> float:
    return a if a > b or a != a else b


def _min(a: float, b: float) -> float:
    return a if a < b or a != a else b


def _or_max(a: float, b: float) -> float:
    return b if b > a or a != a else a


def _rounded(rounding: Callable[[float], int]) -> Callable[[float, float], float]:
    def apply(a: float, _: float) -> float:
        return float(rounding(a)) if math.isfinite(a) else a

    return apply


def _log(function: Callable[[float], float]) -> Callable[[float, float], float]:
    def apply(a: float, _: float) -> float:
        if a > 0:
            return function(a)
        return -math.inf if a == 0 else math.nan

    return apply


def _exp(a: float, _: float) -> float:
    try:
        return math.exp(a)
    except OverflowError:
        return math.inf


# Every operation of a tape: its number of arguments and what it does to plain floats, in the way that numpy does it
# (division by zero is an infinity, NaN spreads). Functions of one argument are given it twice: one kind of call in
# the loop is faster than two.
SCALAR: dict[str, tuple[int, Callable[[float, float], float]]] = {
    "add": (2, operator.add),
    "sub": (2, operator.sub),
    "mul": (2, operator.mul),
    "div": (2, _div),
    "pow": (2, _pow),
    "max": (2, _max),
    "min": (2, _min),
    "or_max": (2, _or_max),  # the greater, or the one that is a number
    "eq": (2, lambda a, b: 1.0 if a == b else 0.0),
    "le": (2, lambda a, b: 1.0 if a <= b else 0.0),
    "lt": (2, lambda a, b: 1.0 if a < b else 0.0),
    "neg": (1, lambda a, _: -a),
    "abs": (1, lambda a, _: abs(a)),
    "sqrt": (1, lambda a, _: math.sqrt(a) if a >= 0 else math.nan),
    "ceil": (1, _rounded(math.ceil)),
    "floor": (1, _rounded(math.floor)),
    "exp": (1, _exp),
    "log": (1, _log(math.log)),
    "log2": (1, _log(math.log2)),
}
ARITY = {name: count for name, (count, _) in SCALAR.items()} | {"where": 3}
"""Operation to its number of arguments; ``where`` takes (condition, x, y)."""


def apply(name: str, values: Sequence[float]) -> float:
    """The operation ``name`` on plain floats.

    >>> apply("div", [1.0, 0.0]), apply("where", [1.0, 5.0, 7.0])
    (inf, 5.0)
    """
    if name == "where":
        return values[1] if values[0] > 0 else values[2]
    return SCALAR[name][1](values[0], values[-1])


@frozen
class Needed:
    """The part of a tape that some outputs need: input positions, instruction positions, and the scalar program."""

    inputs: tuple[int, ...]
    instructions: tuple[int, ...]
    program: tuple[tuple[Callable[[float, float], float] | None, int, Any, int], ...]


@frozen(eq=False)
class Tape:
    """Instructions (operation, slot, ...) over numbered slots: the inputs first, then the constants, then one slot
    an instruction; ``outputs`` names slots.

    >>> tape = Tape(("x",), (2.0,), (("mul", 0, 1), ("add", 2, 0)), {"y": 3})
    >>> tape.evaluate({"x": 5})
    {'y': 15.0}
    """

    inputs: tuple[str, ...]
    constants: tuple[float, ...]
    instructions: tuple[tuple[Any, ...], ...]
    outputs: dict[str, int]
    _needed: dict[tuple[str, ...] | None, Needed] = field(factory=dict, init=False, repr=False)

    def evaluate(
        self,
        values: Mapping[str, Value],
        outputs: Iterable[str] | None = None,
        chunk: int = CHUNK,
    ) -> dict[str, Value]:
        """The asked ``outputs`` (all by default) for ``values`` of the inputs; names that are not inputs are ignored.

        With numbers only, plain floats. Arrays are broadcast against one another as numpy does, and an output has the
        shape of the inputs that it depends on, so one that depends on no array stays a float. At most about ``chunk``
        points are worked on at once; memory beyond the results does not grow with the number of points.
        Raises UserError for an input without a value and for an unknown output.

        >>> tape = Tape(("x", "y"), (), (("div", 0, 1),), {"ratio": 2})
        >>> tape.evaluate({"x": 1, "y": 0})
        {'ratio': inf}
        """
        names = None if outputs is None else tuple(outputs)
        needed = self._needed.get(names)
        if needed is None:
            needed = self._needed[names] = self._need(names)
        names = tuple(self.outputs) if names is None else names
        inputs = self.inputs
        slots: list[Any] = [0.0] * len(inputs) + list(self.constants) + [0.0] * len(self.instructions)
        arrays = False
        for position in needed.inputs:
            try:
                value: Any = values[inputs[position]]
            except KeyError:
                raise _missing(inputs, needed.inputs, values) from None
            if isinstance(value, (int, float)):
                slots[position] = float(value)
            elif getattr(value, "ndim", 0) or isinstance(value, (list, tuple)):
                slots[position] = value
                arrays = True
            else:
                slots[position] = _float(value, inputs[position])
        if arrays:
            from ._vector import run

            return run(self, needed, slots, names, chunk)
        run_scalar(needed.program, slots)
        return {name: slots[self.outputs[name]] for name in names}

    def _need(self, names: tuple[str, ...] | None) -> Needed:
        for name in names or ():
            if name not in self.outputs:
                raise unknown("output", name, self.outputs)
        first = len(self.inputs) + len(self.constants)
        live = bytearray(first + len(self.instructions))
        for name in self.outputs if names is None else names:
            live[self.outputs[name]] = 1
        for position in range(len(self.instructions) - 1, -1, -1):
            if live[first + position]:
                for slot in self.instructions[position][1:]:
                    live[slot] = 1
        return Needed(
            inputs=tuple(slot for slot in range(len(self.inputs)) if live[slot]),
            instructions=tuple(position for position in range(len(self.instructions)) if live[first + position]),
            program=tuple(
                _scalar_step(self.instructions[position], first + position)
                for position in range(len(self.instructions))
                if live[first + position]
            ),
        )

    def body(self) -> dict[str, Any]:
        """The tape as JSON-ready data, without its checksum."""
        return {
            "format": FORMAT,
            "inputs": list(self.inputs),
            "constants": [repr(value) for value in self.constants],  # JSON has no infinities
            "instructions": [list(instruction) for instruction in self.instructions],
            "outputs": self.outputs,
        }

    @property
    def digest(self) -> str:
        """sha256 over the canonical JSON of ``body``."""
        return _digest(self.body())

    def to_json(self) -> dict[str, Any]:
        """``body`` with its checksum, for ``from_json``."""
        body = self.body()
        return {**body, "sha256": _digest(body)}

    @classmethod
    def from_json(cls, data: object, *, sealed: bool = False) -> Tape:
        """The tape of ``to_json``. Raises ValueError unless checksum, operations and slots are all in order.

        ``sealed``: its checksum need not be looked at, since one over the whole file was.
        """
        if not isinstance(data, dict):
            raise ValueError("a tape is a JSON object")
        body = {key: value for key, value in data.items() if key != "sha256"}
        if data.get("format") != FORMAT or not (sealed or data.get("sha256") == _digest(body)):
            raise ValueError("the tape is of another format, or its checksum does not match")
        try:
            tape = cls(
                inputs=tuple(body["inputs"]),
                constants=tuple(float(value) for value in body["constants"]),
                instructions=tuple(tuple(instruction) for instruction in body["instructions"]),
                outputs=dict(body["outputs"]),
            )
            tape.check()
        except (KeyError, TypeError, AttributeError, IndexError, ValueError) as error:
            raise ValueError(f"the tape is malformed: {error}") from error
        return tape

    def check(self) -> None:
        """Raise ValueError unless each operation is known and reads only slots that come before it."""
        if not all(isinstance(name, str) for name in (*self.inputs, *self.outputs)):
            raise ValueError("the names of a tape are text")
        if len(set(self.inputs)) != len(self.inputs):
            raise ValueError("the inputs of a tape have different names")
        slots = len(self.inputs) + len(self.constants)
        for name, *args in self.instructions:
            if ARITY.get(name) != len(args):
                raise ValueError(f"no operation {shown(name)} of {len(args)} arguments")
            _check_slots(args, slots)
            slots += 1
        _check_slots(self.outputs.values(), slots)


def run_scalar(
    program: Iterable[tuple[Callable[[float, float], float] | None, int, Any, int]], slots: list[Any]
) -> None:
    """Run the steps (function, slot, slot, target) on plain floats; None stands for ``where``."""
    for function, a, b, target in program:
        if function is None:
            slots[target] = slots[b[0]] if slots[a] > 0 else slots[b[1]]
        else:
            slots[target] = function(slots[a], slots[b])


def _scalar_step(
    instruction: tuple[Any, ...], target: int
) -> tuple[Callable[[float, float], float] | None, int, Any, int]:
    if instruction[0] == "where":
        return None, instruction[1], instruction[2:], target
    return SCALAR[instruction[0]][1], instruction[1], instruction[-1], target


def _check_slots(slots: Iterable[object], count: int) -> None:
    for slot in slots:
        if type(slot) is not int or not 0 <= slot < count:
            raise ValueError(f"slot {shown(slot)} is not one of the {count} before it")


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _float(value: Any, name: str) -> float:
    try:
        if hasattr(value, "__float__"):  # text has none, though float() would read it
            return float(value)
    except (TypeError, ValueError):
        pass
    raise UserError(f"the input {name!r} is {shown(value)}; give a number or an array of numbers")


def _missing(inputs: Sequence[str], needed: Iterable[int], values: Mapping[str, Value]) -> UserError:
    absent = [inputs[position] for position in needed if inputs[position] not in values]
    told = ", ".join(absent[:5]) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
    return UserError(f"no value for {'the input' if len(absent) == 1 else 'the inputs'} {told}; give each one a value")
