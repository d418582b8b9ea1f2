"""The compiler: symbolic, scalar and array evaluation agree; what is shared is computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import Builder, compile_expressions
from slipstick.core.algebra.functions import functions
from slipstick.core.algebra.symbols import symbol, unit_symbol
from slipstick.core.errors import PluginError

f = functions()
NAMES = ("batch", "hidden", "context", "launch")
SYMBOLS = {name: symbol(name) for name in NAMES}
x, y, z, w = SYMBOLS.values()

leaves = st.one_of(
    st.sampled_from(list(SYMBOLS.values())),
    st.integers(1, 40).map(sympy.Integer),
    st.integers(1, 64).map(lambda k: sympy.Rational(k, 8)),
)
# sums, differences and products of eighths: exact in floating point, so that a rounded or compared value does not
# depend on the last digit
exact = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] - p[1]),
        st.tuples(inner, inner).map(lambda p: f.fmax(*p)),
        st.tuples(leaves, leaves).map(lambda p: p[0] * p[1]),
    ),
    max_leaves=4,
)
plain = st.tuples(leaves, leaves).map(lambda p: p[0] + p[1])
orders = st.sampled_from(
    [sympy.Integer(1), sympy.Integer(2), sympy.Rational(23, 10), sympy.Float(0.7), sympy.Integer(5)]
)
powers = st.sampled_from([-1, -2, 2, 3, sympy.Rational(1, 2), sympy.Rational(-1, 2), sympy.Rational(3, 2), 1.3, 0.25])
steps = st.one_of(
    leaves,
    st.tuples(exact, plain).map(lambda p: f.cdiv(*p) ** 2 + 1),
    st.tuples(exact, plain).map(lambda p: f.fdiv(*p) ** 2 + 1),
    exact.map(lambda e: f.ceil_(e) ** 2 + 1),
    exact.map(lambda e: f.floor_(e) ** 2 + 1),
    st.tuples(exact, exact).map(lambda p: f.eq(*p) + 2 * f.le(*p) + 4 * f.lt(*p) + 1),
    plain.map(lambda e: f.log2(1 + e) + sympy.log(1 + e)),
    plain.map(lambda e: sympy.exp(-1 / e)),
    exact.map(lambda e: sympy.Abs(e) + 1),
)
expressions = st.recursive(
    steps,
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda terms: sympy.Add(*terms)),
        st.lists(inner, min_size=2, max_size=3).map(lambda terms: sympy.Mul(*terms)),
        st.tuples(inner, inner).map(lambda p: p[0] / p[1]),
        st.tuples(inner, powers).map(lambda p: p[0] ** p[1]),
        st.lists(inner, min_size=2, max_size=4).map(lambda terms: f.fmax(*terms)),
        st.lists(inner, min_size=2, max_size=4).map(lambda terms: f.fmin(*terms)),
        st.tuples(orders, st.lists(inner, min_size=2, max_size=4)).map(lambda p: f.pnorm(p[0], *p[1])),
        st.tuples(exact, inner, inner).map(lambda p: f.where(*p)),
    ),
    max_leaves=8,
)
# From 1 on: batch and hidden are declared as whole and positive, and sympy takes the sign of 3*batch - 2 from that.
points = st.lists(st.tuples(*[st.integers(8, 400).map(lambda k: k / 8)] * len(NAMES)), min_size=1, max_size=5)


def symbolic(expr: Any, point: tuple[float, ...]) -> float:
    rule = {SYMBOLS[name]: sympy.Rational(value) for name, value in zip(NAMES, point, strict=True)}
    return float(sympy.N(sympy.sympify(expr).xreplace(rule), 30))


@settings(max_examples=150, deadline=None)
@given(expressions, expressions, points)
def test_symbolic_scalar_and_array_evaluation_agree(one: Any, other: Any, at: list[tuple[float, ...]]) -> None:
    roots = {"one": one, "other": other, "both": one + other}
    tape = compile_expressions(roots)
    columns = dict(zip(NAMES, np.array(at).T, strict=True))
    arrays = tape.evaluate(columns, chunk=2)
    for position, point in enumerate(at):
        scalars = tape.evaluate(dict(zip(NAMES, point, strict=True)))
        for name, expr in roots.items():
            expected = symbolic(expr, point)
            assert scalars[name] == pytest.approx(expected, rel=1e-9)
            assert np.broadcast_to(arrays[name], len(at))[position] == pytest.approx(scalars[name], rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(expressions, points)
def test_derivatives_compile(expr: Any, at: list[tuple[float, ...]]) -> None:
    slope = sympy.sympify(expr).diff(x)
    value = compile_expressions({"slope": slope}).evaluate(dict(zip(NAMES, at[0], strict=True)))["slope"]
    expected = symbolic(slope, at[0])
    assert value == pytest.approx(expected, rel=1e-6, abs=1e-9 * max(1.0, symbolic(expr, at[0])))


def count(tape: Any, name: str) -> int:
    return sum(instruction[0] == name for instruction in tape.instructions)


def test_a_shared_part_is_computed_once() -> None:
    tape = compile_expressions({"a": (x + y) * z, "b": (x + y) / w, "c": sympy.sqrt(x + y)})
    assert [instruction[0] for instruction in tape.instructions] == ["add", "mul", "div", "sqrt"]


def test_sums_and_products_share_their_beginning() -> None:
    roots = {"a": x + y + z, "b": x + y + z + w, "c": x * y, "d": x * y * z}
    tape = compile_expressions(roots, order=NAMES)
    assert count(tape, "add") == 3
    assert count(tape, "mul") == 2


def test_a_product_of_fractions_divides_once_and_small_powers_multiply() -> None:
    tape = compile_expressions({"a": x * y / (z * w)})
    assert (count(tape, "div"), count(tape, "mul")) == (1, 2)
    cube = compile_expressions({"a": x**3})
    assert [instruction[0] for instruction in cube.instructions] == ["mul", "mul"]
    assert count(compile_expressions({"a": 1 / sympy.sqrt(x)}), "pow") == 0


@given(st.integers(1, 2**53), st.integers(1, 10_000))
def test_whole_numbers_stay_exact(a: int, b: int) -> None:
    tape = compile_expressions({"third": x / 3, "ratio": x * y / y, "scaled": x / y * y})
    product = (a // b) * b
    if product:
        assert tape.evaluate({"batch": 3 * (a // 3), "hidden": 1})["third"] == a // 3
        exact = compile_expressions({"q": f.cdiv(x, y), "f": f.fdiv(x, y), "m": x + y})
        assert exact.evaluate({"batch": product, "hidden": b}) == {"q": a // b, "f": a // b, "m": float(product + b)}


def test_unit_symbols_are_one() -> None:
    tape = compile_expressions({"flops": 2 * unit_symbol("FLOP") * x * y})
    assert tape.inputs == ("batch", "hidden")
    assert tape.evaluate({"batch": 3, "hidden": 5}) == {"flops": 30.0}


def test_constants_are_folded() -> None:
    tape = compile_expressions({"a": f.fmax(sympy.sqrt(2), 1) * sympy.pi, "b": sympy.oo + 0 * x})
    assert tape.instructions == ()
    assert tape.evaluate({}) == {"a": pytest.approx(2**0.5 * np.pi), "b": np.inf}


def test_what_no_output_needs_is_left_out() -> None:
    builder = Builder()
    builder.expr(x * y)
    builder.output("a", builder.expr(z + 1))
    tape = builder.finish()
    assert tape.inputs == ("context",)
    assert len(tape.instructions) == 1


def test_nodes_are_built_without_sympy() -> None:
    builder = Builder()
    a, b = builder.input("a"), builder.input("b")
    builder.output("sum", builder.add([a, b, builder.constant(1)]))
    builder.output("product", builder.mul(a, b))
    builder.output("greatest", builder.max([a, b]))
    builder.output("least", builder.min([a, b]))
    builder.output("difference", builder.sub(a, b))
    builder.output("quotient", builder.div(a, b))
    builder.output("chosen", builder.where(builder.sub(a, b), a, builder.constant(0)))
    builder.output("norm", builder.pnorm(builder.constant(2), [a, b]))
    assert builder.finish().evaluate({"a": 3, "b": 4}) == {
        "sum": 8, "product": 12, "greatest": 4, "least": 3, "difference": -1, "quotient": 0.75, "chosen": 0, "norm": 5,
    }  # fmt: skip
    assert builder.add([]) == builder.constant(0)
    assert builder.mul() == builder.constant(1)


def test_a_bound_name_stands_for_its_slot_from_then_on() -> None:
    builder = Builder()
    builder.output("free", builder.expr(x + 1))
    builder.bind("batch", builder.mul(builder.input("hidden"), builder.constant(2)))
    builder.output("bound", builder.expr(x + 1))
    builder.bind("batch", builder.constant(7))
    builder.output("again", builder.expr(x + 1))
    assert builder.finish().evaluate({"batch": 10, "hidden": 3}) == {"free": 11.0, "bound": 7.0, "again": 8.0}


def test_an_order_chains_fixed_inputs_first() -> None:
    roots = {"a": x * y * z * w}
    tape = compile_expressions(roots, order=["launch", "context", "hidden", "batch"])
    assert tape.inputs == ("launch", "context", "hidden", "batch")
    assert tape.instructions == (("mul", 0, 1), ("mul", 4, 2), ("mul", 5, 3))


def test_a_norm_keeps_infinities_and_zeros_and_never_falls_below_the_greatest() -> None:
    q = sympy.Symbol("q", positive=True)
    for terms in ((x, y), (x, y, z)):
        tape = compile_expressions({"n": f.pnorm(q, *terms)})
        rest = {"context": 0.0, "q": 2.3}
        assert tape.evaluate({"batch": 0.0, "hidden": 0.0, **rest}) == {"n": 0.0}
        assert tape.evaluate({"batch": np.inf, "hidden": 1.0, **rest}) == {"n": np.inf}
        assert tape.evaluate({"batch": 1e300, "hidden": 1e-300, "context": 0.0, "q": 60.0}) == {"n": 1e300}
        assert tape.evaluate({"batch": 3.0, "hidden": 4.0, "context": 0.0, "q": 2.0})["n"] == pytest.approx(5.0)


def test_an_unknown_function_is_named() -> None:
    with pytest.raises(PluginError, match=r"cannot compile sin in 'sin\(batch\)'"):
        compile_expressions({"a": sympy.sin(x)})
    with pytest.raises(PluginError, match="cannot compile"):
        compile_expressions({"a": sympy.zoo})


def test_a_chain_of_a_thousand_levels_compiles_and_stays_linear() -> None:
    builder = Builder()
    slot = builder.input("x")
    for _ in range(1000):
        slot = builder.add([builder.mul(slot, slot), builder.input("y")])
    builder.output("a", slot)
    tape = builder.finish()
    assert len(tape.instructions) == 2000
    assert tape.evaluate({"x": 0.5, "y": -0.25})["a"] == pytest.approx(-0.2071, abs=0.01)
