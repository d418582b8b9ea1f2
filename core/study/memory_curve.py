"""Memory over a training step: the ledger's rows as they rise and fall while the passes are played, stage by stage.

Floor: study. Plain numbers, on top of the timeline.

What is alive at both moments of the ledger is there all along. Activations of a micro-batch (of each part of the model
that the stage holds) rise when its first pass starts, since a pass writes them as it runs and the ledger counts the
micro-batch at work as one in flight; they fall when its last pass ends, whatever that pass is called. The workspace is
there while a pass runs. So a stage's highest point is the ledger's sum with as many micro-batches as the schedule has
in flight: where the schedule's closed form is exact, that is the ledger's peak; where it is a bound, it is below.

Of the parts of an interleaved stage each keeps the same here, as in the ledger; in truth the first part holds the
embedding and the last one the output layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..records.prediction import LedgerRow
from .timeline import Event, timeline

if TYPE_CHECKING:
    from .prediction import Prediction

KEPT = "activations"
"""The ledger's row that holds what micro-batches in flight keep."""


GATHERED = "gathered"
"""The row of weights that stay gathered from a micro-batch's forward pass to its backward pass."""


@frozen
class Peak:
    """The highest point of a stage: ``bytes`` [B], reached at ``start`` [s] ``during`` what runs there (in words);
    ``row``: the largest row then."""

    bytes: float
    start: float
    during: str
    row: str


@frozen
class MemoryCurve:
    """Memory of one device of a stage.

    ``stage``: its number from 0, ``label`` in words; ``rows``: names of the ledger's rows; ``samples``: from when on
    [s] each row has how many bytes [B], until the next sample; the last one holds until ``end`` [s], the step's end.
    """

    stage: int
    label: str
    rows: tuple[str, ...]
    samples: tuple[tuple[float, tuple[float, ...]], ...]
    end: float
    peak: Peak

    def at(self, time: float) -> dict[str, float]:
        """Row → bytes [B] at a ``time`` [s] of the step."""
        values = next((values for start, values in reversed(self.samples) if start <= time), self.samples[0][1])
        return dict(zip(self.rows, values, strict=True))

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        peak = {"bytes": self.peak.bytes, "start_s": self.peak.start, "during": self.peak.during, "row": self.peak.row}
        samples = [{"start_s": start, **dict(zip(self.rows, values, strict=True))} for start, values in self.samples]
        return {"stage": self.stage, "label": self.label, "peak": peak, "samples": samples, "end_s": self.end}


def memory_curve(prediction: Prediction, events: Sequence[Event] | None = None) -> list[MemoryCurve]:
    """Memory over a predicted training step, of the stages that the ledger has: one of them is the fullest.

    These are the first, the last, and those where one kind of layers ends. ``events``: the step's timeline, where it is
    at hand. Errors: those of ``timeline``.
    """
    events = timeline(prediction) if events is None else events
    case = prediction.case
    out = case.program.evaluate(case.complete(prediction.settings))
    ledger, schedule = case.program.ledger, case.plan.schedule
    chunks = schedule.chunks if schedule is not None else 1
    found: dict[int, MemoryCurve] = {}
    for number, described in enumerate(ledger["stages"]):
        prefix = f"{ledger['prefix']}{number}."
        stage = int(out[f"{prefix}index"])
        if stage not in found:
            rows = [
                LedgerRow(row["name"], float(out[prefix + row["name"]]), row["text"], tuple(row["moments"]))
                for row in described["rows"] if row["pool"] == "device"
            ]  # fmt: skip
            found[stage] = stage_curve(stage, described["label"], rows, float(out[f"{prefix}saved"]), events, chunks)
    return [found[stage] for stage in sorted(found)]


def stage_curve(
    stage: int, label: str, rows: Sequence[LedgerRow], saved: float, events: Sequence[Event], chunks: int = 1
) -> MemoryCurve:
    """Memory over time of one ``stage``.

    ``rows``: its ledger; ``saved``: bytes that one micro-batch keeps there [B], over all ``chunks``; ``events``: of all
    stages, passes with a micro-batch and others without.
    """
    own = [event for event in events if event.stage == stage]
    passes = [event for event in own if event.micro_batch >= 0]
    others = [event for event in own if event.micro_batch < 0]
    # Changes at one instant are added up before anyone looks: what falls there does not stand beside what rises.
    changes: dict[float, list[int]] = {0.0: [0, 0, 0]}  # when → more held, more running, more of the update

    def alive(what: int, start: float, end: float) -> None:
        changes.setdefault(start, [0, 0, 0])[what] += 1
        changes.setdefault(end, [0, 0, 0])[what] -= 1

    held: dict[tuple[int, int], list[Event]] = {}
    for event in passes:
        held.setdefault((event.micro_batch, event.chunk), []).append(event)
        alive(1, event.start, event.end)
    for together in held.values():
        alive(0, min(event.start for event in together), max(event.end for event in together))
    for event in others:
        alive(2, event.start, event.end)
    samples: list[tuple[float, tuple[float, ...]]] = []
    counts = [0, 0, 0]
    for when in sorted(changes):
        counts = [count + change for count, change in zip(counts, changes[when], strict=True)]
        values = tuple(_bytes(row, saved / chunks, counts) for row in rows)
        if not samples or values != samples[-1][1]:
            samples.append((when, values))
    start, highest = max(samples, key=lambda sample: sum(sample[1]))  # the first of several
    largest = max(zip(highest, rows, strict=True), key=lambda pair: pair[0])[1].name
    peak = Peak(sum(highest), start, _during(own, start, chunks), largest)
    end = max((event.end for event in events), default=0.0)
    return MemoryCurve(stage, label, tuple(row.name for row in rows), tuple(samples), end, peak)


def _bytes(row: LedgerRow, each: float, counts: Sequence[int]) -> float:
    """Bytes of a row while so much is held, running and updating; ``each``: of one micro-batch of one part."""
    held, running, updating = counts
    if "compute" in row.moments and "update" in row.moments:
        return row.bytes
    if row.name == KEPT:
        return held * each
    if row.name == GATHERED:
        return row.bytes if held > 0 else 0.0
    return row.bytes if (running if "compute" in row.moments else updating) > 0 else 0.0


def _during(events: Sequence[Event], time: float, chunks: int) -> str:
    """What runs on a stage at a time, in words."""
    event = next((event for event in events if event.start <= time < event.end), None)
    if event is None:
        return ""
    if event.micro_batch < 0:
        return event.what
    part = f", part {event.chunk}" if chunks > 1 else ""
    return f"{event.what} pass of micro-batch {event.micro_batch}{part}"


def counters(curves: Sequence[MemoryCurve]) -> list[dict[str, Any]]:
    """The curves as rows of a trace: a counter for each stage, beside its events, with a series for each row [B].

    Source: Trace Event Format, counter events ("ph": "C").
    """
    rows = []
    for curve in curves:
        samples = [*curve.samples, (curve.end, curve.samples[-1][1])]  # a counter ends where its last value stands
        rows += [
            {"ph": "C", "pid": curve.stage, "name": "memory", "ts": when * 1e6,
             "args": dict(zip(curve.rows, values, strict=True))}
            for when, values in samples
        ]  # fmt: skip
    return rows
