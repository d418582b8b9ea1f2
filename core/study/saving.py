"""Scenarios in files (TOML), written whole or not at all, and two of them compared leaf by leaf.

Floor: study.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..errors import UserError, shown, unknown
from ..files import put, reason_of
from ..records.prediction import TreeNode
from ..records.scenario import Scenario
from .ask import ask
from .tree import leaves

if TYPE_CHECKING:
    from ..host.host import Host

MAX_BYTES = 262_144
TASKS = ("train", "serve")
KEYS = ("schema", "task", "model", "on", "settings")


def save_scenario(path: Path, scenario: Scenario) -> None:
    """Write a scenario as TOML; an existing file is replaced at once or stays as it was."""
    lines = [
        "schema = 1",
        f"task = {_toml(scenario.task)}",
        f"model = {_toml(scenario.model)}",
        f"on = {_toml(scenario.machine)}",
        "",
        "[settings]",
    ]
    lines += [f"{_key(name)} = {_toml(value)}" for name, value in scenario.settings.items() if value is not None]
    text = "\n".join(lines) + "\n"
    try:
        put(path, text.encode())  # a path that is no text (a lone surrogate) stops here
    except (OSError, ValueError) as error:
        raise UserError(f"--save {shown(path, 200)}: cannot be written ({reason_of(error)})") from None


def _key(name: str) -> str:
    return name if name.isascii() and name.replace("_", "").isalnum() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if hasattr(value, "free_symbols"):
        raise UserError(f"a scenario with the symbol {shown(value)} cannot be saved; give it a value")
    # TOML's basic strings escape as JSON's do, but for surrogate pairs (so nothing above ASCII is escaped) and DEL.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def load_scenario(path: Path) -> Scenario:
    """Read a scenario. Errors: UserError for a file that is not one, naming the key."""
    import tomllib

    told = shown(path, 200)
    try:
        if not path.is_file():
            raise UserError(f"{told}: no such scenario file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise UserError(f"{told}: {size:,} bytes; a scenario has less than {MAX_BYTES:,}")
        text = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
        raise UserError(f"{told}: cannot be read ({reason})") from None
    try:
        data = tomllib.loads(text.replace("\r\n", "\n"))
    except (ValueError, RecursionError) as error:  # ValueError: of TOML, or a number of thousands of digits
        reason = "nested too deep" if isinstance(error, RecursionError) else shown(error, 120)
        raise UserError(f"{told}: not valid TOML ({reason})") from None
    for key in data:
        if key not in KEYS:
            raise unknown(f"key of scenario {told}", key, KEYS)
    if data.get("schema") != 1:
        raise UserError(f"{told}: schema must be 1, not {shown(data.get('schema'))}")
    texts = {}
    for key in ("task", "model", "on"):
        if not isinstance(data.get(key), str) or not data[key]:
            raise UserError(f"{told}: key {key!r} must be a string")
        texts[key] = data[key]
    if texts["task"] not in TASKS:
        raise unknown(f"task of scenario {told}", texts["task"], TASKS)
    settings = data.get("settings", {})
    if not isinstance(settings, dict):
        raise UserError(f"{told}: 'settings' must be a table")
    found = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    return Scenario(texts["task"], texts["model"], texts["on"], found)


@frozen
class Moved:
    """One leaf in two answers: ``path`` of its names, total seconds in each (None where it is absent)."""

    path: str
    before: float | None
    after: float | None

    @property
    def change(self) -> float:
        """Seconds gained or lost."""
        return (self.after or 0.0) - (self.before or 0.0)


def diff_scenarios(a: Scenario, b: Scenario, host: Host) -> list[Moved]:
    """Leaves whose total time differs between two scenarios, the largest change first."""
    before, after = (_leaf_times(s, host) for s in (a, b))
    rows = [Moved(path, before.get(path), after.get(path)) for path in dict.fromkeys((*before, *after))]
    moved = [row for row in rows if abs(row.change) > 1e-12 * max(abs(row.before or 0), abs(row.after or 0), 1e-300)]
    return sorted(moved, key=lambda row: -abs(row.change))


def _leaf_times(scenario: Scenario, host: Host) -> dict[str, float]:
    outcome = ask(scenario.task, (scenario.model,), (scenario.machine,), scenario.settings, host)
    if len(outcome.predictions) != 1:
        raise UserError("diff compares two scenarios with one value for every setting")
    totals: dict[str, float] = {}
    for name, tree in outcome.predictions[0].answer.trees.items():
        for path, leaf in _paths(tree, name):
            totals[path] = totals.get(path, 0.0) + leaf.seconds * leaf.times
    return totals


def _paths(tree: TreeNode, root: str) -> list[tuple[str, TreeNode]]:
    """Leaves named by what they are, not by where in the pipeline they stand."""
    found = []
    for leaf in leaves(tree):
        tags: Mapping[str, str] = leaf.tags
        words = [f"{root}:", tags.get("direction", ""), leaf.name]
        if "over" in tags:  # a transfer's leaf may be called after its realisation only (ring, tree, a tier)
            kind = tags["kind"].replace("_", "-")
            own = "" if leaf.name.startswith(kind) else f" ({leaf.name})"
            name = leaf.name if not own else kind
            words[2:] = [f"{name} at {tags['op']} over {tags['over']}{own}"]
        found.append((" ".join(word for word in words if word), leaf))
    return found
