"""The memory ledger: what lies in device memory, how much of it, and from when to when in a step.

Floor: model. The peak is derived from lifetimes: at each moment of a step some rows are alive; the peak is the largest
of those sums. Rows are kept per candidate stage; the fullest stage is the one that has to fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..algebra.compile import Builder
from ..algebra.dimension import check
from ..algebra.functions import functions
from ..algebra.text import text_printer

if TYPE_CHECKING:
    from sympy import Expr

MOMENTS = ("compute", "update")
"""Moments of a step that differ in what is alive: forward and backward passes; the optimizer's update."""


@frozen
class Row:
    """One entry: ``bytes`` [B] on one device, alive at ``moments``; ``pool`` says where (device, or a host tier)."""

    name: str
    bytes: Expr
    moments: tuple[str, ...] = MOMENTS
    pool: str = "device"


@frozen
class Ledger:
    """The rows of one stage.

    ``index``: the stage's number from 0; ``saved``: bytes that one micro-batch keeps there from forward to backward [B]
    (the row of activations holds as many as are in flight). Memory over time needs both; serving has neither.
    """

    label: str
    rows: tuple[Row, ...]
    index: Expr | None = None
    saved: Expr | None = None

    def at(self, moment: str) -> Expr:
        """Bytes in device memory at a moment."""
        import sympy  # here: a cached answer reads the ledger's values without it

        return sympy.Add(*(row.bytes for row in self.rows if moment in row.moments and row.pool == "device"))

    def peak(self) -> Expr:
        """The most over all moments."""
        return functions().fmax(*(self.at(moment) for moment in MOMENTS))


def compile_ledgers(ledgers: tuple[Ledger, ...], builder: Builder, prefix: str) -> dict[str, Any]:
    """Compile every row, the peak of every stage and the peak of all; returns their description for display."""
    text = text_printer()
    stages = []
    peaks = []
    for number, ledger in enumerate(ledgers):
        slots: dict[str, int] = {}
        for row in ledger.rows:
            check(row.bytes, "B")
            slots[row.name] = builder.expr(row.bytes)
            builder.output(f"{prefix}{number}.{row.name}", slots[row.name])
        sums = [
            builder.add([slots[row.name] for row in ledger.rows if moment in row.moments and row.pool == "device"])
            for moment in MOMENTS
        ]
        for name, value, unit in (("index", ledger.index, "1"), ("saved", ledger.saved, "B")):
            if value is not None:
                check(value, unit)
                builder.output(f"{prefix}{number}.{name}", builder.expr(value))
        peaks.append(builder.max(sums))
        builder.output(f"{prefix}{number}.peak", peaks[-1])
        stages.append({
            "label": ledger.label,
            "rows": [
                {"name": row.name, "moments": list(row.moments), "pool": row.pool, "text": text(row.bytes)}
                for row in ledger.rows
            ],
        })  # fmt: skip
    builder.output(f"{prefix}peak", builder.max(peaks))
    return {"prefix": prefix, "stages": stages}


def row_values(description: Mapping[str, Any], values: Mapping[str, Any], stage: int) -> dict[str, Any]:
    """Row name → bytes of one stage, from the values of a compiled program."""
    prefix = description["prefix"]
    return {row["name"]: values[f"{prefix}{stage}.{row['name']}"] for row in description["stages"][stage]["rows"]}
