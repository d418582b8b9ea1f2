"""Memory over a training step as a page: for each stage its peak, what makes it, and the rise and fall as a line.

Floor: face. Uses the plain data of the study floor's memory curves; no rich, no sympy.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..algebra.units import format_si
from .text import Block, Grid, Pairs

if TYPE_CHECKING:
    from ..study.memory_curve import MemoryCurve

COLUMNS = 60
"""Characters of a line over time."""

LEVELS = "▁▂▃▄▅▆▇█"


def memory_page(curves: Sequence[MemoryCurve], capacity: float) -> list[Block]:
    """Each curve; ``capacity`` [B] is that of one device."""
    blocks: list[Block] = []
    for curve in curves:
        peak = curve.peak
        during = f", {peak.during}" if peak.during else ""
        told = f"{format_si(peak.bytes, 'B')} of {format_si(capacity, 'B')} at {format_si(peak.start, 's')}{during}"
        rows = (("peak", told), ("largest", peak.row.replace("_", " ")), ("over time", sketch(curve)))
        blocks.append(Pairs(rows, f"Stage {curve.stage}, {curve.label}: {format_si(curve.end, 's')} as played"))
        highest, last = curve.at(peak.start), curve.at(curve.end)
        table = [
            (name.replace("_", " "), format_si(highest[name], "B"), format_si(last[name], "B")) for name in curve.rows
        ]
        total = ("all", format_si(sum(highest.values()), "B"), format_si(sum(last.values()), "B"))
        blocks.append(Grid(("row", "at the peak", "at the end"), (*table, total), right={1, 2}))
    return blocks


def sketch(curve: MemoryCurve, columns: int = COLUMNS) -> str:
    """The whole of memory over the step as a line of blocks, a full one for the peak: the most in each part of it."""
    most = [0.0] * columns
    ends = [*(start for start, _ in curve.samples[1:]), curve.end]
    for (start, values), end in zip(curve.samples, ends, strict=True):
        first = min(int(start / curve.end * columns), columns - 1)
        last = max(first, min(math.ceil(end / curve.end * columns), columns) - 1)
        for column in range(first, last + 1):
            most[column] = max(most[column], sum(values))
    return "".join(LEVELS[min(int(size / curve.peak.bytes * len(LEVELS)), len(LEVELS) - 1)] for size in most)
