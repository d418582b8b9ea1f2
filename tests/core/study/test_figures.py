"""Figures of one answer: consistent with one another, and with sums that a reader can redo by hand."""

from __future__ import annotations

from math import floor
from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.model.work import COLLECTIVES
from slipstick.core.study.settings import settings_for
from slipstick.core.study.tree import leaves

# Llama 3.1, arXiv:2407.21783, table 3, and the published config.json: layers, hidden, heads, kv heads, head, ffn.
LLAMA_8B = (32, 4096, 32, 8, 128, 14336)
LLAMA_70B = (80, 8192, 64, 8, 128, 28672)
VOCAB = 128256
PARAMETERS_8B = 8_030_261_248


def model_flops(dims: tuple[int, ...], sequences: int, length: int) -> int:
    """Forward and backward products, 2 FLOPs a multiply-add, every query with every key."""
    layers, hidden, heads, kv, head, ffn = dims
    projections = hidden * head * (2 * heads + 2 * kv) + 3 * hidden * ffn
    linear = layers * projections + hidden * VOCAB
    attention = layers * 2 * heads * head * length
    return 3 * 2 * sequences * length * (linear + attention)


def test_training_figures_follow_from_time_and_counts(one: Any) -> None:
    made = one("train", "llama-3.1-70b", "h100-sxm", devices=64, tp=8, pp=2, global_batch=256, sequence=4096)
    figures = made.answer.figures
    step, peak = figures["step_time_s"], 989.4e12  # H100 datasheet: 989.4 dense BF16 TFLOP/s
    flops = model_flops(LLAMA_70B, 256, 4096)
    assert figures["tokens_per_s"] == pytest.approx(256 * 4096 / step, rel=1e-12)
    assert figures["tokens_per_s_per_device"] == pytest.approx(256 * 4096 / step / 64, rel=1e-12)
    assert figures["tflops_per_device"] == pytest.approx(flops / step / 64 / 1e12, rel=1e-12)
    assert figures["mfu"] == pytest.approx(flops / (step * 64 * peak), rel=1e-3)
    assert figures["mfu"] / figures["hfu"] == pytest.approx(
        figures["tflops_per_device"] / figures["hardware_tflops_per_device"], rel=1e-12
    )


def test_full_recomputation_adds_one_forward_pass_of_the_layers(one: Any) -> None:
    ask = {"devices": 8, "tp": 8, "global_batch": 8, "sequence": 4096}
    plain = one("train", "llama-3.1-8b", "h100-sxm", **ask).answer.figures
    again = one("train", "llama-3.1-8b", "h100-sxm", recompute="full", **ask).answer.figures
    layers = model_flops(LLAMA_8B, 8, 4096) - 3 * 2 * 8 * 4096 * LLAMA_8B[1] * VOCAB
    executed = again["hardware_tflops_per_device"] * again["step_time_s"] * 8 * 1e12
    assert executed == pytest.approx(model_flops(LLAMA_8B, 8, 4096) + layers / 3, rel=1e-9)
    useful = again["tflops_per_device"] * again["step_time_s"]
    assert useful == pytest.approx(plain["tflops_per_device"] * plain["step_time_s"], rel=1e-12)
    assert again["step_time_s"] > plain["step_time_s"]


def test_memory_of_a_model_on_one_device(one: Any) -> None:
    made = one("train", "llama-3.1-8b", "b300", micro_batch=1, global_batch=1, sequence=1024)
    rows = one.rows(made)
    assert rows["weights"] == 2 * PARAMETERS_8B
    assert rows["gradients"] == 4 * PARAMETERS_8B
    assert rows["optimizer"] == 12 * PARAMETERS_8B  # FP32 master, first and second moment
    assert made.answer.peak == pytest.approx(sum(rows.values()), rel=1e-12)


