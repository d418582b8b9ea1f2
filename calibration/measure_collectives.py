"""Collectives among the devices of one machine: one process a rank, NCCL on GPUs, Gloo among CPU processes.

Stands on the core and the design; torch only inside functions. Each rank is a new Python process; the first one writes
what was measured to a file that the parent reads.
"""

from __future__ import annotations

import importlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .measure_design import WIDTH, Case
from .measure_timing import LEAST, MOST, Clock, CpuClock, CudaClock, Timed, settled, summary

START = 60.0
"""Seconds that processes may take to find each other, beyond the time for measuring."""


def measure_collectives(
    cases: Sequence[Case], cuda: bool, budget_s: float, allowed: float
) -> tuple[list[tuple[Case, Timed]], list[tuple[Case, str]]]:
    """Times of collectives of one group size, and those that can't be run with why.

    ``budget_s`` [s] for all of them, ``allowed`` [s] for one.
    """
    spawn = importlib.import_module("torch.multiprocessing.spawn").spawn

    with tempfile.TemporaryDirectory(prefix="slipstick-") as folder:
        asked = [(case.kernel, case.shape["bytes"], case.format) for case in cases]
        arguments = (asked, cases[0].ranks, cuda, budget_s, allowed, folder)
        failed = ""
        try:
            spawn(_rank, args=arguments, nprocs=cases[0].ranks, join=True)
        except Exception as error:  # a rank died: what the others wrote before still counts
            failed = (str(error).strip().splitlines() or ["a process failed"])[-1][:160]
        lines = Path(folder, "rows").read_text(encoding="utf-8").splitlines() if Path(folder, "rows").exists() else []
    found: list[tuple[Case, Timed]] = []
    problems: list[tuple[Case, str]] = []
    for line in lines:
        index, samples, calls, why = json.loads(line)
        if why:
            problems.append((cases[index], why))
        elif len(samples) >= LEAST:
            found.append((cases[index], summary(samples, calls)))
    if failed:
        told = {id(case) for case, _ in (*found, *problems)}
        problems += [(case, failed) for case in cases if id(case) not in told]
    return found, problems


def _rank(
    rank: int,
    asked: Sequence[tuple[str, float, str]],
    ranks: int,
    cuda: bool,
    budget_s: float,
    allowed: float,
    folder: str,
) -> None:
    """One process. All ranks take the same decisions: what one of them measures, the slowest of all measures."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", rank) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(max(1, (os.cpu_count() or 1) // ranks))
    dist.init_process_group(
        "nccl" if cuda else "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=ranks
    )
    clock: Clock = CudaClock(torch, device) if cuda else CpuClock()
    together = _Together(torch, dist, device)
    deadline = time.monotonic() + budget_s
    with open(os.path.join(folder, "rows" if rank == 0 else os.devnull), "a", encoding="utf-8") as file:
        for index, (kind, size, number_format) in enumerate(asked):
            if together.most(float(time.monotonic() >= deadline)):
                break
            why, calls = "", 1
            samples: list[float] = []
            try:
                run = _call(kind, int(size), number_format, rank, ranks, torch, dist, device)
                samples, calls = _samples(run, clock, together, allowed)
            except (RuntimeError, ValueError, NotImplementedError) as error:
                why = (str(error).strip().splitlines() or ["not supported"])[0][:160]
            file.write(json.dumps((index, samples, calls, why)) + "\n")
            file.flush()
    dist.destroy_process_group()


class _Together:
    """A number that all ranks agree on: the largest of theirs."""

    def __init__(self, torch: Any, dist: Any, device: Any) -> None:
        self.torch, self.dist, self.device = torch, dist, device

    def most(self, value: float) -> float:
        """The largest over all ranks."""
        held = self.torch.tensor([value], dtype=self.torch.float64, device=self.device)
        self.dist.all_reduce(held, op=self.dist.ReduceOp.MAX)
        return float(held.item())


def _samples(
    run: Callable[[int], object], clock: Clock, together: _Together, allowed: float
) -> tuple[list[float], int]:
    clock.sample(run, 0, 3)
    once = together.most(clock.sample(run, 0, 2)) / 2
    calls = max(1, min(64, int(2e-3 / max(once, 1e-7))))
    samples: list[float] = []
    spent = 0.0
    while len(samples) < MOST and (len(samples) < LEAST or (spent < allowed and not settled(summary(samples, calls)))):
        taken = together.most(clock.sample(run, 0, calls))
        spent += taken
        samples.append(taken / calls)
    return samples, calls


def _call(
    kind: str, size: int, number_format: str, rank: int, ranks: int, torch: Any, dist: Any, device: Any
) -> Callable[[int], object]:
    """One collective over ``size`` bytes, as the shapes of rows count them."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(number_format, torch.float32)
    count = max(ranks, size // WIDTH[number_format] // ranks * ranks)
    whole = torch.zeros(count, dtype=dtype, device=device)
    part = torch.zeros(count // ranks, dtype=dtype, device=device)
    if kind == "all_reduce":
        return lambda call: dist.all_reduce(whole)
    if kind == "all_gather":
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor  # its name before 2.13
        return lambda call: gather(whole, part)
    if kind == "reduce_scatter":
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        return lambda call: scatter(part, whole)
    if kind == "all_to_all":
        received = torch.zeros_like(whole)
        return lambda call: dist.all_to_all_single(received, whole)
    # send: neighbours in pairs, as between two stages of a pipeline
    if rank >= ranks - ranks % 2:
        return lambda call: None
    if rank % 2:
        return lambda call: dist.recv(whole, rank - 1)
    return lambda call: dist.send(whole, rank + 1)
