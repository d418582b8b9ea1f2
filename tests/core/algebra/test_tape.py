"""Tapes: arrays of any shape against one point at a time, missing inputs, checked JSON, no numpy for numbers."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import Builder
from slipstick.core.algebra.tape import ARITY, SCALAR, Tape, apply
from slipstick.core.errors import UserError

INPUTS = ("a", "b", "c", "d")


@st.composite
def tapes(draw: st.DrawFn, operations: tuple[str, ...] = tuple(ARITY)) -> Tape:
    """A tape of random instructions over four inputs, every value of which is an output."""
    builder = Builder()
    slots = [builder.input(name) for name in INPUTS] + [builder.constant(draw(st.integers(0, 3)) / 2)]
    for position in range(draw(st.integers(1, 14))):
        name = draw(st.sampled_from(operations))
        args = [slots[draw(st.integers(0, len(slots) - 1))] for _ in range(ARITY[name])]
        slots.append(builder.op(name, *args))
        if draw(st.booleans()):
            builder.output(f"out{position}", slots[-1])
    builder.output("last", slots[-1])
    return builder.finish()


shapes = st.lists(st.integers(1, 4), max_size=3)


@st.composite
def meshes(draw: st.DrawFn) -> dict[str, Any]:
    """Values of the inputs: numbers, and arrays that broadcast to a common shape; some of them repeat by stride 0."""
    full = draw(shapes)
    values: dict[str, Any] = {}
    for name in INPUTS:
        own = [size if draw(st.booleans()) else 1 for size in full]
        own = own[draw(st.integers(0, len(own))) :]
        count = int(np.prod(own))
        numbers = draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count))
        array = (np.array(numbers, dtype=np.float64) / 4).reshape(own)
        kind = draw(st.integers(0, 4))
        if kind == 0:
            values[name] = numbers[0] / 4
        elif kind == 1:
            values[name] = np.broadcast_to(array, full)
        elif kind == 2:
            values[name] = np.asfortranarray(array)
        else:
            values[name] = array
    return values


@settings(max_examples=300, deadline=None)
@given(tapes(), meshes(), st.sampled_from([1, 2, 3, 5, 8192]))
def test_arrays_of_any_shape_are_evaluated_point_by_point(tape: Tape, values: dict[str, Any], chunk: int) -> None:
    found = tape.evaluate(values, chunk=chunk)
    full = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
    wide = {name: np.broadcast_to(value, full) for name, value in values.items()}
    for index in np.ndindex(full):
        expected = tape.evaluate({name: float(array[index]) for name, array in wide.items()})
        for name in tape.outputs:
            value = np.broadcast_to(found[name], full)[index]
            np.testing.assert_allclose(value, expected[name], rtol=1e-13, atol=0)


@settings(max_examples=100, deadline=None)
@given(tapes(), meshes())
def test_an_output_has_the_shape_of_what_it_depends_on(tape: Tape, values: dict[str, Any]) -> None:
    found = tape.evaluate(values)
    origins: list[set[str]] = [{name} for name in tape.inputs] + [set() for _ in tape.constants]
    for _, *args in tape.instructions:
        origins.append(set().union(*(origins[arg] for arg in args)))
    for name, slot in tape.outputs.items():
        arrays = [np.shape(values[origin]) for origin in origins[slot] if np.ndim(values[origin])]
        assert np.shape(found[name]) == np.broadcast_shapes(*arrays)
        assert arrays or type(found[name]) is float


@given(st.sampled_from(sorted(SCALAR)), st.floats(allow_nan=True), st.floats(allow_nan=True))
def test_plain_floats_follow_numpy_to_the_edges(name: str, a: float, b: float) -> None:
    tape = Tape(("a", "b"), (), ((name, *range(ARITY[name])),), {"y": 2})
    array = tape.evaluate({"a": np.array([a, a]), "b": np.array([b, b])})["y"]
    np.testing.assert_allclose(tape.evaluate({"a": a, "b": b})["y"], array[0], rtol=1e-14, atol=0)  # type: ignore[index]


def test_values_at_the_edges() -> None:
    assert apply("div", [1, 0]) == np.inf
    assert apply("div", [-1, 0]) == -np.inf
    assert np.isnan(apply("div", [0, 0]))
    assert apply("pow", [10, 400]) == np.inf
    assert apply("pow", [0, -1]) == np.inf
    assert apply("log", [0]) == -np.inf
    assert apply("ceil", [np.inf]) == np.inf
    assert apply("exp", [1e4]) == np.inf


MEAN = Tape(("a", "b"), (2.0,), (("add", 0, 1), ("div", 3, 2), ("mul", 0, 2)), {"mean": 4, "double": 5})


def test_the_half_power_of_minus_infinity_is_infinite_for_arrays_too() -> None:
    """As C's pow has it; numpy takes a root for a single exponent of 1/2."""
    tape = Tape(("x",), (0.5,), (("pow", 0, 1),), {"y": 2})
    points = [-np.inf, 0.0, 4.0, np.inf]
    assert [tape.evaluate({"x": point})["y"] for point in points] == [np.inf, 0.0, 2.0, np.inf]
    assert np.asarray(tape.evaluate({"x": np.array(points)})["y"]).tolist() == [np.inf, 0.0, 2.0, np.inf]


