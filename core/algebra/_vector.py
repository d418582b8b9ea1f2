"""The interpreter of a tape over numpy arrays. Floor: algebra; imports numpy, so only ``Tape.evaluate`` imports it.

The points form a grid: the broadcast shape of the inputs, with axes merged where no input tells them apart. The grid
is walked in blocks of about ``chunk`` points. An instruction runs at the depth of the innermost walked axis that it
depends on, so what depends on fewer inputs is computed less often: on a mesh of 20 x 20 x 20 x 20 settings what
depends on the first axis alone is computed 20 times. Every block uses the same buffers, and a buffer is used again
as soon as its value is dead, so a long tape stays in cache. What repeats among scattered points: see ``_repeats``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import UserError, shown
from ._repeats import LookedUp, Repeats
from .tape import CHUNK, run_scalar

if TYPE_CHECKING:
    import numpy.typing as npt

    from .tape import Needed, Tape, Value

    Array: TypeAlias = npt.NDArray[np.float64]
    Program: TypeAlias = dict[int, Any]
    """Position of an instruction → its scalar step."""

Step: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...]]


def _where(condition: Any, x: Any, y: Any, out: Any) -> None:
    np.copyto(out, y)
    np.copyto(out, x, where=condition > 0)


def _named_out(function: Any) -> Callable[[Any, Any, Any], Any]:
    # numpy deprecates a third positional argument of maximum and minimum: people take it for a third number
    def apply(a: Any, b: Any, out: Any) -> None:
        function(a, b, out=out)

    return apply


def _ceil(x: Any, out: Any) -> None:
    """The least whole number not below, and no negative zero: a scalar's rounding knows none."""
    np.ceil(x, out)
    np.add(out, 0.0, out)


def _pow(base: Any, exponent: Any, out: Any) -> None:
    """The power; of minus infinity too where numpy takes a single exponent of 1/2 for a root, which has none there."""
    lowest = base == -np.inf if exponent.ndim == 0 and exponent == 0.5 else None  # before ``out`` overwrites it
    np.power(base, exponent, out)
    if lowest is not None:
        np.copyto(out, np.inf, where=lowest)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "pow": _pow,
    "max": _named_out(np.maximum),
    "min": _named_out(np.minimum),
    "or_max": _named_out(np.fmax),
    "eq": np.equal,
    "le": np.less_equal,
    "lt": np.less,
    "neg": np.negative,
    "abs": np.absolute,
    "sqrt": np.sqrt,
    "ceil": _ceil,
    "floor": np.floor,
    "exp": np.exp,
    "log": np.log,
    "log2": np.log2,
    "where": _where,
}


class _Grid:
    """The broadcast shape of the inputs, and the coarser grid that is walked."""

    def __init__(self, arrays: dict[int, Any], names: tuple[str, ...]) -> None:
        self.shapes = {slot: array.shape for slot, array in arrays.items()}
        try:
            self.shape = np.broadcast_shapes(*self.shapes.values())
        except ValueError:
            told = ", ".join(f"{names[slot]} {shape}" for slot, shape in self.shapes.items())
            raise UserError(f"the shapes of the inputs do not fit together: {shown(told, 200)}") from None
        self.masks: dict[int, int] = {}
        self.data: dict[int, Any] = {}
        self.groups: list[list[int]] = []
        self.dims: list[int] = []
        if 0 in self.shape:
            return
        rank = len(self.shape)
        spans: dict[int, tuple[bool, ...]] = {}
        thin: dict[int, Any] = {}
        for slot, array in arrays.items():
            wide = array.reshape((1,) * (rank - array.ndim) + array.shape)
            # an axis of stride 0 repeats one value (numpy.broadcast_to): it costs nothing once seen
            thin[slot] = wide[tuple(slice(0, 1) if not stride else slice(None) for stride in wide.strides)]
            spans[slot] = tuple(size > 1 for size in thin[slot].shape)
        for axis in range(rank):
            if self.shape[axis] == 1:
                continue
            last = self.groups[-1][-1] if self.groups else None
            if last is not None and all(span[last] == span[axis] for span in spans.values()):
                self.groups[-1].append(axis)
            else:
                self.groups.append([axis])
        self.dims = [math.prod(self.shape[axis] for axis in group) for group in self.groups]
        for slot, span in spans.items():
            mask = sum(1 << index for index, group in enumerate(self.groups) if span[group[0]])
            self.masks[slot] = mask
            self.data[slot] = thin[slot].reshape(self.extent(mask))

    def extent(self, mask: int) -> tuple[int, ...]:
        """The shape on the coarse grid of what depends on the axes of ``mask``."""
        return tuple(size if mask >> axis & 1 else 1 for axis, size in enumerate(self.dims))

    def spread(self, result: Array, mask: int, slots: list[int]) -> Any:
        """``result`` in the shape that numpy would give it: that of the inputs ``slots`` broadcast together."""
        wide = [1] * len(self.shape)
        for index, group in enumerate(self.groups):
            if mask >> index & 1:
                for axis in group:
                    wide[axis] = self.shape[axis]
        natural = np.broadcast_shapes(*(self.shapes[slot] for slot in slots))
        return np.broadcast_to(result.reshape(wide[len(wide) - len(natural) :]), natural)


