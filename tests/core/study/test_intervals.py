"""How far an answer can be trusted: spreads of kernels and of software put together, by hand and by dice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.host.host import Host
from slipstick.core.model.interfaces.stack import COEFFICIENTS
from slipstick.core.records.fitted import FittedRecord
from slipstick.core.records.fitted_toml import write_records
from slipstick.core.records.prediction import Answer, TreeNode
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.stack import StackFit, StackRecord, write_stack
from slipstick.core.study.ask import ask
from slipstick.core.study.calibration import UNMEASURED, Trust
from slipstick.core.study.intervals import (
    LEVEL,
    MEMORY_UNMEASURED,
    SOFTWARE_UNMEASURED,
    STRETCH,
    STRETCH_MOST,
    TIMES,
    Z,
    around,
    weighed,
)

Record = Callable[..., FittedRecord]


def leaf(slot: str, share: float, kind: str = "gemm", **inputs: float) -> TreeNode:
    known = {name: ("x", value) for name, value in inputs.items()}
    return TreeNode(f"a {slot}", "leaf", share, 1.0, share, "compute", inputs=known, tags={"kind": kind}, slot=slot)


def tree(*parts: TreeNode) -> TreeNode:
    return TreeNode("step", "sequence", 1.0, 1.0, 1.0, "compute", children=parts)


def trusts(**sigmas: float) -> dict[str, Trust]:
    return {slot: Trust(slot, sigma=sigma) for slot, sigma in sigmas.items()}


def test_kernels_of_one_slot_are_off_together_and_slots_apart() -> None:
    """0.3 + 0.2 of one slot at 10 %, 0.5 of another at 8 %: √(0.05² + 0.04²)."""
    root = tree(leaf("a", 0.3), leaf("a", 0.2), leaf("b", 0.5))
    assert weighed(root, trusts(a=0.1, b=0.08)).spread == pytest.approx(math.hypot(0.05, 0.04))


def test_the_host_has_no_kernels_and_an_unknown_slot_is_unmeasured() -> None:
    root = tree(leaf("", 0.4, "host"), leaf("", 0.4), leaf("odd", 0.2))
    assert weighed(root, {}).spread == pytest.approx(UNMEASURED * math.hypot(0.4, 0.2))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 1)), min_size=1, max_size=8), st.floats(0, 1))
def test_the_spread_lies_between_all_apart_and_all_together(parts: list[tuple[str, float]], share: float) -> None:
    total = sum(size for _, size in parts)
    root = tree(*(leaf(slot, size / total) for slot, size in parts))
    known = trusts(a=0.1, b=0.05, c=0.2)
    spread = weighed(root, known).spread
    each = [size / total * known[slot].sigma for slot, size in parts]
    assert math.sqrt(sum(s * s for s in each)) * (1 - 1e-9) <= spread <= sum(each) * (1 + 1e-9)
    assert weighed(root, known, share).spread == pytest.approx(share * spread)


def test_the_spread_is_that_of_dice() -> None:
    """A hundred thousand runs in which each slot's times are off by one log-normal factor."""
    shares, sigmas = {"a": 0.6, "b": 0.3, "c": 0.1}, {"a": 0.05, "b": 0.1, "c": 0.2}
    random = np.random.default_rng(0)
    runs = sum(share * np.exp(sigmas[s] * random.normal(size=100_000)) for s, share in shares.items())
    root = tree(*(leaf(slot, share / 2) for slot, share in shares.items() for _ in range(2)))
    assert weighed(root, trusts(**sigmas)).spread == pytest.approx(float(np.std(np.log(runs))), rel=0.03)


@given(st.floats(1e-9, 1e12), st.floats(0, 1))
def test_an_interval_holds_its_value_and_as_much_above_as_below(value: float, sigma: float) -> None:
    low, high = around(value, sigma)
    assert low <= value * (1 + 1e-12)
    assert high >= value * (1 - 1e-12)
    assert math.log(high / value) == pytest.approx(math.log(value / low), abs=1e-9)


def test_an_interval_holds_four_of_five() -> None:
    random = np.random.default_rng(0)
    low, high = around(3.0, 0.2)
    runs = 3.0 * np.exp(0.2 * random.normal(size=100_000))
    assert float(np.mean((runs >= low) & (runs <= high))) == pytest.approx(LEVEL, abs=0.005)


