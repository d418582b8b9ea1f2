"""Choices of sharded data parallelism: groups with copies between them, weights that stay gathered, no prefetching."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.algebra.cost import Exposed, Leaf, walk
from slipstick.core.host.host import default_host
from slipstick.core.study.ask import ask
from slipstick.core.testkit import laws, models
from slipstick.core.testkit.scene import Scene
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.tensor import TensorParallel

ASKED = {"devices": 8, "global_batch": 8, "sequence": 2048}


def scene(model: str = "dense", **options: Any) -> Scene:
    return Scene.of(getattr(models, model)(), (DataParallel(), TensorParallel(), ExpertParallel()), options)


def sent(node: Any, made: Scene, over: str, **at: float) -> float:
    found = [leaf for leaf in walk(node) if isinstance(leaf, Leaf) and over in leaf.tags.get("over", "").split("×")]
    found = [leaf for leaf in found if leaf.name != "tree"]  # one of two ways to do an all-reduce
    return sum(made.number(leaf.inputs["volume"], **at) for leaf in found)


def test_a_group_holds_the_whole_state_and_groups_add_up_what_is_left() -> None:
    """State over F ranks; gradients scattered in the group, then all-reduced between the W/F groups.
    Source: Zhao et al., PyTorch FSDP, arXiv:2304.11277, section 3.2.2."""
    whole, groups = scene(zero=3), scene(zero=3, shard_size=8)
    rows = [one.rows(one.at(dp=64)) for one in (whole, groups)]
    for name in ("weights", "gradients", "optimizer"):
        assert rows[1][name] == pytest.approx(8 * rows[0][name])
    elements = sum(groups.graph.elements(w) * n for b, n in groups.graph.parts() for w in b.weights() if not w.tied)
    between = sent(groups.model.step, groups, "dp.rest", dp=64)
    assert between == pytest.approx(2 * elements / 8 * 4 * (7 / 8))  # all-reduce of FP32 gradients over 8 groups
    assert sent(whole.model.step, whole, "dp.rest", dp=64) == 0
    laws.splitting_conserves_weights(groups, dp=64)


def test_one_group_of_all_ranks_is_plain_sharding() -> None:
    plain, one = scene(zero=3), scene(zero=3, shard_size=16)
    for name in ("step_time", "memory.peak"):
        assert float(one.at(dp=16)[name]) == pytest.approx(float(plain.at(dp=16)[name]))


def test_experts_are_sharded_over_what_of_the_group_is_not_theirs() -> None:
    """ep 4 inside a group of 16: an expert's weights lie on 4 ranks of the group, all else on 16."""
    made = scene("routed", zero=3, shard_size=16)
    mesh = made.model.setting.mesh
    assert mesh.view("shard") == ("dp.ep", "dp.shard")
    at = {"dp": 32, "ep": 4}
    assert made.number(mesh.degree(mesh.view("shard")), **at) == 16
    assert made.number(mesh.degree(mesh.view("dp")), **at) == 32
    for cost in made.model.costs.values():
        for share in cost.weights:
            expected = 4 if "experts" in share.weight.roles else 16
            assert made.number(mesh.degree(share.flat_weight), **at) == expected, share.weight.name


def test_weights_that_stay_gathered_are_gathered_once() -> None:
    """Two bytes of every weight more, one gather less. Source: the same, section 3.3.1 (no resharding)."""
    plain, kept = scene(zero=3), scene(zero=3, reshard=False)
    gathers = {}
    for name, one in (("plain", plain), ("kept", kept)):
        (cost,) = one.model.costs.values()
        gathers[name] = [
            sum(n.tags.get("kind") == "all_gather" and n.tags.get("over") == "dp" for n in walk(way))
            for way in (cost.forward, cost.backward)
        ]
    assert gathers["plain"] == [1, 1]
    assert gathers["kept"] == [1, 0]
    rows = [one.rows(one.at(dp=16)) for one in (plain, kept)]
    elements = sum(kept.graph.elements(w) * n for b, n in kept.graph.parts() for w in b.weights() if not w.tied)
    assert "gathered" not in rows[0]
    assert rows[1]["gathered"] == pytest.approx(2 * elements * 15 / 16)


def test_a_tied_table_is_gathered_once() -> None:
    made = ask("train", ("llama-3.2-1b",), ("h100-sxm",), {**ASKED, "zero": 3, "reshard": False}, default_host())
    rows = {row.name: row.bytes for row in made.predictions[0].answer.ledger}
    assert rows["gathered"] == pytest.approx(7 * rows["weights"], rel=1e-6)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"zero": 0, "shard_size": 4}, "--zero 0 splits nothing"),
        ({"zero": 1, "reshard": False}, "add --zero 3"),
        ({"zero": 2, "prefetch": False}, "add --zero 3"),
        ({"zero": 3, "shard_size": 3}, "--shard-size 3 must divide the data parallel degree"),
    ],
)
def test_a_choice_that_would_do_nothing_is_told(asked: dict[str, Any], told: str) -> None:
    made = ask("train", ("llama-3.2-1b",), ("h100-sxm",), {**ASKED, **asked}, default_host()).predictions[0].answer
    assert told in made.obstacles[0].reason


def test_the_size_of_a_group_is_told_once() -> None:
    asked = {**ASKED, "zero": 3, "shard_size": 4}
    made = ask("train", ("llama-3.2-1b",), ("h100-sxm",), asked, default_host()).predictions[0].answer
    assert made.setting["shard_size"] == 4
    assert "shard" not in made.setting


def test_without_prefetching_gathers_are_waited_for_and_gradients_still_hide() -> None:
    ahead, waited = scene(zero=3), scene(zero=3, prefetch=False)
    times = [float(one.at(dp=16, micro_batch=16)["step_time"]) for one in (ahead, waited)]
    assert times[1] > times[0]
    (cost,) = waited.model.costs.values()
    hidden = [leaf for node in walk(cost.backward) if isinstance(node, Exposed) for leaf in walk(node.part)]
    kinds = {leaf.tags.get("kind") for leaf in hidden if isinstance(leaf, Leaf)}
    assert kinds == {"reduce_scatter", "host"}
    full = [float(one.at(dp=16, micro_batch=16, exposed_share=1.0)["step_time"]) for one in (ahead, waited)]
    assert full[0] == pytest.approx(full[1])