@pytest.mark.parametrize(("sequence", "told"), [
    (8192, ""), (15360, "fits narrowly: the 80 % interval of the memory peak reaches"),
    (18432, "does not fit, narrowly: the 80 % interval of the memory peak begins at"), (24576, ""),
])  # fmt: skip
def test_a_verdict_within_the_interval_of_the_peak_is_narrow(one: Any, sequence: int, told: str) -> None:
    answer = one("train", "llama-3.1-8b", "h100-sxm", devices=8, tp=2, global_batch=4, sequence=sequence).answer
    low, high = answer.intervals["memory_peak_bytes"]
    assert answer.feasible == (answer.headroom >= 0)
    assert answer.headroom == answer.capacity - answer.peak
    narrow = [line for line in answer.assumptions if "narrowly" in line]
    assert len(narrow) == bool(told) == (low <= answer.capacity < high)
    assert all(line.startswith(told) for line in narrow)


def test_what_cannot_be_laid_out_fits_neither_way(one: Any) -> None:
    answer = one("train", "llama-3.1-8b", "h100-sxm", devices=8, tp=3, global_batch=4, sequence=4096).answer
    assert answer.obstacles[0].layout
    assert not [line for line in answer.assumptions if "narrowly" in line]


def test_the_distributed_optimizer_splits_state_only(one: Any) -> None:
    rows = one.rows(one("train", "llama-3.1-8b", "h100-sxm", devices=16, dp=16, global_batch=16, zero=1))
    assert rows["weights"] == 2 * PARAMETERS_8B
    assert rows["gradients"] == 4 * PARAMETERS_8B
    assert rows["optimizer"] == pytest.approx(12 * PARAMETERS_8B / 16, rel=1e-12)


def test_the_cache_of_requests_in_flight(one: Any) -> None:
    made = one("serve", "llama-3.1-8b", "h100-sxm", concurrency=16, input_tokens=1000, output_tokens=500)
    rows, figures, capacity = one.rows(made), made.answer.figures, made.answer.capacity
    per_token = 2 * 32 * 8 * 128 * 2  # keys and values, layers, heads, width, two bytes
    assert per_token == 131_072
    assert rows["weights"] == 2 * PARAMETERS_8B
    assert rows["kv_cache"] == 16 * 1500 * per_token
    assert rows["reserve"] == pytest.approx(1e9 + 0.1 * capacity, rel=1e-12)
    room = capacity - rows["weights"] - rows["activations"] - rows["reserve"]
    assert figures["kv_capacity_tokens"] == floor(room / per_token)
    assert figures["max_concurrency"] == floor(room / (1500 * per_token))


def test_serving_figures_follow_from_one_another(one: Any) -> None:
    made = one("serve", "llama-3.1-70b", "h200-sxm", devices=8, tp=4, concurrency=32, output_tokens=300, price=2.0)
    figures = made.answer.figures
    # Little's law: 32 requests of 300 tokens are in flight for the time of one request.
    assert figures["request_s"] == pytest.approx(32 * 300 / figures["output_tokens_per_s"], rel=1e-12)
    assert figures["request_s"] > 300 * figures["tpot_s"]
    assert figures["tokens_per_s_per_request"] * figures["tpot_s"] == pytest.approx(1.0, rel=1e-12)
    assert figures["output_tokens_per_s_per_device"] * 8 == pytest.approx(figures["output_tokens_per_s"], rel=1e-12)
    cost = 8 * 2.0 / 3600 / figures["output_tokens_per_s"] * 1e6
    assert figures["cost_per_million_tokens_usd"] == pytest.approx(cost, rel=1e-12)
    # No faster than 32 sequences that never wait for a prefill.
    assert figures["output_tokens_per_s"] < 32 / figures["tpot_s"]


def test_a_whole_run_in_days_hours_and_money(one: Any) -> None:
    made = one("train", "llama-3.1-8b", "h100-sxm", devices=8, tp=8, global_batch=8, tokens="15T", price=2.5)
    figures = made.answer.figures
    days = 15e12 / figures["tokens_per_s"] / 86_400
    assert figures["run_days"] == pytest.approx(days, rel=1e-12)
    assert figures["run_device_hours"] == pytest.approx(days * 24 * 8, rel=1e-12)
    assert figures["run_cost_usd"] == pytest.approx(days * 24 * 8 * 2.5, rel=1e-12)


