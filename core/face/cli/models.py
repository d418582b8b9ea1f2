"""``slipstick models``: which models there are, and what a configuration amounts to.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ...errors import SlipstickError
from .session import Session, pass_session

if TYPE_CHECKING:
    from ...host.host import Host

SCHEMA = 1
_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON, in SI units.")


@click.group("models", short_help="List models and show what a configuration amounts to.")
def command() -> None:
    """Models by preset name or by the path of a Hugging Face config.json: parameters, cache, operations and shapes."""


@command.command("list", short_help="List presets, and the model types that a config.json may have.")
@click.argument("text", metavar="[TEXT]", default="")
@_JSON
@pass_session
def list_command(session: Session, text: str, as_json: bool) -> None:
    """List the presets whose name or architecture holds TEXT, and every `model_type` that can be read."""
    host = session.host
    rows, problems = _presets(host, text.casefold())
    types = sorted({known for architecture in host.architectures().values() for known in architecture.model_types})
    for line in problems:
        click.echo(f"warning: {line}", err=True)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "models": rows, "model_types": types, "problems": problems}))
        return
    from ..graphs import models_page
    from ..tables import show

    show(models_page(rows, types))


@command.command("show", short_help="Show parameters, cache size, operations and shapes of a model.")
@click.argument("model", metavar="NAME|PATH")
@click.option("--operations", is_flag=True, help="Show each operation of each kind of block.")
@_JSON
@pass_session
def show_command(session: Session, model: str, operations: bool, as_json: bool) -> None:
    """Show what a model amounts to; --json has the operations with all their shapes."""
    from ...study.models import describe, load_model

    description = describe(load_model(model, session.host))
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, **description}))
        return
    from ..graphs import model_page
    from ..tables import show

    show(model_page(description, operations))


def _presets(host: Host, text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """A row for each preset that loads, and a line for each that does not."""
    from ...study.models import describe, load_model, preset_paths

    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for name in sorted(preset_paths(host)):
        try:
            whole = describe(load_model(name, host))
        except SlipstickError as error:
            problems.append(f"{name}: {' '.join(str(error).split())}")
            continue
        if text in name.casefold() or text in whole["architecture"].casefold():
            rows.append({key: whole[key] for key in ROW})
    return rows, problems


ROW = (
    "name",
    "architecture",
    "parameters",
    "active_parameters_per_token",
    "kv_bytes_per_token",
    "layers",
    "max_positions",
    "dtype",
)
"""The keys of a model in a list."""
