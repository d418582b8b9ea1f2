"""Scores against values worked out by hand, and against scipy's rank correlation."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.records.measured import MeasuredPoint
from slipstick.core.study.validation.points import Passed
from slipstick.core.study.validation.report import report
from slipstick.core.study.validation.run import Predicted
from slipstick.core.study.validation.scores import (
    constant_errors,
    described,
    intervals,
    rank_correlation,
    regret,
)


def row(
    predicted: float, measured: float, metric: str = "iteration", *, low: float = 0.0, high: float = 0.0,
    rate: float = 0.0, source: str = "A", notes: tuple[str, ...] = (), **setting: Any,
) -> Predicted:  # fmt: skip
    point = MeasuredPoint(metric, measured, setting, "m", "h100", source, facts={"id": "x"})
    return Predicted(point, predicted, low, high, rate, True, False, "ideal", notes)


def test_errors_by_hand() -> None:
    found = described([row(1.1, 1.0).error, row(0.8, 1.0).error, row(2.0, 1.0).error])
    assert found["n"] == 3
    assert found["mean_abs_error"] == pytest.approx((0.1 + 0.2 + 1.0) / 3)
    assert found["median_abs_error"] == pytest.approx(0.2)
    assert found["bias"] == pytest.approx((0.1 - 0.2 + 1.0) / 3)
    assert found["p90_abs_error"] == pytest.approx(0.2 + 0.8 * 0.8)  # 80 % of the way from the second to the third


def test_out_of_memory_is_right_or_wrong() -> None:
    assert [row(p, m, "oom").error for p in (0.0, 1.0) for m in (0.0, 1.0)] == [0.0, -1.0, 1.0, 0.0]


def test_intervals_by_hand() -> None:
    inside, below = row(1.0, 1.1, low=0.8, high=1.2), row(1.0, 0.5, low=0.75, high=1.25)
    found = intervals([inside, below, row(1.0, 9.0)])
    assert found["coverage"] == 0.5
    assert found["n_intervals"] == 2  # the third has none
    assert found["median_interval_width"] == pytest.approx(0.45)
    # (1.2 - 0.8) / 1.1, and (0.5 + 2 / 0.2 * 0.25) / 0.5
    assert found["interval_score"] == pytest.approx((0.4 / 1.1 + 6.0) / 2)
    assert intervals([row(1.0, 1.0)])["coverage"] is None


_VALUES = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=12)


@settings(deadline=None)  # scipy is imported on the first call
@given(_VALUES)
def test_ranks_are_scipys(pairs: list[tuple[int, int]]) -> None:
    stats = pytest.importorskip("scipy.stats")
    first, second = [float(a) for a, _ in pairs], [float(b) for _, b in pairs]
    found = rank_correlation(first, second)
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(float(stats.spearmanr(first, second).statistic), abs=1e-9)


def test_regret_is_what_the_predicted_best_costs() -> None:
    # Of three layouts the second is predicted to be the fastest; it took 1.2 s where the fastest took 1.
    times = [row(2.0, 1.0, tp=8), row(1.0, 1.2, tp=4), row(3.0, 2.0, tp=2)]
    assert regret(times) == {"regret": pytest.approx(0.2), "choices": 1}
    # Throughput: more is better. The best is picked here.
    rates = [row(10.0, 100.0, "throughput", tp=8), row(5.0, 80.0, "throughput", tp=4)]
    assert regret(rates) == {"regret": 0.0, "choices": 1}
    assert regret([*times, *rates]) == {"regret": pytest.approx(0.1), "choices": 2}
    # Another batch is no alternative, and neither are two rows that are predicted alike.
    assert regret([row(2.0, 1.0, global_batch=8), row(1.0, 1.2, global_batch=16)])["choices"] == 0
    assert regret([row(1.0, 1.0), row(1.0, 1.2)]) == {"regret": None, "choices": 0}
    # Of two that tie for the best, the mean counts: (1 + 3) / 2 over 1.
    assert regret([row(1.0, 1.0), row(1.0, 3.0), row(2.0, 2.0)])["regret"] == pytest.approx(1.0)


def test_the_constant_of_a_training_set_is_the_flops_of_the_others() -> None:
    # The first run reaches 100 TFLOP/s of a device in 2 s, so does 200 TFLOP; predicted: 1 s at 200 TFLOP/s.
    # The second reaches 50 TFLOP/s: predicted 2 s at 100 TFLOP/s, took 4 s.
    first, second = row(1.0, 2.0, rate=200e12), row(2.0, 4.0, rate=100e12)
    found = constant_errors([first, second])
    # Carried over, 50 TFLOP/s make the first last 4 s (+100 %), 100 TFLOP/s the second 2 s (-50 %).
    assert found[id(first)] == pytest.approx(1.0)
    assert found[id(second)] == pytest.approx(0.5)
    rates = [row(200.0, 100.0, "tokens_per_s", rate=200e12), row(100.0, 50.0, "tokens_per_s", rate=100e12)]
    found = constant_errors(rates)
    assert [found[id(r)] for r in rates] == pytest.approx([0.5, 1.0])


def test_the_constant_of_a_serving_set_is_the_geometric_mean_of_the_others() -> None:
    rows = [row(1.0, value, "tpot") for value in (1.0, 4.0, 2.0)]
    found = constant_errors(rows)
    assert found[id(rows[2])] == pytest.approx(0.0)  # sqrt(1 * 4) = 2
    assert found[id(rows[0])] == pytest.approx(math.sqrt(8) - 1)
    assert constant_errors([rows[0]]) == {}  # alone in its group
    assert constant_errors([row(1.0, 1.0, "oom"), row(0.0, 1.0, "oom")]) == {}


def test_skipped_rows_count_as_wholly_wrong() -> None:
    rows = [row(1.2, 1.0), row(1.0, 1.0, "memory", source="B", notes=("assumed",))]
    passed = [
        Passed("y", "iteration", "why (tp 4, heads 3)", "A"),
        Passed("z", "iteration", "why (tp 5, heads 3)", "A"),
        Passed("file", "lines", "unknown", "B", count=7),
    ]
    found = report(rows, passed, ("source",))
    assert found.overall["n"] == 2
    assert found.overall["skipped"] == 9
    assert found.overall["mean_abs_error"] == pytest.approx(0.1)
    assert found.overall["mean_abs_error_with_skipped"] == pytest.approx((0.2 + 9) / 11)
    assert found.overall["predicted_share"] == pytest.approx(2 / 11)
    assert found.overall["approximated"] == 1
    assert found.by_metric["iteration"]["mean_abs_error_with_skipped"] == pytest.approx((0.2 + 2) / 3)
    assert found.by_metric["lines"]["n"] == 0
    assert found.by_metric["lines"]["mean_abs_error_with_skipped"] == 1.0
    assert found.by_source["B"]["skipped"] == 7
    assert set(found.by_group) == {"A | iteration | h100", "B | memory | h100"}
    assert set(found.by) == {"A", "B"}
    assert found.reasons == {"unknown": 7, "why": 2}
    document = found.to_json(rows=True)
    assert len(document["skipped"]) == 3
    assert document["rows"][1]["notes"] == ["assumed"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=20), st.floats(0.01, 100))
def test_scores_do_not_depend_on_the_unit(pairs: list[tuple[float, float]], scale: float) -> None:
    plain = report([row(p, m, low=p / 2, high=p * 2) for p, m in pairs], []).overall
    scaled = report([row(p * scale, m * scale, low=p * scale / 2, high=p * scale * 2) for p, m in pairs], []).overall
    for key in ("mean_abs_error", "median_abs_error", "bias", "interval_score", "constant_mean_abs_error"):
        assert (plain[key] is None) == (scaled[key] is None)
        if plain[key] is not None:
            assert scaled[key] == pytest.approx(plain[key], rel=1e-6, abs=1e-9), key
