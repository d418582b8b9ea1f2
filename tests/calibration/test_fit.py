"""The fitter finds the parameters that made the data, says which it cannot know, and does the same every time.

What a fit should find is known here because the data are made from it: times of a formula with stated parameters.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.calibration.fit import fit_formula, fit_rows, rows_of
from slipstick.calibration.fit_model import coordinate, model_of, slopes
from slipstick.calibration.fit_rows import PartRows, Rows, chosen, joined
from slipstick.calibration.fit_stats import outliers, sigma_of, slow_groups, summary, switches
from slipstick.core.algebra.formula import Formula, Parameter
from slipstick.core.errors import UserError

LAUNCH = Parameter("launch", "s", "time of an empty kernel", 3e-6, 0.0, 1e-3)
COMPUTE = Parameter("compute", "1", "fraction of the rate", 0.7, 0.01, 1.5)
MEMORY = Parameter("memory", "1", "fraction of the bandwidth", 0.7, 0.01, 1.5)
ROOF = Formula(
    "roof",
    inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
    parameters=(LAUNCH, COMPUTE, MEMORY, Parameter("order", "1", "sharpness", 3.0, 0.5, 8.0)),
    build=lambda n: n.launch + n.pnorm(n.order, n.flops / (n.compute * n.rate), n.bytes / (n.memory * n.bandwidth)),
    unit="s",
    source="a test",
)
BENT = Formula(
    "bent",
    inputs={"x": "1"},
    parameters=(
        Parameter("scale", "s", "time of one", 1e-6, 0.0, 1.0),
        Parameter("bend", "1", "of either sign", 0.0, -1.0, 1.0),
        Parameter("extra", "s", "may be absent", 0.0, 0.0, 1e-3),
    ),
    build=lambda n: n.scale * n.x * n.exp(n.bend * n.log(n.x) / 10) + n.extra,
    unit="s",
    source="a test",
)
TRUE = {"launch": 2.2e-6, "compute": 0.81, "memory": 0.9, "order": 2.0}
RATE, BANDWIDTH = 1e15, 3e12


def gemms(count: int = 600, seed: int = 1) -> dict[str, object]:
    """Inputs of products from decode to prefill."""
    random = np.random.default_rng(seed)
    m, n, k = (np.round(2.0 ** random.uniform(low, high, count)) for low, high in ((0, 13), (8, 14), (8, 14)))
    return {"flops": 2 * m * n * k, "bytes": 2 * (m * k + k * n + m * n), "rate": RATE, "bandwidth": BANDWIDTH}


def times(inputs: dict[str, object], noise: float = 0.0, seed: int = 2, **values: float) -> np.ndarray:
    """What the roof with the true parameters takes, with a relative noise."""
    found = ROOF.tape().evaluate({**inputs, **TRUE, **values}, ["value"])["value"]
    return found * np.exp(noise * np.random.default_rng(seed).normal(size=len(found)))


def test_the_parameters_that_made_the_data_are_found() -> None:
    inputs = gemms()
    fit = fit_formula(ROOF, inputs, times(inputs))
    assert fit.parameters == pytest.approx(TRUE, rel=2e-2)
    assert fit.errors.median < 1e-3
    assert fit.errors.n == fit.rows == 600
    assert fit.unidentified == ()


def test_noise_and_outliers_do_not_carry_the_fit_away() -> None:
    inputs = gemms(2000)
    seconds = times(inputs, noise=0.04)
    seconds[::25] *= 4.0  # one row in 25 ran four times slow
    fit = fit_formula(ROOF, inputs, seconds)
    assert fit.parameters == pytest.approx(TRUE, rel=0.08)
    assert fit.outliers >= 75
    assert "measured 4." in " ".join(fit.worst) or "measured 3." in " ".join(fit.worst)


def test_the_stated_spread_covers_the_truth() -> None:
    # over many sets the truth lies within two standard deviations in about 95 of 100 (least allowed here: 85)
    inside = total = 0
    for seed in range(12):
        inputs = gemms(300, seed)
        fit = fit_formula(ROOF, inputs, times(inputs, noise=0.05, seed=100 + seed), starts=1)
        for name, value in TRUE.items():
            inside += abs(np.log(fit.parameters[name] / value)) <= 2 * fit.spread[name]
            total += 1
    assert inside / total >= 0.85


@settings(max_examples=15, deadline=None)
@given(
    launch=st.floats(5e-7, 2e-5), compute=st.floats(0.2, 1.2), memory=st.floats(0.2, 1.2), seed=st.integers(0, 10**6)
)
def test_any_parameters_are_found(launch: float, compute: float, memory: float, seed: int) -> None:
    inputs = gemms(400, seed)
    true = {"launch": launch, "compute": compute, "memory": memory}
    fit = fit_formula(ROOF, inputs, times(inputs, **true))
    assert {name: fit.parameters[name] for name in true} == pytest.approx(true, rel=0.05)


def test_the_same_rows_give_the_same_fit_and_their_order_does_not_matter_much() -> None:
    inputs = gemms(3000)
    seconds = times(inputs, noise=0.05)
    first, second = (fit_formula(ROOF, inputs, seconds, max_rows=500) for _ in range(2))
    assert first.parameters == second.parameters
    assert first.spread == second.spread
    turned = {name: value[::-1] if np.ndim(value) else value for name, value in inputs.items()}
    other = fit_formula(ROOF, turned, seconds[::-1], max_rows=500)
    assert other.parameters == pytest.approx(first.parameters, rel=1e-4)


def test_a_hundred_thousand_rows_take_seconds() -> None:
    import time

    inputs = gemms(100_000)
    seconds = times(inputs, noise=0.05)
    slopes(ROOF)  # importing sympy is not the fit's time
    began = time.perf_counter()
    fit = fit_formula(ROOF, inputs, seconds)
    assert time.perf_counter() - began < 10
    assert fit.errors.n == 100_000


def test_what_the_data_do_not_determine_is_said_and_stays_at_its_default() -> None:
    inputs = gemms() | {"flops": np.full(600, 1.0)}  # nothing is ever bound by compute
    fit = fit_formula(ROOF, inputs, times(inputs))
    assert "compute" in fit.unidentified
    assert fit.parameters["compute"] == pytest.approx(0.7, rel=0.05)
    assert "memory" not in fit.unidentified
    assert fit.parameters["memory"] == pytest.approx(0.9, rel=0.02)


def test_a_parameter_at_its_bound_is_not_determined() -> None:
    inputs = gemms()
    fit = fit_formula(ROOF, inputs, times(inputs, compute=1.5))
    assert fit.parameters["compute"] == pytest.approx(1.5, rel=0.01)
    assert "compute" in fit.unidentified


def test_fixed_parameters_stay() -> None:
    inputs = gemms()
    fit = fit_formula(ROOF, inputs, times(inputs), fixed={"order": 2.0})
    assert fit.parameters["order"] == 2.0
    assert "order" not in fit.spread
    assert fit.parameters == pytest.approx(TRUE, rel=1e-2)


def test_few_rows_free_few_parameters() -> None:
    inputs = gemms(5)
    fit = fit_formula(ROOF, inputs, times(inputs))
    assert len(fit.frozen) == 2  # five rows, two for each of the other two
    assert all(fit.parameters[name] == {p.name: p.default for p in ROOF.parameters}[name] for name in fit.frozen)
    assert set(fit.frozen) <= set(fit.unidentified)


def test_parameters_of_either_sign_and_absent_ones() -> None:
    x = np.geomspace(1, 1e6, 300)
    fit = fit_formula(BENT, {"x": x}, 2e-6 * x * np.exp(-0.3 * np.log(x) / 10) + 5e-6)
    assert fit.parameters == pytest.approx({"scale": 2e-6, "bend": -0.3, "extra": 5e-6}, rel=0.02)
    plain = fit_formula(BENT, {"x": x}, 2e-6 * x)
    assert plain.parameters["bend"] == pytest.approx(0.0, abs=1e-3)
    assert "extra" in plain.unidentified  # zero is its bound: the term is not there
    assert plain.parameters["extra"] < 1e-8


def test_slopes_agree_with_differences() -> None:
    inputs = gemms(200)
    rows = rows_of(ROOF, inputs, times(inputs))
    model = model_of(ROOF, "it", 200)
    places = model.inside(TRUE)
    over = model.over(rows)
    # central differences of the residuals themselves
    for column, _ in enumerate(places):
        up, down = list(places), list(places)
        up[column] += 1e-5
        down[column] -= 1e-5
        expected = (over.residuals(up) - over.residuals(down)) / 2e-5
        np.testing.assert_allclose(over.jacobian(places)[:, column], expected, rtol=1e-4, atol=1e-7)


def test_coordinates_follow_the_declared_bounds() -> None:
    assert coordinate(LAUNCH, few=False).log
    assert not coordinate(BENT.parameters[1], few=False).log
    assert not coordinate(BENT.parameters[2], few=False).log
    absent = coordinate(BENT.parameters[2], few=False)
    assert (absent.centre, absent.width) == (0, BENT.parameters[2].upper)  # what no row tells of stays absent


def test_what_the_rows_do_not_feel_stays_at_its_default() -> None:
    """A pass with one kernel a row says nothing of what a chain of them would cost, whatever start is tried."""
    extra = Parameter("extra", "1", "of each further one", 0.0, 0.0, 1.0)
    launch = Parameter("launch", "s", "of a kernel", 1e-6, 0, 1)
    chain = Formula(
        "chain", {"count": "1", "work": "s"}, (launch, extra),
        lambda n: n.work + n.launch * (1 + n.extra * (n.count - 1)), "s", "",
    )  # fmt: skip
    work = np.geomspace(1e-6, 1e-3, 400)
    for seed in range(3):
        found = fit_formula(chain, {"count": 1.0, "work": work}, work + 5e-6, seed=seed, starts=5)
        assert found.parameters["extra"] == pytest.approx(0.0, abs=1e-6)
        assert found.parameters["launch"] == pytest.approx(5e-6, rel=1e-3)
        assert "extra" in found.unidentified


def test_a_row_of_several_kernels() -> None:
    inputs = gemms(800)
    single = times(inputs)
    pause = Formula(
        "pause", {"count": "1"}, (Parameter("each", "s", "of one", 1e-6, 0, 1),), lambda n: n.count * n.each, "s", ""
    )
    count = np.tile([1.0, 2.0], 400)
    seconds = 2 * single + 4e-6 * count  # the kernel twice, and something else
    part = PartRows("gemm", inputs)
    rows = Rows(seconds, (part, part, PartRows("pause", {"count": count})), {"flops": inputs["flops"]})
    fit = fit_rows(ROOF, "gemm", rows, held={"pause": (pause, {"each": 4e-6})})
    assert fit.parameters == pytest.approx(TRUE, rel=2e-2)
    wrong = fit_rows(ROOF, "gemm", rows, held={"pause": (pause, {})})  # at its default of 1 µs
    assert wrong.parameters["launch"] > 1.2 * TRUE["launch"]
    with pytest.raises(UserError, match="pause"):
        fit_rows(ROOF, "gemm", rows)


def test_rows_are_taken_and_joined_with_their_parts() -> None:
    a = Rows(np.array([1.0, 2.0]), (PartRows("x", {"v": np.array([1.0, 2.0])}),), {"m": np.array([1.0, 2.0])})
    b = Rows(np.array([3.0]), (PartRows("y", {"v": 5.0}),), {"m": np.array([3.0])})
    both = joined([a, b])
    assert both.seconds.tolist() == [1, 2, 3]
    assert [(p.slot, p.index.tolist()) for p in both.parts] == [("x", [0, 1]), ("y", [2])]
    last = both.take(np.array([2, 1]))
    assert last.seconds.tolist() == [3, 2]
    assert [(p.slot, p.index.tolist()) for p in last.parts] == [("x", [1]), ("y", [0])]
    assert last.parts[0].inputs["v"].tolist() == [2.0]


def test_rows_of_one_shape_are_pooled_to_their_median() -> None:
    m = np.array([4.0, 8.0, 4.0, 4.0])
    rows = Rows(np.array([1.0, 5.0, 3.0, 2.0]), (PartRows("x", {"m": m}),), {"m": m}).pooled()
    assert rows.shape["m"].tolist() == [4, 8]
    assert rows.seconds.tolist() == [2, 5]
    assert rows.measurements == 4


def test_a_sample_keeps_what_is_rare() -> None:
    m = np.concatenate((np.tile(np.arange(1.0, 65.0), 100), [4096.0] * 10))
    n = np.arange(len(m), dtype=float)
    rows = Rows(np.ones(len(m)), (), {"m": m, "n": n})
    picked = chosen(rows, 400, 0, (m > 64).astype(int))
    assert len(picked) == len(set(picked.tolist())) == 400
    assert (m[picked] > 64).sum() == 10


def test_what_is_off_in_a_body_is_named() -> None:
    m = np.repeat([1.0, 16.0, 64.0, 128.0, 1024.0], 40)
    residuals = np.where(m <= 64, 0.0, -np.log(1.5))
    lines = switches(residuals, Rows(np.ones(200), (), {"m": m}))
    assert lines == ("m 128 to 1024: measured 1.50 times the prediction (80 rows)",)
    assert switches(np.zeros(200), Rows(np.ones(200), (), {"m": m})) == ()


def test_slow_configurations_are_found_but_not_a_wrong_formula() -> None:
    groups = np.repeat(np.arange(20), 10)
    residuals = np.where(groups == 3, -np.log(3.0), 0.0)
    assert slow_groups(residuals, groups).tolist() == (groups == 3).tolist()
    assert not slow_groups(np.where(groups < 10, -np.log(3.0), 0.0), groups).any()
    assert not slow_groups(np.where(groups == 3, np.log(3.0), 0.0), groups).any()  # fast is no fallback


def test_figures_of_known_residuals() -> None:
    found = summary(np.log(np.array([1.1, 1.1, 0.8, 1.0])))
    assert (found.n, found.median) == (4, pytest.approx(0.1))
    assert found.mean == pytest.approx(0.1)
    assert found.bias == pytest.approx(0.0, abs=1e-12)
    random = np.random.default_rng(0)
    assert sigma_of(0.2 * random.normal(size=100_000)) == pytest.approx(0.2, rel=0.02)  # of a normal law
    rows = Rows(np.ones(101), (), {"m": np.arange(101.0)})
    residuals = 0.01 * random.normal(size=101)
    residuals[7] = -1.0
    assert outliers(residuals, rows) == (1, ("m 7: measured 2.72 times the prediction",))


@pytest.mark.parametrize(
    ("inputs", "seconds", "told"),
    [
        ({}, [1.0], "needs the input x"),
        ({"x": [1.0, 2.0]}, [1.0], "2 values for 1"),
        ({"x": [1.0]}, [0.0], "positive"),
        ({"x": [1.0]}, [float("nan")], "positive"),
        ({"x": [float("nan")]}, [1.0], "finite"),
        ({"x": []}, [], "nothing to fit"),
    ],
)
def test_bad_rows_are_refused_in_one_line(inputs: dict, seconds: list, told: str) -> None:
    with pytest.raises(UserError, match=told) as error:
        fit_formula(BENT, inputs, seconds)
    assert "\n" not in str(error.value)


def test_unknown_and_impossible_fixed_values_are_refused() -> None:
    with pytest.raises(UserError, match="scal"):
        fit_formula(BENT, {"x": [1.0]}, [1.0], fixed={"scal": 1.0})
    with pytest.raises(UserError, match="its range is"):
        fit_formula(BENT, {"x": [1.0]}, [1.0], fixed={"bend": 3.0})


def test_a_few_noisy_rows_do_not_carry_the_parameters_away() -> None:
    # six rows that are off by a factor of e: they say little, and the defaults keep their weight
    inputs = gemms(8, seed=5)
    seconds = times(inputs, noise=1.0, seed=8)
    fit = fit_formula(ROOF, inputs, seconds)
    for parameter in ROOF.parameters:
        assert abs(np.log(fit.parameters[parameter.name] / parameter.default)) < 2.0
