"""The opaque functions: values, derivatives against finite differences, laws, and that they stay opaque."""

from __future__ import annotations

import math
import time
from fractions import Fraction
from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.functions import NAMES, functions

f = functions()
x, y, z = sympy.symbols("x y z", positive=True)
whole = st.integers(1, 10**6)


def test_every_name_is_there() -> None:
    assert all(hasattr(f, name) for name in NAMES)


@given(whole, whole)
def test_rounded_quotients_are_those_of_whole_numbers(a: int, b: int) -> None:
    assert f.cdiv(a, b) == -(-a // b)
    assert f.fdiv(a, b) == a // b
    assert f.ceil_(sympy.Rational(a, b)) == math.ceil(Fraction(a, b))
    assert f.floor_(sympy.Rational(a, b)) == math.floor(Fraction(a, b))


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=6))
def test_extremes_are_those_of_python(values: list[int]) -> None:
    assert f.fmax(*values) == max(values)
    assert f.fmin(*values) == min(values)


@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-9, 9))
def test_relations_and_choice_of_numbers(a: int, b: int, c: int) -> None:
    assert f.eq(a, b) == int(a == b)
    assert f.le(a, b) == int(a <= b)
    assert f.lt(a, b) == int(a < b)
    assert f.where(a, b, c) == (b if a > 0 else c)


def test_equal_numbers_of_other_kinds_are_equal() -> None:
    assert f.eq(1, sympy.Float(1.0)) == 1
    assert f.eq(sympy.Rational(1, 2), 0.5) == 1


def test_pnorm_of_known_triangles_and_limits() -> None:
    assert f.pnorm(2, 3, 4) == 5
    assert f.pnorm(2, 2, 3, 6) == 7
    assert f.pnorm(1, 2, 3, 6) == 11
    assert f.pnorm(2, 0, 0) == 0
    assert f.pnorm(5, x) == x
    assert f.pnorm(sympy.oo, x, y) == f.fmax(x, y)
    assert float(f.pnorm(60, 1e-300, 1e300)) == pytest.approx(1e300)


def test_log2_is_exact_for_powers_of_two() -> None:
    assert f.log2(8) == 3
    assert f.log2(sympy.Rational(1, 4)) == -2
    assert float(f.log2(10)) == pytest.approx(math.log2(10), rel=1e-15)
    assert float(f.log2(sympy.Float(10.0))) == pytest.approx(math.log2(10), rel=1e-15)


def test_nested_extremes_are_flat_and_repetitions_count_once() -> None:
    assert f.fmax(x, f.fmax(y, z), x) == f.fmax(x, y, z)
    assert f.fmin(x, x) == x
    assert f.fmax(x, f.fmin(y, z)).args == (x, f.fmin(y, z))
    with pytest.raises(TypeError):
        f.fmax()


def test_nothing_is_compared_before_all_arguments_are_numbers() -> None:
    opaque = f.fmax(x, x + 1, 2)
    assert opaque.args == (x, x + 1, 2)
    assert opaque.xreplace({x: sympy.Integer(5)}) == 6
    assert opaque.subs(x, 5) == 6
    start = time.perf_counter()
    wide = f.fmax(*[x * k / (y + z**k) for k in range(60)])
    assert time.perf_counter() - start < 2.0  # sympy's own Max takes minutes here
    assert len(wide.args) == 60


def test_numbers_that_are_not_yet_digits_are_evaluated_by_evalf() -> None:
    assert float(f.fmax(sympy.sqrt(2), 1).evalf()) == pytest.approx(math.sqrt(2))
    assert float((3 * f.fmin(sympy.pi, 4) + f.cdiv(sympy.pi, 2)).evalf()) == pytest.approx(3 * math.pi + 2)
    assert f.fmax(x, 1).evalf().free_symbols == {x}


