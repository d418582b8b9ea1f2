"""The command line's own time, against its targets.

``--help`` at most 0.15 s over bare Python and without sympy, a repeated answer at most 0.4 s, a first one (nothing
cached) at most 3 s.

Each is a new process, with byte code cached as an installed package has it, and a cache folder of this run's own.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVE = ["serve", "deepseek-v3", "--on", "h200-sxm", "--gpus", "8", "--tp", "8", "--concurrency", "32"]
TRAIN = [
    "train",
    "llama-3.1-70b",
    "--on",
    "h100-sxm",
    "--gpus",
    "64",
    "--tp",
    "8",
    "--pp",
    "2",
    "--global-batch",
    "256",
]


def spent(words: list[str], environment: dict[str, str], folder: str) -> tuple[float, float]:
    """Wall and processor seconds of one process."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=folder,
        check=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def runs(words: list[str], environment: dict[str, str], folder: str, count: int) -> tuple[float, float]:
    """Medians of wall and processor seconds."""
    found = [spent(words, environment, folder) for _ in range(count)]
    return statistics.median(w for w, _ in found), statistics.median(c for _, c in found)


def run(quick: bool) -> None:
    """Print each command's time, over bare Python's, and its share of the target."""
    count = 5 if quick else 11
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["SLIPSTICK_CACHE_DIR"] = str(Path(folder) / "cache")
        program = ["-m", "slipstick"]
        spent([*program, *SERVE], environment, folder)  # byte code
        bare = runs(["-c", "pass"], environment, folder, count)
        print(f"bare python: {bare[0]:.3f} s ({bare[1]:.3f} s of processor)")
        rows = [("--help, over bare python", ["--help"], 0.15, True), ("repeated serve", SERVE, 0.4, False)]
        rows += [("repeated serve --json", [*SERVE, "--json"], 0.4, False), ("repeated train", TRAIN, 0.4, False)]
        for name, words, target, over in rows:
            spent([*program, *words], environment, folder)
            wall, processor = (
                t - b * over for t, b in zip(runs([*program, *words], environment, folder, count), bare, strict=True)
            )
            print(
                f"{name}: {wall:.3f} s ({processor:.3f} s of processor), {wall / target:.2f} of the target {target} s"
            )
        cold = []
        for number in range(2 if quick else 3):
            environment["SLIPSTICK_CACHE_DIR"] = str(Path(folder) / f"cold{number}")
            cold.append(spent([*program, *SERVE], environment, folder))
        wall, processor = statistics.median(w for w, _ in cold), statistics.median(c for _, c in cold)
        print(
            f"first serve, nothing cached: {wall:.2f} s ({processor:.2f} s of processor), "
            f"{wall / 3:.2f} of the target 3 s"
        )
        code = (
            "import sys; from slipstick.core.face.cli.main import main; main(['--help']); print('sympy' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        print(f"--help imports sympy: {done.stdout.splitlines()[-1]}")
