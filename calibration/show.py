"""One fitted record as a page: its parameters, its errors, where it holds and where it comes from.

Floor: calibration. Uses the face's blocks and the unit table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from slipstick.core.face.text import Grid, Note, Pairs

from .fit_command import source_text, where_text
from .fit_stats import NORMAL_80

if TYPE_CHECKING:
    from slipstick.core.face.text import Block
    from slipstick.core.records.fitted import FittedRecord


def record_page(record: FittedRecord) -> list[Block]:
    """The blocks of one record."""
    state = "calibrated" if record.calibrated else f"not calibrated: {record.reason}"
    facts = [
        ("measured on", f"{record.accelerator}, {source_text(record)}"),
        ("formula", f"{record.formula} of the family {record.family}"),
        ("rows", str(record.rows)),
        ("state", state),
        ("sigma", f"{record.sigma:.3g} of ln(measured/predicted): 80 % of rows within {NORMAL_80 * record.sigma:.1%}"),
        ("source", f"{record.source.title} ({record.source.date}) {record.source.url}"),
    ]
    if record.command:
        facts.append(("made by", record.command))
    if record.note:
        facts.append(("note", record.note))
    parameters = tuple(
        (name, f"{value:.6g}", _spread(record, name), "no" if name in record.unidentified else "yes")
        for name, value in record.parameters.items()
    )
    ranges = tuple((name, f"{low:.6g}", f"{high:.6g}") for name, (low, high) in record.ranges.items())
    errors = tuple(
        (name, str(e.n), *(f"{100 * value:.1f}" for value in (e.mean, e.median, e.p90, e.bias)))
        for name, e in record.errors.items()
    )
    return [
        Note(f"{record.slot}{where_text(record)}, {record.format}", "title"),
        Pairs(tuple(facts)),
        Grid(("parameter", "value", "spread", "determined"), parameters, right=(1, 2)),
        Grid(("fitted range", "least", "largest"), ranges, right=(1, 2)),
        Grid(("errors in %", "n", "mean", "median", "p90", "bias"), errors, right=(1, 2, 3, 4, 5)),
    ]


def _spread(record: FittedRecord, name: str) -> str:
    return f"{record.spread[name]:.2g}" if name in record.spread else "held"
