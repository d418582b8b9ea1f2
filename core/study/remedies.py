"""What would make an overflowing setting fit: small changes, tried in the order a person would try them.

Floor: study.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attrs import evolve

from .case import Case


def remedy(case: Case, settings: Mapping[str, Any]) -> str:
    """The first change of one or two settings that fits, in words; empty where none of them does."""
    if case.task == "serve":
        found = case.program.evaluate(case.complete(settings), ["max_concurrency"])["max_concurrency"]
        most = int(found) if found == found and found < 1e15 else 0
        if most >= 1 and fits(case, {**settings, "concurrency": most}):
            return f"at most --concurrency {most} fits"
    for words, changed, changes in _changes(case, settings):
        if fits(changed, changes):
            return f"{words} would fit"
    return ""


def fits(case: Case, settings: Mapping[str, Any]) -> bool:
    """Whether a setting meets every condition and its memory suffices."""
    values = case.complete(settings)
    if any(bool(broken) for _, broken in case.violations(values)):
        return False
    return float(case.program.evaluate(values, ["memory.peak"])["memory.peak"]) <= case.machine.accelerator.memory


def _changes(case: Case, settings: Mapping[str, Any]) -> Iterator[tuple[str, Case, dict[str, Any]]]:
    plain = dict(settings)
    now = case.complete(settings)
    modes: list[tuple[str, Case]] = [("", case)]
    if case.task == "train":
        for mode in ("selective", "full"):
            if case.plan.recompute != mode and case.plan.recompute != "full":
                changed = evolve(case, plan=evolve(case.plan, recompute=mode))
                modes.append((f"--recompute {mode}", changed))
    for words, changed in modes[1:]:
        yield words, changed, plain
    for words, changed in modes:
        if case.task == "train" and now["micro_batch"] > 1:
            yield _joined("--micro-batch 1", words), changed, {**plain, "micro_batch": 1}
    degrees = [d.name for d in case.plan.dimensions if not d.lenders and not d.fills]
    devices = int(now["devices"])
    for factor in (2, 4, 8, 16, 32, 64):
        for words, changed in modes:
            for name in degrees:
                degree = int(now[name]) * factor
                if degree <= devices and devices % degree == 0:
                    kept = {**plain, name: degree, "devices": devices}
                    kept.pop("dp", None)
                    yield _joined(f"--{name} {degree}", words), changed, kept
    for factor in (2, 4, 8, 16, 32, 64, 128):
        for words, changed in modes:
            for name in degrees:
                more = {**plain, name: int(now[name]) * factor, "devices": devices * factor}
                more.pop("dp", None)
                words_more = f"--gpus {devices * factor} --{name} {int(now[name]) * factor}"
                yield _joined(words_more, words), changed, more


def _joined(first: str, second: str) -> str:
    return f"{first} {second}" if second else first
