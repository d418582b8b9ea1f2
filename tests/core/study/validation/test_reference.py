"""The published measurements: every row is predicted or has its reason, and few have one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from attrs import evolve

from slipstick.core.host.host import Host
from slipstick.core.study.validation.points import read_file
from slipstick.core.study.validation.report import report
from slipstick.core.study.validation.run import Run

EVERY = {"training_points.csv": 7, "serving_points.csv": 29, "inference_points.csv": 11, "dos_runs.csv": 5}
"""File → one row in so many is asked here; ``slipstick validate`` asks all."""

UNMODELLED = ("not modelled yet", "no architecture here describes", "how the model is laid out", "is not stated")
"""Reasons that lie in what slipstick has or a row says, not in how it is read."""


@pytest.mark.parametrize("name", EVERY)
def test_every_row_is_predicted_or_has_its_reason(reference: Path, host: Host, name: str) -> None:
    points = read_file(reference / name, host)
    picked = evolve(points, points=points.points[:: EVERY[name]], passed=())
    predicted, passed = Run(host)(picked)
    assert len(predicted) + len(passed) == len(picked.points)
    assert all(item.reason and item.name for item in passed)
    other = [item.reason for item in passed if not any(words in item.reason for words in UNMODELLED)]
    modelled = len(predicted) + len(other)
    assert not modelled or len(predicted) / modelled >= 0.97, Counter(other)
    assert all(row.value >= 0 for row in predicted)
    found = report(predicted, passed)
    assert found.overall["n"] + found.overall["skipped"] == len(picked.points)
    assert sum(part["n"] for part in found.by_metric.values()) == len(predicted)
    assert sum(part["n"] for part in found.by_group.values()) == len(predicted)
