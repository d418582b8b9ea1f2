"""Memory over a step: its peak is the ledger's, whatever the schedule and however long the passes take."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.records.prediction import LedgerRow
from slipstick.core.study.memory_curve import MemoryCurve, counters, memory_curve, stage_curve
from slipstick.core.study.timeline import Event, played, timeline
from slipstick.plugins.strategies.pipeline import PipelineParallel

BOTH, PASSES, UPDATE = ("compute", "update"), ("compute",), ("update",)
ROWS = (
    LedgerRow("weights", 10.0, "", BOTH), LedgerRow("activations", 0.0, "", PASSES),
    LedgerRow("workspace", 3.0, "", PASSES), LedgerRow("buckets", 1.0, "", UPDATE),
)  # fmt: skip
SAVED = 8.0
SCHEDULES = [("gpipe", 1), ("1f1b", 1), ("1f1b", 2), ("1f1b", 3)]


def totals(curve: MemoryCurve) -> list[float]:
    return [sum(values) for _, values in curve.samples]


@settings(max_examples=80, deadline=None)
@given(
    schedule=st.sampled_from(SCHEDULES), stages=st.integers(1, 6), rounds=st.integers(1, 8), hop=st.floats(0, 0.5),
    seconds=st.lists(st.floats(0.01, 2.0), min_size=18, max_size=18),
)  # fmt: skip
def test_the_peak_is_what_the_schedule_has_in_flight(
    schedule: tuple[str, int], stages: int, rounds: int, hop: float, seconds: list[float]
) -> None:
    """in_flight states published closed forms (sources in the schedules): exact here, whatever the stages take."""
    name, chunks = schedule
    made = PipelineParallel().schedule({"schedule": name, "interleave": chunks})
    micro_batches = rounds if chunks == 1 else rounds * stages

    def times(stage: int, chunk: int) -> tuple[float, float, float]:
        one = seconds[(chunk * stages + stage) % len(seconds)]
        return one, 0.8 * one, 1.2 * one

    orders = [made.order(stage, stages, micro_batches) for stage in range(stages)]
    events = played(orders, times, lambda micro_batch: made.path(micro_batch, stages), hop)
    for stage in range(stages):
        curve = stage_curve(stage, "", ROWS, SAVED, events, chunks)
        in_flight = float(made.in_flight(stage, stages, micro_batches))
        assert curve.peak.bytes == pytest.approx(10.0 + 3.0 + in_flight * SAVED)
        assert max(totals(curve)) == curve.peak.bytes
        assert min(value for _, values in curve.samples for value in values) >= 0
        assert [start for start, _ in curve.samples] == sorted({start for start, _ in curve.samples})
        assert curve.samples[0][0] == 0.0
        assert curve.at(curve.end) == {"weights": 10.0, "activations": 0.0, "workspace": 0.0, "buckets": 0.0}


def test_rows_rise_and_fall_with_the_passes() -> None:
    """By hand: two micro-batches, the second's weights' gradients come in a third pass, then an update."""
    events = [
        Event(1, "compute", "forward", 1.0, 1.0, 0), Event(1, "compute", "forward", 2.0, 1.0, 1),
        Event(1, "compute", "backward", 4.0, 1.0, 0), Event(1, "compute", "backward", 5.0, 1.0, 1),
        Event(1, "compute", "weight", 7.0, 1.0, 1), Event(1, "compute", "update", 9.0, 2.0),
        Event(0, "compute", "forward", 0.0, 1.0, 0), Event(0, "compute", "forward", 1.0, 9.0, 1),
    ]  # fmt: skip
    curve = stage_curve(1, "last stage", ROWS, SAVED, events)
    assert curve.samples == (
        (0.0, (10.0, 0.0, 0.0, 0.0)),
        (1.0, (10.0, 8.0, 3.0, 0.0)),
        (2.0, (10.0, 16.0, 3.0, 0.0)),  # the first pass ends as the second starts: one workspace
        (3.0, (10.0, 16.0, 0.0, 0.0)),
        (4.0, (10.0, 16.0, 3.0, 0.0)),
        (5.0, (10.0, 8.0, 3.0, 0.0)),
        (6.0, (10.0, 8.0, 0.0, 0.0)),  # kept until its last pass, whatever that is called
        (7.0, (10.0, 8.0, 3.0, 0.0)),
        (8.0, (10.0, 0.0, 0.0, 0.0)),
        (9.0, (10.0, 0.0, 0.0, 1.0)),
        (11.0, (10.0, 0.0, 0.0, 0.0)),
    )
    assert (curve.peak.bytes, curve.peak.start) == (29.0, 2.0)
    assert (curve.peak.during, curve.peak.row) == ("forward pass of micro-batch 1", "activations")
    assert curve.end == 11.0
    assert curve.at(4.5) == {"weights": 10.0, "activations": 16.0, "workspace": 3.0, "buckets": 0.0}


def test_of_a_stage_in_parts_each_keeps_its_share() -> None:
    events = [
        Event(0, "compute", what, 2.0 * chunk + 4.0 * back, 1.0, 0, chunk)
        for back, what in enumerate(("forward", "backward")) for chunk in (0, 1)
    ]  # fmt: skip
    curve = stage_curve(0, "", ROWS, SAVED, events, chunks=2)
    assert [values[1] for _, values in curve.samples] == [4.0, 4.0, 8.0, 8.0, 8.0, 4.0, 4.0, 0.0]
    assert curve.peak.during == "forward pass of micro-batch 0, part 1"


def test_a_peak_of_the_update_is_named_by_it() -> None:
    rows = (LedgerRow("weights", 1.0, "", BOTH), LedgerRow("buckets", 50.0, "", UPDATE))
    events = [Event(0, "compute", "forward", 0.0, 1.0, 0), Event(0, "links", "gather updated weights", 1.0, 1.0)]
    curve = stage_curve(0, "", rows, 0.0, events)
    assert (curve.peak.bytes, curve.peak.during, curve.peak.row) == (51.0, "gather updated weights", "buckets")


QUESTIONS = [
    ("llama-3.1-8b", {"devices": 8, "tp": 8, "global_batch": 16}),
    ("llama-3.1-8b", {"devices": 8, "dp": 8, "zero": 3, "recompute": "full", "global_batch": 16}),
    ("llama-3.1-70b", {"devices": 64, "tp": 8, "pp": 4, "global_batch": 64}),
    ("llama-3.1-70b", {"devices": 64, "tp": 8, "pp": 4, "global_batch": 64, "schedule": "gpipe"}),
    ("llama-3.1-70b", {"devices": 64, "tp": 8, "pp": 4, "global_batch": 64, "interleave": 4}),
    ("llama-3.1-70b", {"devices": 24, "tp": 8, "pp": 3, "global_batch": 9, "micro_batch": 3}),  # 27, 27 and 26 layers
    ("deepseek-v3", {"devices": 512, "ep": 32, "pp": 8, "global_batch": 512, "stack": "megatron-lm"}),
]


@pytest.mark.parametrize(("model", "asked"), QUESTIONS)
def test_the_highest_point_is_the_peak_of_the_ledger(one: Any, model: str, asked: dict[str, Any]) -> None:
    made = one("train", model, "h200-sxm", **asked)
    answer, events = made.answer, timeline(made)
    curves = memory_curve(made)
    assert curves == memory_curve(made, events)
    fullest = max(curves, key=lambda curve: curve.peak.bytes)
    assert fullest.peak.bytes == pytest.approx(answer.peak, rel=1e-12)
    assert fullest.label == answer.stage
    rows = {row.name: row.bytes for row in answer.ledger}
    at_peak = fullest.at(fullest.peak.start)
    assert at_peak == pytest.approx(rows, rel=1e-12)
    assert at_peak[fullest.peak.row] == max(rows.values())
    stages = asked.get("pp", 1)
    assert [curve.stage for curve in curves] == sorted({curve.stage for curve in curves})
    assert {0, stages - 1} <= {curve.stage for curve in curves} <= set(range(stages))
    kept = ("weights", "gradients", "optimizer", "reserve")
    for curve in curves:
        assert curve.end == max(event.end for event in events)
        assert len({tuple(curve.at(start)[name] for name in kept) for start, _ in curve.samples}) == 1
        after = curve.at(curve.end)
        assert (after["activations"], after["workspace"]) == (0.0, 0.0)


def test_gpipe_keeps_every_micro_batch_and_1f1b_as_many_as_stages(one: Any) -> None:
    """Narayanan et al., arXiv:2104.04473, section 2.2.1: at most p instead of m. Of 32 micro-batches on 4 stages."""
    held = {}
    for schedule in ("gpipe", "1f1b"):
        ask = {"devices": 64, "tp": 8, "pp": 4, "global_batch": 64, "schedule": schedule}
        first = memory_curve(one("train", "llama-3.1-70b", "h200-sxm", **ask))[0]
        held[schedule] = max(values[first.rows.index("activations")] for _, values in first.samples)
    assert held["gpipe"] / held["1f1b"] == pytest.approx(32 / 4, rel=1e-12)


def test_serving_has_no_curve_yet(one: Any) -> None:
    with pytest.raises(UserError, match="of a training step"):
        memory_curve(one("serve", "llama-3.1-8b", "h100-sxm"))


def test_the_counters_are_what_perfetto_reads(one: Any) -> None:
    """Counter events: a name, a process, microseconds, and a series of numbers that has the same names throughout."""
    made = one("train", "llama-3.1-8b", "h100-sxm", devices=8, pp=4, dp=2, global_batch=16)
    curves = memory_curve(made)
    rows = json.loads(json.dumps(counters(curves), allow_nan=False))
    assert {row["pid"] for row in rows} == {0, 3}
    for stage, curve in ((0, curves[0]), (3, curves[1])):
        own = [row for row in rows if row["pid"] == stage]
        assert {row["ph"] for row in own} == {"C"}
        assert {row["name"] for row in own} == {"memory"}
        assert all(set(row["args"]) == set(curve.rows) for row in own)
        assert all(isinstance(value, float) for row in own for value in row["args"].values())
        times = [row["ts"] for row in own]
        assert times[0] == 0
        assert all(a <= b for a, b in itertools.pairwise(times))
        assert times[-1] == pytest.approx(1e6 * curve.end)
        assert max(sum(row["args"].values()) for row in own) == curve.peak.bytes