def run(tape: Tape, needed: Needed, slots: list[Any], names: tuple[str, ...], chunk: int) -> dict[str, Value]:
    """The outputs ``names`` of ``tape`` for ``slots``, whose needed inputs are floats and arrays."""
    arrays = {slot: _array(slots[slot], tape.inputs[slot]) for slot in needed.inputs if type(slots[slot]) is not float}
    grid = _Grid(arrays, tape.inputs)
    empty = 0 in grid.shape
    first = len(tape.inputs) + len(tape.constants)
    masks = [0] * len(slots)  # axes of the coarse grid that a slot depends on
    origins = [0] * len(slots)  # array inputs that a slot depends on
    for order, slot in enumerate(arrays):
        origins[slot] = 1 << order
    for position in needed.instructions:
        for slot in tape.instructions[position][1:]:
            origins[first + position] |= origins[slot]
    program = dict(zip(needed.instructions, needed.program, strict=True))
    if empty:  # of no points, any value will do
        slots = [math.nan if slot in arrays else value for slot, value in enumerate(slots)]
    vector = _scalars_first(tape, program, grid, slots, masks)
    wanted = {tape.outputs[name] for name in names if masks[tape.outputs[name]]}
    results: dict[int, Any] = {}
    if grid.dims:
        repeats = Repeats.among(arrays) if len(grid.dims) == 1 else None
        if repeats is not None:
            own = {position: program[position] for position in vector}
            vector = _look_up(tape, own, grid, slots, origins, wanted, repeats)
        _Walk(tape, grid, slots, masks, vector, wanted, max(int(chunk), 1)).run(results)
    found: dict[str, Value] = {}
    inputs = list(arrays)
    for name in names:
        slot = tape.outputs[name]
        if not origins[slot]:
            found[name] = slots[slot]
            continue
        used = [origin for order, origin in enumerate(inputs) if origins[slot] >> order & 1]
        if empty:
            found[name] = np.zeros(np.broadcast_shapes(*(grid.shapes[origin] for origin in used)))
        else:
            result = results[slot] if masks[slot] else np.array(slots[slot], dtype=np.float64)
            found[name] = grid.spread(result, masks[slot], used)
    return found


def _scalars_first(tape: Tape, program: Program, grid: _Grid, slots: list[Any], masks: list[int]) -> list[int]:
    """Positions of the instructions of ``program`` that depend on an axis of the grid; the others are computed.

    Fills ``masks``, and ``slots`` where a value is a number.
    """
    first = len(tape.inputs) + len(tape.constants)
    for slot, mask in grid.masks.items():
        masks[slot] = mask
        if not mask:  # one value, whatever its shape
            slots[slot] = float(grid.data[slot].reshape(()))
    scalar, vector = [], []
    for position, step in program.items():
        target = first + position
        for slot in tape.instructions[position][1:]:
            masks[target] |= masks[slot]
        if masks[target]:
            vector.append(position)
        else:
            scalar.append(step)
    run_scalar(scalar, slots)
    return vector


