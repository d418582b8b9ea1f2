"""Settings left as symbols, and derivations: formulas that equal the numbers, and slopes that equal differences."""

from __future__ import annotations

from typing import Any

import pytest
from sympy import preorder_traversal

import slipstick
from slipstick.core.algebra.symbols import symbol
from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.study.derive import Derivation, active_branch, derive
from slipstick.core.study.symbolic import (
    SERVING_FIGURES,
    TRAINING_FIGURES,
    exact,
    figure_expression,
    substituted,
)

TRAIN = {"kernels": "roofline", "devices": 64, "tp": 8, "pp": 2, "global_batch": 256}
SERVE = {"kernels": "roofline", "devices": 8, "tp": 8, "concurrency": 32}


def at(expression: Any, **values: float) -> float:
    return float(expression.xreplace({symbol(name): exact(value) for name, value in values.items()}))


@pytest.mark.parametrize(
    ("name", "points"),
    [("tp", (1, 2, 4, 8)), ("micro_batch", (1, 2, 4)), ("sequence", (512, 1000, 8192)), ("global_batch", (64, 512))],
)
def test_a_training_formula_equals_the_numbers(one: Any, host: Host, name: str, points: tuple[int, ...]) -> None:
    left = slipstick.train("llama-3.1-70b", on="h100-sxm", host=host, **{**TRAIN, name: symbol(name)})
    time, memory = left.time, left.memory
    assert {str(s) for s in time.free_symbols} == {name}
    for value in points:
        made = one("train", "llama-3.1-70b", "h100-sxm", **{**TRAIN, name: value})
        assert at(time, **{name: value}) == pytest.approx(made.time, rel=1e-9)
        assert at(memory, **{name: value}) == pytest.approx(made.memory, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "points"), [("tp", (1, 4, 8)), ("concurrency", (1, 31, 256)), ("input_tokens", (1, 777, 4096))]
)
def test_a_serving_formula_equals_the_numbers(one: Any, host: Host, name: str, points: tuple[int, ...]) -> None:
    left = slipstick.serve("mixtral-8x7b", on="h200-sxm", host=host, **{**SERVE, name: symbol(name)})
    for figure in ("tpot_s", "ttft_s", "output_tokens_per_s", "kv_capacity_tokens"):
        expression = left.figure(figure)
        for value in points:
            made = one("serve", "mixtral-8x7b", "h200-sxm", **{**SERVE, name: value})
            assert at(expression, **{name: value}) == pytest.approx(made.figure(figure), rel=1e-9), figure


def test_two_symbols_at_once(one: Any, host: Host) -> None:
    left = slipstick.train(
        "llama-3.1-8b", on="h100-sxm", host=host, devices=64, tp=symbol("tp"), pp=symbol("pp"), global_batch=256
    )
    for tp, pp in ((1, 1), (4, 2), (8, 8)):
        made = one("train", "llama-3.1-8b", "h100-sxm", devices=64, tp=tp, pp=pp, global_batch=256)
        assert at(left.time, tp=tp, pp=pp) == pytest.approx(made.time, rel=1e-9)


@pytest.mark.parametrize("task", ["train", "serve"])
def test_every_figure_as_a_formula(one: Any, task: str) -> None:
    made = (
        one("train", "gemma-2-9b", "h100-sxm", **TRAIN)
        if task == "train"
        else one("serve", "deepseek-v3", "h200-sxm", **SERVE)
    )
    for figure in TRAINING_FIGURES if task == "train" else SERVING_FIGURES:
        expression = substituted(made.case, figure_expression(made.case, figure), made.settings)
        assert not expression.free_symbols
        assert float(expression) == pytest.approx(made.figure(figure), rel=1e-9), figure


