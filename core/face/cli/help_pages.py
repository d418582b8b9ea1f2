"""The page ``docs/cli.md``: what ``--help`` prints for each command. Remade by ``python -m`` this module.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click

from .main import BUILT_IN, cli
from .session import Session

WIDTH = 80
HELP: list[str] = cli.context_settings["help_option_names"]
HEAD = """# The command line

What `--help` prints for each command, with the plugins that slipstick brings. This page is made by
`python -m slipstick.core.face.cli.help_pages docs/cli.md`; a test holds it to the code.

The grammar is the same everywhere: a setting is a value, a list (`1,2,4`), a range (`1..8`: every whole number,
`1..64*2`: each twice the last), or `?` (the best one is asked for; quote it in a shell that expands it). Counts may be
written `15T`, `1.5M` or `8192`, times `30ms` or `2s`.

| exit status | meaning |
| --- | --- |
| 0 | answered |
| 1 | not feasible: what is missing, and what would fit, is told |
| 2 | a mistake in the question: one line says what, where, and what would be right |
| 70 | a bug; `slipstick --debug ...` shows more |
| 130, 141 | interrupted; the reader of the output has gone |

`--json` prints one JSON document and nothing else on standard output; see [json.md](json.md).
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for path, text in helps():
        parts.append(f"## `{path}`\n\n```text\n{text.rstrip()}\n```\n")
    return "\n".join(parts)


def helps() -> Iterator[tuple[str, str]]:
    """Command path → the text of its help, of slipstick's own commands."""
    root = root_context()
    yield "slipstick", cli.get_help(root)
    for name in BUILT_IN:
        command = cli.get_command(root, name)
        assert command is not None
        yield from _below(command, name, root)


def root_context() -> click.Context:
    """A context of the whole program that runs nothing. click keeps a command's help option as the first context that
    asks has it, so every context has to be made alike."""
    return click.Context(cli, info_name="slipstick", obj=Session(), terminal_width=WIDTH, help_option_names=HELP)


def _below(command: click.Command, name: str, parent: click.Context) -> Iterator[tuple[str, str]]:
    context = click.Context(command, info_name=name, parent=parent, terminal_width=WIDTH)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for inner in command.list_commands(context):
            found = command.get_command(context, inner)
            assert found is not None
            yield from _below(found, inner, context)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m slipstick.core.face.cli.help_pages docs/cli.md")
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