def test_text_and_latex_are_those_of_the_field() -> None:
    expr = f.fmax(x, y) + f.cdiv(x + y, 128)
    assert str(expr) == "max(x, y) + ceil((x + y)/128)"
    assert sympy.latex(f.fmin(x, y)) == r"\min\left(x, y\right)"
    assert sympy.latex(f.cdiv(x, y)) == r"\left\lceil \frac{x}{y} \right\rceil"
    assert sympy.latex(f.floor_(x)) == r"\left\lfloor x \right\rfloor"
    assert sympy.latex(f.fmax(x, y) ** 2) == r"\left(\max\left(x, y\right)\right)^{2}"


EVERY = [
    (f.fmax(x, y, z), {}),
    (f.fmin(x, y, z), {}),
    (f.pnorm(3, x, y, z), {}),
    (f.pnorm(z, x, y), {}),
    (f.where(x - y, x * z, y / z), {}),
    (f.log2(x + y), {}),
    (f.exp_(f.fmin(x - y, z)) * y, {}),
    (f.fmax(x * y, z) * f.pnorm(2, x, z) + f.fmin(x, z) ** 2, {}),
]


@pytest.mark.parametrize("expr", [entry[0] for entry in EVERY], ids=str)
def test_derivatives_are_those_of_finite_differences(expr: Any) -> None:
    at = {x: 3.1, y: 2.3, z: 1.7}
    for variable in (x, y, z):
        step = 1e-6
        above = float(expr.subs({**at, variable: at[variable] + step}))
        below = float(expr.subs({**at, variable: at[variable] - step}))
        assert float(expr.diff(variable).subs(at)) == pytest.approx((above - below) / (2 * step), rel=1e-6, abs=1e-8)


def test_rounded_quotients_differentiate_like_the_quotient() -> None:
    for rounded in (f.cdiv, f.fdiv):
        assert rounded(x, y).diff(x) == 1 / y
        assert sympy.simplify(rounded(x, y).diff(y) + x / y**2) == 0
    assert f.ceil_(x * y).diff(x) == y
    assert f.floor_(x * y).diff(x) == y


def test_ties_share_the_slope() -> None:
    slopes = [f.fmax(x, y).diff(variable).subs({x: 2, y: 2}) for variable in (x, y)]
    assert slopes == [sympy.Rational(1, 2)] * 2


def test_relations_have_no_slope() -> None:
    for relation in (f.eq, f.le, f.lt):
        assert relation(x, y).diff(x) == 0
        assert relation(x, x) == (0 if relation is f.lt else 1)


def test_signs_are_known_so_that_roots_come_out() -> None:
    assert sympy.sqrt(f.fmax(x, y) ** 2) == f.fmax(x, y)
    assert sympy.sqrt(f.cdiv(x, y) ** 2) == f.cdiv(x, y)
    assert f.pnorm(z, x, y).is_positive
    assert f.fmin(x, y).is_positive
    assert f.where(x - y, x, y).is_positive
    assert f.fdiv(x, y).is_nonnegative
    assert f.exp_(x - y).is_positive
    assert f.fdiv(x, y).is_positive is None
    assert f.eq(x, y).is_nonnegative


def test_an_opaque_exponential_is_the_exponential() -> None:
    assert f.exp_(0) == 1
    assert float(f.exp_(sympy.Rational(3, 2))) == pytest.approx(math.exp(1.5))
    assert str(f.exp_(x + y)) == "exp(x + y)"
    assert sympy.latex(f.exp_(x)) == "e^{x}"


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=4), st.integers(1, 12))
def test_pnorm_lies_between_the_greatest_and_the_sum_and_falls_with_its_order(terms: list[int], q: int) -> None:
    norm, sharper = float(f.pnorm(q, *terms)), float(f.pnorm(q + 1, *terms))
    assert max(terms) * (1 - 1e-12) <= sharper <= norm * (1 + 1e-12) <= sum(terms) * (1 + 2e-12)
