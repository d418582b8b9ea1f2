"""``slipstick calibrate``: the commands of calibration, brought to slipstick the way a plugin brings its own.

Floor: calibration. Imports click alone at its top: slipstick's help lists this command without loading the rest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

import click

from slipstick.core.face.cli.session import Session, pass_session
from slipstick.core.host.hookspecs import hookimpl

if TYPE_CHECKING:
    from slipstick.core.records.fitted import FittedRecord

LATER: dict[str, tuple[str, str]] = {
    "measure": ("measure_cli:measure_command", "Measure kernels on this machine, through PyTorch."),
    "deployment": (
        "deployment_cli:deployment_command",
        "Re-fit a stack to six or more measured points of a deployment.",
    ),
}
"""Commands that are imported when they are called: name → (module:attribute, line of help)."""


class Calibrate(click.Group):
    """The commands below, and those of ``LATER``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names."""
        return [*super().list_commands(ctx), *LATER]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command ``cmd_name``; None if there is none."""
        if cmd_name not in LATER:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = LATER[cmd_name][0].partition(":")
        found: click.Command = getattr(import_module(f".{module}", __package__), attribute)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their lines of help, of which none of ``LATER`` is imported."""
        own = [(name, command.get_short_help_str(limit=80)) for name, command in self.commands.items()]
        with formatter.section("Commands"):
            formatter.write_dl([*own, *((name, line) for name, (_, line) in LATER.items())])


@click.group("calibrate", cls=Calibrate, short_help="Measure kernels, fit their formulas, show how far to trust them.")
def calibrate() -> None:
    """From measured traces to formulas that can be trusted.

    `slipstick calibrate measure` takes measurements on this machine, `slipstick calibrate fit` turns measurements
    into calibrated kernels, which every later answer for that accelerator uses.
    """


@calibrate.command("fit", short_help="Fit the kernel formulas to measured traces.")
@click.argument("traces", metavar="TRACE...", nargs=-1, required=True)
@click.option("--device", metavar="NAME", default="", help="The accelerator, in place of what the trace says.")
@click.option(
    "--output", metavar="DIR", default="", help="Folder for the records; by default your own hardware records."
)
@click.option("--engine", metavar="NAME", default="", help="The software that was measured, such as vllm.")
@click.option("--family", metavar="NAME", default="measured", show_default=True, help="The family of kernel formulas.")
@click.option("--memory", metavar="SIZE", default="", help="Memory of a device that slipstick does not know: 80GB.")
@click.option("--like", metavar="NAME", default="", help="A known accelerator to take missing values from.")
@click.option("--date", metavar="DATE", default="", help="Date of the measurements, such as 2026-11-30; today.")
@click.option("--seed", metavar="N", type=click.IntRange(0, 2**31), default=0, help="Seed of the hold-out; 0.")
@click.option("--dry-run", is_flag=True, help="Write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@pass_session
def fit_command(
    session: Session, traces: tuple[str, ...], device: str, output: str, engine: str, family: str, memory: str,
    like: str, date: str, seed: int, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Fit every kernel in the traces, judge each fit on rows that it has not seen, and keep the records.

    TRACE is a file that a trace reader knows (PyTorch profiler, Nsight Systems, nccl-tests, slipstick's own CSV, ...),
    or tables of the package aiconfigurator-core: `aiconfigurator:h100_sxm/gemm/trtllm`. A device that slipstick does
    not know becomes an accelerator of its own, for use with `--on`.
    """
    from .fit_command import run

    run(
        session.host, traces, device=device, output=output, family=family, engine=engine, date=date, memory=memory,
        like=like, seed=seed, as_json=as_json, dry_run=dry_run,
    )  # fmt: skip


@calibrate.command("show", short_help="Show the calibrated kernels of an accelerator.")
@click.argument("name", metavar="NAME")
@click.option("--slot", metavar="KERNEL", default="", help="Only this kind of kernel, such as gemm.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, in SI units.")
@pass_session
def show_command(session: Session, name: str, slot: str, as_json: bool) -> None:
    """Show parameters, errors and provenance of every calibrated kernel of an accelerator."""
    from slipstick.core.errors import UserError, unknown

    machine = session.host.machine(name)
    records = session.host.fitted(machine.name, machine.folder)
    if not records:
        raise UserError(f"nothing is calibrated for {machine.name}; `slipstick calibrate records` lists what is")
    if slot:
        known = list(dict.fromkeys(record.slot for record in records))
        records = tuple(record for record in records if record.slot == slot)
        if not records:
            raise unknown("kernel", slot, known)
    if as_json:
        from attrs import asdict

        click.echo(json.dumps({"schema": 1, "accelerator": machine.name, "records": [asdict(r) for r in records]}))
        return
    from slipstick.core.face.tables import show

    from .show import record_page

    show([block for record in records for block in record_page(record)])


@calibrate.command("records", short_help="List the accelerators that are calibrated.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_session
def records_command(session: Session, as_json: bool) -> None:
    """List the calibrated kernels of every accelerator; `slipstick calibrate show NAME` has the parameters."""
    found: dict[str, Sequence[FittedRecord]] = {}
    for name in session.host.machines().names("accelerator"):
        records = session.host.fitted(name)
        if records:
            found[name] = records
    if as_json:
        from attrs import asdict

        listed = {name: [asdict(record) for record in records] for name, records in found.items()}
        click.echo(json.dumps({"schema": 1, "accelerators": listed}))
        return
    from slipstick.core.face.tables import show
    from slipstick.core.face.text import Note

    from .fit_command import table

    show([table(records, name) for name, records in found.items()] or [Note("no accelerator is calibrated")])


@hookimpl
def slipstick_commands() -> list[click.Command]:
    """The group of calibration's commands."""
    return [calibrate]