def _look_up(
    tape: Tape, program: Program, grid: _Grid, slots: list[Any], origins: list[int], wanted: set[int], repeats: Repeats
) -> list[int]:
    """Put into the flat ``grid`` the values that instructions which repeat hand to the others, and to ``wanted``.

    Positions of the others, which are left to compute.
    """
    first = len(tape.inputs) + len(tape.constants)
    worth = {mask: repeats.pays(mask) for mask in {origins[first + position] for position in program}}
    tabled = {first + position for position in program if worth[origins[first + position]]}
    rest = [position for position in program if first + position not in tabled]
    read = {slot for position in rest for slot in tape.instructions[position][1:]}
    edge = sorted(tabled & (read | wanted))
    for group in repeats.groups(origins[slot] for slot in edge):
        own = {slot for slot in edge if origins[slot] | group == group and slot not in grid.data}
        inner = _Grid(repeats.grid(group), tape.inputs)
        values, masks = list(slots), [0] * len(slots)
        steps = _behind(tape, program, own)
        vector = _scalars_first(tape, steps, inner, values, masks)
        tables: dict[int, Any] = {}
        if inner.dims:
            _Walk(tape, inner, values, masks, vector, {slot for slot in own if masks[slot]}, CHUNK).run(tables)
        for slot in own:
            table = tables[slot] if masks[slot] else np.array(values[slot])
            grid.data[slot] = repeats.looked_up(table, origins[slot])
    return rest


def _behind(tape: Tape, program: Program, slots: set[int]) -> Program:
    """The instructions of ``program`` that ``slots`` need."""
    first = len(tape.inputs) + len(tape.constants)
    live, found = set(slots), []
    for position in reversed(program):
        if first + position in live:
            live.update(tape.instructions[position][1:])
            found.append(position)
    return {position: program[position] for position in reversed(found)}


def _array(value: Any, name: str) -> Any:
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        raise UserError(f"the input {name!r} is not an array of numbers: {shown(value)}")
    return array if array.dtype == np.float64 else array.astype(np.float64)


