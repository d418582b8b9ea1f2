"""``slipstick calibrate measure``: microbenchmarks on the machine at hand, with a progress bar.

Stands on the core; torch, rich and the measuring itself are loaded when the command runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from slipstick.core.face.cli.paths import complete_file, path_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from .measure import Progress, Report, Setup
    from .measure_design import Case


@click.command("measure", short_help="Measure kernels on this machine and write a trace.")
@click.option("--output", default="trace.csv", show_default=True, metavar="FILE", shell_complete=complete_file,
              help="The trace, a CSV; rows that it has already are kept and not measured again.")  # fmt: skip
@click.option("--kind", "kinds", multiple=True, metavar="KIND",
              help="Only this kind of kernel, such as gemm or attention; may be repeated. Default: all that make sense "
                   "on the device.")  # fmt: skip
@click.option("--format", "formats", multiple=True, metavar="FORMAT",
              help="Only this number format, such as bf16; may be repeated. Default: bf16 and fp8 on a GPU, fp32 on a "
                   "CPU.")  # fmt: skip
@click.option("--budget", default=120.0, show_default=True, metavar="SECONDS", help="Time that measuring may take.")
@click.option("--device", metavar="DEVICE", help="cpu, cuda or cuda:1. Default: cuda where there is one.")
@click.option("--device-name", metavar="NAME", help="How rows call the device. Default: as its driver does.")
@click.option("--threads", type=int, metavar="N", help="Threads of a CPU. Default: as PyTorch chooses.")
@click.option("--list", "only_list", is_flag=True, help="Print the planned shapes and measure none.")
def measure_command(
    output: str,
    kinds: tuple[str, ...],
    formats: tuple[str, ...],
    budget: float,
    device: str | None,
    device_name: str | None,
    threads: int | None,
    only_list: bool,
) -> None:
    """Measure kernels on this machine through PyTorch and write them as a trace for `slipstick calibrate fit`.

    Shapes are chosen for the device and cover decoding to prefill. They are measured in an order in which any
    beginning is balanced: Ctrl-C or the end of the budget leaves a trace that can be fitted, and the same command
    goes on where it stopped.
    """
    from .measure import measure, planned, prepare

    if only_list:
        _list(prepare(device, device_name, budget, threads), planned, kinds, formats)
        return
    with _bar() as progress:
        report = measure(
            path_of(output, "--output"), kinds=kinds or None, budget_s=budget, device=device, device_name=device_name,
            formats=formats or None, threads=threads, progress=progress,
        )  # fmt: skip
    _tell(report)


def _list(setup: Setup, planned: Callable[..., list[Case]], kinds: tuple[str, ...], formats: tuple[str, ...]) -> None:
    cases = planned(setup, kinds or None, formats or None)
    for case in cases:
        click.echo(case.text)
    click.echo(f"{len(cases)} measurements on {setup.name}", err=True)


@contextmanager
def _bar() -> Iterator[Callable[[Progress], None]]:
    """A progress bar on standard error."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bar

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("probing the device", total=None)

        def progress(now: Progress) -> None:
            bar.update(task, total=now.planned, completed=now.done, description=now.now)

        yield progress


def _tell(report: Report) -> None:
    how = {"complete": "complete", "budget": "the time is up", "interrupted": "interrupted"}[report.stopped]
    kept = f", {report.kept} kept from before" if report.kept else ""
    click.echo(
        f"{report.measured} measured{kept}, of {report.planned} planned on {report.device} in {report.seconds:.0f} s "
        f"({how}): {report.output}"
    )
    for why, cases in _grouped(report.skipped).items():
        click.echo(f"left out, {len(cases)}: {why} (first: {cases[0]})", err=True)
    for line in report.warnings:
        click.echo(f"warning: {line}", err=True)
    if report.stopped != "complete":
        click.echo("The same command measures the rest.", err=True)


def _grouped(skipped: tuple[tuple[str, str], ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for case, why in skipped:
        found.setdefault(why, []).append(case)
    return found
