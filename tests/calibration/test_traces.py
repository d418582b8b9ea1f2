"""What is read of the files that a person names: repeated executions become one row each."""

from __future__ import annotations

import pytest

from slipstick.calibration.traces import medians
from slipstick.core.model.interfaces.trace_reader import TraceRow


def row(seconds: float, m: float = 64.0, samples: int = 1, **facts: str) -> TraceRow:
    return TraceRow("gemm", {"m": m, "n": 8.0, "k": 8.0}, "bf16", "x", seconds, "events", samples=samples, facts=facts)


def test_repeated_executions_count_once_with_their_median() -> None:
    """The first execution of a kernel is often many times slower than the others."""
    found = medians([row(900e-6), row(10e-6), row(11e-6), row(5e-6, m=1.0)])
    assert [(r.shape["m"], r.seconds, r.samples) for r in found] == [(64.0, 11e-6, 3), (1.0, 5e-6, 1)]
    assert found[0].spread == pytest.approx(419e-6, rel=0.01)  # of 900, 10 and 11: (889.5² · 2/9)^½
    assert found[1].spread is None


def test_rows_that_differ_in_anything_stay_apart() -> None:
    rows = [row(1e-6), row(2e-6, variant="pinned"), row(3e-6, samples=20)]
    assert medians(rows) == rows
