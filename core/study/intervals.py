"""How far an answer can be trusted: 80 % intervals from the residuals of kernels and software, and what was stretched.

Floor: study. Plain numbers.

A kernel's time is off by a factor that all kernels of its slot share (they come from one fit); slots are independent of
one another, and so is what the software adds. To first order the relative error of a total is the sum over its leaves
of share times relative error, so the standard deviations of slots add up within a slot and in quadrature between slots.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import frozen

from ..records.prediction import TreeNode
from .calibration import UNMEASURED, Trust
from .case import Case
from .tree import leaves

LEVEL = 0.8
Z = 1.2815515655446004
"""Half of the normal law's central ``LEVEL`` in standard deviations."""

SOFTWARE_UNMEASURED = 0.15
"""Standard deviation of ln(measured/predicted) for software that nobody has compared with runs."""

MEMORY_UNMEASURED = 0.1
"""The same for peak memory."""

STRETCH, STRETCH_MOST = 0.15, 0.6
"""What a kernel outside the fitted range adds to its standard deviation: a part a factor of e, at most so much."""

TIMES = {
    **dict.fromkeys(("step_time_s", "tokens_per_s", "tokens_per_s_per_device", "tflops_per_device",
                     "hardware_tflops_per_device", "mfu", "hfu", "run_days", "run_device_hours", "run_cost_usd",
                     "step_energy_j", "energy_per_token_j", "run_energy_kwh"), "step"),
    "ttft_s": "ttft",
    **dict.fromkeys(("tpot_s", "tokens_per_s_per_request", "output_tokens_per_s", "output_tokens_per_s_per_device",
                     "request_s", "energy_per_output_token_j"), "tpot"),
}  # fmt: skip
"""Figure → the tree that it follows from."""


@frozen
class Confidence:
    """``intervals``: figure → (low, high) of 80 %; ``extrapolated``: what lies outside the fitted ranges or stands in;
    ``calibrated``: whether measurements stand behind kernels and software alike; ``kernels``: slot → what is known."""

    intervals: Mapping[str, tuple[float, float]]
    extrapolated: tuple[str, ...]
    calibrated: bool
    kernels: Mapping[str, Mapping[str, Any]]


def confidence(
    case: Case, trees: Mapping[str, TreeNode], figures: Mapping[str, Any], memory: Mapping[str, float]
) -> Confidence:
    """For one answer. ``memory``: bytes of peak and of keys and values, and capacity, of the fullest device."""
    share = 1.0 if case.stack is None else case.stack.kernel_share(case.task, case.machine.accelerator.name)
    spreads = {name: kernel_spread(root, case.trust, share) for name, root in trees.items()}
    intervals: dict[str, tuple[float, float]] = {}
    for figure, tree in TIMES.items():
        value = figures.get(figure)
        if value is not None and tree in spreads:
            sigma = math.hypot(spreads[tree], software_spread(case, figure))
            low, high = around(float(value), sigma)
            intervals[figure] = low, min(high, 1.0) if figure in ("mfu", "hfu") else high
    cost, rate = "cost_per_million_tokens_usd", "tokens_per_s" if case.task == "train" else "output_tokens_per_s"
    if cost in figures:  # a price over a rate
        spent = float(figures[cost]) * float(figures[rate])
        intervals[cost] = spent / intervals[rate][1], spent / intervals[rate][0]
    peak = memory["peak"]
    sigma = _stack_spread(case, "memory_peak_bytes", MEMORY_UNMEASURED)
    intervals["memory_peak_bytes"] = around(peak, sigma)
    if "kv_capacity_tokens" in figures:
        rest = peak - memory["kv_cache"]
        free = max(memory["capacity"] - rest, 1.0)
        own = _stack_spread(case, "kv_capacity_tokens", min(sigma * rest / free, 1.0))
        for figure in ("kv_capacity_tokens", "max_concurrency"):
            intervals[figure] = around(float(figures[figure]), own)
    main = trees["step" if case.task == "train" else "tpot"]
    stretched = {line: None for root in trees.values() for line in stretches(root, case.trust)}
    if case.stack is not None and (standing := case.stack.standing(case.task, case.machine.accelerator.name)):
        stretched[f"{case.stack.name}: {standing}"] = None
    shares = slot_shares(main)
    sound = all(
        slot in case.trust and case.trust[slot].calibrated and not case.trust[slot].stands_in
        for slot, share in shares.items()
        if share > 0.02 and slot != "host"
    )
    kernels = {slot: _described(case.trust.get(slot), share) for slot, share in sorted(shares.items())}
    return Confidence(intervals, tuple(stretched), case.calibrated and sound, kernels)


