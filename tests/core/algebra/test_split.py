"""A split tape computes what the whole one does, whatever varies."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.algebra.formula import Formula, Parameter
from slipstick.core.algebra.split import Split
from slipstick.core.algebra.tape import ARITY, Tape
from slipstick.core.errors import UserError

BINARY = sorted(name for name, count in ARITY.items() if count == 2)
UNARY = sorted(name for name, count in ARITY.items() if count == 1)


@st.composite
def tapes(draw: st.DrawFn) -> Tape:
    """Any tape of four inputs and one constant."""
    instructions: list[tuple[object, ...]] = []
    for number in range(draw(st.integers(1, 15))):
        slots = st.integers(0, 4 + number)
        name = draw(st.sampled_from([*BINARY, *UNARY, "where"]))
        count = 3 if name == "where" else ARITY[name]
        instructions.append((name, *(draw(slots) for _ in range(count))))
    last = 4 + len(instructions)
    outputs = {"end": last, "other": draw(st.integers(0, last))}
    return Tape(("a", "b", "x", "y"), (1.5,), tuple(instructions), outputs)


@given(tape=tapes(), varying=st.sets(st.sampled_from("ab")), seed=st.integers(0, 1000))
def test_a_split_tape_agrees_with_the_whole_one(tape: Tape, varying: set[str], seed: int) -> None:
    random = np.random.default_rng(seed)
    columns = {"x": random.normal(size=7), "y": 3.0 * random.random(7)}
    ready = None
    for _ in range(3):  # buffers are used again
        numbers = (
            {"a": float(random.normal()), "b": 0.5} if ready is None or "b" not in varying else {"a": 2.0, "b": -1.0}
        )
        if "a" not in varying:
            numbers["a"] = 0.25
        if "b" not in varying:
            numbers["b"] = 0.5
        if ready is None:
            ready = Split(tape, varying).prepare({**columns, **numbers}, 7)
        found = ready.evaluate(numbers)
        whole = tape.evaluate({**columns, **numbers})
        for name in ("end", "other"):
            np.testing.assert_array_equal(
                np.broadcast_to(found[name], (7,)), np.broadcast_to(whole[name], (7,)), err_msg=name
            )


def test_only_what_varies_is_computed_again() -> None:
    formula = Formula(
        "f", {"x": "1"}, (Parameter("p", "1", "", 1.0),), lambda n: n.p * n.log(n.x + n.exp(n.x)), "1", "a test"
    )
    split = Split(formula.tape(), ["p"])
    assert len(split.steps) == 1
    assert len(formula.tape().instructions) == 4


def test_lengths_and_names_are_checked() -> None:
    tape = Tape(("x", "a"), (), (("mul", 0, 1),), {"y": 2})
    with pytest.raises(UserError, match="3 values for 2"):
        Split(tape, ["a"]).prepare({"x": np.ones(3)}, 2)
    with pytest.raises(UserError, match="x"):
        Split(tape, ["a"]).prepare({}, 2)
