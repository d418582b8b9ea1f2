"""``slipstick plugins``: what is installed, what each plugin brings, and what is wrong with those that fail.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from .session import Session, pass_session

if TYPE_CHECKING:
    from ...host.plugin import PluginInfo

SCHEMA = 1
_PREFIX = "slipstick_"


@click.command("plugins", short_help="List the plugins that are installed, and whether they work.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@pass_session
def command(session: Session, as_json: bool) -> None:
    """List every plugin with its version, hooks, state and origin; loads each, and forgets earlier results.

    A plugin is switched off by name, with SLIPSTICK_DISABLE_PLUGINS=NAME,... (also patterns such as `acme-*`).
    """
    host = session.load(fresh=True)
    plugins, clashes = host.plugins(), host.clashes()
    if as_json:
        from ...host.hookspecs import API

        click.echo(json.dumps({"schema": SCHEMA, "api": API, "plugins": list(map(_row, plugins)), "clashes": clashes}))
        return
    _table(plugins)
    for plugin in plugins:
        if plugin.state == "broken":
            click.echo(f"broken: {plugin.name}: {plugin.reason}")
    for line in clashes:
        click.echo(f"clash: {line}")


def _row(plugin: PluginInfo) -> dict[str, object]:
    return {
        "name": plugin.name,
        "version": plugin.version,
        "hooks": list(plugin.hooks),
        "state": plugin.state,
        "reason": plugin.reason,
        "origin": plugin.origin,
        "where": plugin.where,
    }


def _table(plugins: list[PluginInfo]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("name", "version", "hooks", "state", "origin"):
        table.add_column(column, overflow="fold", no_wrap=column == "name")
    colours = {"active": "green", "disabled": "dim", "broken": "red"}
    for plugin in plugins:
        state = f"[{colours[plugin.state]}]{plugin.state}[/]"
        hooks = ", ".join(hook.removeprefix(_PREFIX) for hook in plugin.hooks)
        origin = plugin.where if plugin.origin == "distribution" else f"{plugin.origin} {plugin.where}"
        table.add_row(escape(plugin.name), escape(plugin.version), hooks, state, escape(origin))
    Console(soft_wrap=False).print(table)
