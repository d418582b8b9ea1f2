"""The fit of stacks, on runs made with known coefficients: what is found again, what is shrunk, what is left out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from slipstick.calibration.stack_fit import (
    DEVICE,
    SHARES,
    STACK,
    Fit,
    fit,
    held_out,
    predicted,
    spreads,
    summary,
)
from slipstick.calibration.stack_parts import SERVING, TRAINING, UNFUSED, Parts
from slipstick.core.study.intervals import LEVEL, Z

TRUE = {
    "time_factor": 1.25, "kernel_overhead": 4e-6, "collective_factor": 1.4, "step_overhead": 1.5e-3,
    "sequence_overhead": 3e-5, "prefill_factor": 0.9,
}  # fmt: skip
TRAINED = {"time_factor": 1.2, "kernel_overhead": 5e-6, "launch_time": 3e-5, "collective_factor": 1.3,
           "attention_factor": 1.4, UNFUSED: 0.3, "exposed_share": 0.3, "step_overhead": 3e-3}  # fmt: skip


def served(n: int, seed: int = 0) -> Parts:
    """Decode steps of 2 to 30 ms, some with collectives, a few hundred kernels, prefills beside them."""
    random = np.random.default_rng(seed)
    kernels, collectives = random.uniform(2e-3, 3e-2, n), random.uniform(0, 8e-3, n) * random.integers(0, 2, n)
    count, sequences = random.uniform(200, 1200, n), 2.0 ** random.integers(0, 9, n)
    own = {"time_factor": kernels, "kernel_overhead": count, "collective_factor": collectives,
           "step_overhead": np.ones(n), "sequence_overhead": sequences}  # fmt: skip
    beside = {"time_factor": random.uniform(0.02, 0.5, n), "kernel_overhead": count, "collective_factor": collectives}
    return Parts("serve", own, beside, sequences / random.uniform(100, 2000, n), np.zeros(n), np.full(n, 0.05))


def trained(n: int, seed: int = 0) -> Parts:
    """Steps of 0.2 to 20 s, up to a third of it transfers and launches that are partly hidden."""
    random = np.random.default_rng(seed)
    kernels, collectives = 10.0 ** random.uniform(-0.7, 1.3, n), 10.0 ** random.uniform(-1.5, 0.5, n)
    operations = random.uniform(2e3, 1e5, n)
    own = {"time_factor": kernels, "kernel_overhead": operations, "launch_time": 0.25 * operations,
           "collective_factor": collectives, "attention_factor": kernels * random.uniform(0.05, 0.5, n),
           UNFUSED: kernels * random.uniform(0.02, 0.4, n), "exposed_share": collectives * random.uniform(0.2, 1.0, n),
           "step_overhead": np.ones(n)}  # fmt: skip
    return Parts("train", own, {}, np.zeros(n), np.zeros(n), np.full(n, 0.05), dict.fromkeys(own, np.zeros(n)))


def measured(parts: Parts, values: dict[str, Any], noise: float = 0.02, seed: int = 1) -> np.ndarray[Any, Any]:
    times = parts.time(values)
    return times * np.exp(noise * np.random.default_rng(seed).normal(size=times.size))


def take(found: Fit, stack: str = "a", device: str = "x") -> dict[str, float]:
    return found.values(stack, device)


@pytest.mark.parametrize(
    ("parts", "true", "names"),
    [(served(400), TRUE, SERVING), (trained(400), TRAINED, TRAINING)],
    ids=["serve", "train"],
)
def test_known_coefficients_are_found_again(parts: Parts, true: dict[str, float], names: tuple[str, ...]) -> None:
    n = parts.kernels.size
    found = take(fit(parts, measured(parts, true), ["a"] * n, ["x"] * n))
    assert set(found) == set(names)
    # The time depends little on gaps and host, so they are known less well than the factors; half a millisecond of a
    # training step of seconds is not known at all, and stays where the prior has it.
    for name in names:
        if not (name == "step_overhead" and parts.task == "train"):
            assert found[name] == pytest.approx(true[name], rel=0.05 if name.endswith("_factor") else 0.25), name
    assert parts.time(found) == pytest.approx(parts.time(true), rel=0.02)


def test_a_wild_run_pulls_little() -> None:
    """One run in twenty took ten times as long: the others say what the coefficients are."""
    parts = served(400)
    times = measured(parts, TRUE)
    times[::20] *= 10
    found = take(fit(parts, times, ["a"] * 400, ["x"] * 400))
    assert found["time_factor"] == pytest.approx(TRUE["time_factor"], rel=0.1)


def test_the_same_runs_give_the_same_fit_to_the_last_bit() -> None:
    parts = served(60)
    times = measured(parts, TRUE, 0.1)
    stacks, devices = ["a", "b"] * 30, ["x", "x", "y"] * 20
    first, again = (fit(parts, times, stacks, devices) for _ in range(2))
    assert (first.shared, first.stacks, first.devices) == (again.shared, again.stacks, again.devices)


def test_the_order_of_runs_does_not_matter() -> None:
    parts = served(60)
    times = measured(parts, TRUE, 0.1)
    order = np.random.default_rng(3).permutation(60)
    plain = take(fit(parts, times, ["a"] * 60, ["x"] * 60))
    mixed = take(fit(parts.take(order), times[order], ["a"] * 60, ["x"] * 60))
    assert mixed == pytest.approx(plain, rel=1e-4)


def test_a_device_with_few_runs_keeps_near_its_stack_and_one_with_many_goes_its_own_way() -> None:
    """Device y runs its kernels 60 % slower than x; two runs say so, or two hundred."""
    slow = {**TRUE, "time_factor": 1.6 * TRUE["time_factor"]}
    gaps = {}
    for runs in (2, 200):
        parts = served(200 + runs)
        times = measured(parts, TRUE)
        times[200:] = measured(parts, slow)[200:]
        found = fit(parts, times, ["a"] * (200 + runs), ["x"] * 200 + ["y"] * runs)
        gaps[runs] = math.log(found.values("a", "y")["time_factor"] / found.values("a", "x")["time_factor"])
    assert 0 < gaps[2] < 0.6 * math.log(1.6)
    assert gaps[200] > 0.8 * math.log(1.6)


def test_without_runs_there_are_the_stacks_values_and_without_a_stack_the_shared_ones() -> None:
    parts = served(120)
    found = fit(parts, measured(parts, TRUE), ["a", "b"] * 60, ["x"] * 120)
    assert found.values("a", "nobody's") == found.stacks["a"]
    assert found.values("c", "x") == found.shared
    assert found.values("a", "x") == found.devices["a", "x"]
    none = fit(parts.take([]), np.zeros(0), [], [])
    assert none.shared["time_factor"] == pytest.approx(1.1)  # the prior


def test_departures_may_be_forbidden() -> None:
    parts = served(120)
    found = fit(parts, measured(parts, TRUE), ["a", "b"] * 60, ["x"] * 120, stack_spread=0.0, device_spread=0.0)
    assert found.stacks["a"] == found.shared == found.devices["b", "x"]
    assert STACK > DEVICE > 0


def test_a_fold_is_predicted_by_a_fit_without_it() -> None:
    """One fold ran four times as long. Nobody else knows: its predictions are those of the others' coefficients."""
    parts = served(120)
    times = measured(parts, TRUE, 0.01)
    folds = ["odd"] * 20 + [str(i % 4) for i in range(100)]
    times[:20] *= 4
    stacks, devices = ["a"] * 120, ["x"] * 120
    found = held_out(parts, times, stacks, devices, folds)
    assert np.median(found[:20] / times[:20]) == pytest.approx(0.25, rel=0.1)
    rest = list(range(20, 120))
    by_hand = fit(parts.take(rest), times[rest], ["a"] * 100, ["x"] * 100)
    some = list(range(20))
    assert found[:20] == pytest.approx(predicted(by_hand, parts.take(some), ["a"] * 20, ["x"] * 20), rel=1e-9)
    assert np.isfinite(found).all()


