"""What software adds to a step, in closed form: each coefficient changes the time by what it says and no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask
from slipstick.core.study.case import Case
from slipstick.core.study.tree import leaves

FREE = {
    "time_factor": 1.0, "kernel_overhead": 0.0, "collective_factor": 1.0, "step_overhead": 0.0,
    "sequence_overhead": 0.0, "prefill_factor": 0.0, "gradient_exposed": 1.0,
}  # fmt: skip
SERVED = {"input_tokens": 1000, "output_tokens": 200, "concurrency": 24}
LAYOUTS = [{}, {"devices": 4, "tp": 4}, {"devices": 4, "tp": 2, "dp": 2}, {"devices": 4, "pp": 4}]
Times = Callable[..., dict[str, float]]


def case_of(host: Host, task: str, model: str, **settings: Any) -> tuple[Case, dict[str, Any]]:
    prediction = ask(task, (model,), ("h100-sxm",), settings, host).predictions[0]
    return prediction.case, prediction.settings


def times(host: Host, task: str, model: str, **settings: Any) -> Times:
    """The outputs of one question, as a function of the coefficients."""
    case, numeric = case_of(host, task, model, **settings)

    def evaluated(**coefficients: float) -> dict[str, float]:
        return {n: float(v) for n, v in case.evaluate({**numeric, **FREE, **coefficients}).items()}

    return evaluated


@pytest.fixture(params=LAYOUTS, ids=lambda layout: "-".join(f"{n}{v}" for n, v in layout.items()) or "one")
def layout(request: pytest.FixtureRequest) -> dict[str, int]:
    found: dict[str, int] = request.param
    return found


def replicas(layout: dict[str, int]) -> int:
    return layout.get("dp", 1)


def test_requests_that_join_make_the_others_wait_for_their_prefill(host: Host, layout: dict[str, int]) -> None:
    """Of S sequences of a replica S − 1 are replaced while one generates its O tokens; each costs one prefill pass."""
    at = times(host, "serve", "llama-3.1-8b", **layout, **SERVED)
    sequences = SERVED["concurrency"] / replicas(layout)
    prefill = at()["ttft"]
    more = (sequences - 1) / SERVED["output_tokens"] * prefill
    assert at(prefill_factor=1.0)["tpot"] - at()["tpot"] == pytest.approx(more)
    assert at(prefill_factor=0.25)["tpot"] - at()["tpot"] == pytest.approx(more / 4)
    assert at(prefill_factor=1.0)["ttft"] == pytest.approx(prefill)


def test_a_single_request_waits_for_nobody(host: Host) -> None:
    at = times(host, "serve", "llama-3.1-8b", **{**SERVED, "concurrency": 1})
    assert at(prefill_factor=1.0)["tpot"] == pytest.approx(at()["tpot"])


def test_throughput_with_all_prefills_in_the_token_time_is_littles(host: Host, layout: dict[str, int]) -> None:
    """With every prefill inside the time of a token, requests in flight over that time are the tokens a second."""
    out = times(host, "serve", "llama-3.1-8b", **layout, **SERVED)(prefill_factor=1.0)
    assert out["output_tokens_per_s"] == pytest.approx(SERVED["concurrency"] / out["tpot"])


def test_throughput_counts_every_prefill_once(host: Host) -> None:
    """One device: O tokens and the prefills of S sequences; where S − 1 of them are in the tokens, the last is not."""
    at = times(host, "serve", "llama-3.1-8b", **SERVED)
    tokens, sequences = SERVED["output_tokens"], SERVED["concurrency"]
    step, prefill = at()["tpot"], at()["ttft"]
    for factor in (0.0, 0.5, 1.0):
        cycle = tokens * step + factor * (sequences - 1) * prefill + (1 - factor) * sequences * prefill
        found = at(prefill_factor=factor)["output_tokens_per_s"]
        assert found == pytest.approx(sequences * tokens / cycle)
    assert at(prefill_factor=1.5)["output_tokens_per_s"] < at(prefill_factor=1.0)["output_tokens_per_s"]


def test_the_host_is_paid_once_a_step_and_once_a_sequence(host: Host, layout: dict[str, int]) -> None:
    at = times(host, "serve", "llama-3.1-8b", **layout, **SERVED)
    each = math.ceil(SERVED["concurrency"] / (replicas(layout) * layout.get("pp", 1)))
    for figure in ("tpot", "ttft"):
        base = at()[figure]
        assert at(step_overhead=3e-3)[figure] - base == pytest.approx(3e-3)
        assert at(sequence_overhead=1e-5)[figure] - base == pytest.approx(each * 1e-5)


def test_a_training_step_pays_the_host_once(host: Host) -> None:
    for settings in ({"global_batch": 1}, {"devices": 8, "tp": 2, "pp": 2, "global_batch": 32}):
        at = times(host, "train", "llama-3.1-8b", **settings)
        assert at(step_overhead=0.25)["step_time"] - at()["step_time"] == pytest.approx(0.25)
        assert at(sequence_overhead=0.25)["step_time"] == pytest.approx(at()["step_time"])


def test_each_kernel_leaves_one_gap(host: Host) -> None:
    """The step grows by one gap for each execution of a kernel in the tree."""
    for task, model, settings, figure in (
        ("serve", "llama-3.1-8b", SERVED, "tpot"),
        ("serve", "mixtral-8x7b", {"devices": 2, "tp": 2, **SERVED}, "tpot"),
        ("train", "llama-3.1-8b", {"devices": 2, "tp": 2, "global_batch": 4}, "step_time"),
    ):
        prediction = ask(task, (model,), ("h100-sxm",), settings, host).predictions[0]
        parts = [leaf for leaf in leaves(prediction.tree) if "over" not in leaf.tags and leaf.tags["kind"] != "host"]
        kernels = sum(leaf.times for leaf in parts)
        assert kernels > 100
        at = times(host, task, model, **settings)
        assert at(kernel_overhead=1e-6)[figure] - at()[figure] == pytest.approx(kernels * 1e-6, rel=1e-6)


def test_factors_stretch_kernels_and_collectives_apart(host: Host) -> None:
    at = times(host, "serve", "llama-3.1-8b", devices=4, tp=4, **SERVED)
    base = at()["tpot"]
    kernels, collectives = at(time_factor=2.0)["tpot"] - base, at(collective_factor=2.0)["tpot"] - base
    assert kernels > 0
    assert collectives > 0
    assert kernels + collectives == pytest.approx(base)
    assert at(time_factor=3.0, collective_factor=3.0)["tpot"] == pytest.approx(3 * base)
    alone = times(host, "serve", "llama-3.1-8b", **SERVED)
    assert alone(collective_factor=9.0)["tpot"] == pytest.approx(alone()["tpot"])


@pytest.mark.parametrize("zero", [0, 1])
def test_what_is_hidden_of_the_gradient_reduction_is_not_in_the_step(host: Host, zero: int) -> None:
    """The step is linear in the exposed share; at 1 the reduction is all there, and it is all that goes."""
    settings = {"devices": 8, "dp": 8, "global_batch": 32, "zero": zero}
    at = times(host, "train", "llama-3.1-8b", **settings)
    whole, none = at()["step_time"], at(gradient_exposed=0.0)["step_time"]
    assert at(gradient_exposed=0.25)["step_time"] == pytest.approx(0.75 * none + 0.25 * whole)
    prediction = ask("train", ("llama-3.1-8b",), ("h100-sxm",), settings, host).predictions[0]
    (part,) = [node for node in prediction.tree.children if node.name == "reduce gradients"]
    assert whole - none == pytest.approx(part.seconds)
    assert part.seconds > 0
    assert at(gradient_exposed=0.0, collective_factor=2.0)["step_time"] >= none


def test_one_device_reduces_nothing(host: Host) -> None:
    at = times(host, "train", "llama-3.1-8b", global_batch=1)
    assert at(gradient_exposed=0.0)["step_time"] == pytest.approx(at()["step_time"])


def test_the_page_says_whether_prefills_are_in_the_token_time(host: Host) -> None:
    for stack, told in (("ideal", "no prefill beside it"), ("vllm", "prefills of requests that join")):
        answer = ask("serve", ("llama-3.1-8b",), ("h100-sxm",), {**SERVED, "stack": stack}, host).predictions[0].answer
        assert any(told in line for line in answer.assumptions), answer.assumptions