def test_only_the_inputs_of_the_asked_outputs_are_needed() -> None:
    assert MEAN.evaluate({"a": 3}, outputs=["double"]) == {"double": 6.0}
    assert list(MEAN.evaluate({"a": 3, "b": 5, "other": "ignored"}, outputs=["mean", "double"])) == ["mean", "double"]
    with pytest.raises(UserError, match="no value for the input b; give"):
        MEAN.evaluate({"a": 3})
    with pytest.raises(UserError, match="no value for the inputs a, b"):
        MEAN.evaluate({})
    with pytest.raises(UserError, match="unknown output 'men'; did you mean mean"):
        MEAN.evaluate({"a": 3, "b": 5}, outputs=["men"])


@pytest.mark.parametrize("wrong", ["text", None, ["a", "b"], object()])
def test_what_is_not_a_number_is_named(wrong: Any) -> None:
    with pytest.raises(UserError, match=r"the input '[ab]' is"):
        MEAN.evaluate({"a": wrong, "b": 1.0})


def test_shapes_that_do_not_fit_are_named() -> None:
    with pytest.raises(UserError, match=r"do not fit together: .*a \(3,\), b \(4,\)"):
        MEAN.evaluate({"a": np.ones(3), "b": np.ones(4)})


def test_kinds_of_numbers() -> None:
    whole = MEAN.evaluate({"a": np.arange(4), "b": [0, 0, 2, 2]})
    assert isinstance(whole["mean"], np.ndarray)
    assert whole["mean"].tolist() == [0.0, 0.5, 2.0, 2.5]
    assert MEAN.evaluate({"a": np.float32(3), "b": np.array(5)}) == {"mean": 4.0, "double": 6.0}
    assert MEAN.evaluate({"a": True, "b": 2**53}, outputs=["double"]) == {"double": 2.0}
    single = MEAN.evaluate({"a": np.ones((1, 1)), "b": 3})
    assert np.shape(single["mean"]) == (1, 1)
    none = MEAN.evaluate({"a": np.ones((0, 3)), "b": 3})
    assert np.shape(none["mean"]) == (0, 3)


def test_inputs_are_not_written_to() -> None:
    a = np.linspace(1, 2, 50)
    kept = a.copy()
    a.flags.writeable = False
    found = MEAN.evaluate({"a": a, "b": a}, chunk=7)
    assert (a == kept).all()
    assert np.allclose(found["mean"], a)


def test_division_by_zero_is_an_infinity_without_a_warning() -> None:
    tape = Tape(("a", "b"), (), (("div", 0, 1),), {"y": 2})
    assert tape.evaluate({"a": 1, "b": 0}) == {"y": np.inf}
    assert np.isinf(tape.evaluate({"a": np.ones(3), "b": np.zeros(3)})["y"]).all()