@pytest.mark.parametrize(("name", "given", "points"), [
    ("straggler", {}, (1, 1.3)), ("load_skew", {"capacity_factor": 1.5}, (1, 1.25, 3)),
    ("capacity_factor", {"load_skew": 3}, (1, 1.5, 5)), ("global_batch", {"straggler": 1.3}, (64, 128)),
])  # fmt: skip
def test_what_a_straggler_and_a_capacity_change_is_in_the_formula(
    one: Any, host: Host, name: str, given: dict[str, Any], points: tuple[float, ...]
) -> None:
    """The formula leaves out what a stack that costs nothing multiplies; a straggler multiplies it after all."""
    ask = {"kernels": "roofline", "devices": 8, "ep": 8, "global_batch": 64, **given}
    left = slipstick.train("mixtral-8x7b", on="h100-sxm", host=host, **{**ask, name: symbol(name)}).time
    assert {str(s) for s in left.free_symbols} == {name}
    for value in points:
        made = one("train", "mixtral-8x7b", "h100-sxm", **{**ask, name: value})
        assert at(left, **{name: value}) == pytest.approx(made.time, rel=1e-9)


def test_a_slope_by_what_is_cut_off_is_nil(host: Host) -> None:
    """A skew above the capacity changes nothing; the capacity does, and so does a straggler."""
    ask = {"kernels": "roofline", "devices": 8, "ep": 8, "global_batch": 64, "load_skew": 3, "capacity_factor": 1.5}
    by = {
        name: derive("train", "mixtral-8x7b", "h100-sxm", ask, "step_time", name, host)
        for name in ("load_skew", "capacity_factor", "straggler")
    }
    assert (by["load_skew"].at, by["load_skew"].slope) == (3, 0)
    assert by["capacity_factor"].at == 1.5
    assert 0 < by["capacity_factor"].elasticity < 1
    assert by["straggler"].at == 1
    assert 0 < by["straggler"].elasticity < 1
    assert by["load_skew"].value == pytest.approx(by["straggler"].value)


def test_symbols_have_no_plain_figures(host: Host) -> None:
    left = slipstick.serve("llama-3.1-8b", on="h100-sxm", host=host, concurrency=symbol("concurrency"))
    assert left.is_symbolic
    with pytest.raises(TypeError, match="a setting is a symbol"):
        _ = left.answer
    with pytest.raises(UserError, match="one value for every other setting"):
        slipstick.serve("llama-3.1-8b", on="h100-sxm", host=host, concurrency=symbol("concurrency"), tp=[1, 2])


def test_the_formula_has_every_symbol(one: Any) -> None:
    names = {str(s) for s in one("serve", "llama-3.1-8b", "h100-sxm", kernels="roofline").formula.free_symbols}
    assert {"hidden", "layers", "tp", "hbm_bandwidth", "gemm_rate", "memory_efficiency", "concurrency"} <= names


CASES = [
    ("serve", "llama-3.1-8b", "h100-sxm", {}, "tpot", "hbm_bandwidth"),
    ("serve", "deepseek-v3", "h200-sxm", SERVE, "tpot", "hbm_bandwidth"),
    ("serve", "llama-3.1-70b", "h200-sxm", SERVE, "ttft", "gemm_rate"),
    ("serve", "llama-3.1-70b", "h200-sxm", SERVE, "kv_capacity_tokens", "hbm_capacity"),
    ("train", "llama-3.1-70b", "h100-sxm", TRAIN, "step_time", "tier_bandwidth_0"),
    ("train", "llama-3.1-70b", "h100-sxm", TRAIN, "step_time_s", "tier_bandwidth_1"),
    ("train", "llama-3.1-70b", "h100-sxm", TRAIN, "mfu", "hbm_bandwidth"),
    ("train", "llama-3.1-70b", "h100-sxm", TRAIN, "memory", "weight_width"),
    ("train", "mixtral-8x7b", "h100-sxm", {"devices": 8, "ep": 8, "global_batch": 64}, "step_time", "load_skew"),
    ("train", "llama-3.1-70b", "h100-sxm", {**TRAIN, "straggler": 1.5}, "step_time", "hbm_bandwidth"),
]


def numeric(host: Host, found: Derivation, question: tuple[Any, ...], value: float) -> float:
    """The figure where the symbol has another value, from the compiled program and not from the formula."""
    from slipstick.core.study.answers import serving_figures, training_figures
    from slipstick.core.study.ask import ask

    task, model, machine, settings, *_ = question
    made = ask(task, (model,), (machine,), settings, host).predictions[0]
    values = {**made.case.complete(made.settings), found.by: value}
    out = made.case.program.evaluate(values)
    if found.figure == "memory_peak_bytes":
        return float(out["memory.peak"])
    figures = training_figures if task == "train" else serving_figures
    return float(figures(made.case, values, out)[found.figure])