def test_what_lies_outside_the_fitted_range_widens(fitted: Record) -> None:
    known = {"a": Trust("a", fitted(ranges={"flops": (1.0, 1e9)}), sigma=0.06)}
    inside, at_e, far = (weighed(tree(leaf("a", 1.0, flops=f)), known).spread for f in (1e9, math.e * 1e9, 1e30))
    assert inside == pytest.approx(0.06)
    assert at_e == pytest.approx(math.hypot(0.06, STRETCH))
    assert far == pytest.approx(math.hypot(0.06, STRETCH_MOST))
    # A stack's share is of what all kernels have in common: what is stretched counts in full.
    assert weighed(tree(leaf("a", 1.0, flops=math.e * 1e9)), known, 0.0).spread == pytest.approx(STRETCH)


def test_what_is_stretched_is_said_once_a_slot_if_it_matters(fitted: Record) -> None:
    known = {
        "a": Trust("a", fitted(ranges={"flops": (1.0, 1e9)})),
        "b": Trust("b", fitted(), "fp8_block for fp8"),
        "c": Trust("c", fitted(ranges={"flops": (1.0, 1e9)}), "fp8_block for fp8"),
    }
    root = tree(leaf("a", 0.4, flops=2e9), leaf("a", 0.3, flops=7e9), leaf("b", 0.295), leaf("c", 0.005, flops=7e9))
    told = ("a: a a lies outside the fitted range by a factor of 7", "b: fp8_block for fp8")
    assert weighed(root, known).stretches == told
    assert weighed(tree(leaf("a", 1.0, flops=1.01e9)), known).stretches == ()  # a hundredth more is no other kernel
    assert weighed(root, known).shares == pytest.approx({"a": 0.7, "b": 0.295, "c": 0.005})


# --- whole answers ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slotted(slotted_file: Path) -> Host:
    return Host.load(files=[slotted_file])


@pytest.fixture
def served(slotted: Host, chip: Path) -> Callable[..., Answer]:
    def call(stack: str = "ideal", **settings: Any) -> Answer:
        return (
            ask("serve", ("llama-3.1-8b",), (str(chip),), {"stack": stack, **settings}, slotted).predictions[0].answer
        )

    return call


@pytest.fixture
def stack(tmp_path: Path) -> Callable[..., str]:
    """A stack's file with spreads for the chip, or for all accelerators."""

    def make(accelerator: str = "bench-chip", task: str = "serve", **spread: float) -> str:
        source = Source("fit", "a fit", "https://example.org", "2026-11-30", "fitted")
        values = {"time_factor": Quantity(1.1, COEFFICIENTS["time_factor"][0], source)}
        fit = StackFit(task=task, accelerator=accelerator, values=values, spread=spread)
        path = tmp_path / "ours.toml"
        path.write_text(write_stack(StackRecord(name="ours", title="Ours", kernels={}, fits=(fit,))), encoding="utf-8")
        return str(path)

    return make


def sigma(answer: Answer, figure: str) -> float:
    """The spread behind an interval."""
    low, high = answer.intervals[figure]
    return math.log(high / low) / (2 * Z)


def all_slots(fitted: Record, chip: Path, **changes: Any) -> None:
    """Fitted records for every kind of work of the chip."""
    slots = ("gemm", "grouped_gemm", "attention.context", "attention.decode", "pointwise")
    write_records(chip.parent / "fitted" / "bench-chip.lab.toml", [fitted(slot, **changes) for slot in slots])


def test_every_figure_that_follows_from_a_time_has_an_interval(served: Callable[..., Answer]) -> None:
    answer = served(concurrency=8)
    timed = {name for name in TIMES if name in answer.figures}
    assert timed >= {"ttft_s", "tpot_s", "output_tokens_per_s", "request_s"}
    assert set(answer.intervals) == timed | {"memory_peak_bytes", "kv_capacity_tokens", "max_concurrency"}
    for name, (low, high) in answer.intervals.items():
        value = answer.peak if name == "memory_peak_bytes" else answer.figures[name]
        assert low < value < high
    assert not answer.calibrated


def test_a_time_and_its_rate_are_equally_uncertain(served: Callable[..., Answer], slotted: Host, chip: Path) -> None:
    answer = served(concurrency=8)
    assert sigma(answer, "tpot_s") == pytest.approx(sigma(answer, "tokens_per_s_per_request"))
    trained = ask("train", ("llama-3.1-8b",), (str(chip),), {}, slotted).predictions[0].answer
    for name in ("tokens_per_s", "tflops_per_device", "mfu"):
        assert sigma(trained, name) == pytest.approx(sigma(trained, "step_time_s"))


