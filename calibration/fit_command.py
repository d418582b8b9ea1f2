"""``slipstick calibrate fit``: measured traces in, fitted records out, with how far each can be trusted.

Floor: calibration. Uses the host, the traces, the fitter and the store; the face's blocks for what a person sees.
"""

from __future__ import annotations

import datetime
import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import asdict, evolve

from slipstick.core.algebra.units import parse
from slipstick.core.errors import SlipstickError, UserError, shown

if TYPE_CHECKING:
    from slipstick.core.face.text import Block
    from slipstick.core.host.host import Host
    from slipstick.core.records.fitted import ErrorSummary, FittedRecord
    from slipstick.core.records.hardware import Machine
    from slipstick.core.records.provenance import Source

    from .fit_device import Made
    from .fit_records import Fitted, Outcome
    from .traces import Read

SCHEMA = 1


def run(
    host: Host, names: Sequence[str], *, device: str = "", output: str = "", family: str = "measured", engine: str = "",
    date: str = "", memory: str = "", like: str = "", seed: int = 0, as_json: bool = False, dry_run: bool = False,
) -> None:  # fmt: skip
    """Read, fit, judge, write and tell. Errors: UserError where there is nothing to fit; nothing is written then."""
    from . import store, traces
    from .fit_device import checked
    from .fit_records import fit_batches

    date = _date(date)
    source = traces.source_of(names, date)
    chosen = host.get("kernel family", family)
    read = traces.read(names, host, device, engine)
    if not read.batches:
        raise UserError(_nothing(names, read))
    machines, made = _machines(host, read, device, source, family, memory, like)
    checked(made)
    command = command_of(
        names, device=device, engine=engine, family=family, memory=memory, like=like, seed=seed, date=date
    )
    known = [record for machine in machines.values() for record in _known(host, machine.name)]
    with _Progress(as_json) as progress:
        outcome = fit_batches(
            read.batches, chosen, machines, source, command, known=known, seed=seed, progress=progress.step
        )
    outcome = evolve(outcome, unread=(*read.unread, *outcome.unread))
    if not outcome.fits:
        raise UserError(_nothing(names, read, outcome))
    written: tuple[Path, ...] = ()
    if not dry_run:
        folder = Path(output).expanduser() if output else store.user_folder()
        names_made = {one.machine.name: one.text for one in made.values()}
        used = {fit.record.accelerator for fit in outcome.fits}
        written = store.save(folder, outcome.records, {name: text for name, text in names_made.items() if name in used})
    if as_json:
        click.echo(json.dumps(_json(outcome, read, written)))
        return
    from slipstick.core.face.tables import show

    show(page(outcome, read, written, made))


def command_of(names: Sequence[str], **options: Any) -> str:
    """The command that makes the records again; options that stand at their defaults are left out.

    >>> command_of(["aiconfigurator:h100_sxm/gemm/trtllm"], family="measured", seed=0, device="")
    'slipstick calibrate fit aiconfigurator:h100_sxm/gemm/trtllm'
    """
    words = ["slipstick", "calibrate", "fit", *names]
    for name, value in options.items():
        if value and not (name == "family" and value == "measured"):
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def _machines(
    host: Host, read: Read, device: str, source: Source, family: str, memory: str, like: str
) -> tuple[dict[str, Machine], dict[str, Made]]:
    """Device as the trace says → its machine, and those that had to be made."""
    from slipstick.core.host.machines import is_path

    from .fit_device import known_name, made_accelerator, slug

    capacity = parse(memory, expect="B")[0] if memory else None
    model = host.machine(like).accelerator if like else None
    machines: dict[str, Machine] = {}
    made: dict[str, Made] = {}
    for name in dict.fromkeys(batch.device for batch in read.batches):
        if device and is_path(device):
            machines[name] = host.machine(device)
            continue
        known = known_name(name, host)
        if known:
            machines[name] = host.machine(known)
            continue
        own = [batch for batch in read.batches if batch.device == name]
        made[name] = made_accelerator(slug(name), own, source, family, capacity, model)
        machines[name] = made[name].machine
    return machines, made


def _known(host: Host, accelerator: str) -> tuple[FittedRecord, ...]:
    try:
        return host.fitted(accelerator)
    except SlipstickError:
        return ()  # a file that is not sound says so where it is used; a fit needs none


def _date(text: str) -> str:
    if not text:
        return datetime.date.today().isoformat()
    try:
        return datetime.date.fromisoformat(text).isoformat()
    except ValueError:
        raise UserError(f"--date {shown(text)} is not a date; write 2026-11-30") from None


def _nothing(names: Sequence[str], read: Read, outcome: Outcome | None = None) -> str:
    told = f"nothing to fit in {', '.join(shown(name) for name in names[:3])}"
    unread = outcome.unread if outcome is not None else read.unread
    if read.points and not read.batches:
        return f"{told}: it holds figures of whole deployments, no times of kernels (see `slipstick validate`)"
    if unread:
        first = max(unread, key=lambda one: one.count)
        count = sum(one.count for one in unread)
        return f"{told}: {count} rows could not be used, most of them {first.what} ({first.why})"
    return f"{told}: no measured kernel in it"


