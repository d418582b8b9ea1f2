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
    "sequence_overhead": 0.0, "prefill_factor": 0.0, "attention_factor": 1.0, "launch_time": 0.0,
    "launch_exposed": 0.0, "exposed_share": 1.0,
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


def exposed(case: Case, out: dict[str, Any]) -> dict[str, list[tuple[float, float]]]:
    """Name → seconds of what runs beside other work and of that, each time it stands in the tree."""
    found: dict[str, list[tuple[float, float]]] = {}
    for node in case.program.nodes:
        if node["kind"] == "exposed":
            part, behind = (float(out[f"t{number}"]) for number in node["children"])
            found.setdefault(node["name"], []).append((part, behind))
    return found


@pytest.mark.parametrize("zero", [0, 1])
def test_of_the_gradient_reduction_shows_what_the_last_backward_pass_does_not_hide(host: Host, zero: int) -> None:
    """The step is linear in the exposed share; at 1 all of the reduction is there, at 0 what nothing can hide."""
    settings = {"devices": 8, "dp": 8, "global_batch": 32, "zero": zero}
    at = times(host, "train", "llama-3.1-8b", **settings)
    whole, none = at()["step_time"], at(exposed_share=0.0)["step_time"]
    assert at(exposed_share=0.25)["step_time"] == pytest.approx(0.75 * none + 0.25 * whole)
    case, numeric = case_of(host, "train", "llama-3.1-8b", **settings)
    beside = exposed(case, case.evaluate({**numeric, **FREE}))
    names = {"reduce gradients"} | ({"gather updated weights"} if zero else set())
    assert names <= set(beside)
    hidden = [min(pair) for name in names for pair in beside[name]]
    assert all(part > 0 for part in hidden)
    assert whole - none == pytest.approx(sum(hidden))
    assert at(exposed_share=0.0, collective_factor=2.0)["step_time"] >= none


def test_gathers_of_sharded_weights_hide_behind_the_block_that_runs(host: Host) -> None:
    """Each layer's gathers and scatters beside its computation: the longer of the two where all is hidden."""
    settings = {"devices": 64, "dp": 64, "global_batch": 64, "zero": 3, "sequence": 512}
    at = times(host, "train", "llama-3.1-8b", **settings)
    whole, none = at()["step_time"], at(exposed_share=0.0)["step_time"]
    assert none < whole
    assert at(exposed_share=0.5)["step_time"] == pytest.approx((whole + none) / 2)
    # Transfers that take far longer than the kernels hide those instead.
    slow = at(exposed_share=0.0, collective_factor=1e3)["step_time"]
    assert at(exposed_share=0.0, collective_factor=2e3)["step_time"] == pytest.approx(2 * slow, rel=0.01)


def test_launches_hide_behind_kernels_until_they_take_longer(host: Host) -> None:
    at = times(host, "train", "llama-3.1-8b", global_batch=1)
    alone = at()["step_time"]
    assert at(launch_time=1e-9)["step_time"] == pytest.approx(alone)
    shown = at(launch_time=1e-6, launch_exposed=1.0)["step_time"] - alone
    assert shown > 0
    assert at(launch_time=1e-6, launch_exposed=0.25)["step_time"] - alone == pytest.approx(shown / 4)
    # A host that takes a second for each operation is all there is, but for the optimizer.
    operations = shown / 1e-6
    assert at(launch_time=1.0)["step_time"] == pytest.approx(operations, rel=0.02)


def test_a_slower_attention_kernel_stretches_attention_alone(host: Host) -> None:
    for task, model, settings, figure in (
        ("serve", "llama-3.1-8b", SERVED, "tpot"), ("train", "deepseek-v3", {"devices": 8, "ep": 8}, "step_time"),
    ):  # fmt: skip
        prediction = ask(task, (model,), ("h100-sxm",), settings, host).predictions[0]
        spent = sum(leaf.seconds * leaf.times for leaf in leaves(prediction.tree) if leaf.tags["kind"] == "attention")
        at = times(host, task, model, **settings)
        assert spent > 0
        grown = at(attention_factor=2.0, exposed_share=0.0)[figure] - at(exposed_share=0.0)[figure]
        assert grown == pytest.approx(spent)


def test_one_device_reduces_nothing(host: Host) -> None:
    at = times(host, "train", "llama-3.1-8b", global_batch=1)
    assert at(exposed_share=0.0)["step_time"] == pytest.approx(at()["step_time"])


def test_the_page_says_whether_prefills_are_in_the_token_time(host: Host) -> None:
    for stack, told in (("ideal", "no prefill beside it"), ("vllm", "prefills of requests that join")):
        answer = ask("serve", ("llama-3.1-8b",), ("h100-sxm",), {**SERVED, "stack": stack}, host).predictions[0].answer
        assert any(told in line for line in answer.assumptions), answer.assumptions
