"""Runs as sums over coefficients: the parts say of a time what the whole model says with those coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from slipstick.calibration.stack_parts import REFERENCE, SERVING, TRAINING, UNFUSED, Parts, parts_of
from slipstick.core.host.host import Host
from slipstick.core.records.measured import MeasuredPoint
from slipstick.core.study.validation.scenarios import Question, Scenarios

FAR = {
    "time_factor": 1.37, "kernel_overhead": 3.1e-6, "collective_factor": 1.21, "step_overhead": 4e-4,
    "sequence_overhead": 2.3e-5, "prefill_factor": 1.15, "attention_factor": 1.3, "launch_time": 2e-5,
    "exposed_share": 0.35,
}  # fmt: skip
NEAR = {**FAR, "time_factor": 0.9, "kernel_overhead": 0.0, "collective_factor": 0.6, "prefill_factor": 0.0}


@pytest.fixture(scope="module")
def scenarios(host: Host) -> Scenarios:
    return Scenarios(host, "ideal")


def served(model: str, **setting: Any) -> MeasuredPoint:
    known = {"task": "serve", "input_tokens": 1024, "output_tokens": 256, "precision": "bf16", **setting}
    return MeasuredPoint("tpot", 0.01, known, model, "h100_sxm")


def trained(model: str, **setting: Any) -> MeasuredPoint:
    known = {"task": "train", "sequence": 2048, "micro_batch": 1, "precision": "bf16", "recompute": "none", **setting}
    return MeasuredPoint("iteration", 1.0, known, model, "H100")


SERVED = [
    *(served("Llama-3.1-8B", devices=n, tp=n, concurrency=c) for n in (1, 4) for c in (1, 8, 64)),
    *(served("Mixtral-8x7B-v0.1", devices=4, tp=4, concurrency=c) for c in (1, 32)),
    served("Mixtral-8x7B-v0.1", devices=4, tp=4, ep=4, concurrency=32, input_tokens=200),
]
TRAINED = [
    *(trained("Llama-3.1-8B", devices=8, tp=t, dp=8 // t, global_batch=b, zero=1) for t in (1, 2, 8) for b in (8, 32)),
    trained("Llama-3.1-8B", devices=8, tp=2, pp=2, dp=2, global_batch=32, zero=1),
    trained("Mixtral-8x7B-v0.1", devices=8, tp=2, dp=4, global_batch=16, zero=1),
    trained("Mixtral-8x7B-v0.1", devices=8, tp=1, dp=8, ep=8, global_batch=16, zero=0),
]


@pytest.fixture(scope="module")
def questions(scenarios: Scenarios) -> dict[str, list[Question]]:
    found = {"serve": SERVED, "train": TRAINED}
    return {task: [scenarios.question(point) for point in points] for task, points in found.items()}


@pytest.fixture(scope="module")
def parts(questions: dict[str, list[Question]]) -> dict[str, Parts]:
    return {task: parts_of(task, several) for task, several in questions.items()}


def whole(task: str, questions: Sequence[Question], values: dict[str, float]) -> list[float]:
    """The time by the model itself, row by row."""
    name = "tpot" if task == "serve" else "step_time"
    return [float(q.case.evaluate({**q.settings, **values}, [name])[name]) for q in questions]


@pytest.mark.parametrize("values", [REFERENCE, FAR, NEAR], ids=["reference", "far", "near"])
def test_parts_of_serving_add_up_to_the_whole(
    values: dict[str, float], questions: dict[str, list[Question]], parts: dict[str, Parts]
) -> None:
    own = {name: values[name] for name in SERVING}
    assert parts["serve"].time(own) == pytest.approx(whole("serve", questions["serve"], own), rel=1e-6)


@pytest.mark.parametrize("values", [REFERENCE, FAR, NEAR], ids=["reference", "far", "near"])
def test_parts_of_training_are_the_whole_where_they_were_taken(
    values: dict[str, float], questions: dict[str, list[Question]], parts: dict[str, Parts]
) -> None:
    several = questions["train"]
    here = parts_of("train", several, values, parts["train"].kernels)
    assert here.time(here.at) == pytest.approx(whole("train", several, values), rel=1e-9)
    # Nearby too, each coefficient apart: a factor of 1.001 crosses no kink here.
    for name in ("time_factor", "collective_factor", "attention_factor", "kernel_overhead", "exposed_share"):
        if not values.get(name):
            continue
        near = {**values, name: 1.001 * values[name]}
        moved = {**here.at, name: 1.001 * here.at[name]}
        assert here.time(moved) == pytest.approx(whole("train", several, near), rel=1e-6), name


def test_slopes_are_those_of_the_time(parts: dict[str, Parts]) -> None:
    """The time is a product of at most three coefficients, so a central difference is exact."""
    for task, names in (("serve", SERVING), ("train", TRAINING)):
        at = {**FAR, UNFUSED: 0.2}
        slopes = parts[task].slopes(at)
        assert set(slopes) == set(names)
        for name in names:
            step = 0.01 * at[name]
            up, down = (parts[task].time({**at, name: at[name] + sign * step}) for sign in (1, -1))
            assert slopes[name] == pytest.approx((up - down) / (2 * step), rel=1e-5, abs=1e-9)


def test_a_coefficient_may_differ_from_row_to_row(questions: dict[str, list[Question]]) -> None:
    """Rows of several stacks are taken each at its own coefficients; rows of one case have them in common."""
    several = [questions["train"][0], questions["train"][-1]]
    factors = np.array([1.1, 1.7])
    here = parts_of("train", several, {**FAR, "time_factor": factors})
    for row, factor in enumerate(factors):
        alone = whole("train", [several[row]], {**FAR, "time_factor": float(factor)})
        assert here.time(here.at)[row] == pytest.approx(alone[0], rel=1e-9)


def test_the_parts_of_a_row_do_not_depend_on_the_others(
    questions: dict[str, list[Question]], parts: dict[str, Parts]
) -> None:
    for task, several in questions.items():
        for row in (0, len(several) - 1):
            alone = parts_of(task, [several[row]])
            at = {**FAR, UNFUSED: 0.0}
            assert alone.time(at) == pytest.approx(parts[task].take([row]).time(at), rel=1e-9)


def test_kernels_have_the_spread_of_their_records(parts: dict[str, Parts]) -> None:
    assert np.all(parts["serve"].kernels > 0)
    assert np.all(parts["train"].kernels > 0)


def test_a_row_that_asks_for_more_than_fits_has_as_many_as_run(scenarios: Scenarios) -> None:
    """A server takes no more requests than its cache holds; the others wait, and the time is that of those that run."""
    full = [scenarios.question(served("Llama-3.1-70B", devices=2, tp=2, concurrency=c)) for c in (2000, 20000)]
    times = parts_of("serve", full).time(FAR)
    assert times[0] == times[1]
    assert times[0] < min(whole("serve", full, {name: FAR[name] for name in SERVING}))


def test_what_sequences_cost_is_counted_for_each_replica(scenarios: Scenarios) -> None:
    question = scenarios.question(served("Llama-3.1-8B", devices=4, dp=4, tp=1, concurrency=32))
    assert parts_of("serve", [question]).own["sequence_overhead"] == pytest.approx([32 / 4], rel=1e-6)
    question = scenarios.question(served("Llama-3.1-8B", devices=1, tp=1, concurrency=32))
    found = parts_of("serve", [question])
    assert found.own["step_overhead"] == pytest.approx([1.0], rel=1e-6)
    assert found.own["collective_factor"] == pytest.approx([0.0], abs=1e-12)
    assert found.weight == pytest.approx([31 / 256], rel=1e-9)
