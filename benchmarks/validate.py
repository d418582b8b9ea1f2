"""``slipstick validate`` over published training runs, against its target: 20 s of processor for 1,900 rows.

A new process, twice: the first compiles the programs into a cache folder of this run's own, the second finds them
there. Without the reference measurements (``SLIPSTICK_REFERENCE``, or ``shared/reference`` beside the repository)
there is nothing to time, and it says so.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from command_line import spent

TARGET = 20.0
"""Processor seconds of all rows with a warm cache."""
ROWS = 1922


def run(quick: bool) -> None:
    """Print both times, and the second's share of the target; ``quick``: the first 200 rows."""
    here = Path(__file__).resolve().parents[1]
    points = Path(os.environ.get("SLIPSTICK_REFERENCE") or here / "shared" / "reference") / "training_points.csv"
    if not points.is_file():
        print(f"no reference measurements at {points}; SLIPSTICK_REFERENCE names their folder")
        return
    rows = 200 if quick else ROWS
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["SLIPSTICK_CACHE_DIR"] = str(Path(folder) / "cache")
        words = ["-m", "slipstick", "validate", str(points), "--limit", str(rows)]
        _, cold = spent(words, environment, folder)
        _, warm = spent(words, environment, folder)
        print(f"{rows:,} rows, nothing cached: {cold:.1f} s of processor")
        # a tenth of the rows has more than a tenth of the models and machines to read, so it has no target
        told = "" if quick else f", {warm / TARGET:.2f} of the target {TARGET:g} s"
        print(f"{rows:,} rows, programs cached: {warm:.1f} s of processor, {warm / rows * 1e3:.1f} ms a row{told}")
