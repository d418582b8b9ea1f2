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

from .calibration import UNMEASURED, Trust
from .case import Case
from .tree import Node, leaves

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
    case: Case, trees: Mapping[str, Node], figures: Mapping[str, Any], memory: Mapping[str, float]
) -> Confidence:
    """For one answer. ``memory``: bytes of peak and of keys and values, and capacity, of the fullest device."""
    share = 1.0 if case.stack is None else case.stack.kernel_share(case.task, case.machine.accelerator.name)
    kernels = {name: weighed(root, case.trust, share) for name, root in trees.items()}
    intervals: dict[str, tuple[float, float]] = {}
    for figure, tree in TIMES.items():
        value = figures.get(figure)
        if value is not None and tree in kernels:
            sigma = math.hypot(kernels[tree].spread, software_spread(case, figure))
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
    stretched = {line: None for tree in kernels.values() for line in tree.stretches}
    if case.stack is not None and (standing := case.stack.standing(case.task, case.machine.accelerator.name)):
        stretched[f"{case.stack.name}: {standing}"] = None
    shares = kernels["step" if case.task == "train" else "tpot"].shares
    sound = all(
        slot in case.trust and case.trust[slot].calibrated and not case.trust[slot].stands_in
        for slot, share in shares.items()
        if share > 0.02 and slot != "host"
    )
    behind = {slot: _described(case.trust.get(slot), share) for slot, share in sorted(shares.items())}
    return Confidence(intervals, tuple(stretched), case.calibrated and sound, behind)


def around(value: float, sigma: float) -> tuple[float, float]:
    """The central 80 % of a log-normal law with median ``value`` and standard deviation ``sigma`` of its logarithm.

    >>> low, high = around(100.0, 0.1)
    >>> round(low, 1), round(high, 1)
    (88.0, 113.7)
    """
    return value * math.exp(-Z * sigma), value * math.exp(Z * sigma)


@frozen
class Weighed:
    """What a tree's kernels come to. ``spread``: standard deviation of ln(measured/predicted) of its time that their
    residuals make; ``shares``: slot → share of the time, leaves without a slot under their kind; ``stretches``: one
    line for each slot that matters (1 % of the time) and is a stand-in or lies outside its fitted range."""

    spread: float
    shares: Mapping[str, float]
    stretches: tuple[str, ...]


def weighed(root: Node, trust: Mapping[str, Trust], share: float = 1.0) -> Weighed:
    """A tree's leaves against what is known of their slots.

    ``share``: how much of the kernels' spread counts; what lies outside the fitted range counts in full.
    """
    spreads: dict[str, float] = {}
    shares: dict[str, float] = {}
    farthest: dict[str, tuple[float, str]] = {}
    for leaf in leaves(root):
        slot, part, kind = leaf.slot, leaf.share, leaf.tags.get("kind")
        name = slot or (leaf.name if kind is None else kind)
        shares[name] = shares.get(name, 0.0) + part
        known = trust.get(slot)
        beyond = 0.0
        if known is not None and known.record is not None:
            beyond = known.beyond({given: value for given, (_, value) in leaf.inputs.items()})
            if beyond > farthest.get(slot, (0.05, ""))[0]:
                farthest[slot] = (beyond, leaf.name)
        if kind != "host":
            sigma = share * (UNMEASURED if known is None else known.sigma)
            if known is not None:
                sigma = math.hypot(sigma, min(STRETCH * beyond, STRETCH_MOST))
            spreads[slot] = spreads.get(slot, 0.0) + part * sigma
    lines = [
        f"{slot}: {name} lies outside the fitted range by a factor of {math.exp(beyond):.3g}"
        for slot, (beyond, name) in farthest.items()
        if shares.get(slot, 0.0) >= 0.01
    ]
    for slot, part in shares.items():
        known = trust.get(slot)
        if known is not None and known.stands_in and part >= 0.01:
            lines.append(f"{slot}: {known.stands_in}")
    return Weighed(math.sqrt(sum(part * part for part in spreads.values())), shares, tuple(lines))


def software_spread(case: Case, figure: str) -> float:
    """Standard deviation of ln(measured/predicted) that the software adds."""
    return _stack_spread(case, figure, SOFTWARE_UNMEASURED)


def _stack_spread(case: Case, figure: str, stated: float) -> float:
    known = None
    if case.stack is not None:
        known = case.stack.spread(case.task, case.machine.accelerator.name, figure)
    return stated if known is None else known


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