def test_memory_does_not_grow_with_the_number_of_points() -> None:
    builder = Builder()
    a, b = builder.input("a"), builder.input("b")
    slot = a
    for _ in range(300):
        slot = builder.max([builder.mul(slot, b), builder.add([slot, a])])
    builder.output("y", slot)
    tape = builder.finish()
    points = 200_000
    values = {"a": np.ones(points), "b": np.ones(points)}
    tape.evaluate({name: array[:10] for name, array in values.items()})
    tracemalloc.start()
    tape.evaluate(values)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # the result itself, and buffers of a chunk: 900 intermediate arrays would be 1.4 GB
    assert peak < points * 8 + 4e6


def test_a_mesh_computes_what_depends_on_one_axis_once_an_index() -> None:
    builder = Builder()
    slot = builder.input("a")
    for _ in range(50):
        slot = builder.op("sqrt", builder.add([slot, builder.constant(1)]))
    builder.output("y", builder.mul(slot, builder.input("b")))
    tape = builder.finish()
    a, b = np.linspace(1, 2, 30)[:, None], np.linspace(1, 2, 40)[None, :]
    found = tape.evaluate({"a": a, "b": b}, chunk=16)["y"]
    column = tape.evaluate({"a": a[:, 0], "b": 1.0})["y"]
    assert np.shape(found) == (30, 40)
    np.testing.assert_allclose(found, np.asarray(column)[:, None] * b, rtol=1e-14)


@given(tapes())
def test_json_brings_the_same_tape_back(tape: Tape) -> None:
    back = Tape.from_json(json.loads(json.dumps(tape.to_json())))
    assert back.digest == tape.digest
    assert back.body() == tape.body()


def test_infinite_constants_survive_json() -> None:
    tape = Tape(("a",), (float("inf"), 0.1), (("min", 0, 1), ("add", 3, 2)), {"y": 4})
    text = json.dumps(tape.to_json(), allow_nan=False)
    assert Tape.from_json(json.loads(text)).evaluate({"a": 5}) == {"y": 5.1}


WRONG: list[tuple[str, Any]] = [
    ("inputs", ["a", "a"]),
    ("inputs", [1, 2]),
    ("inputs", None),
    ("constants", ["two"]),
    ("constants", [[]]),
    ("instructions", [["__import__", 0, 1]]),
    ("instructions", [["add", 0]]),
    ("instructions", [["add", 0, 3]]),
    ("instructions", [["add", -1, 0]]),
    ("instructions", [["add", 0, True]]),
    ("instructions", [["add", 0, 1.0]]),
    ("instructions", [[["add"], 0, 1]]),
    ("instructions", [[]]),
    ("instructions", "add"),
    ("outputs", {"mean": 99}),
    ("outputs", [1]),
    ("format", 2),
    ("sha256", "0" * 64),
]


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_a_malformed_tape_is_refused_even_with_a_matching_checksum(field: str, value: Any) -> None:
    from slipstick.core.algebra.tape import _digest

    data = copy.deepcopy(MEAN.to_json())
    data[field] = value
    if field != "sha256":
        del data["sha256"]
        data["sha256"] = _digest(data)
    with pytest.raises(ValueError, match=r"the tape is malformed|another format"):
        Tape.from_json(data)


@pytest.mark.parametrize("data", [None, [], "tape", {}, {"format": 1}])
def test_what_is_no_tape_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="tape"):
        Tape.from_json(data)


def test_a_changed_number_breaks_the_checksum() -> None:
    data = MEAN.to_json()
    data["constants"] = ["3.0"]
    with pytest.raises(ValueError, match="checksum"):
        Tape.from_json(data)


def test_numbers_alone_import_neither_numpy_nor_sympy() -> None:
    script = (
        "import sys, json\n"
        "from slipstick.core.algebra.tape import Tape\n"
        "from slipstick.core.algebra import cache, compile, dimension, formula, functions, symbols, units\n"
        "tape = Tape.from_json(json.loads(sys.argv[1]))\n"
        "assert tape.evaluate({'a': 3, 'b': 5})['mean'] == 4\n"
        "print(sorted({'numpy', 'sympy', 'cattrs', 'rich', 'platformdirs'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(MEAN.to_json())],
        capture_output=True, text=True, check=True, env={"PYTHONPATH": ":".join(filter(None, sys.path))},
    )  # fmt: skip
    assert done.stdout.strip() == "[]"
