"""Forms of context parallelism, collectives that run beside computation, and experts that stay whole."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.algebra.cost import Exposed, Leaf, walk
from slipstick.core.host.host import Host, default_host
from slipstick.core.study.ask import ask
from slipstick.core.study.models import load_model
from slipstick.core.testkit import models
from slipstick.core.testkit.scene import Scene
from slipstick.plugins.strategies.context import ContextParallel
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.tensor import TensorParallel


@pytest.fixture(scope="module")
def host() -> Host:
    return default_host()


def moved(scene: Scene, node: Any, over: str, **at: float) -> float:
    """Bytes that a device sends below a node over the atoms ``over``; of a tiered exchange all tiers."""
    found = [leaf for leaf in walk(node) if isinstance(leaf, Leaf) and leaf.tags.get("over") == over]
    return sum(scene.number(leaf.inputs["volume"], **at) for leaf in found)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_heads_for_tokens_moves_what_ulysses_says(host: Host, ranks: int) -> None:
    """4 N h / P elements a layer forward, of which each rank keeps a P-th: queries, keys, values, and the output.
    Source: Jacobs et al., DeepSpeed Ulysses, arXiv:2309.14509, section 3.2."""
    graph = load_model("gpt2-xl", host)
    scene = Scene.of(graph, (ContextParallel(), DataParallel()), {"cp_comm_type": "a2a", "zero": 0})
    tokens, hidden = 4096.0, 1600.0
    at = {"cp": ranks, "sequence": tokens, "heads": 32.0, "kv_heads": 32.0, "head_dim": 50.0}
    (cost,) = scene.model.costs.values()
    expected = 4 * tokens * hidden / ranks * (ranks - 1) / ranks * 2
    assert moved(scene, cost.forward, "cp", **at) == pytest.approx(expected)
    # Their gradients go the same ways.
    assert moved(scene, cost.backward, "cp", **at) == pytest.approx(expected)


def test_heads_for_tokens_moves_less_the_more_ranks_there_are_and_gathering_does_not() -> None:
    """The point of Ulysses: a device's traffic falls with P where gathered keys and values stay. Source: the same."""
    sent = {}
    for form in ("all_gather", "p2p", "a2a"):
        scene = Scene.of(models.dense(), (ContextParallel(), DataParallel()), {"cp_comm_type": form, "zero": 0})
        (cost,) = scene.model.costs.values()
        sent[form] = [moved(scene, cost.forward, "cp", cp=n, sequence=4096.0) for n in (2, 8)]
    assert sent["p2p"] == sent["all_gather"]
    assert sent["all_gather"][1] > sent["all_gather"][0]
    assert sent["a2a"][1] < sent["a2a"][0]


def test_a_ring_hides_behind_attention_and_no_further() -> None:
    """Keys and values on their way cost what is longer than the core. Source: Liu et al., arXiv:2310.01889, sec. 3."""
    ring = Scene.of(models.dense(), (ContextParallel(),), {"cp_comm_type": "p2p", "zero": 0})
    (cost,) = ring.model.costs.values()
    (hidden,) = [n for n in walk(cost.forward) if isinstance(n, Exposed) and n.name == "transfers, not hidden"]
    assert {leaf.tags["kind"] for leaf in walk(hidden.behind) if isinstance(leaf, Leaf)} == {"attention"}
    setting = {"cp": 4, "sequence": 32768.0}
    shown, core, whole = (ring.number(n.expression(), **setting) for n in (hidden, hidden.behind, hidden.part))
    assert shown == pytest.approx(max(0.0, whole - core))
    slow = {**setting, "tier_bandwidth_0": 1e9}
    shown, core, whole = (ring.number(n.expression(), **slow) for n in (hidden, hidden.behind, hidden.part))
    assert whole > core
    assert shown == pytest.approx(whole - core)


@pytest.mark.parametrize(
    ("model", "strategies", "option", "setting"),
    [
        ("dense", (TensorParallel(), DataParallel()), "tp_overlap", {"tp": 8}),
        ("routed", (ExpertParallel(), TensorParallel(), DataParallel()), "expert_overlap", {"ep": 8, "dp": 8}),
    ],
)
def test_what_runs_beside_computation_moves_the_same_and_waits_less(
    model: str, strategies: Any, option: str, setting: dict[str, float]
) -> None:
    graph = getattr(models, model)()
    apart, beside = (Scene.of(graph, strategies, {option: on, "zero": 0}) for on in (False, True))
    over = {"tp_overlap": "tp", "expert_overlap": "tp.ep×dp.ep"}[option]
    volumes = [sum(moved(s, c.forward, over, **setting) for c in s.model.costs.values()) for s in (apart, beside)]
    assert volumes[0] == pytest.approx(volumes[1])
    assert volumes[0] > 0
    slow, fast = (float(s.at(**setting, sequence=4096.0)["step_time"]) for s in (apart, beside))
    assert fast < slow
    # Where a stack shows all of what could be hidden, nothing is gained.
    full = [float(s.at(**setting, sequence=4096.0, exposed_share=1.0)["step_time"]) for s in (apart, beside)]
    assert full[1] == pytest.approx(full[0], rel=1e-9)


def test_experts_that_stay_whole_are_spread_over_the_tensor_parallel_group_first() -> None:
    """tp 4, dp 4, ep 4: a rank holds 4 of 16 experts in quarters, or whole. Source: Megatron-LM,
    --expert-tensor-parallel-size (its default is the tensor parallel size)."""
    strategies = (ExpertParallel(), TensorParallel(), DataParallel())
    setting = {"tp": 4, "dp": 4, "ep": 4}
    shapes = {}
    for form in ("rest", "none"):
        scene = Scene.of(models.routed(), strategies, {"expert_tensor": form, "zero": 0, "sequence_parallel": True})
        leaf = next(
            leaf for cost in scene.model.costs.values() for leaf in walk(cost.forward)
            if isinstance(leaf, Leaf) and leaf.tags.get("kind") == "grouped_gemm"
        )  # fmt: skip
        share = next(w for cost in scene.model.costs.values() for w in cost.weights if w.weight.roles[0] == "experts")
        shapes[form] = (scene.number(leaf.inputs["flops"], **setting), scene.number(share.elements, **setting))
        groups = scene.model.setting.mesh.view("ep")
        assert groups == {"rest": ("tp.ep", "dp.ep"), "none": ("tp.ep", "dp.ep")}[form]
        degrees = [scene.number(scene.model.setting.mesh.atoms[a].degree, **setting) for a in groups]
        assert degrees == {"rest": [1, 4], "none": [4, 1]}[form]
    assert shapes["rest"][0] == pytest.approx(shapes["none"][0])  # the same work on every device
    assert shapes["rest"][1] * 4 == pytest.approx(shapes["none"][1])  # a quarter of 4 experts; 4 whole ones


def test_latent_attention_has_no_heads_to_deal_out(host: Host) -> None:
    asked = {"devices": 16, "cp": 2, "ep": 8, "cp_comm_type": "a2a", "global_batch": 8}
    (made,) = ask("train", ("deepseek-v2-lite",), ("h100-sxm",), asked, host).predictions
    assert "latent attention has one latent for all" in made.answer.obstacles[0].reason
