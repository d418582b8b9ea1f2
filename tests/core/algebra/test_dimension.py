"""Dimensional analysis: each function's rule, and errors that name the part at fault."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from slipstick.core.algebra.dimension import DimensionError, check, dimension
from slipstick.core.algebra.functions import functions
from slipstick.core.algebra.symbols import symbol, unit_symbol
from slipstick.core.algebra.units import dimension_of_unit
from slipstick.core.errors import UserError

f = functions()
n, width, launch = symbol("hidden"), symbol("weight_width"), symbol("launch")
rate, bandwidth = symbol("gemm_rate"), symbol("hbm_bandwidth")
FLOP, byte = unit_symbol("FLOP"), unit_symbol("byte")
compute, memory = 2 * FLOP * n**3 / rate, width * n**2 / bandwidth


@pytest.mark.parametrize(
    ("expr", "unit"),
    [
        (compute, "s"),
        (memory, "s"),
        (launch + f.fmax(compute, memory), "s"),
        (f.pnorm(sympy.Float(2.3), compute, memory, launch), "s"),
        (f.pnorm(symbol("price") / symbol("price"), compute, memory), "s"),
        (f.where(compute - memory, compute, memory), "s"),
        (f.where(n - 3, compute, 0), "s"),
        (f.fmin(memory, sympy.oo), "s"),
        (launch + 0, "s"),
        (f.cdiv(width * n, 128 * byte), "1"),
        (f.ceil_(n / 3) * width, "B"),
        (f.le(compute, memory) * launch, "s"),
        (sympy.sqrt(rate * rate), "FLOP/s"),
        ((launch**2.3) ** (1 / sympy.Float(2.3)), "s"),
        (sympy.exp(-compute / launch) * width, "B"),
        (f.log2(n) * launch, "s"),
        (rate / bandwidth, "FLOP/B"),
        (launch * symbol("price"), "USD"),
        (sympy.Max(compute, memory, evaluate=False), "s"),
        (sympy.pi * 2, "1"),
    ],
    ids=str,
)
def test_the_unit_of_an_expression(expr: Any, unit: str) -> None:
    assert dimension(expr) == dimension_of_unit(unit)
    check(expr, unit)


@pytest.mark.parametrize(
    ("expr", "told"),
    [
        (launch + width, "launch is in s, weight_width in B"),
        (launch + 1, "in s"),
        (f.fmax(compute, width), "weight_width in B"),
        (f.fmin(launch, rate), "gemm_rate in FLOP/s"),
        (f.pnorm(2, launch, width), "weight_width in B"),
        (f.pnorm(launch, n, n + 1), "launch is in s, not a plain number"),
        (f.where(n, launch, width), "launch is in s, weight_width in B"),
        (f.cdiv(width, n), "weight_width is in B, hidden in 1"),
        (f.eq(width, launch), "weight_width is in B, launch in s"),
        (f.ceil_(width), "weight_width is in B, not a plain number"),
        (sympy.exp(launch), "launch is in s, not a plain number"),
        (sympy.log(launch), "launch is in s, not a plain number"),
        (sympy.Pow(2, launch), "launch is in s, not a plain number"),
        (sympy.Pow(launch, n), "only a number may be raised to a symbol"),
        (n * (memory + f.fmax(launch, memory / 2 + width)), "weight_width"),
        (sympy.sin(n), "no rule for the dimension of sin"),
    ],
    ids=str,
)
def test_an_inconsistent_expression_names_the_part_at_fault(expr: Any, told: str) -> None:
    with pytest.raises(DimensionError) as caught:
        dimension(expr)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_flop_count_without_its_unit_is_found() -> None:
    check(2 * n**3 * FLOP / rate, "s")
    with pytest.raises(DimensionError, match="not in s"):
        check(2 * n**3 / rate, "s")


def test_zero_has_every_dimension_and_own_units_go_first() -> None:
    check(sympy.Integer(0), "B/s")
    k = sympy.Symbol("k", positive=True)
    assert dimension(k * width, {"k": "1/s"}) == dimension_of_unit("B/s")
    assert dimension(n * width, {"hidden": "1/s"}) == dimension_of_unit("B/s")
    with pytest.raises(UserError, match="unknown symbol 'k'"):
        dimension(k * width)
