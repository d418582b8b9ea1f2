"""``slipstick diff``: which parts of the time differ between two saved scenarios.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from ...errors import UserError
from .asking import JSON, finite
from .paths import path_of
from .session import Session, pass_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...records.scenario import Scenario
    from ...study.saving import Moved
    from ..text import Block

SCHEMA = 1


@click.command("diff", short_help="What differs between the answers to two saved scenarios.")
@click.argument("a", metavar="A.toml")
@click.argument("b", metavar="B.toml")
@click.option("--top", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Most parts to print.")
@JSON
@pass_session
def command(session: Session, a: str, b: str, top: int, as_json: bool) -> None:
    """Compare the answers to two scenarios saved with --save: settings that differ, and the parts whose time moved."""
    from ...study.saving import diff_scenarios, load_scenario

    before, after = (load_scenario(path_of(path, "scenario")) for path in (a, b))
    if before.task != after.task:
        raise UserError(f"{a} asks about {before.task}, {b} about {after.task}: there is nothing to compare")
    rows = diff_scenarios(before, after, session.host)
    settings = _changed(before, after)
    if as_json:
        found = {
            "schema": SCHEMA, "task": before.task,
            "settings": {name: {"before": old, "after": new} for name, (old, new) in settings.items()},
            "moved": [{"path": r.path, "before_s": r.before, "after_s": r.after, "change_s": r.change} for r in rows],
        }  # fmt: skip
        click.echo(json.dumps(finite(found), allow_nan=False))
        return
    from ..tables import show

    show(_page(a, b, settings, rows, top))


def _changed(before: Scenario, after: Scenario) -> dict[str, tuple[Any, Any]]:
    """What was asked differently: name → before and after, None where it was left to its default."""
    old = {"model": before.model, "machine": before.machine, **before.settings}
    new = {"model": after.model, "machine": after.machine, **after.settings}
    names = dict.fromkeys((*old, *new))
    return {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}


def _page(a: str, b: str, settings: dict[str, tuple[Any, Any]], rows: Sequence[Moved], top: int) -> list[Block]:
    from ...algebra.units import format_si
    from ..figures import setting_text
    from ..text import Grid, Note

    def seconds(value: float | None) -> str:
        return "–" if value is None else format_si(value, "s")

    def asked(value: Any) -> str:
        return "default" if value is None else setting_text("", value)

    blocks: list[Block] = [Note(f"{a} → {b}", "title")]
    if settings:
        changed = tuple((name, asked(old), asked(new)) for name, (old, new) in settings.items())
        blocks.append(Grid(("setting", "before", "after"), changed))
    if not rows:
        return [*blocks, Note("no part of the time differs")]
    table = tuple(
        (row.path, seconds(row.before), seconds(row.after), "+" * (row.change > 0) + format_si(row.change, "s"))
        for row in rows[:top]
    )
    blocks.append(Grid(("part (seconds of the whole)", "before", "after", "change"), table, right={1, 2, 3}))
    if len(rows) > top:
        blocks.append(Note(f"and {len(rows) - top} smaller changes (--top shows more)"))
    return blocks
