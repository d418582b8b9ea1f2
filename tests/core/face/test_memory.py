"""Memory over a step as a page, in a trace and as a command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.face.memory import LEVELS, memory_page, sketch
from slipstick.core.face.text import plain
from slipstick.core.records.prediction import LedgerRow
from slipstick.core.study.memory_curve import stage_curve
from slipstick.core.study.timeline import Event

Run = Callable[..., Any]
TRAIN = ("explain", "train", "llama-3.1-8b", "--on", "h100-sxm", "--gpus", "8", "--memory")


def test_the_timeline_has_the_counters(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    words = ("--gpus", "8", "--pp", "2", "--tp", "4", "--global-batch", "16", "--timeline", str(path))
    assert slipstick("train", "llama-3.1-8b", "--on", "h100-sxm", *words).status == 0
    rows = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    assert {row["pid"] for row in rows if row["ph"] == "C"} == {0, 1}


def test_a_line_over_time_shows_the_most_of_each_part_of_it() -> None:
    events = [Event(0, "compute", what, at, 1.0, 0) for what, at in (("forward", 0.0), ("backward", 3.0))]
    rows = (LedgerRow("weights", 0.0, "", ("compute", "update")), LedgerRow("activations", 0.0, "", ("compute",)),
            LedgerRow("workspace", 8.0, "", ("compute",)))  # fmt: skip
    curve = stage_curve(0, "only stage", rows, 8.0, [*events, Event(0, "host", "host", 4.0, 4.0)])
    assert sketch(curve, 8) == f"█{LEVELS[4]}{LEVELS[4]}█▁▁▁▁"
    page = plain(memory_page([curve], 32.0))
    for told in ("Stage 0, only stage: 8 s as played", "16 B of 32 B at 0 s, forward pass of micro-batch 0", "█"):
        assert told in page
    assert [line.split() for line in page.splitlines() if line.startswith("all")] == [["all", "16", "B", "0", "B"]]


def test_explain_tells_what_makes_the_peak(slipstick: Run) -> None:
    words = ("--pp", "2", "--global-batch", "32", "--recompute", "full")
    done = slipstick(*TRAIN, *words)
    assert done.status == 0, done.err
    for told in ("Stage 0, first stage", "Stage 1, last stage", "forward pass of micro-batch", "at the peak"):
        assert told in done.out
    assert max(map(len, done.out.splitlines())) <= 80
    found = slipstick(*TRAIN, *words, "--json").json
    assert [stage["stage"] for stage in found["stages"]] == [0, 1]
    answer = slipstick(*TRAIN[1:-1], *words, "--json").json
    assert max(stage["peak"]["bytes"] for stage in found["stages"]) == pytest.approx(answer["memory_bytes"]["peak"])


def test_explain_of_memory_is_of_a_step_that_there_is(slipstick: Run) -> None:
    refused = slipstick(*TRAIN, "--tp", "3")
    assert refused.status == 1
    assert refused.err.startswith("error: --memory: no step to look at: ")
    assert refused.err.count("\n") == 1
    over = slipstick("explain", "train", "llama-3.1-8b", "--on", "a10g", "--memory")
    assert over.status == 1
    assert "NOT FEASIBLE: does not fit" in over.out
    assert "at the peak" in over.out
    assert slipstick("explain", "serve", "llama-3.1-8b", "--on", "h100-sxm", "--memory").status == 2
    both = slipstick(*TRAIN, "--against", __file__)
    assert both.status == 2
    assert "one of them at a time" in both.err
