"""A trace beside the model, as a page.

Floor: face. Uses the records of comparisons and the unit table.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..algebra.units import format_si
from .text import Block, Grid, Note, Pairs

if TYPE_CHECKING:
    from ..records.prediction import Answer
    from ..study.against import Comparison

TOP = 25
"""Kernels shown; the rest is added up in one line."""


def comparison_page(found: Comparison, answer: Answer) -> list[Block]:
    """The kernels that take most of the trace, measured and predicted; what one has and the other lacks."""
    rows = [
        (
            kernel.kernel[:44], shape_text(kernel.shape), str(kernel.count), format_si(kernel.measured, "s"),
            format_si(kernel.predicted, "s") if math.isfinite(kernel.predicted) else "no formula",
            f"{kernel.error:+.0%}" if math.isfinite(kernel.predicted) else "–",
            f"{kernel.total / found.seconds:.1%}", kernel.leaf or "–",
        )
        for kernel in found.kernels[:TOP]
    ]  # fmt: skip
    rest = found.kernels[TOP:]
    if rest:
        share = sum(kernel.total for kernel in rest) / found.seconds
        rows.append((f"{len(rest)} more", "", str(sum(k.count for k in rest)), "", "", "", f"{share:.1%}", ""))
    blocks: list[Block] = [
        Note(f"{answer.task} {answer.model} on {answer.machine}, beside a trace of {found.device}", "title"),
        Pairs((
            ("kernels", f"{format_si(found.seconds, 's')} in the trace"),
            ("priced", f"{found.priced:.0%} of that time has a formula"),
            ("deviation", f"{found.deviation:+.1%} predicted against measured, together"
             if math.isfinite(found.deviation) else "–"),
        )),
        Grid(("kernel", "shape", "count", "measured", "predicted", "error", "share", "part of the model"),
             tuple(rows), "Kernels, the largest first", right={2, 3, 4, 5, 6}),
    ]  # fmt: skip
    if found.missing:
        lost = tuple((name, format_si(seconds, "s")) for name, seconds in found.missing[:TOP])
        blocks.append(Grid(("part of the model", "predicted"), lost, "In the model, not in the trace", right={1}))
    for unread in found.unread:
        blocks.append(Note(f"not read: {unread.count} × {unread.what}: {unread.why}"))
    return blocks


def shape_text(shape: object) -> str:
    """A shape on one line: m 4096, n 4096, k 4096.

    >>> shape_text({"m": 4096.0, "k": 0.5})
    'm 4096, k 0.5'
    """
    assert hasattr(shape, "items")
    return ", ".join(f"{name} {value:g}" for name, value in shape.items())
