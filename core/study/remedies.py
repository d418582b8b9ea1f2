"""What would make an overflowing setting fit: the smallest change, as a person would type it.

Floor: study.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve

from .case import Case

FACTORS = (1, 2, 4, 8, 16, 32, 64, 128)
"""By how much devices and degrees are raised in search of a setting that fits."""

FLAGS = {"devices": "gpus", "micro_batch": "micro-batch"}


def remedy(case: Case, settings: Mapping[str, Any]) -> str:
    """The smallest change of settings that fits, in words; empty where none does."""
    if case.task == "serve":
        found = case.program.evaluate(case.complete(settings), ["max_concurrency"])["max_concurrency"]
        most = int(found) if found == found and found < 1e15 else 0
        if most >= 1 and fits(case, {**settings, "concurrency": most}):
            return f"at most --concurrency {most} fits"
    words = _changes(case, settings)
    return f"{words} would fit" if words else ""


def fits(case: Case, settings: Mapping[str, Any]) -> bool:
    """Whether a setting meets every condition and its memory suffices."""
    values = case.complete(settings)
    if any(bool(broken) for _, broken in case.violations(values)):
        return False
    return float(case.program.evaluate(values, ["memory.peak"])["memory.peak"]) <= case.machine.accelerator.memory


def _changes(case: Case, settings: Mapping[str, Any]) -> str:
    """The best of all combinations of larger degrees, more devices, a smaller micro batch and recomputation.

    Best: fewest devices, tensor parallelism inside a node, fewest options changed, least recomputation, smallest
    degrees.
    """
    import numpy as np

    now = case.complete(settings)
    degrees = [d.name for d in case.plan.dimensions if not d.lenders and not d.fills]
    axes: dict[str, list[float]] = {"devices": [float(now["devices"]) * f for f in FACTORS]}
    axes.update({name: [float(now[name]) * f for f in FACTORS[:7]] for name in degrees})
    if case.task == "train":
        axes["micro_batch"] = sorted({float(now["micro_batch"]), 1.0}, reverse=True)
    grids = np.meshgrid(*(np.asarray(v) for v in axes.values()), indexing="ij")
    points: dict[str, Any] = {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
    fixed = {name: value for name, value in settings.items() if name not in points and name != "dp"}
    changed = sum((points[name] != float(now[name])).astype(int) for name in points)
    domain = case.machine.node.tiers[0].span if case.machine.node.tiers else None
    inward = degrees[0] if degrees else None
    across = points[inward] > (domain or 1) if inward else np.zeros(len(changed), dtype=bool)
    best: tuple[tuple[float, ...], str] | None = None
    for rank, (mode, variant) in enumerate(_modes(case)):
        values = variant.complete({**fixed, **points})
        good = np.ones(len(changed), dtype=bool)
        for _, broken in variant.violations(values):
            good &= ~np.broadcast_to(broken, good.shape)
        chosen = np.flatnonzero(good)
        if not len(chosen):
            continue
        kept = {name: value[chosen] for name, value in points.items()}
        peak = variant.program.evaluate(variant.complete({**fixed, **kept}), ["memory.peak"])["memory.peak"]
        chosen = chosen[np.broadcast_to(np.asarray(peak) <= case.machine.accelerator.memory, chosen.shape)]
        if not len(chosen):
            continue
        size = np.prod([points[name][chosen] / float(now[name]) for name in degrees], axis=0)
        outward = points[degrees[-1]][chosen] if degrees else size  # among equals the inner dimension grows
        order = np.lexsort((outward, size, changed[chosen], across[chosen], points["devices"][chosen]))
        index = int(chosen[order[0]])
        key = (
            float(points["devices"][index]), float(across[index]), float(changed[index] + (rank > 0)), float(rank),
            float(size[order[0]]),
        )  # fmt: skip
        if best is None or key < best[0]:
            words = [f"--{FLAGS.get(n, n)} {int(v[index])}" for n, v in points.items() if v[index] != float(now[n])]
            best = (key, " ".join([*words, *([f"--recompute {mode}"] if mode else [])]))
    return best[1] if best else ""


def _modes(case: Case) -> list[tuple[str, Case]]:
    """The case as it is, and with more recomputation."""
    found: list[tuple[str, Case]] = [("", case)]
    if case.task == "train" and case.plan.recompute != "full":
        for mode in ("selective", "full"):
            if case.plan.recompute != mode:
                found.append((mode, evolve(case, plan=evolve(case.plan, recompute=mode))))
    return found
