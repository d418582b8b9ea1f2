"""Schedules with weight gradients apart: their orders against PyTorch's, their closed forms against playing them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.host.host import default_host
from slipstick.core.model.interfaces.strategy import Pass, Schedule
from slipstick.core.study.ask import ask
from slipstick.core.study.case import is_broken
from slipstick.core.study.timeline import played
from slipstick.core.testkit import laws
from slipstick.plugins.strategies._zero_bubble import SPLIT
from slipstick.plugins.strategies.pipeline import PipelineParallel

seconds = st.floats(0.05, 2.0)


def least(name: str, stages: int) -> int:
    """The fewest micro-batches that a schedule is for."""
    return {"zb-h1": stages, "zb-v": 2 * stages - 1}.get(name, 2 * stages)


def makespan(schedule: Schedule, stages: int, micro_batches: int, times: tuple[float, float, float]) -> float:
    parts = tuple(one / schedule.chunks for one in times)
    events = played(
        [schedule.order(i, stages, micro_batches) for i in range(stages)],
        lambda stage, chunk: (parts[0], parts[1], parts[2]),
        lambda micro_batch: schedule.path(micro_batch, stages),
    )
    return max(event.end for event in events)


def bubble(schedule: Schedule, stages: int, times: tuple[float, float, float]) -> float:
    assert schedule.bubble is not None
    bound = schedule.bubble.bind(**dict(zip(("forward", "input", "weight"), times, strict=True)), stages=stages)
    return float(bound.expr)


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(list(SPLIT)), half=st.integers(1, 6), odd=st.booleans(), more=st.integers(0, 12),
    times=st.tuples(seconds, seconds, seconds),
)  # fmt: skip
def test_the_closed_form_is_what_playing_the_schedule_takes(
    name: str, half: int, odd: bool, more: int, times: tuple[float, float, float]
) -> None:
    """Whatever the three passes take, on even stages with transfers hidden."""
    schedule = SPLIT[name]
    stages = 2 * half if name == "dualpipe" else 2 * half - odd
    micro_batches = least(name, stages) + (2 * more if name == "dualpipe" else more)
    if stages == 1:
        micro_batches += micro_batches % 2 if name == "dualpipe" else 0
    expected = micro_batches * sum(times) + bubble(schedule, stages, times)
    assert makespan(schedule, stages, micro_batches, times) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(("stages", "one"), [(4, 1.0), (8, 1.0), (16, 0.3)])
def test_the_published_bubbles(stages: int, one: float) -> None:
    """Where forward passes and both halves take the same: (p - 1)(F + B - W) of ZB-H1, (p/2 - 1)(F&B + B - 3W) of
    DualPipe, none for a device of ZB-V. Source: arXiv:2401.10241, table 3; arXiv:2412.19437, table 2 (1F1B, ZB1P and
    DualPipe on the same passes)."""
    times = (one, one, one)
    assert bubble(SPLIT["zb-h1"], stages, times) == pytest.approx((stages - 1) * one)
    assert bubble(SPLIT["dualpipe"], stages, times) == pytest.approx((stages / 2 - 1) * (3 + 2 - 3) * one)
    # The first device starts at once and ends last: what is left is what the last one starts later.
    assert bubble(SPLIT["zb-v"], stages, times) == pytest.approx((stages - 1) * one / 2)
    whole = (stages - 1) * 3 * one
    assert bubble(SPLIT["zb-v"], stages, times) < bubble(SPLIT["zb-h1"], stages, times) < whole


@pytest.mark.parametrize("name", list(SPLIT))
@pytest.mark.parametrize("stages", [1, 2, 4, 6, 10])
def test_what_is_in_flight_is_what_playing_the_schedule_holds(name: str, stages: int) -> None:
    """A micro-batch is held from its forward pass to its weight gradients. DualPipe: p + 1 of one stage (table 2)."""
    schedule = SPLIT[name]
    for micro_batches in (2 * stages, 6 * stages):
        for stage in range(stages):
            held = most = 0
            for one in schedule.order(stage, stages, micro_batches):
                for each in filter(None, (one, one.beside)):
                    held += {"forward": 1, "input": 0, "weight": -1, "backward": -1}[each.direction]
                    most = max(most, held)
            assert held == 0
            stated = float(schedule.in_flight(stage, stages, micro_batches))
            assert most / schedule.chunks == pytest.approx(stated)
    laws.schedule_is_sound(schedule)


@pytest.mark.parametrize("name", list(SPLIT))
@pytest.mark.parametrize("stages", [2, 4, 8])
def test_every_pass_is_made_once(name: str, stages: int) -> None:
    schedule, micro_batches = SPLIT[name], 4 * stages
    for stage in range(stages):
        made: list[tuple[str, int, int]] = []
        for one in schedule.order(stage, stages, micro_batches):
            for each in filter(None, (one, one.beside)):
                ways = ("input", "weight") if each.direction == "backward" else (each.direction,)
                made += [(way, each.micro_batch, each.chunk) for way in ways]
        wanted = {
            (way, m, chunk)
            for m in range(micro_batches)
            for device, chunk in schedule.path(m, stages)
            if device == stage
            for way in ("forward", "input", "weight")
        }
        assert len(made) == len(wanted)
        assert set(made) == wanted


def as_torch(one: Any, stages: int) -> list[tuple[str, int, int]]:
    """An action of PyTorch's schedules as (direction, chunk, micro-batch); both of a pair."""
    if one is None:
        return []
    if one.sub_actions is not None:
        return [part for each in one.sub_actions for part in as_torch(each, stages)]
    ways = {"FORWARD": "forward", "FULL_BACKWARD": "backward", "BACKWARD_INPUT": "input", "BACKWARD_WEIGHT": "weight"}
    return [(ways[one.computation_type.name], int(one.stage_index >= stages), int(one.microbatch_index))]


