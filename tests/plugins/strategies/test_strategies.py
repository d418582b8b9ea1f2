"""What the bundled strategies say, against what their sources say."""

from __future__ import annotations

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import default_host
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.strategy import Schedule
from slipstick.core.model.layout import Distribution, Store
from slipstick.core.study.case import is_broken
from slipstick.core.study.settings import settings_for
from slipstick.core.testkit import laws, models
from slipstick.core.testkit.scene import Scene
from slipstick.plugins.strategies.context import ContextParallel
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.expert import ExpertParallel
from slipstick.plugins.strategies.pipeline import SCHEDULES, Interleaved, PipelineParallel
from slipstick.plugins.strategies.tensor import TensorParallel


@pytest.fixture(scope="module")
def dense() -> ModelGraph:
    return models.dense()


@pytest.mark.parametrize(
    ("stage", "stored"), [(0, ""), (1, "optimizer"), (2, "optimizer gradient"), (3, "optimizer gradient weight")]
)
def test_zero_stages_store_what_the_paper_partitions(stage: int, stored: str) -> None:
    """P_os, P_os+g, P_os+g+p. Source: Rajbhandari et al., arXiv:1910.02054, section 5."""
    stores = DataParallel().rules({"zero": stage}).stores
    assert {s.kind for s in stores} == set(stored.split())
    assert {(s.axis, s.over) for s in stores} <= {("flat", "dp")}


def test_zero_divides_sixteen_bytes_a_parameter_by_stages() -> None:
    """2Ψ + 2Ψ + 12Ψ in mixed precision with 16-bit gradients; 64 ranks as in figure 1 of arXiv:1910.02054.

    Per parameter of 7.5 billion: 120 GB, 31.4 GB, 16.6 GB and 1.9 GB.
    """
    graph = models.dense()
    psi = graph.parameters
    for stage, gigabytes in ((0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)):
        scene = Scene.of(graph, (DataParallel(),), {"zero": stage})
        rows = scene.rows(scene.at(dp=64, gradient_width=2.0, master_width=4.0, moment_width=8.0))
        per_parameter = (rows["weights"] + rows["gradients"] + rows["optimizer"]) / psi
        assert per_parameter * 7.5 == pytest.approx(gigabytes, abs=0.05)


def one_f_one_b(stages: int, micro_batches: int) -> list[int]:
    """Most micro-batches that each stage holds when 1F1B is played step by step."""
    peaks = []
    for stage in range(stages):
        warm_up = min(micro_batches, stages - stage - 1)
        held = peak = warm_up
        for _ in range(micro_batches - warm_up):
            held += 1  # one forward pass,
            peak = max(peak, held)
            held -= 1  # one backward pass
        peaks.append(peak)
    return peaks


@pytest.mark.parametrize("stages", [1, 2, 4, 8])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 8, 20])
def test_one_forward_one_backward_holds_what_playing_it_holds(stages: int, micro_batches: int) -> None:
    """Source: Narayanan et al., arXiv:2104.04473, section 2.2.1 (at most as many as stages)."""
    schedule = SCHEDULES["1f1b"]
    held = [int(schedule.in_flight(i, stages, micro_batches)) for i in range(stages)]
    assert held == one_f_one_b(stages, micro_batches)


def interleaved(device: int, stages: int, chunks: int, micro_batches: int) -> int:
    """Most chunk activations that a device holds when Megatron-LM's interleaved schedule is played step by step.

    Source: the warm-up of forward_backward_pipelining_with_interleaving: 2 (p - i - 1) + (v - 1) p forward steps.
    """
    steps = micro_batches * chunks
    warm_up = min(steps, 2 * (stages - device - 1) + (chunks - 1) * stages)
    held = peak = warm_up
    for _ in range(steps - warm_up):
        held += 1
        peak = max(peak, held)
        held -= 1
    return peak


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("chunks", [2, 3, 5])
def test_interleaved_holds_what_playing_it_holds(stages: int, chunks: int) -> None:
    schedule = Interleaved(chunks)
    for micro_batches in (stages, 2 * stages, 8 * stages):
        held = [float(schedule.in_flight(i, stages, micro_batches)) * chunks for i in range(stages)]
        assert held == pytest.approx([interleaved(i, stages, chunks, micro_batches) for i in range(stages)])
    laws.schedule_is_sound(schedule)


def test_interleaving_keeps_more_activations_on_the_first_device() -> None:
    """1 + (p - 1)/(p v) of what 1F1B keeps. Source: Korthikanti et al., arXiv:2205.05198, section 4.2.3."""
    for stages, chunks in ((8, 3), (35, 3), (64, 1)):
        schedule = Interleaved(chunks) if chunks > 1 else SCHEDULES["1f1b"]
        factor = 1 + (stages - 1) / (stages * chunks) if chunks > 1 else 1.0
        assert float(schedule.in_flight(0, stages, 10_000)) / stages == pytest.approx(factor)