def test_energy_is_board_power_for_the_whole_time(one: Any) -> None:
    """700 W a device is NVIDIA's H100 SXM and H200 SXM datasheets' figure; a kWh is 3.6 MJ."""
    trained = one("train", "llama-3.1-8b", "h100-sxm", devices=8, tp=8, global_batch=8, tokens="15T").answer
    figures = trained.figures
    assert figures["step_energy_j"] == pytest.approx(8 * 700 * figures["step_time_s"], rel=1e-12)
    assert figures["energy_per_token_j"] == pytest.approx(8 * 700 / figures["tokens_per_s"], rel=1e-12)
    assert figures["run_energy_kwh"] == pytest.approx(0.7 * figures["run_device_hours"], rel=1e-12)
    served = one("serve", "llama-3.1-8b", "h200-sxm", devices=2, tp=2, concurrency=16).answer
    joules = served.figures["energy_per_output_token_j"]
    assert joules == pytest.approx(2 * 700 / served.figures["output_tokens_per_s"], rel=1e-12)
    for answer, name, time in ((trained, "step_energy_j", "step_time_s"), (served, "energy_per_output_token_j", "")):
        low, high = answer.intervals[name]
        assert low < answer.figures[name] < high
        if time:  # the power is given: only the time is uncertain
            a, b = answer.intervals[time]
            assert high / low == pytest.approx(b / a, rel=1e-12)
        assert any("board power (700 W)" in line and "upper estimate" in line for line in answer.assumptions)


@pytest.mark.parametrize("task", ["train", "serve"])
def test_without_a_known_power_there_is_no_energy(one: Any, task: str) -> None:
    """Google publishes no power of a TPU v5e."""
    answer = one(task, "llama-3.1-8b", "tpu-v5e", devices=8, tp=8).answer
    assert not [name for name in answer.figures if "energy" in name]
    assert not [line for line in answer.assumptions if "energy" in line]


@pytest.mark.parametrize(("task", "model"), [("train", "mixtral-8x7b"), ("serve", "deepseek-v3")])
def test_every_setting_is_shown_with_its_value(one: Any, host: Any, task: str, model: str) -> None:
    asked: dict[str, dict[str, Any]] = {  # what is not there unless somebody asks for it
        "train": {
            "tokens": 1e12, "price": 2, "capacity_factor": 1.25, "document_tokens": 1024, "lora_rank": 8,
            "lora_targets": "q+v", "base_precision": "nf4",
        },
        "serve": {"max_tpot": 0.5, "max_ttft": 9, "price": 2},
    }  # fmt: skip
    given = asked[task]
    answer = one(task, model, "h200-sxm", devices=8, tp=8, **given).answer
    for name, info in settings_for(task, host).items():
        wanted = given.get(name, info.default)
        if wanted is not None:
            assert answer.setting[name] == wanted or name in ("tp", "ep", "load_skew", "memory_utilisation"), name
        else:  # what follows from others is shown as well; the node form is the accelerator's own
            assert name in answer.setting, name
    assert answer.setting["tp"] == 8
    assert answer.setting["dp"] == 1


def test_what_is_assumed_is_said(one: Any) -> None:
    lines = one("serve", "llama-3.1-8b", "h100-sxm").answer.assumptions
    told = " ".join(lines)
    assert not one("serve", "llama-3.1-8b", "h100-sxm").answer.calibrated
    for part in ("kernels calibrated on measurements", "gemm", "costs no time", "unqueued"):
        assert part in told
    # NVIDIA's A100 datasheet has no FP8 rate.
    older = one("serve", "llama-3.1-8b", "a100-80gb", precision="fp8").answer.assumptions
    assert any("no fp8 rate" in line for line in older)
    beyond = one("serve", "llama-3.1-8b", "h200-sxm", input_tokens=200_000, output_tokens=1).answer.assumptions
    assert any("131,072" in line for line in beyond)