def test_the_spread_of_the_stack_stands_beside_that_of_the_kernels(
    served: Callable[..., Answer], stack: Callable[..., str], chip: Path, fitted: Record
) -> None:
    all_slots(fitted, chip)
    plain = served(concurrency=8)
    shares = weighed(plain.trees["tpot"], {}).shares
    kernels = math.sqrt(sum((0.06 * share) ** 2 for share in shares.values()))
    assert sigma(plain, "tpot_s") == pytest.approx(math.hypot(kernels, SOFTWARE_UNMEASURED))
    known = served(stack(tpot_s=0.04), concurrency=8)
    assert sigma(known, "tpot_s") == pytest.approx(math.hypot(kernels, 0.04))
    halved = served(stack(tpot_s=0.04, kernels=0.5), concurrency=8)
    assert sigma(halved, "tpot_s") == pytest.approx(math.hypot(kernels / 2, 0.04))
    assert sigma(halved, "tokens_per_s_per_request") == pytest.approx(sigma(halved, "tpot_s"))
    # A figure that the record does not state keeps the stated spread.
    assert sigma(halved, "ttft_s") > sigma(halved, "tpot_s")


def test_the_cache_is_as_uncertain_as_what_it_leaves_over(
    served: Callable[..., Answer], stack: Callable[..., str]
) -> None:
    """Free memory is capacity minus the rest: 10 % of a rest that is half as large as the free part is 5 % of it."""
    answer = served(concurrency=8)
    cache = next(row.bytes for row in answer.ledger if row.name == "kv_cache")
    rest = answer.peak - cache
    assert sigma(answer, "memory_peak_bytes") == pytest.approx(MEMORY_UNMEASURED)
    assert sigma(answer, "kv_capacity_tokens") == pytest.approx(MEMORY_UNMEASURED * rest / (answer.capacity - rest))
    assert sigma(answer, "max_concurrency") == pytest.approx(sigma(answer, "kv_capacity_tokens"))
    known = served(stack(kv_capacity_tokens=0.01), concurrency=8)
    assert sigma(known, "kv_capacity_tokens") == pytest.approx(0.01)
    assert sigma(served(stack(memory_peak_bytes=0.03)), "memory_peak_bytes") == pytest.approx(0.03)


def test_calibrated_is_what_has_measurements_behind_kernels_and_software(
    served: Callable[..., Answer], stack: Callable[..., str], chip: Path, fitted: Record
) -> None:
    name = stack(tpot_s=0.04)
    assert not served(name).calibrated  # no kernel is
    all_slots(fitted, chip)
    assert served(name).calibrated
    assert not served().calibrated  # the ideal software is not
    assert not served(stack("", tpot_s=0.04)).calibrated  # nobody ran it on this chip
    all_slots(fitted, chip, where={"head_dim": (64.0, 64.0)})
    assert not served(name).calibrated  # only stand-ins


def test_what_stands_in_is_said(
    served: Callable[..., Answer], stack: Callable[..., str], chip: Path, fitted: Record
) -> None:
    all_slots(fitted, chip, where={"head_dim": (64.0, 64.0)})
    answer = served(stack("", tpot_s=0.04))
    assert "gemm: fitted at head_dim 64 to 64" in answer.extrapolated
    assert any(line.startswith("ours: no runs on bench-chip were fitted") for line in answer.extrapolated)
    assert answer.kernels["gemm"]["stands_in"] == "fitted at head_dim 64 to 64"
    assert all(f"extrapolated: {line}" in answer.assumptions for line in answer.extrapolated)


def test_a_kernel_far_outside_its_range_widens_the_answer(
    served: Callable[..., Answer], chip: Path, fitted: Record
) -> None:
    all_slots(fitted, chip)
    near = served(concurrency=8)
    all_slots(fitted, chip, ranges={"flops": (1.0, 1e3)})
    far = served(concurrency=8)
    assert far.figures == near.figures
    assert sigma(far, "tpot_s") > sigma(near, "tpot_s") * 1.2
    assert any("lies outside the fitted range" in line for line in far.extrapolated)
    assert near.extrapolated == ()


def test_kernels_are_described_with_their_errors(served: Callable[..., Answer], chip: Path, fitted: Record) -> None:
    all_slots(fitted, chip)
    kernels: Mapping[str, Any] = served(concurrency=8).kernels
    assert sum(known["share"] for known in kernels.values()) == pytest.approx(1)
    gemm = kernels["gemm"]
    assert (gemm["calibrated"], gemm["sigma"], gemm["rows"], gemm["engine"]) == (True, 0.06, 500, "lab 1")
    assert gemm["held_out_error"] == {"n": 100, "median": 0.04, "p90": 0.12}
