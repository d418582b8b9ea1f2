"""Make the fitted records that slipstick ships again: ``python -m slipstick.calibration.remake``.

Floor: calibration. Uses the tables of the package aiconfigurator-core, the fitter and the store. Each record names the
command that makes it alone; this one makes all of them, a file at a time, from nothing but the tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from slipstick.core.errors import SlipstickError, UserError, unknown

if TYPE_CHECKING:
    from slipstick.core.host.host import Host
    from slipstick.core.records.fitted import FittedRecord

TABLES = (
    "scale_matrix", "gemm", "context_attention", "generation_attention", "context_mla",
    "generation_mla", "moe", "nccl", "oneccl", "custom_allreduce",
)  # fmt: skip
"""The tables that hold kernels slipstick has formulas for, those that others are held at first."""


class Made(NamedTuple):
    """What one table gave: its address, the records, the seconds it took, and why it gave none."""

    address: str
    records: tuple[FittedRecord, ...]
    seconds: float
    reason: str = ""


def addresses(system: str, tables: Sequence[str] = TABLES) -> list[str]:
    """The latest collection of each table and engine of a system. Errors: UserError for an unknown system."""
    from .readers.aiconfigurator_files import find, located, tables as every  # isort: skip

    listed = every(system)
    if not listed:
        raise unknown("system of AIConfigurator's tables", system, {table.system for table in every()})
    found = []
    for name in tables:
        if any(table.name == name for table in listed):
            places = (located(path) for path in find(f"aiconfigurator:{listed[0].system}/{name}"))
            found += [place.address for place in places if place is not None and place.name == name]
    return found


def make(host: Host, address: str, date: str, family: str, known: Sequence[FittedRecord]) -> Made:
    """The records of one table."""
    import time

    from . import traces
    from .fit_command import command_of
    from .fit_device import known_name
    from .fit_records import fit_batches

    began = time.perf_counter()
    source = traces.source_of([address], date)
    read = traces.read([address], host)
    names = {batch.device: known_name(batch.device, host) for batch in read.batches}
    machines = {device: host.machine(name) for device, name in names.items() if name}
    command = command_of([address], family=family, date=date)
    chosen = host.get("kernel family", family)
    try:
        outcome = fit_batches(read.batches, chosen, machines, source, command, known=known)
    except UserError as error:
        return Made(address, (), time.perf_counter() - began, str(error))
    why = "" if outcome.fits else "; ".join(f"{one.what}: {one.why}" for one in outcome.unread[:2])
    return Made(address, outcome.records, time.perf_counter() - began, why)


def remake(host: Host, system: str, output: Path, date: str, family: str, tables: Sequence[str]) -> list[Made]:
    """Every table of one system, written file by file; tells each table as it is done."""
    from . import store

    done: list[Made] = []
    known: list[FittedRecord] = []
    for address in addresses(system, tables):
        made = make(host, address, date, family, known)
        known += made.records
        done.append(made)
        click.echo(line_of(made), err=True)
    if known:
        store.save(output, known, fresh=set(tables) == set(TABLES))
    return done


def line_of(made: Made) -> str:
    """One line for a person: how many kernels, how many of them calibrated, and the median of their errors."""
    if not made.records:
        return f"{made.address}: nothing ({made.reason})"
    held = [record.errors["held_out"] for record in made.records if "held_out" in record.errors]
    good = sum(record.calibrated for record in made.records)
    middle = sorted((error.median, error.p90) for error in held)[len(held) // 2] if held else (0.0, 0.0)
    rows = sum(record.rows for record in made.records)
    return (
        f"{made.address}: {good} of {len(made.records)} calibrated, {rows} rows, "
        f"held out {100 * middle[0]:.1f} / {100 * middle[1]:.1f} %, {made.seconds:.1f} s"
    )


@click.command()
@click.option(
    "--system", "systems", metavar="NAME", multiple=True, help="Only this system; may be given several times."
)
@click.option("--table", "tables", metavar="NAME", multiple=True, help="Only this table; may be given several times.")
@click.option("--output", metavar="DIR", default="", help="Folder, in place of slipstick's own data base.")
@click.option("--family", metavar="NAME", default="measured", show_default=True, help="The family of kernel formulas.")
@click.option("--date", metavar="DATE", required=True, help="Date that the records carry, such as 2026-11-30.")
def command(systems: tuple[str, ...], tables: tuple[str, ...], output: str, family: str, date: str) -> None:
    """Fit every table of every system and write the records."""
    from slipstick.core.host.host import Host
    from slipstick.hwdb import FOLDER

    from .readers.aiconfigurator_files import SYSTEMS

    host = Host.load()
    names = host.machines().names("accelerator")
    for system in systems or [system for system, device in SYSTEMS.items() if device in names]:
        remake(host, system, Path(output) if output else FOLDER, date, family, tables or TABLES)


def main() -> int:
    """Run the command; its exit status."""
    try:
        command.main(standalone_mode=False)
    except SlipstickError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_status
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