def test_a_straggler_slows_kernels_and_nothing_else(one: Any) -> None:
    ask = {"devices": 16, "tp": 2, "ep": 4, "pp": 2, "global_batch": 32, "stack": "megatron-lm"}
    plain, slow = (one("train", "mixtral-8x7b", "h100-sxm", straggler=factor, **ask) for factor in (1, 1.3))
    pairs = list(zip(leaves(plain.tree), leaves(slow.tree), strict=True))
    kinds = {a.tags["kind"] for a, _ in pairs}
    assert kinds >= {"gemm", "attention", "optimizer", "all_to_all", "all_reduce", "send", "host"}
    gap = plain.case.complete(plain.settings)["kernel_overhead"]
    for a, b in pairs:
        if a.tags["kind"] in COLLECTIVES or a.tags["kind"] == "host":
            assert b.seconds == a.seconds, a.name
        else:
            assert b.seconds - gap == pytest.approx(1.3 * (a.seconds - gap), rel=1e-9), a.name
    assert plain.time < slow.time < 1.3 * plain.time
    assert slow.memory == plain.memory
    assert slow.answer.setting["straggler"] == 1.3
    (line,) = [line for line in slow.answer.assumptions if line.startswith("straggler: ")]
    assert "1.3 times as long" in line
    assert "every pipeline stage" in line
    assert not [line for line in plain.answer.assumptions if "straggler" in line]


def test_a_lone_device_is_its_own_straggler(one: Any) -> None:
    """Nothing but kernels: the whole step takes so much longer."""
    plain, slow = (
        one("train", "llama-3.2-1b", "h100-sxm", sequence=1024, straggler=factor).time for factor in (1, 1.25)
    )
    assert slow == pytest.approx(1.25 * plain, rel=1e-12)


@pytest.mark.parametrize(("ep", "skew", "capacity", "same_as", "dropped"), [
    (8, 3, 1.5, 1.5, "50.0%"), (8, 3, 4, 3, ""), (8, 1, 1.25, 1, ""), (8, 20, 2, 2, "75.0%"), (1, 3, 1.5, 1, ""),
])  # fmt: skip
def test_a_capacity_cuts_off_the_load_of_the_busiest_rank(
    one: Any, ep: int, skew: float, capacity: float, same_as: float, dropped: str
) -> None:
    """Switch Transformers, arXiv:2101.03961, section 2.2: copies above capacity factor × mean are dropped."""
    ask = {"devices": 8, "ep": ep, "dp": 8, "global_batch": 8, "sequence": 512}
    cut = one("train", "mixtral-8x7b", "h200-sxm", load_skew=skew, capacity_factor=capacity, **ask)
    even = one("train", "mixtral-8x7b", "h200-sxm", load_skew=same_as, **ask)
    assert cut.time == pytest.approx(even.time, rel=1e-12)
    assert cut.memory == pytest.approx(even.memory, rel=1e-12)
    assert (cut.answer.setting["load_skew"], cut.answer.setting["capacity_factor"]) == (skew, capacity)
    (line,) = [line for line in cut.answer.assumptions if line.startswith("capacity factor")]
    assert (f"drops {dropped} of its token copies" if dropped else "nothing is dropped") in line


def test_a_capacity_needs_experts(one: Any) -> None:
    with pytest.raises(UserError, match=r"--capacity-factor: llama-3\.1-8b has no experts"):
        one("train", "llama-3.1-8b", "h100-sxm", capacity_factor=1.25)


def test_a_tree_adds_up(one: Any) -> None:
    def check(node: Any) -> None:
        if node.children and node.kind in ("sequence", "repeat", "pipelined", "choice"):
            below = sum(child.seconds * child.times for child in node.children)
            assert below == pytest.approx(node.seconds * node.times, rel=1e-9), node.name
        for child in node.children:
            check(child)
        if not node.children and node.terms:
            assert node.terms[node.bound_by] == max(node.terms.values())

    for made in (
        one("train", "mixtral-8x7b", "h100-sxm", devices=32, tp=2, pp=4, ep=4, global_batch=64),
        one("serve", "deepseek-v3", "h200-sxm", devices=16, tp=8, concurrency=64),
    ):
        for root in made.answer.trees.values():
            assert root.share == pytest.approx(1.0)
            check(root)
        main = made.tree
        assert main.seconds == pytest.approx(made.time, rel=1e-12)