class _Progress:
    """A bar on the standard error stream, where a person looks at it."""

    def __init__(self, silent: bool) -> None:
        import sys

        self._silent = silent or not sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> _Progress:
        if not self._silent:
            from rich.console import Console
            from rich.progress import Progress

            self._bar = Progress(console=Console(stderr=True), transient=True)
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, done: int, all_: int, what: str) -> None:
        """``done`` of ``all_`` fits are there; ``what`` is next."""
        if self._bar is None:
            return
        if self._task is None:
            self._task = self._bar.add_task("fitting", total=all_)
        self._bar.update(self._task, completed=done, description=f"fitting {what}".strip())


# --- what a person sees -------------------------------------------------------------------------------------------


def page(
    outcome: Outcome, read: Read, written: Sequence[Path] = (), made: Mapping[str, Made] | None = None
) -> list[Block]:
    """The table of the fits, what stands out, what was not used, and where the records are."""
    from slipstick.core.face.text import Note, Pairs

    blocks: list[Block] = []
    for name in dict.fromkeys(fit.record.accelerator for fit in outcome.fits):
        own = [fit for fit in outcome.fits if fit.record.accelerator == name]
        blocks.append(table([fit.record for fit in own], name))
    blocks.append(
        Note(
            "Errors on rows held out of the fit, median / 90th percentile of |predicted/measured - 1|; the records "
            "hold parameters fitted to all rows afterwards."
        )
    )
    for fit in outcome.fits:
        lines = _notes(fit)
        if lines:
            blocks.append(Pairs(tuple(lines), _title(fit.record)))
    if outcome.unread:
        rows = tuple((f"{one.count} × {one.what}"[:60], one.why) for one in outcome.unread[:20])
        more = len(outcome.unread) - len(rows)
        blocks.append(Pairs(rows, "Not used" + (f" ({more} further kinds not listed)" if more > 0 else "")))
    if read.points:
        blocks.append(Note(f"{read.points} figures of whole deployments were not used: see `slipstick validate`."))
    blocks += [Note(f"written: {path}") for path in written]
    for one in (made or {}).values():
        name = one.machine.name
        path = next((str(p) for p in written if p.name == f"{name}.toml"), "")
        if path:
            blocks.append(Note(f"{name} is new to slipstick; use it as `--on {path}`."))
    return blocks


def table(records: Sequence[FittedRecord], title: str) -> Block:
    """One line a record."""
    from slipstick.core.face.text import Grid

    rows = tuple(
        (
            record.slot + where_text(record), record.format, source_text(record), str(record.rows),
            *(_pair(record.errors.get(name)) for name in COLUMNS), "yes" if record.calibrated else "no",
        )
        for record in records
    )  # fmt: skip
    heads = ("kernel", "format", "source", "rows", *COLUMNS.values(), "calibrated")
    return Grid(heads, rows, title, right=range(3, 4 + len(COLUMNS)))


COLUMNS = {
    "held_out": "held out %",
    "held_out.decode": "decode",
    "held_out.middle": "middle",
    "held_out.prefill": "prefill",
    "unseen_shapes": "unseen",
    "default": "uncalibrated",
}
"""Part of the errors → head of its column."""


def where_text(record: FittedRecord) -> str:
    """The sizes that a record stands for, in brackets; empty where it stands for all."""
    if not record.where:
        return ""
    spans = (f"{n} {a:g}" if a == b else f"{n} {a:g} to {b:g}" for n, (a, b) in sorted(record.where.items()))
    return f" ({', '.join(spans)})"


def source_text(record: FittedRecord) -> str:
    """Whose kernel it was and in what it was measured."""
    engine = " ".join(part for part in (record.engine, record.engine_version) if part)
    return ", ".join(part for part in (record.kernel_source, engine) if part) or "-"


def _title(record: FittedRecord) -> str:
    return f"{record.slot}{where_text(record)}, {record.format}, {source_text(record)}"


def _notes(fit: Fitted) -> list[tuple[str, str]]:
    record = fit.record
    lines = [] if record.calibrated else [("not calibrated", record.reason)]
    if record.unidentified:
        lines.append(("not determined", ", ".join(record.unidentified)))
    lines += [("note", note) for note in fit.notes]
    return lines


def _pair(error: ErrorSummary | None) -> str:
    return "-" if error is None else f"{100 * error.median:.1f} / {100 * error.p90:.1f}"


def _json(outcome: Outcome, read: Read, written: Sequence[Path]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "records": [{**asdict(fit.record), "notes": list(fit.notes)} for fit in outcome.fits],
        "rows": read.rows,
        "unread": [{"what": one.what, "why": one.why, "count": one.count} for one in outcome.unread],
        "points": read.points,
        "written": [str(path) for path in written],
    }