def around(value: float, sigma: float) -> tuple[float, float]:
    """The central 80 % of a log-normal law with median ``value`` and standard deviation ``sigma`` of its logarithm.

    >>> low, high = around(100.0, 0.1)
    >>> round(low, 1), round(high, 1)
    (88.0, 113.7)
    """
    return value * math.exp(-Z * sigma), value * math.exp(Z * sigma)


def kernel_spread(root: TreeNode, trust: Mapping[str, Trust], share: float = 1.0) -> float:
    """Standard deviation of ln(measured/predicted) of a tree's time that its kernels' residuals make.

    ``share``: how much of the kernels' spread counts; what lies outside the fitted range counts in full.
    """
    by_slot: dict[str, float] = {}
    for leaf in leaves(root):
        if leaf.tags.get("kind") == "host":
            continue
        known = trust.get(leaf.slot)
        sigma = share * (UNMEASURED if known is None else known.sigma)
        if known is not None:
            beyond = known.beyond({name: value for name, (_, value) in leaf.inputs.items()})
            sigma = math.hypot(sigma, min(STRETCH * beyond, STRETCH_MOST))
        by_slot[leaf.slot] = by_slot.get(leaf.slot, 0.0) + leaf.share * sigma
    return math.sqrt(sum(part * part for part in by_slot.values()))


def software_spread(case: Case, figure: str) -> float:
    """Standard deviation of ln(measured/predicted) that the software adds."""
    return _stack_spread(case, figure, SOFTWARE_UNMEASURED)


def _stack_spread(case: Case, figure: str, stated: float) -> float:
    known = None
    if case.stack is not None:
        known = case.stack.spread(case.task, case.machine.accelerator.name, figure)
    return stated if known is None else known


def slot_shares(root: TreeNode) -> dict[str, float]:
    """Slot → share of a tree's time; leaves without a slot under their kind."""
    found: dict[str, float] = {}
    for leaf in leaves(root):
        name = leaf.slot or leaf.tags.get("kind", leaf.name)
        found[name] = found.get(name, 0.0) + leaf.share
    return found


def stretches(root: TreeNode, trust: Mapping[str, Trust]) -> list[str]:
    """One line for each slot that matters (1 % of the time) and is a stand-in or lies outside its fitted range."""
    lines = []
    shares = slot_shares(root)
    farthest: dict[str, tuple[float, str]] = {}
    for leaf in leaves(root):
        known = trust.get(leaf.slot)
        if known is None or known.record is None or shares.get(leaf.slot, 0.0) < 0.01:
            continue
        beyond = known.beyond({name: value for name, (_, value) in leaf.inputs.items()})
        if beyond > farthest.get(leaf.slot, (0.05, ""))[0]:
            farthest[leaf.slot] = (beyond, leaf.name)
    for slot, (beyond, name) in farthest.items():
        lines.append(f"{slot}: {name} lies outside the fitted range by a factor of {math.exp(beyond):.3g}")
    for slot, share in shares.items():
        known = trust.get(slot)
        if known is not None and known.stands_in and share >= 0.01:
            lines.append(f"{slot}: {known.stands_in}")
    return lines


def _described(known: Trust | None, share: float) -> dict[str, Any]:
    found: dict[str, Any] = {"share": share, "calibrated": bool(known and known.calibrated)}
    if known is not None:
        found["sigma"] = known.sigma
        if known.record is not None:
            record = known.record
            found.update(
                format=record.format, kernel_source=record.kernel_source,
                engine=f"{record.engine} {record.engine_version}".strip(), rows=record.rows,
            )  # fmt: skip
            if "held_out" in record.errors:
                held = record.errors["held_out"]
                found["held_out_error"] = {"n": held.n, "median": held.median, "p90": held.p90}
        if known.stands_in:
            found["stands_in"] = known.stands_in
    return found
