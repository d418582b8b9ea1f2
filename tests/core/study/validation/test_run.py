"""Rows to predictions: the answer to the question asked by hand, the right figure of it, and reasons for the rest."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.records.measured import MeasuredPoint
from slipstick.core.study.validation.names import Skipped, found, rules
from slipstick.core.study.validation.points import Points
from slipstick.core.study.validation.run import BATCHES, Run

GPT3: dict[str, Any] = {
        "layers": 96, "hidden": 12288, "heads": 96, "kv_heads": 96, "ffn": 49152, "vocab": 51200, "sequence": 2048,
        "devices": 64, "tp": 8, "pp": 8, "dp": 1, "micro_batch": 1, "global_batch": 64, "zero": 0,
        "sequence_parallel": 0, "recompute": "full", "precision": "fp16 mixed"}  # fmt: skip
LLAMA = {"devices": 2, "tp": 2, "concurrency": 16, "input_tokens": 1024, "output_tokens": 256, "precision": "fp8"}


def trained(metric: str, value: float, note: str = "", source: str = "", **setting: Any) -> MeasuredPoint:
    facts = {"id": "row", "source": source}
    known = {k: v for k, v in {**GPT3, **setting}.items() if v is not None}
    return MeasuredPoint(metric, value, {"task": "train", **known}, "GPT-175B", "A100-80GB-SXM (Selene)",
                         source, note=note, facts=facts)  # fmt: skip


def served(metric: str, value: float, note: str = "", device: str = "h100_sxm", **setting: Any) -> MeasuredPoint:
    facts = {name.rstrip("_"): str(setting.pop(name)) for name in ("engine", "metric_") if name in setting}
    known = {k: v for k, v in {**LLAMA, **setting}.items() if v is not None}
    return MeasuredPoint(metric, value, {"task": "serve", **known}, "Llama-3.1-70B", device, note=note, facts=facts)


@pytest.fixture(scope="module")
def run(host: Host) -> Run:
    return Run(host, "ideal")


@pytest.fixture(scope="module")
def by_hand(one: Any) -> Any:
    """The answer to the question of ``GPT3``, with the preset of the same dimensions."""
    answer = one(
        "train",
        "gpt3-175b",
        "a100-sxm-80gb",
        devices=64,
        tp=8,
        pp=8,
        micro_batch=1,
        global_batch=64,
        sequence=2048,
        zero=0,
        sequence_parallel=False,
        recompute="full",
        precision="fp16",
        stack="ideal",
    )
    return answer.answer  # fmt: skip


def test_a_training_row_is_the_question_asked_by_hand(run: Run, by_hand: Any) -> None:
    # The row's padded vocabulary is 2 % larger than the preset's, of an output layer that is 1 % of the work.
    figures = by_hand.figures
    for metric, expected in (
        ("iteration", figures["step_time_s"]),
        ("tokens_per_s", figures["tokens_per_s"]),
        ("tokens_per_s_per_device", figures["tokens_per_s_per_device"]),
        ("tflops", figures["tflops_per_device"] * 1e12),
        ("mfu", figures["mfu"]),
        ("memory", by_hand.peak),
    ):
        assert run.predict(trained(metric, 1.0)).value == pytest.approx(expected, rel=5e-3), metric
    assert run.predict(trained("oom", 0)).value == float(by_hand.peak > by_hand.capacity)


def test_notes_say_which_flops_and_which_memory_are_meant(run: Run, by_hand: Any) -> None:
    hardware = run.predict(trained("tflops", 1.0, "TFLOPs count recomputation: hardware FLOPs")).value
    assert hardware == pytest.approx(by_hand.figures["hardware_tflops_per_device"] * 1e12, rel=5e-3)
    reserve = next(row.bytes for row in by_hand.ledger if row.name == "reserve")
    whole = run.predict(trained("memory", 1.0)).value
    assert whole - run.predict(trained("memory", 1.0, "GiB max_memory_allocated, worst rank")).value == reserve


def test_what_was_published_before_fused_attention_keeps_its_probabilities(run: Run) -> None:
    fused = run.predict(trained("iteration", 1.0, recompute="none"))
    unfused = run.predict(trained("iteration", 1.0, source="Narayanan et al. arXiv:2104.04473", recompute="none"))
    assert unfused.value > fused.value


def test_a_wire_of_the_row_is_the_wire_of_the_prediction(run: Run) -> None:
    def on(device: str) -> float:
        point = trained("iteration", 1.0, devices=64, tp=1, pp=1, dp=64, zero=3, global_batch=64)
        return run.predict(MeasuredPoint("iteration", 1.0, point.setting, point.model, device)).value

    assert on("A100-80GB (8x200Gb HDR IB/node)") == on("A100-80GB-SXM")  # what the node's record says
    assert on("A100-80GB (4x Omni-Path 100Gb/node)") > on("A100-80GB (8x200Gb HDR IB/node)")


def test_a_serving_row_is_the_question_asked_by_hand(run: Run, one: Any) -> None:
    asked = {"devices": 2, "tp": 2, "concurrency": 16, "input_tokens": 1024, "output_tokens": 256, "precision": "fp8"}
    answer = one("serve", "llama-3.1-70b", "h100-sxm", **asked, stack="ideal").answer
    others = sum(row.bytes for row in answer.ledger if row.name != "kv_cache")
    for metric, expected in (
        ("tpot", answer.figures["tpot_s"]),
        ("ttft", answer.figures["ttft_s"]),
        ("throughput", answer.figures["output_tokens_per_s"]),
        ("tokens_per_s", answer.figures["output_tokens_per_s"] * (1024 + 256) / 256),
        ("kv_capacity", answer.figures["kv_capacity_tokens"]),
        ("kv_bytes", answer.capacity - others),
        ("max_concurrency", answer.figures["max_concurrency"]),
    ):
        assert run.predict(served(metric, 1.0)).value == pytest.approx(expected), metric


def test_a_static_batch_takes_its_prefill_and_then_its_tokens(run: Run) -> None:
    static = {"metric_": "total_tok_s", "engine": "vllm (static batch)"}
    total = run.predict(served("throughput", 1.0, **static)).value
    ttft = run.predict(served("ttft", 1.0, engine="vllm (static batch)")).value
    tpot = run.predict(served("tpot", 1.0, engine="vllm (static batch)")).value
    assert total == pytest.approx(16 * (1024 + 256) / (ttft + 255 * tpot))
    one = run.predict(served("ttft", 1.0)).value
    assert one < ttft <= 16 * one


def test_as_many_as_fit_is_the_capacity_up_to_what_engines_allow(run: Run) -> None:
    most = run.predict(served("max_concurrency", 1.0)).value
    assert 16 < most < BATCHES
    full = run.predict(served("throughput", 1.0, concurrency="max"))
    assert full.value == run.predict(served("throughput", 1.0, concurrency=int(most))).value
    assert full.fits
    assert any("as many requests as fit" in note for note in full.notes)


def test_an_open_load_obeys_littles_law(run: Run) -> None:
    point = served("tpot", 1.0, concurrency="rate 2.0 req/s")
    rate = run.predict(point)
    flight = int(next(n for n in rate.notes if "Little" in n).split(":")[1].split()[0].replace(",", ""))
    tpot = run.predict(served("tpot", 1.0, concurrency=flight)).value
    ttft = run.predict(served("ttft", 1.0, concurrency=flight)).value
    assert rate.value == tpot
    assert flight == pytest.approx(2.0 * (ttft + 255 * tpot), abs=1.5)


def test_a_fraction_of_the_free_memory_is_a_fraction_of_all_that_fits(run: Run) -> None:
    nearly_all = run.predict(served("kv_capacity", 1.0, "util 0.99")).value
    part = run.predict(served("kv_capacity", 1.0, "free_gpu_memory_fraction=0.8")).value
    # 1 % of the memory is less than 4 % of what is free beside the weights, so both bounds are strict.
    assert 0.8 * nearly_all < part < nearly_all


@pytest.mark.parametrize(
    ("point", "reason"),
    [
        (trained("iteration", 1.0, cp=2), "can't be laid out: tp times cp times pp must divide"),
        (trained("iteration", 1.0, zero="3+CPU offload"), "CPU offload"),
        (trained("iteration", 1.0, precision="posit8"), "number format 'posit8' is not known"),
        (trained("iteration", 1.0, tp=5), "can't be laid out"),
        (trained("iteration", 1.0, micro_batch="two"), "micro_batch is 'two'; a whole number is expected"),
        (trained("step", 1.0), "slipstick has no figure for step"),
        (served("tpot", 1.0, mode="disagg"), "disaggregated serving is not modelled yet"),
        (served("tpot", 1.0, device=""), "the accelerator is not named"),
        (served("tpot", 1.0, device="24GB GPU (model not stated)"), "the accelerator is not named"),
        (served("tpot", 1.0, device="Abacus 3000"), "no accelerator is known as 'Abacus 3000'"),
        (served("tpot", 1.0, input_tokens=None), "the prompt length is not stated"),
        (served("tpot", 1.0, input_tokens="sharegpt"), "a distribution"),
        (served("tpot", 1.0, concurrency="saturation"), "is no number of requests in flight"),
        (served("tpot", 1.0, tp=None), "how the model is laid out on the devices is not stated"),
        (served("tpot", 1.0, tp=3, devices=3), "can't be laid out"),
    ],
)  # fmt: skip
def test_what_cannot_be_predicted_has_its_reason(run: Run, point: MeasuredPoint, reason: str) -> None:
    with pytest.raises(Skipped, match=reason):
        run.predict(point)


def test_every_point_is_predicted_or_passed_over(run: Run) -> None:
    points = Points((trained("iteration", 18.13), trained("iteration", 1.0, cp=2), served("tpot", 0.02)))
    seen: list[int] = []
    predicted, passed = run(points, lambda number, total: seen.append(number))
    assert (len(predicted), len(passed)) == (2, 1)
    assert seen == [1, 2, 3]
    assert passed[0].metric == "iteration"


def test_a_stack_that_is_not_installed_is_told(host: Host) -> None:
    point = served("tpot", 0.02, engine="trtllm 99")
    made = Run(host).predict(point)
    assert (made.stack != "ideal") or made.missing_stack
    assert Run(host, "ideal").predict(point).missing_stack == ""
    with pytest.raises(UserError, match="unknown stack"):
        Run(host, "no-such-stack")


def test_an_interleaved_schedule_is_faster_for_its_shorter_bubble(run: Run) -> None:
    """8 stages and 64 micro-batches: (p - 1)/m of the time, or a third of it."""
    plain, made = (run.predict(trained("iteration", 1.0, interleave=chunks)) for chunks in (1, 3))
    assert not any("interleaved" in note for note in made.notes)
    assert 0.88 < made.value / plain.value < 0.99


def test_an_interleave_that_is_not_stated_is_as_deep_as_the_layers_allow(run: Run) -> None:
    """GPT-3 has 96 layers on 8 stages: twelve parts a device, a layer each."""
    told = run.predict(trained("iteration", 1.0, "interleaved PP with tunable N", interleave=None))
    known = run.predict(trained("iteration", 1.0, interleave=12))
    assert told.value == known.value
    assert any("12 parts a device" in note for note in told.notes)
    more = run.predict(trained("iteration", 1.0, interleave=">1"))
    assert more.value == known.value


def test_a_row_without_any_batch_is_left_out(run: Run) -> None:
    with pytest.raises(Skipped, match="neither the micro-batch nor the whole batch"):
        run.predict(trained("iteration", 1.0, micro_batch=None, global_batch=None))


@pytest.mark.parametrize(
    ("source", "stack"),
    [("Narayanan et al. SC21 arXiv:2104.04473 Table 2 (PTD-P)", "megatron-lm-2021"),
     ("Narayanan et al. SC21 arXiv:2104.04473 Table 2 (ZeRO-3 via DeepSpeed, no model parallel)", "deepspeed"),
     ("Korthikanti et al. 2022 Table 5", "megatron-lm-2022"),
     ("NVIDIA-NeMo/Megatron-Bridge docs container 26.04.01", "megatron-bridge-25"),
     ("NVIDIA-NeMo/Megatron-Bridge docs container 26.06", "megatron-bridge"),
     ("bigscience chronicles", "bigscience"), ("VIA-Research/vTrain (Megatron-DeepSpeed)", "megatron-deepspeed")],
)  # fmt: skip
def test_a_row_is_predicted_with_the_release_that_ran_it(host: Host, source: str, stack: str) -> None:
    assert Run(host).predict(trained("iteration", 1.0, source=source)).stack == stack


def test_both_tables_of_narayanan_count_every_flop(run: Run) -> None:
    """Their equation 3 counts recomputation; four passes of which three are useful."""
    source = "Narayanan et al. SC21 arXiv:2104.04473 Table 2"
    told = run.predict(trained("tflops", 1.0, source=source)).value
    assert told == run.predict(trained("tflops", 1.0, "hardware FLOPs", source)).value
    model_flops = told * run.predict(trained("mfu", 1.0, source=source)).value
    assert told / (312e12 * model_flops / told) == pytest.approx(4 / 3, rel=0.02)


def test_the_table_of_machines_names_what_is_there(host: Host) -> None:
    from slipstick.core.study.validation.names import table

    for entry in table("machine"):
        if "accelerator" in entry.data:
            assert host.machine(entry.data["accelerator"])
    presets = host.presets()
    assert all(e.data["preset"] in presets for e in table("model") if "preset" in e.data)
    assert all("source" in e.data for e in table("model") if "config" in e.data)


def test_rules_read_numbers_from_notes() -> None:
    assert rules("serve", {"notes": "TP2, util 0.95, max_model_len 32K"})["memory_utilisation"] == "0.95"
    assert rules("serve", {"notes": "parallelism: Hybrid TP = 2 and PP = 4; latency"}) == {"tp": "2", "pp": "4"}
    assert rules("train", {"notes": "MFU 41%; model FLOPs (no recompute counted)"}) == {}
    with pytest.raises(Skipped):
        found("precision", "bf16 or fp8 (not stated)", task="serve", model="")