def test_only_one_forward_one_backward_is_interleaved() -> None:
    with pytest.raises(UserError, match="use 1f1b"):
        PipelineParallel().schedule({"schedule": "gpipe", "interleave": 2})


def test_every_part_of_an_interleaved_stage_needs_a_layer() -> None:
    most, divided = PipelineParallel().constraints({"interleave": 24})
    assert most.sides({"pp": 4, "layers_total": 80}) == (96, 80)
    for pp, allowed in ((1, True), (2, True), (4, False)):
        values = {"pp": pp, "layers_total": 80}
        assert laws.holds(most, values) is allowed
        assert bool(is_broken(most, values)) is not allowed
    assert laws.holds(most, {"pp": 1, "layers_total": 4})  # one stage alone is not interleaved
    assert not laws.holds(divided, {"pp": 4, "micro_batches": 6})


def test_context_parallelism_halves_the_work_and_what_is_kept(dense: ModelGraph) -> None:
    """cp and dp ranks do the same work on as many tokens; activations go by the tokens of a device, and the state that
    ZeRO splits over dp is split over dp x cp. Source: Llama 3, arXiv:2407.21783, section 3.3.2."""
    scene = Scene.of(dense, (DataParallel(), ContextParallel()), {"zero": 1})
    apart = scene.rows(scene.at(dp=4, cp=1, micro_batch=1, sequence=256))
    split = scene.rows(scene.at(dp=2, cp=2, micro_batch=1, sequence=256))
    assert split["activations"] == pytest.approx(apart["activations"] / 2)
    assert split["optimizer"] == pytest.approx(apart["optimizer"])
    one = scene.at(dp=1, cp=1, micro_batch=1, sequence=256, micro_batches=1)["hardware_flops"]
    assert scene.at(dp=1, cp=2, micro_batch=1, sequence=256, micro_batches=1)["hardware_flops"] == pytest.approx(one)


def test_context_parallelism_is_of_training() -> None:
    """A new token of a served sequence can't be split."""
    assert "cp" in settings_for("train", default_host())
    assert "cp" not in settings_for("serve", default_host())


def test_gpipe_holds_every_micro_batch_on_several_stages() -> None:
    """Source: Huang et al., arXiv:1811.06965, section 2.3; Narayanan et al., section 2.2.1."""
    schedule: Schedule = SCHEDULES["gpipe"]
    assert [schedule.in_flight(i, 4, 9) for i in range(4)] == [9, 9, 9, 9]
    assert schedule.in_flight(0, 1, 9) == 1


def test_key_value_heads_are_replicated_where_they_are_few() -> None:
    splits = {s.axis: s for s in TensorParallel().rules({}).splits}
    assert splits["kv_heads"].distribution is Distribution.REPLICATED
    scene = Scene.of(models.dense(), (TensorParallel(),))
    few = {"kv_heads": 2, "tp": 8}
    share = next(
        w for cost in scene.model.costs.values() for w in cost.weights if w.weight.name == "attention.k.weight"
    )
    # One head on each of eight ranks: each of the two heads stands four times.
    assert scene.number(share.elements, **few) == 256 * 1 * 16
    constraints = {c.left + c.right: c for c in TensorParallel().constraints({})}
    either = constraints["tp", "kv_heads"]
    assert [laws.holds(either, {"tp": tp, "kv_heads": 4}) for tp in (1, 2, 3, 4, 6, 8)] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]


def test_sequence_parallelism_is_a_store_of_the_stream() -> None:
    assert TensorParallel().rules({"sequence_parallel": True}).stores == (Store("stream", "query", "tp"),)
    assert TensorParallel().rules({"sequence_parallel": False}).stores == ()


@pytest.mark.parametrize(
    ("values", "allowed"),
    [
        ({"ep": 4, "experts": 8, "dp": 4, "tp": 1}, True),
        ({"ep": 8, "experts": 8, "dp": 4, "tp": 2}, True),
        ({"ep": 3, "experts": 8, "dp": 3, "tp": 1}, False),
        ({"ep": 16, "experts": 16, "dp": 4, "tp": 2}, False),
        ({"ep": 4, "experts": 8, "dp": 6, "tp": 2}, False),
    ],
)
def test_expert_ranks_fit_into_the_groups_they_are_taken_from(values: dict[str, float], allowed: bool) -> None:
    assert all(laws.holds(c, values) for c in ExpertParallel().constraints({})) == allowed


def test_experts_apply_only_where_there_are_any(dense: ModelGraph) -> None:
    assert not ExpertParallel().applies(dense.sizes)
    assert ExpertParallel().applies(models.routed().sizes)


def test_a_pipeline_needs_a_layer_for_each_stage() -> None:
    (constraint,) = PipelineParallel().constraints({})
    assert [laws.holds(constraint, {"pp": pp, "layers_total": 8}) for pp in (1, 8, 9)] == [True, True, False]