def test_a_single_fold_leaves_nothing_to_fit() -> None:
    parts = served(10)
    assert np.isnan(held_out(parts, measured(parts, TRUE), ["a"] * 10, ["x"] * 10, ["one"] * 10)).all()


def test_a_device_that_is_forgotten_is_predicted_by_its_stack() -> None:
    slow = {**TRUE, "time_factor": 2 * TRUE["time_factor"]}
    parts = served(200)
    times = measured(parts, TRUE, 0.01)
    times[100:] = measured(parts, slow, 0.01)[100:]
    stacks, devices, folds = ["a"] * 200, ["x"] * 100 + ["y"] * 100, [str(i % 5) for i in range(200)]
    known = held_out(parts, times, stacks, devices, folds)
    forgotten = held_out(parts, times, stacks, devices, folds, forget_device=True)
    error = {name: float(np.mean(np.abs(p / times - 1))) for name, p in (("known", known), ("forgotten", forgotten))}
    assert error["known"] < 0.1 < error["forgotten"]


def test_errors_are_those_of_predicted_over_measured() -> None:
    found = summary(np.array([1.1, 0.8, 2.0, np.nan]), np.array([1.0, 1.0, 2.0, 5.0]))
    assert (found.n, found.mean, found.median) == (3, pytest.approx(0.1), pytest.approx(0.1))
    assert found.bias == pytest.approx(-0.1 / 3)
    assert found.p90 == pytest.approx(0.18)
    assert summary(np.array([np.nan]), np.array([1.0])).n == 0