def own(order: tuple[Pass, ...]) -> list[tuple[str, int, int]]:
    return [(p.direction, p.chunk, p.micro_batch) for one in order for p in (one, one.beside) if p is not None]


@pytest.mark.parametrize(("name", "theirs"), [("zb-v", "ScheduleZBVZeroBubble"), ("dualpipe-v", "ScheduleDualPipeV")])
@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (2, 9), (4, 8), (4, 13), (8, 16), (8, 40)])
def test_orders_are_those_of_pytorch(name: str, theirs: str, stages: int, micro_batches: int) -> None:
    """Source: torch.distributed.pipelining.schedules, which plans every rank's passes."""
    schedules = pytest.importorskip("torch.distributed.pipelining.schedules", reason="PyTorch is not installed")
    planned = getattr(schedules, theirs)._calculate_single_rank_operations
    mine = {i: (i, 2 * stages - 1 - i) for i in range(stages)}
    about = SimpleNamespace(
        pp_group_size=stages, _n_microbatches=micro_batches, num_stages=2 * stages, rank_to_stages=mine,
        stage_index_to_group_rank={s: r for r, both in mine.items() for s in both},
    )  # fmt: skip
    for stage in range(stages):
        expected = [part for one in planned(about, stage) for part in as_torch(one, stages)]
        expected = [part for part in expected if part[2] < micro_batches]
        assert own(SPLIT[name].order(stage, stages, micro_batches)) == expected


def test_what_a_schedule_is_not_for_is_refused() -> None:
    strategy = PipelineParallel()
    for name, pp, micro_batches, allowed in (
        ("zb-h1", 4, 4, True), ("zb-h1", 4, 3, False), ("zb-v", 4, 7, True), ("zb-v", 4, 6, False),
        ("dualpipe", 4, 8, True), ("dualpipe", 4, 9, False), ("dualpipe", 3, 8, False), ("dualpipe", 4, 6, False),
        ("dualpipe-v", 4, 7, False), ("dualpipe-v", 3, 7, True), ("dualpipe", 1, 1, True), ("zb-v", 1, 1, True),
    ):  # fmt: skip
        values = {"pp": pp, "micro_batches": micro_batches, "layers_total": 80}
        found = strategy.constraints({"schedule": name, "interleave": 1})
        assert any(is_broken(c, values) for c in found) is not allowed, (name, pp, micro_batches)
    with pytest.raises(UserError, match="holds two parts of the model a device; use 1f1b"):
        strategy.schedule({"schedule": "zb-v", "interleave": 2})
    with pytest.raises(UserError, match="one part of the model each"):
        strategy.schedule({"schedule": "zb-v", "interleave": 1, "first_layers": 3})


def test_two_stages_have_none_between() -> None:
    found = PipelineParallel().constraints({"schedule": "1f1b", "first_layers": 10, "last_layers": 5})
    for pp, allowed in ((1, True), (2, False), (3, True)):
        broken = [c for c in found if is_broken(c, {"pp": pp, "layers_total": 32})]
        assert bool(broken) is not allowed, pp


def test_the_default_batch_suits_a_schedule_with_two_ends() -> None:
    asked = {"devices": 8, "pp": 4, "schedule": "dualpipe", "sequence": 512}
    made = ask("train", ("llama-3.2-1b",), ("h100-sxm",), asked, default_host()).predictions[0].answer
    assert made.setting["micro_batches"] == 16
    assert made.feasible


def test_weight_gradients_of_adapters_and_of_a_prediction_layer_are_in_the_bubble() -> None:
    """Frozen weights have none; what is left of the halves stays there, of every block of the last stage."""
    asked = {"devices": 64, "pp": 2, "ep": 8, "schedule": "zb-h1", "global_batch": 512, "lora_rank": 16}
    waits = []
    for mtp in (False, True):
        made = ask("train", ("deepseek-v3",), ("h200-sxm",), {**asked, "mtp": mtp}, default_host()).predictions[0]
        out = made.case.program.evaluate(made.case.complete(made.settings))
        (node,) = (n for n in made.case.program.nodes if n["kind"] == "waiting")
        waits.append([float(out[f"t{i}"]) for i in node["children"]])
    assert all(after > before for before, after in zip(*waits, strict=True))


def test_stages_with_layers_of_their_own_leave_one_to_each_of_the_others() -> None:
    strategy = PipelineParallel()
    for first, last, pp, allowed in (
        (4, 4, 4, True),
        (4, 4, 26, True),
        (4, 4, 27, False),
        (0, 30, 3, True),
        (0, 30, 4, False),
    ):
        most, *_ = strategy.constraints({"schedule": "1f1b", "first_layers": first, "last_layers": last})
        assert bool(is_broken(most, {"pp": pp, "layers_total": 32})) is not allowed, (first, last, pp)
    with pytest.raises(UserError, match="make no stage"):
        strategy.schedule({"schedule": "1f1b", "first_layers": -1})