class _Walk:
    """One evaluation: the walked axes, the buffers, and the program of each depth bound to its buffers."""

    def __init__(
        self,
        tape: Tape,
        grid: _Grid,
        slots: list[Any],
        masks: list[int],
        vector: list[int],
        wanted: set[int],
        chunk: int,
    ) -> None:
        self.tape, self.grid, self.masks, self.wanted = tape, grid, masks, wanted
        self.first = len(tape.inputs) + len(tape.constants)
        dims = grid.dims
        # axes after `split` are taken whole, `split` in blocks of `rows`, those before it one index at a time
        inside, self.split = 1, len(dims) - 1
        while self.split > 0 and inside * dims[self.split] <= chunk:
            inside *= dims[self.split]
            self.split -= 1
        self.rows = max(1, min(chunk // inside, dims[self.split]))
        # constants and scalars as 0-d arrays: numpy converts a Python float anew in every call
        self.fixed = {
            slot: np.array(value) for slot, value in enumerate(slots) if not masks[slot] and _is_number(value)
        }
        self.index: list[slice] = [slice(0, 1)] * self.split + [slice(None)] * (len(dims) - self.split)
        self.by_depth: list[list[int]] = [[] for _ in range(self.split + 2)]
        placed: set[int] = set()
        for position in vector:
            for slot in (*tape.instructions[position][1:], self.first + position):
                self._place_once(slot, placed)
        for slot in sorted(wanted):
            self._place_once(slot, placed)
        self.last = self._last_uses(vector)

    def _place_once(self, slot: int, placed: set[int]) -> None:
        """What is given is read just before it is needed first, so that few buffers live at a time."""
        if slot not in placed and (slot in self.grid.data or slot >= self.first) and self.masks[slot]:
            placed.add(slot)
            self.by_depth[self.depth(slot)].append(slot)

    def depth(self, slot: int) -> int:
        """How many walked axes have to stand before ``slot`` can be computed."""
        return (self.masks[slot] & ((1 << (self.split + 1)) - 1)).bit_length()

    def _last_uses(self, vector: list[int]) -> dict[int, int]:
        """Slot to the last instruction that reads it; a slot that a deeper depth reads stays for good."""
        last: dict[int, int] = {}
        forever = len(self.masks)
        for position in vector:
            target = self.first + position
            for slot in self.tape.instructions[position][1:]:
                last[slot] = target if self.depth(slot) == self.depth(target) and last.get(slot) != forever else forever
        return last

    def run(self, results: dict[int, Any]) -> None:
        """Fill ``results`` with an array on the coarse grid for each output that depends on an axis."""
        for slot in self.wanted:
            results[slot] = np.empty(self.grid.extent(self.masks[slot]))
        self.results = results
        buffers: dict[int, Array] = {}
        size = self.grid.dims[self.split]
        programs = [self._bind(depth, buffers, 1) for depth in range(self.split + 1)]
        whole = self._bind(self.split + 1, dict(buffers), self.rows)
        tail = self._bind(self.split + 1, dict(buffers), size % self.rows) if size % self.rows else []
        with np.errstate(all="ignore"):
            self._walk(0, programs, whole, tail)

    def _walk(self, depth: int, programs: list[list[Step]], whole: list[Step], tail: list[Step]) -> None:
        for function, args in programs[depth]:
            function(*args)
        size = self.grid.dims[depth]
        if depth < self.split:
            for start in range(size):
                self.index[depth] = slice(start, start + 1)
                self._walk(depth + 1, programs, whole, tail)
            return
        for start in range(0, size, self.rows):
            stop = min(start + self.rows, size)
            self.index[depth] = slice(start, stop)
            for function, args in whole if stop - start == self.rows else tail:
                function(*args)

    def _bind(self, depth: int, buffers: dict[int, Array], rows: int) -> list[Step]:
        """The steps of one depth, each with the arrays that it reads and writes."""
        program: list[Step] = []
        free: dict[tuple[int, ...], list[Array]] = {}
        fixed, last, masks = self.fixed, self.last, self.masks
        for slot in self.by_depth[depth]:
            shape = self._block(masks[slot], rows)
            if slot in self.grid.data:
                stock = free.get(shape)
                buffers[slot] = stock.pop() if stock else np.empty(shape)
                program.append((self._load, (slot, buffers[slot])))
            else:
                name, *args = self.tape.instructions[slot - self.first]
                arrays = [fixed[arg] if arg in fixed else buffers[arg] for arg in args]
                dying = [arg for arg in dict.fromkeys(args) if arg not in fixed and last[arg] == slot]
                # one ufunc may write where it reads; `where` writes in two passes and may not
                if name != "where":
                    self._release(dying, buffers, free)
                stock = free.get(shape)
                buffers[slot] = out = stock.pop() if stock else np.empty(shape)
                if name == "where":
                    self._release(dying, buffers, free)
                program.append((OPERATIONS[name], (*arrays, out)))
            if slot in self.wanted:
                program.append((self._store, (slot, buffers[slot])))
            if slot not in last:  # only an output; its buffer is free as soon as it is stored
                free.setdefault(shape, []).append(buffers[slot])
        return program

    @staticmethod
    def _release(slots: list[int], buffers: dict[int, Array], free: dict[tuple[int, ...], list[Array]]) -> None:
        for slot in slots:
            free.setdefault(buffers[slot].shape, []).append(buffers[slot])

    def _block(self, mask: int, rows: int) -> tuple[int, ...]:
        sizes = itertools.chain([1] * self.split, [rows], self.grid.dims[self.split + 1 :])
        return tuple(size if mask >> axis & 1 else 1 for axis, size in enumerate(sizes))

    def _place(self, slot: int) -> tuple[slice, ...]:
        mask = self.masks[slot]
        return tuple(part if mask >> axis & 1 else slice(None) for axis, part in enumerate(self.index))

    def _load(self, slot: int, buffer: Array) -> None:
        data = self.grid.data[slot]
        if isinstance(data, LookedUp):
            data.read(self.index[0], buffer)
        else:
            buffer[...] = data[self._place(slot)]

    def _store(self, slot: int, buffer: Array) -> None:
        self.results[slot][self._place(slot)] = buffer


def _is_number(value: Any) -> bool:
    return isinstance(value, float)
