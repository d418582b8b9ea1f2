"""What routed experts add to their products: passes counted from Megatron-LM's code, where software says so."""

from __future__ import annotations

import pytest

from slipstick.core.host.host import Host, default_host
from slipstick.core.model.work import BIAS_ROUNDS
from slipstick.core.study.ask import ask


@pytest.fixture(scope="module")
def host() -> Host:
    return default_host()


def shown(host: Host, model: str, stack: str, **more: object) -> dict[str, float]:
    asked = {"devices": 8, "ep": 8, "global_batch": 8, "sequence": 4096, "stack": stack, **more}
    (made,) = ask("train", (model,), ("b200-sxm",), asked, host).predictions
    out = made.case.program.evaluate(made.case.complete(made.settings))
    nodes = made.case.program.nodes
    return {
        f"{n['name']}, {n['tags'].get('direction')}": float(out[f"t{n['id']}"])
        for n in nodes if n.get("formula") and n["name"].startswith("moe.") and n["tags"].get("kind") == "pointwise"
    }  # fmt: skip


def test_biases_of_experts_cost_fourteen_and_eighteen_readings_or_writings_of_the_product() -> None:
    """Megatron-LM, megatron/core/transformer/moe/experts.py: bias times probability written in FP32 (2 of the
    product's size), the sum reads 3 and writes 2, the concatenation 2 and 2, the way back to 16 bits 2 and 1: 14.
    Backward: to FP32 1 and 2, back 2 and 1, the products with probability and bias 2 and 2 each, their sums 2 each."""
    forward = 2 + (3 + 2) + (2 + 2) + (2 + 1)
    backward = (1 + 2) + (2 + 1) + 2 * (2 + 2) + 2 * 2
    assert 2 * (BIAS_ROUNDS["forward"] - 1) == forward == 14
    assert 2 * (BIAS_ROUNDS["input gradient"] - 1) == backward == 18


def test_they_are_there_where_experts_have_biases_and_the_software_fuses_nothing(host: Host) -> None:
    bare, real = (shown(host, "gpt-oss-120b", stack) for stack in ("ideal", "megatron-bridge-25"))
    assert "moe.up bias, forward" in real
    assert real["moe.up bias, forward"] > 20 * bare["moe.up bias, forward"]
    assert real["moe.up bias, input gradient"] > real["moe.up bias, forward"]
    assert real["moe.act, forward"] > 3 * bare["moe.act, forward"]  # clamped in eight passes
    plain = shown(host, "qwen3-30b-a3b", "megatron-bridge-25")
    assert not any("bias" in name for name in plain)
    assert plain["moe.act, forward"] < 2 * shown(host, "qwen3-30b-a3b", "ideal")["moe.act, forward"]


def test_a_pass_launched_as_a_graph_waits_for_no_host(host: Host) -> None:
    asked = {"devices": 8, "global_batch": 8, "sequence": 2048, "stack": "megatron-bridge-25"}
    times = {}
    for graph in ("none", "full"):
        (made,) = ask("train", ("llama-3.2-1b",), ("h100-sxm",), {**asked, "cuda_graph": graph}, host).predictions
        times[graph] = made.answer.figures["step_time_s"]
        launches = [n for n in made.case.program.nodes if n.get("formula") == "launches"]
        assert bool(launches) is (graph == "none")
    assert times["full"] < 0.9 * times["none"]


def test_the_norm_of_the_gradients_reads_them_once(host: Host) -> None:
    """Four bytes of each element that a device owns, one number added up by all. Source: Pascanu et al.,
    arXiv:1211.5063 (clipping by the norm)."""
    asked = {"devices": 8, "global_batch": 8, "zero": 1}
    (made,) = ask("train", ("llama-3.1-8b",), ("h100-sxm",), asked, host).predictions
    out = made.case.program.evaluate(made.case.complete(made.settings))
    norm, total = (n for n in made.case.program.nodes if n["tags"].get("op") == "gradient norm" and n.get("formula"))
    assert float(out[f"t{norm['id']}.bytes"]) == pytest.approx(4 * 8.03e9 / 8, rel=1e-3)
    assert float(out[f"t{total['id']}.volume"]) == pytest.approx(2 * 4 * 7 / 8)
    (plain,) = ask("train", ("llama-3.1-8b",), ("h100-sxm",), {**asked, "clip": False}, host).predictions
    assert plain.answer.figures["step_time_s"] < made.answer.figures["step_time_s"]
    assert not any(n["tags"].get("op") == "gradient norm" for n in plain.case.program.nodes)