@pytest.mark.parametrize("question", CASES, ids=lambda q: f"{q[1]} {q[4]} {q[5]}")
def test_a_slope_is_the_difference_quotient(host: Host, question: tuple[Any, ...]) -> None:
    found = derive(*question, host=host)
    assert found.value == pytest.approx(numeric(host, found, question, found.at), rel=1e-9)
    step = found.at * 1e-4
    high, low = (numeric(host, found, question, found.at + sign * step) for sign in (1, -1))
    tolerance = 1 / found.value / 1e-4 if found.figure == "kv_capacity_tokens" else 1e-6  # capacity is rounded down
    assert (high - low) / (2 * step) == pytest.approx(
        found.slope, rel=1e-4, abs=tolerance * abs(found.value / found.at)
    )
    assert found.elasticity == pytest.approx(found.slope * found.at / found.value, rel=1e-12)


@pytest.mark.parametrize(("task", "by"), [("serve", "hbm_bandwidth"), ("serve", "concurrency"), ("train", "gemm_rate")])
@pytest.mark.parametrize("factor", [0.125, 0.5, 1, 4, 512])
def test_the_branch_equals_the_exact_formula_at_its_point(one: Any, task: str, by: str, factor: float) -> None:
    """Wherever the point lies, and so whatever binds there; no choice is left in a branch."""
    made = one(task, "mixtral-8x7b", "h200-sxm", devices=8, tp=8, **({"concurrency": 32} if task == "serve" else {}))
    whole = substituted(made.case, figure_expression(made.case, made.main_figure), made.settings, keep=(by,))
    point = {symbol(by): exact(made.case.complete(made.settings)[by] * factor)}
    branch = active_branch(whole, point)
    assert float(branch.xreplace(point)) == pytest.approx(float(whole.xreplace(point)), rel=1e-9)
    assert not {type(node).__name__ for node in preorder_traversal(branch)} & {
        "fmax",
        "fmin",
        "where",
        "eq",
        "lt",
        "le",
    }
    assert "fmax" in {type(node).__name__ for node in preorder_traversal(whole)}


def test_blocks_that_divide_have_the_slope_between_settings_that_divide(host: Host) -> None:
    found = derive("train", "llama-3.1-70b", "h100-sxm", TRAIN, "step_time", "sequence", host)
    assert "ceil" not in found.formula
    from slipstick.core.study.ask import ask

    times = [
        ask("train", ("llama-3.1-70b",), ("h100-sxm",), {**TRAIN, "sequence": s}, host).predictions[0].time
        for s in (8192 - 8, 8192 + 8)
    ]
    assert (times[1] - times[0]) / 16 == pytest.approx(found.slope, rel=1e-5)


def test_decoding_is_bound_by_bandwidth_and_the_formula_says_so(host: Host) -> None:
    """tpot = launches + bytes/(efficiency · bandwidth): the bytes are the weights read once, and a little more."""
    found = derive("serve", "llama-3.1-8b", "h100-sxm", {"kernels": "roofline"}, "tpot", "hbm_bandwidth", host)
    read = -found.slope * found.at**2 * 0.82
    weights = 2 * (8_030_261_248 - 128256 * 4096)  # the embedding is a look-up
    assert weights < read < weights * 1.02
    assert -1 < found.elasticity < -0.8


@pytest.mark.parametrize(
    ("figure", "by", "settings", "message"),
    [
        ("speed", "tp", {}, "unknown figure 'speed'"),
        ("step_time", "hbm", {}, "unknown symbol of step_time 'hbm'; did you mean"),
        ("step_time", "tp", {"tp": (1, 2)}, "derive takes one value for every setting"),
        ("step_time", "tp", {"tp": "?"}, "derive takes one value for every setting"),
        ("step_time", "tp", {"tpp": 1}, "unknown setting of `train` 'tpp'"),
    ],
)
def test_derivations_that_make_no_sense(
    host: Host, figure: str, by: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        derive("train", "llama-3.1-8b", "h100-sxm", settings, figure, by, host)
