"""Formulas: declared, checked, bound, printed; a declaration that is wrong is refused."""

from __future__ import annotations

from typing import Any

import pytest
import sympy

from slipstick.core.algebra.dimension import DimensionError
from slipstick.core.algebra.formula import Formula, Parameter
from slipstick.core.algebra.symbols import symbol
from slipstick.core.errors import PluginError, UserError

LAUNCH = Parameter("launch", "s", "time of an empty kernel", 2e-6, upper=1e-3, latex="t_0")
SHARPNESS = Parameter("sharpness", "1", "order of the norm", 2, 0.4, 8)


def _build(n: Any) -> Any:
    terms = {"compute": n.flops / n.rate, "memory": n.moved / n.hbm_bandwidth, "latency": n.launch}
    return n.launch + n.pnorm(n.sharpness, terms["compute"], terms["memory"]), terms


def make(**changes: Any) -> Formula:
    fields: dict[str, Any] = {
        "name": "soft_roofline",
        "inputs": {"flops": "FLOP", "moved": "B", "rate": "FLOP/s", "hbm_bandwidth": "B/s"},
        "parameters": (LAUNCH, SHARPNESS),
        "build": _build,
        "unit": "s",
        "source": "williams2009",
    }
    return Formula(**{**fields, **changes})


def test_a_formula_is_built_once_and_only_when_asked() -> None:
    calls = []

    def build(n: Any) -> Any:
        calls.append(n)
        return _build(n)

    formula = make(build=build)
    assert calls == []
    formula.check()
    formula.text()
    formula.bind(flops=1, moved=1, rate=1, hbm_bandwidth=1)
    assert len(calls) == 1


def test_binding_numbers_gives_the_number_by_hand() -> None:
    # 3 s of compute and 4 s of memory: the Euclidean norm is 5 s, and one second of launch before it
    bound = make().bind(flops=3e15, moved=4e12, rate=1e15, hbm_bandwidth=1e12, launch=1)
    assert bound.expr == 6
    assert bound.terms == {"compute": 3, "memory": 4, "latency": 1}


def test_parameters_take_their_defaults_and_names_become_symbols_of_the_table() -> None:
    bound = make().bind(
        flops=2 * symbol("hidden"), moved="weight_width", rate="gemm_rate", hbm_bandwidth="hbm_bandwidth"
    )
    assert bound.terms["latency"] == sympy.Float(2e-6)
    assert bound.terms["memory"] == symbol("weight_width") / symbol("hbm_bandwidth")
    assert bound.expr.free_symbols == {symbol(s) for s in ("hidden", "weight_width", "gemm_rate", "hbm_bandwidth")}
    left = make().bind(flops=1, moved=1, rate=1, hbm_bandwidth=1, sharpness="q_of_my_device")
    assert [s.name for s in left.expr.free_symbols] == ["q_of_my_device"]


def test_inputs_that_swap_names_are_replaced_at_once() -> None:
    formula = Formula("ratio", {"a": "1", "b": "1"}, (), lambda n: n.a / n.b, "1", "doc")
    assert formula.bind(a="b", b="a").expr == 1 / formula.expr


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"flops": 1, "moved": 1, "rate": 1}, "no value for hbm_bandwidth"),
        ({"flops": 1, "moved": 1, "rate": 1, "hbm_bandwith": 1}, "did you mean hbm_bandwidth"),
        ({"flops": float("nan"), "moved": 1, "rate": 1, "hbm_bandwidth": 1}, "flops is 'nan'"),
        ({"flops": None, "moved": 1, "rate": 1, "hbm_bandwidth": 1}, "flops is 'None'"),
    ],
)
def test_bad_bindings_are_user_errors(values: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        make().bind(**values)


def test_the_expression_and_every_term_are_checked() -> None:
    make().check()
    with pytest.raises(DimensionError, match=r"formula 'soft_roofline': "):
        make(build=lambda n: n.flops / n.rate + n.moved).check()
    with pytest.raises(DimensionError, match=r"term 'memory'"):
        make(build=lambda n: (n.launch, {"memory": n.moved})).check()
    with pytest.raises(DimensionError, match="not in B"):
        make(unit="B").check()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"inputs": {"fmax": "1"}}, "'fmax' cannot name"),
        ({"inputs": {"FLOP": "1"}}, "'FLOP' cannot name"),
        ({"inputs": {"a b": "1"}}, "cannot name"),
        ({"inputs": {"launch": "s"}}, "declares 'launch' twice"),
        ({"inputs": {"a": "furlong"}}, "unknown unit"),
        ({"unit": "furlong"}, "unknown unit"),
    ],
)
def test_a_wrong_declaration_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(PluginError, match=told):
        make(**changes)


def test_an_undeclared_symbol_is_refused() -> None:
    with pytest.raises(PluginError, match="uses hidden, which it does not declare"):
        make(build=lambda n: symbol("hidden") * n.launch).expr  # noqa: B018
    with pytest.raises(AttributeError, match="declares no input or parameter 'flop'"):
        make(build=lambda n: n.flop).expr  # noqa: B018
    with pytest.raises(PluginError, match="default 9 is outside 0 to 1"):
        Parameter("eta", "1", "efficiency", 9, 0, 1)


def test_it_prints_as_text_and_as_latex() -> None:
    formula = make()
    assert formula.text() == "soft_roofline = launch + pnorm(sharpness, flops/rate, moved/hbm_bandwidth)"
    assert "t_0" in formula.latex()
    assert "hbm" not in formula.latex()  # the table knows a symbol for it


def test_it_compiles_with_its_terms() -> None:
    values = {"flops": 3e15, "moved": 4e12, "rate": 1e15, "hbm_bandwidth": 1e12, "launch": 1.0, "sharpness": 2.0}
    assert make().tape().evaluate(values) == pytest.approx(
        {"value": 6.0, "compute": 3.0, "memory": 4.0, "latency": 1.0}
    )
