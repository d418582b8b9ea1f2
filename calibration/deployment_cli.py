"""``slipstick calibrate deployment``: a few measured points of one's own re-fit a stack.

Floor: calibration. click at import; everything else inside the command.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from slipstick.core.face.cli.session import pass_session

if TYPE_CHECKING:
    from slipstick.core.face.cli.session import Session

    from .deployment import Deployment


@click.command("deployment", short_help="Re-fit a stack to six or more measured points of a deployment.")
@click.argument("points", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--stack", default="vllm", show_default=True, help="The stack that the fit starts from.")
@click.option("--name", default="deployment", show_default=True, help="What the new stack is called.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the record.  [default: the stacks of your own hardware folder]",
)
@click.option("--date", help="Date of the record, YYYY-MM-DD.  [default: today]")
@click.option("--dry-run", is_flag=True, help="Tell what would improve; write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@pass_session
def deployment_command(
    session: Session, points: tuple[Path, ...], stack: str, name: str, output: Path | None, date: str | None,
    dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    """Fit the coefficients of a software stack to measured POINTS of your own deployment.

    POINTS are CSV files with the columns of docs/validation.md, or results of vLLM's and SGLang's benchmarks. The
    exit status is 1 where no fit predicts points that it has not seen better than the stack as shipped.
    """
    import datetime

    from slipstick.core.errors import UserError
    from slipstick.core.files import replace_file
    from slipstick.core.records.stack import write_stack
    from slipstick.core.records.toml_walk import NAME_RULE, is_name

    from .deployment import deployments, joined
    from .store import user_folder

    if not is_name(name):
        raise UserError(f"--name {name!r}: {NAME_RULE}")
    found = deployments(points, session.host, stack, name, date or datetime.date.today().isoformat())
    better = [d for d in found if d.improved]
    path = (output or user_folder() / "stacks") / f"{name}.toml"
    if better and not dry_run:
        replace_file(path, write_stack(joined(found)))
    if as_json:
        written = str(path) if better and not dry_run else None
        click.echo(json.dumps({"schema": 1, "deployments": [d.to_json() for d in found], "written": written}))
    else:
        for one in found:
            _page(one)
        if better and not dry_run:
            where = name if output is None else path
            click.echo(f"wrote {path}; use it with --stack {where}")
        elif not better:
            click.echo("nothing written: no fit predicts unseen points better than the stack as shipped")
    if not better:
        raise SystemExit(1)


def _page(one: Deployment) -> None:
    from slipstick.core.algebra.units import format_si
    from slipstick.core.face.tables import show
    from slipstick.core.face.text import Block, Grid, Note
    from slipstick.core.model.interfaces.stack import COEFFICIENTS

    def told(name: str, value: float) -> str:
        unit = COEFFICIENTS[name][0]
        return f"{value:.3g}" if unit == "1" else format_si(value, unit, 3)

    errors = (("as shipped", one.before), ("fitted, unseen points", one.after), ("a constant", one.constant))
    blocks: list[Block] = [
        Note(f"{one.task} on {one.accelerator}: {one.points} points, stack {one.stack}", "title"),
        Grid(("prediction", "mean error", "median", "p90", "bias"),
             tuple((n, f"{e.mean:.1%}", f"{e.median:.1%}", f"{e.p90:.1%}", f"{e.bias:+.1%}") for n, e in errors),
             "Errors", right={1, 2, 3, 4}),
        Grid(("coefficient", "before", "after"),
             tuple((n.replace("_", " "), told(n, a), told(n, b)) for n, (a, b) in one.values.items()),
             "Coefficients", right={1, 2}),
    ]  # fmt: skip
    blocks += [Note(f"left out: {count} × {reason}") for reason, count in one.skipped.items()]
    show(blocks)