def covered(off: np.ndarray[Any, Any], own: np.ndarray[Any, Any], share: float, sigma: float) -> float:
    return float(np.mean(np.abs(off) <= Z * np.sqrt((share * own) ** 2 + sigma**2)))


@pytest.mark.parametrize("seed", range(4))
def test_intervals_made_of_the_spreads_hold_four_of_five(seed: int) -> None:
    random = np.random.default_rng(seed)
    own = random.uniform(0.02, 0.1, 1000)
    off = 0.15 * random.normal(size=1000)
    share, sigma = spreads(np.ones(1000), np.exp(off), own)
    assert share in SHARES
    assert covered(off, own, share, sigma) == pytest.approx(LEVEL, abs=0.01)
    fresh = 0.15 * random.normal(size=20_000)
    assert covered(fresh, random.choice(own, 20_000), share, sigma) == pytest.approx(LEVEL, abs=0.04)


def test_the_share_is_the_one_that_scores_best() -> None:
    """Residuals that follow the kernels' own spread keep it all; those that don't know of it keep none."""
    random = np.random.default_rng(0)
    own = np.exp(random.uniform(np.log(0.02), np.log(0.4), 4000))
    share, sigma = spreads(np.ones(4000), np.exp(own * random.normal(size=4000)), own)
    assert (share, sigma) == (1.0, pytest.approx(0, abs=0.03))
    share, sigma = spreads(np.ones(4000), np.exp(0.1 * random.normal(size=4000)), own)
    assert (share, sigma) == (0.0, pytest.approx(0.1, rel=0.05))


def test_rows_without_a_prediction_tell_nothing_of_spreads() -> None:
    off = np.exp(0.1 * np.random.default_rng(0).normal(size=500))
    own = np.full(500, 0.05)
    padded = (np.r_[np.ones(500), np.nan], np.r_[off, 9.0], np.r_[own, 0.05])
    assert spreads(*padded) == spreads(np.ones(500), off, own)
    assert spreads(np.array([np.nan]), np.array([1.0]), np.array([0.1])) == (1.0, 0.15)
    assert spreads(np.ones(5), np.ones(5), np.full(5, 0.1)) == (0.0, 0.0)
