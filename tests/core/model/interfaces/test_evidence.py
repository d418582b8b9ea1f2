"""Claims: what a sound one is, and when a prediction holds: published rows, and laws of the four relations."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from slipstick.core.errors import PluginError, UserError
from slipstick.core.model.interfaces.evidence import Claim, Verdict
from slipstick.core.records.provenance import Source
from slipstick.core.records.scenario import Scenario

LOGS = Source("dos", "Deep Optimizer States, run logs", "https://arxiv.org/abs/2410.21316", "2024-10-26", "measured")
ASKED = Scenario("train", "llama-3.1-8b", "h100-sxm")

VALUES = st.floats(1e-6, 1e12) | st.floats(-1e12, -1e-6)
TOLERANCES = st.floats(0, 2)


def claim(**changes: Any) -> Claim:
    """A sound claim with some fields changed; None takes one away."""
    fields: dict[str, Any] = {
        "name": "acme", "scenario": ASKED, "figure": "step_time_s", "value": 1.0, "unit": "1",
        "relation": "equal within", "source": LOGS, "trust": "DATA",
    }  # fmt: skip
    return Claim(**{name: value for name, value in {**fields, **changes}.items() if value is not None})


# --- what a claim is ----------------------------------------------------------------------------------------------


def test_the_minimal_plugin_works(minimal: Callable[[str], Any]) -> None:
    found = minimal("evidence")
    assert found.published == (2.95,)
    answer = {"step_time_s": 3.2, "tokens_per_s": 5.0}
    asked: list[Scenario] = []

    def ask(scenario: Scenario) -> Mapping[str, Any]:
        asked.append(scenario)
        return answer

    verdict = found.holds(found.predicted(ask))
    assert asked == [found.scenario]
    assert verdict
    assert verdict.text == "predicted 3.2 s, published 2.95 s (+8.47 %)"
    assert not found.holds(3.3)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"name": ""}, "a claim's name is"),
        ({"scenario": None}, "give either a scenario"),
        ({"expectation": lambda ask: 1.0}, "give either a scenario"),
        ({"figure": None}, "a scenario needs one"),
        ({"scenario": None, "expectation": lambda ask: 1.0}, "a figure belongs to a scenario"),
        ({"scenario": None, "figure": None, "expectation": 3}, "can't be called"),
        ({"relation": "about"}, "unknown relation 'about'; there are equal within, at most, at least, ordering"),
        ({"trust": "GUESS"}, "unknown trust tag 'GUESS'"),
        ({"source": "somewhere"}, "a Source is expected"),
        ({"tolerance": -0.1}, "its tolerance is"),
        ({"tolerance": math.nan}, "its tolerance is"),
        ({"tolerance": "5 %"}, "its tolerance is"),
        ({"unit": "furlong"}, "furlong"),
        ({"unit": 3}, "claim 'acme'"),
        ({"value": ()}, "finite numbers are expected"),
        ({"value": math.inf}, "finite numbers are expected"),
        ({"value": "2.5x"}, "finite numbers are expected"),
        ({"value": True}, "finite numbers are expected"),
        ({"value": 0, "tolerance": 0.1}, "relative to 0"),
        ({"relation": "ordering"}, "two values that differ"),
        ({"relation": "ordering", "value": (2, 2)}, "two values that differ"),
        ({"relation": "ordering", "value": (100, 95), "tolerance": 0.1}, "by more than the tolerance"),
    ],
)
def test_an_unsound_claim_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(PluginError, match=told):
        claim(**changes)


def test_what_is_asked_and_compared() -> None:
    ask = {"feasible": False, "memory_bytes": {"peak": 4e10}}
    assert claim(figure="memory_bytes.peak").predicted(lambda _: ask) == (4e10,)
    # Out of memory is a published value too (2410.21316: 20B at micro-batch 16).
    assert claim(figure="feasible", value=0).holds(claim(figure="feasible").predicted(lambda _: ask))
    both = claim(scenario=None, figure=None, expectation=lambda ask: ask(ASKED)["a"] / ask(ASKED)["b"])
    assert both.predicted(lambda _: {"a": 3.0, "b": 2.0}) == (1.5,)
    with pytest.raises(UserError, match="unknown figure 'memory'; did you mean memory_bytes"):
        claim(figure="memory").predicted(lambda _: ask)
    with pytest.raises(PluginError, match="a number or several are expected"):
        claim(figure="memory_bytes").predicted(lambda _: {"memory_bytes": "much"})


@pytest.mark.parametrize("predicted", [(), (1.0, 2.0), "1.0", None, ["a"]])
def test_another_count_of_numbers_is_refused(predicted: Any) -> None:
    with pytest.raises(PluginError, match="1 values are published"):
        claim().holds(predicted)


def test_numbers_of_numpy_are_numbers() -> None:
    import numpy

    several: Any = numpy.array([1.0, 2.0])
    assert claim(value=(1, 2)).holds(several)
    assert claim().holds(numpy.float64(1))


# --- published rows -----------------------------------------------------------------------------------------------


def test_published_rows() -> None:
    # 2410.21316, run logs, 20B on four H100: 7279 ms with ZeRO-3, 3802 with asynchronous gradients, 2964 with all.
    gain = claim(value=(1.91, 1.28), tolerance=0.01, trust="DERIVED")
    assert gain.holds((7279 / 3802, 3802 / 2964))
    assert not gain.holds((7279 / 2964, 3802 / 2964))
    # 2404.14897, its form with the bonus token: 3.36 / 1.4 at an acceptance of 0.8, 4 drafts, a tenth of the cost.
    assert claim(value=2.40, tolerance=0.005, trust="MEM").holds((1 - 0.8**5) / ((1 - 0.8) * (4 * 0.1 + 1)))
    # 2605.19775 as read by a third party: seconds of 32B under DP8, TP8, DP4 with TP2.
    layouts = claim(value=(857, 686, 484), unit="s", relation="ordering", trust="2ND")
    assert layouts.holds((700, 650, 500))
    turned = layouts.holds((700, 650, 660))
    assert not turned.held
    assert turned.error == pytest.approx(1 / 3)


def test_bounds_have_a_direction() -> None:
    # 2007.01045, abstract: a planner up to 3.23 times as good; a prediction may stay below that, not pass it.
    most = claim(value=3.23, relation="at most", trust="ABS")
    assert most.holds(2.0)
    assert not most.holds(3.3)
    # 2511.17599, as read by a third party: more than 40 % less latency.
    least = claim(value=40, unit="%", relation="at least", trust="2ND")
    assert least.holds(0.45)
    assert not least.holds(0.35)


# --- laws ---------------------------------------------------------------------------------------------------------


@given(VALUES, TOLERANCES, st.sampled_from(["equal within", "at most", "at least"]))
def test_what_was_published_holds(value: float, tolerance: float, relation: str) -> None:
    verdict = claim(value=value, tolerance=tolerance, relation=relation).holds(value)
    assert verdict == Verdict(True, 0.0, (value,), (value,), verdict.text)


@given(VALUES, VALUES, TOLERANCES)
def test_equal_within_is_at_most_and_at_least(value: float, predicted: float, tolerance: float) -> None:
    equal, most, least = (
        claim(value=value, tolerance=tolerance, relation=relation).holds(predicted)
        for relation in ("equal within", "at most", "at least")
    )
    assert equal.held == (most.held and least.held)
    assert most.held or least.held


@given(VALUES, VALUES, TOLERANCES, TOLERANCES, st.sampled_from(["equal within", "at most", "at least"]))
def test_a_larger_tolerance_refuses_nothing_more(
    value: float, predicted: float, one: float, other: float, relation: str
) -> None:
    strict, lax = (claim(value=value, tolerance=t, relation=relation).holds(predicted) for t in sorted((one, other)))
    assert lax.held or not strict.held


@given(st.floats(1e-3, 1e3), st.floats(-0.9, 0.9), st.floats(0.001, 0.9))
def test_the_tolerance_is_relative(value: float, deviation: float, tolerance: float) -> None:
    assume(abs(abs(deviation) - tolerance) > 1e-9)
    verdict = claim(value=value, tolerance=tolerance).holds(value * (1 + deviation))
    assert verdict.held == (abs(deviation) < tolerance)
    assert verdict.error == pytest.approx(deviation, abs=1e-9)


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.floats(0.001, 1))
def test_the_unit_changes_no_verdict(value: float, predicted: float, tolerance: float) -> None:
    assume(abs(abs(predicted / value - 1) - tolerance) > 1e-9)
    seconds = claim(value=value, unit="s", tolerance=tolerance).holds(predicted)
    millis = claim(value=value * 1000, unit="ms", tolerance=tolerance).holds(predicted)
    assert seconds.held == millis.held
    assert millis.published == pytest.approx(seconds.published)


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.data())
def test_several_hold_when_each_does_and_the_worst_is_told(values: list[float], data: st.DataObject) -> None:
    predicted = [data.draw(st.floats(0.01, 100)) for _ in values]
    each = [claim(value=v, tolerance=0.5).holds(p) for v, p in zip(values, predicted, strict=True)]
    together = claim(value=values, tolerance=0.5).holds(predicted)
    assert together.held == all(each)
    assert abs(together.error) == pytest.approx(max(abs(verdict.error) for verdict in each))


@given(st.lists(st.integers(-1000, 1000), min_size=2, max_size=8, unique=True))
def test_an_ordering_asks_for_the_order_alone(values: list[int]) -> None:
    ordering = claim(value=values, relation="ordering")
    assert ordering.holds([math.atan(value) * 7 for value in values])
    reverse = ordering.holds([-value for value in values])
    assert (reverse.held, reverse.error) == (False, 1.0)
    tied = ordering.holds([5.0] * len(values))
    assert (tied.held, tied.error) == (False, 1.0)


def test_published_values_within_the_tolerance_have_no_order() -> None:
    ordering = claim(value=(100, 101, 200), relation="ordering", tolerance=0.05)
    assert ordering.holds((101, 100, 200))
    assert not ordering.holds((100, 200, 101))


@pytest.mark.parametrize("relation", ["equal within", "at most", "at least", "ordering"])
@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1])
def test_what_is_not_finite_never_holds(relation: str, odd: float, place: int) -> None:
    predicted = [1.0, 2.0]
    predicted[place] = odd
    assert not claim(value=(1, 2), relation=relation, tolerance=0.1).holds(predicted).held
