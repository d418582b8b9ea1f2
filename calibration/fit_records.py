"""From batches of measured rows to fitted records: every kernel in them is fitted, judged and written down.

Floor: calibration. Uses the segments, the fitter and its judge. Kernels that stand alone are fitted first, so that the
rows made of several can hold the others at what was measured of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from slipstick.core.errors import UserError
from slipstick.core.records.fitted import FittedRecord

from .fit_judge import Judged, judge
from .fit_model import FEW
from .fit_segments import Segment, segments_of, slot_formulas
from .threads import one_thread

if TYPE_CHECKING:
    from slipstick.core.algebra.formula import Formula
    from slipstick.core.model.interfaces.kernels import KernelFamily
    from slipstick.core.model.interfaces.trace_reader import Unread
    from slipstick.core.records.hardware import Machine
    from slipstick.core.records.provenance import Source

    from .readers.batch import Batch

MOST_NOTE = 1500
"""Characters of a record's note; a report on screen tells all."""


@frozen(eq=False)
class Fitted:
    """A record with what stands behind it: the shapes fitted and the ``notes`` of its judge."""

    record: FittedRecord
    shapes: int
    notes: tuple[str, ...]


@frozen(eq=False)
class Outcome:
    """What a run gave: the fits, in a fixed order, and what of the trace was not used."""

    fits: tuple[Fitted, ...]
    unread: tuple[Unread, ...]

    @property
    def records(self) -> tuple[FittedRecord, ...]:
        """The records alone."""
        return tuple(fit.record for fit in self.fits)


MANY = 2000
"""Rows from which on one start is enough: so many lead to one optimum from anywhere."""


def fit_batches(
    batches: Iterable[Batch],
    family: KernelFamily,
    machines: Mapping[str, Machine],
    source: Source,
    command: str = "",
    *,
    known: Sequence[FittedRecord] = (),
    seed: int = 0,
    starts: int | None = None,
    progress: Callable[[int, int, str], None] = lambda done, all_, what: None,
) -> Outcome:
    """Fit every kernel of ``batches`` that the family has a formula for.

    ``machines``: device as the trace says → its machine; ``source`` and ``command``: the provenance of the records;
    ``known``: records that give the other kernels of rows made of several; ``progress``: called with how many fits
    are done, of how many, and the next one.
    """
    segments, unread = segments_of(batches, family, machines)
    formulas = slot_formulas(family)
    fits: list[Fitted] = []
    for number, segment in enumerate(segments):
        progress(number, len(segments), segment.key.slot)
        if segment.key.slot not in formulas:
            raise UserError(f"the kernel family {family.name} has no slot {segment.key.slot}")
        held = _held(segment, formulas, [*known, *(fit.record for fit in fits)])
        stated = formulas[segment.key.slot]
        formula = stated.with_defaults(_expected(segment, family, fits)) if len(segment.rows) < FEW else stated
        several = starts or (1 if len(segment.rows) >= MANY else 3)
        with one_thread():
            judged = judge(formula, segment.key.slot, segment.rows, held=held, stated=stated, seed=seed, starts=several)
        fits.append(_fitted(segment, stated, family.name, judged, source, command))
    progress(len(segments), len(segments), "")
    fits.sort(key=lambda fit: (fit.record.accelerator, fit.record.engine, _order(fit.record)))
    return Outcome(tuple(fits), tuple(_counted(unread)))


def _held(
    segment: Segment, formulas: Mapping[str, Formula], records: Sequence[FittedRecord]
) -> dict[str, tuple[Formula, Mapping[str, float]]]:
    """The other kernels of a segment's rows: what was fitted of them on this accelerator, else the stated defaults."""
    held: dict[str, tuple[Formula, Mapping[str, float]]] = {}
    for slot in sorted(segment.others):
        if slot not in formulas:
            raise UserError(f"a measured row has the kernel {slot}, of which its family has no formula")
        own = [
            record for record in records
            if record.slot == slot and record.accelerator == segment.key.device
            and record.formula == formulas[slot].name and _better(record)
        ]  # fmt: skip
        best = min(
            own,
            key=lambda r: (
                not r.calibrated,
                r.engine != segment.key.engine,
                r.format != segment.key.format,
                r.sigma,
                _order(r),
            ),
            default=None,
        )
        held[slot] = formulas[slot], {} if best is None else best.parameters
    return held


def _expected(segment: Segment, family: KernelFamily, fits: Sequence[Fitted]) -> dict[str, float]:
    """Where the parameters of a kernel with few rows are expected: at those of the kernel that works alike."""
    slot, names = family.sibling(segment.key.slot)
    key = segment.key
    own = [
        fit.record for fit in fits
        if (fit.record.slot, fit.record.accelerator, fit.record.engine, fit.record.format)
        == (slot, key.device, key.engine, key.format) and _better(fit.record)
    ]  # fmt: skip
    best = max(own, key=lambda record: (record.calibrated, record.rows), default=None)
    return {} if best is None else {name: best.parameters[name] for name in names if name in best.parameters}


def _better(record: FittedRecord) -> bool:
    """Whether a record is closer to what was measured than the stated defaults are, if not close enough to be called
    calibrated."""
    held, default = record.errors.get("held_out"), record.errors.get("default")
    return record.calibrated or (held is not None and default is not None and held.median < default.median)


def _fitted(segment: Segment, formula: Formula, family: str, judged: Judged, source: Source, command: str) -> Fitted:
    key, fit = segment.key, judged.fit
    notes = list(judged.notes)
    if segment.others:
        notes.insert(0, f"each row is the sum with {', '.join(sorted(segment.others))}, which were held")
    if fit.frozen:
        notes.insert(0, f"kept at their defaults for want of rows: {', '.join(fit.frozen)}")
    record = FittedRecord(
        accelerator=key.device,
        slot=key.slot,
        family=family,
        formula=formula.name,
        format=key.format[:60] or "any",
        kernel_source=key.kernel_source[:200],
        engine=key.engine[:60],
        engine_version=key.engine_version[:60],
        where=dict(key.where),
        parameters=dict(fit.parameters),
        spread={name: fit.spread[name] for name in fit.parameters if name in fit.spread},
        unidentified=fit.unidentified,
        ranges=fit.ranges,
        rows=segment.rows.measurements,
        errors=judged.errors,
        sigma=judged.sigma,
        calibrated=judged.calibrated,
        reason=judged.reason,
        source=source,
        command=command,
        note=_cut("; ".join(notes)),
    )
    return Fitted(record, len(segment.rows), tuple(notes))


def _cut(text: str) -> str:
    return text if len(text) <= MOST_NOTE else text[: MOST_NOTE - 1] + "…"


def _order(record: FittedRecord) -> tuple[Any, ...]:
    from slipstick.core.records.fitted_toml import sort_key

    return sort_key(record)


def _counted(unread: Iterable[Unread]) -> list[Unread]:
    """Alike ones as one with their count, the most frequent first."""
    from slipstick.core.model.interfaces.trace_reader import Unread

    counts: dict[tuple[str, str], int] = {}
    for one in unread:
        counts[one.what, one.why] = counts.get((one.what, one.why), 0) + one.count
    return [
        Unread(what, why, count) for (what, why), count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    ]
