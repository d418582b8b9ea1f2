"""A real run beside the model: every kernel of a trace, measured and predicted, and where they part.

Floor: study. Plain numbers; the trace is read by the host's readers, row by row.

A measured kernel is priced twice over: by the kernel family from its own shape, which tells whether the formula is
right; and it is looked up among the leaves of the answer, which tells whether the model runs such a kernel at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import define, field, frozen

from ..errors import UserError
from ..host.host import Host
from ..model.device import device_values, kernel_rate
from ..model.interfaces.kernels import parameter_symbol
from ..model.interfaces.trace_reader import TraceRow, Unread, reader_for
from ..records.hardware import Machine
from .prediction import Prediction
from .tree import leaves

if TYPE_CHECKING:
    from ..records.prediction import TreeNode

CLOSE = 0.02
"""Inputs of a measured kernel and of a leaf that differ by less are the same kernel."""


@frozen
class Compared:
    """One kind of kernel of a trace: ``count`` executions of ``measured`` seconds each (the median).

    ``predicted``: what the formula of its slot says for its shape, NaN where there is none; ``leaf``: the part of the
    answer that is this kernel, "" where the model has none; ``times``: how often the answer runs it.
    """

    kernel: str
    shape: Mapping[str, float]
    format: str
    count: int
    measured: float
    predicted: float
    slot: str
    leaf: str
    times: float

    @property
    def error(self) -> float:
        """Predicted over measured minus 1."""
        return self.predicted / self.measured - 1

    @property
    def total(self) -> float:
        """Seconds of the trace that this kernel takes."""
        return self.count * self.measured


@frozen
class Comparison:
    """``kernels``: the largest part of the trace first; ``missing``: leaves of the answer that the trace lacks, with
    their seconds; ``unread``: what of the file made no row; ``seconds``: of all kernels of the trace."""

    kernels: tuple[Compared, ...]
    missing: tuple[tuple[str, float], ...]
    unread: tuple[Unread, ...]
    seconds: float
    device: str

    @property
    def priced(self) -> float:
        """Share of the trace's time that a formula prices."""
        known = sum(k.total for k in self.kernels if math.isfinite(k.predicted))
        return known / self.seconds if self.seconds else 0.0

    @property
    def deviation(self) -> float:
        """Predicted over measured minus 1 for everything that is priced, together."""
        known = [k for k in self.kernels if math.isfinite(k.predicted)]
        measured = sum(k.total for k in known)
        return sum(k.count * k.predicted for k in known) / measured - 1 if measured else math.nan

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "device": self.device, "seconds": self.seconds, "priced_share": self.priced, "deviation": self.deviation,
            "kernels": [
                {"kernel": k.kernel, "shape": dict(k.shape), "format": k.format, "count": k.count,
                 "measured_s": k.measured, "predicted_s": k.predicted if math.isfinite(k.predicted) else None,
                 "error": k.error if math.isfinite(k.predicted) else None, "slot": k.slot, "leaf": k.leaf,
                 "times_in_model": k.times, "share": k.total / self.seconds if self.seconds else 0.0}
                for k in self.kernels
            ],
            "missing": [{"leaf": name, "predicted_s": seconds} for name, seconds in self.missing],
            "unread": [{"what": u.what, "why": u.why, "count": u.count} for u in self.unread],
        }  # fmt: skip


@define
class _Group:
    row: TraceRow
    times: list[float] = field(factory=list)


def against(prediction: Prediction, path: Path, host: Host) -> Comparison:
    """Compare an answer with a trace. Errors: UserError for a trace without kernels or that no reader knows."""
    reader = reader_for(path, host.trace_readers().values())
    groups: dict[tuple[Any, ...], _Group] = {}
    unread: dict[tuple[str, str], int] = {}
    for row in reader.rows(path):
        if isinstance(row, TraceRow):
            key = (row.kernel, row.format, row.ranks, *sorted(row.shape.items()))
            groups.setdefault(key, _Group(row)).times.append(row.seconds)
        elif isinstance(row, Unread):
            unread[row.what, row.why] = unread.get((row.what, row.why), 0) + row.count
    if not groups:
        raise UserError(f"{path.name} holds no kernel; a trace of kernels is needed here ({reader.name} read it)")
    found = list(_compared(prediction, groups.values()))
    found.sort(key=lambda k: -k.total)
    seen = {k.leaf for k in found}
    root = prediction.tree
    parts: dict[str, float] = {}
    for leaf in leaves(root):
        if leaf.slot and leaf.name not in seen:
            parts[leaf.name] = parts.get(leaf.name, 0.0) + leaf.seconds * leaf.times
    missing = tuple(sorted(parts.items(), key=lambda pair: -pair[1]))
    device = next(iter(groups.values())).row.device
    told = tuple(Unread(what, why, count) for (what, why), count in sorted(unread.items()))
    return Comparison(tuple(found), missing, told, sum(k.total for k in found), device)


def _compared(prediction: Prediction, groups: Iterable[_Group]) -> Iterable[Compared]:
    case = prediction.case
    family = case.plan.family
    by_slot: dict[str, list[TreeNode]] = {}
    for tree in prediction.answer.trees.values():
        for part_ in leaves(tree):
            by_slot.setdefault(part_.slot, []).append(part_)
    formulas = family.slots()
    machines: dict[str, Mapping[str, float]] = {}
    for group in groups:
        row = group.row
        median = sorted(group.times)[len(group.times) // 2]
        if row.format not in machines:
            machines[row.format] = machine_values(case.machine, row.format)
        parts = family.measured(row, machines[row.format])
        predicted, slot = math.nan, ""
        leaf: TreeNode | None = None
        if parts:
            slot = parts[0].slot
            predicted = 0.0
            for part in parts:
                formula = formulas[part.slot]
                values = {p.name: case.fixed.get(parameter_symbol(p.name, part.slot), p.default)
                          for p in formula.parameters}  # fmt: skip
                inputs = {name: float(value) for name, value in part.inputs.items()}
                predicted += float(formula.tape().evaluate({**values, **inputs}, ["value"])["value"])
            leaf = _same(parts[0].inputs, by_slot.get(slot, ()))
        yield Compared(
            row.kernel, dict(row.shape), row.format, len(group.times), median, predicted, slot,
            leaf.name if leaf is not None else "", leaf.times if leaf is not None else 0.0,
        )  # fmt: skip


def _same(inputs: Mapping[str, float], candidates: Iterable[TreeNode]) -> TreeNode | None:
    for leaf in candidates:
        known = {name: value for name, (_, value) in leaf.inputs.items() if name in inputs}
        if known and all(abs(value - float(inputs[name])) <= CLOSE * abs(value) for name, value in known.items()):
            return leaf
    return None


def machine_values(machine: Machine, number_format: str) -> dict[str, float]:
    """What a kernel family needs to know of a machine to price a measured row: see ``KernelFamily.measured``."""
    accelerator = machine.accelerator
    try:
        rate = kernel_rate(accelerator, number_format)
    except UserError:
        rate = next((q.value for q in accelerator.rates.values()), 1e12)
    vector = accelerator.rates.get("fp32")
    tier = machine.node.tiers[0] if machine.node.tiers else None
    return {
        "rate": rate, "vector_rate": vector.value if vector is not None else rate / 16,
        **device_values(accelerator),
        "link_bandwidth": tier.bandwidth.value if tier is not None else 1e9,
        "link_latency": tier.latency.value if tier is not None else 1e-6,
    }  # fmt: skip
