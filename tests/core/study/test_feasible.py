"""Settings that are not feasible: why, which row overflows, and a remedy that really fits."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask

FLAGS = {"gpus": "devices"}
OVERFLOWS = [
    ("train", "llama-3.1-8b", "h100-sxm", {"devices": 8, "global_batch": 64, "micro_batch": 8}),
    ("train", "llama-3.1-70b", "h100-sxm", {"devices": 64, "tp": 8, "global_batch": 64}),
    ("train", "llama-3.1-405b", "h200-sxm", {"devices": 512, "tp": 8, "pp": 4, "global_batch": 512}),
    ("train", "mixtral-8x22b", "h100-sxm", {"devices": 64, "ep": 8, "global_batch": 64}),
    ("serve", "llama-3.1-70b", "h100-sxm", {"concurrency": 8}),
    ("serve", "deepseek-v3", "h100-sxm", {"devices": 8, "tp": 8}),
    ("serve", "llama-3.1-8b", "h100-sxm", {"concurrency": 1000, "input_tokens": 4096}),
]


def applied(remedy: str, given_: dict[str, Any]) -> dict[str, Any]:
    """The settings after what the remedy says: options as one would type them."""
    changed = dict(given_)
    for name, value in re.findall(r"--([a-z-]+) (\w+)", remedy):
        name = FLAGS.get(name, name.replace("-", "_"))
        changed[name] = int(value) if value.isdigit() else value
    return changed


def test_a_remedy_is_found_and_fits(one: Any) -> None:
    for task, model, machine, given_ in OVERFLOWS:
        answer = one(task, model, machine, **given_).answer
        assert not answer.feasible
        (obstacle,) = answer.obstacles
        assert answer.peak > answer.capacity
        assert obstacle.row in {row.name for row in answer.ledger} - {"reserve"}
        assert obstacle.row == max(answer.ledger, key=lambda row: row.bytes * (row.name != "reserve")).name
        assert obstacle.remedy, (model, given_)
        changed = applied(obstacle.remedy, given_)
        assert changed != given_
        assert one(task, model, machine, **changed).feasible, obstacle.remedy


@given(
    model=st.sampled_from(["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b"]),
    tp=st.sampled_from([1, 2, 4, 8]),
    pp=st.sampled_from([1, 2, 4]),
    micro=st.sampled_from([1, 4]),
    sequence=st.sampled_from([2048, 32768]),
)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_remedy_is_a_false_promise(one: Any, model: str, tp: int, pp: int, micro: int, sequence: int) -> None:
    given_ = {"devices": tp * pp, "tp": tp, "pp": pp, "micro_batch": micro, "global_batch": 8, "sequence": sequence}
    answer = one("train", model, "h100-sxm", **given_).answer
    assert answer.feasible == (not answer.obstacles)
    for obstacle in answer.obstacles:
        if obstacle.remedy:
            assert one("train", model, "h100-sxm", **applied(obstacle.remedy, given_)).feasible, obstacle.remedy


@pytest.mark.parametrize(
    ("task", "model", "given_", "message"),
    [
        (
            "train",
            "llama-3.1-8b",
            {"devices": 8, "tp": 3},
            "tp times cp times pp must divide the number of devices.*tp 3.*devices 8",
        ),
        (
            "train",
            "llama-3.1-8b",
            {"devices": 8, "tp": 2, "dp": 2},
            "the degrees must multiply to the number of devices",
        ),
        (
            "train",
            "llama-3.1-8b",
            {"devices": 64, "tp": 64},
            "tp must divide the number of attention heads .tp 64, heads 32",
        ),
        (
            "train",
            "llama-3.1-8b",
            {"devices": 64, "pp": 64},
            "a pipeline stage needs at least one layer .pp 64, layers 32",
        ),
        ("train", "llama-3.1-8b", {"devices": 8, "global_batch": 12}, "must divide the global batch"),
        ("train", "mixtral-8x7b", {"devices": 16, "ep": 16}, "ep must divide the number of experts .ep 16, experts 8"),
        ("serve", "llama-3.1-8b", {"devices": 8, "tp": 3}, "must divide the number of devices"),
        ("serve", "llama-3.1-8b", {"max_tpot": "1us"}, "tpot is .* longer than the 1 µs asked for"),
        ("serve", "llama-3.1-8b", {"max_ttft": "1us"}, "ttft is .* longer than the 1 µs asked for"),
    ],
)
def test_conditions_that_do_not_hold(one: Any, task: str, model: str, given_: dict[str, Any], message: str) -> None:
    answer = one(task, model, "h200-sxm", **given_).answer
    assert not answer.feasible
    assert re.search(message, answer.obstacles[0].reason), answer.obstacles[0].reason
    assert "\n" not in answer.obstacles[0].reason


def test_a_network_reaches_only_so_far(host: Host) -> None:
    made = ask("train", ("llama-3.1-8b",), ("h100-sxm",), {"devices": 8}, host).predictions[0]
    tiers = made.case.machine.node.tiers
    span = tiers[-1].span
    if span is None:
        assert not any("connects at most" in c.message for c in made.case.constraints())
        return
    far = ask("train", ("llama-3.1-8b",), ("h100-sxm",), {"devices": 2 * span}, host).predictions[0]
    assert "connects at most" in far.answer.obstacles[0].reason


def test_a_device_without_bf16_serves_in_fp16_and_says_so(one: Any) -> None:
    """V100 has no BF16 (NVIDIA Tesla V100 datasheet); FP16 is what engines fall back to there."""
    for precision in ("auto", "int4"):
        answer = one("serve", "llama-3.1-8b", "v100-sxm2-32gb", precision=precision).answer
        assert any("no bf16 rate" in line for line in answer.assumptions)
        assert answer.feasible
