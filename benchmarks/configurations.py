"""One million full training configurations, time and memory, on one core. Target: at most 2 s, linear in their number.

Tensor, pipeline and data parallel degree, micro batch and sequence vary at random, so that no part of the formula is
shared between neighbouring points; then the same number as a search over a grid, with its conditions and its best.
"""

from __future__ import annotations

import resource
import time
from typing import Any

import numpy as np

from slipstick.core.host.host import default_host
from slipstick.core.study.ask import ask
from slipstick.core.study.case import Case

TARGET_S = 2.0


def points(count: int) -> dict[str, Any]:
    """``count`` settings, every one of the five varying."""
    random = np.random.default_rng(0)
    found: dict[str, Any] = {
        "tp": 2.0 ** random.integers(0, 4, count),
        "pp": 2.0 ** random.integers(0, 5, count),
        "dp": 2.0 ** random.integers(0, 8, count),
        "micro_batch": random.integers(1, 17, count).astype(float),
        "sequence": 128.0 * random.integers(1, 257, count),
    }
    return {**found, "global_batch": found["dp"] * found["micro_batch"] * 16}


def seconds(case: Case, settings: dict[str, Any]) -> float:
    """Processor time of one evaluation of step time and peak memory."""
    start = time.process_time()
    out = case.evaluate(settings, ("step_time", "memory.peak"))
    assert out["step_time"].shape == out["memory.peak"].shape == settings["tp"].shape
    return time.process_time() - start


def peak_mb() -> float:
    """Largest resident size of this process so far [MB]."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def run(quick: bool) -> None:
    """Print seconds, points a second, memory, and the ratio to a tenth of the points."""
    host = default_host()
    whole = 100_000 if quick else 1_000_000
    for model in ("llama-3.1-70b", "mixtral-8x7b"):
        case = ask("train", (model,), ("h100-sxm",), {"devices": 64}, host).predictions[0].case
        seconds(case, points(1000))
        before = peak_mb()
        part = min(seconds(case, points(whole // 10)) for _ in range(3))
        full = min(seconds(case, points(whole)) for _ in range(2))
        arrays = 7 * whole * 8 / 2**20
        print(
            f"{model}: {whole:,} scattered configurations in {full:.2f} s, {whole / full:,.0f} a second; "
            f"{full / (TARGET_S * whole / 1e6):.2f} of the target; "
            f"ten times the points take {full / part:.1f} times as long; "
            f"peak memory {before:.0f} → {peak_mb():.0f} MB, of which {arrays:.0f} MB are inputs"
        )
    start = time.process_time()
    lengths = tuple(range(128, 128 + 4 * whole // 441))
    asked = {"devices": 64, "tp": "?", "pp": "?", "micro_batch": "?", "global_batch": 256, "sequence": lengths}
    report = ask("train", ("llama-3.1-70b",), ("h100-sxm",), asked, host).search
    spent = time.process_time() - start
    assert report is not None
    print(
        f"search: {report.tried:,} settings in {spent:.2f} s, {report.feasible:,} feasible, "
        f"peak memory {peak_mb():.0f} MB"
    )
