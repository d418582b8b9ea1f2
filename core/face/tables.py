"""Blocks on a terminal, drawn by rich; anywhere else as plain text.

Floor: face. rich is imported only where standard output is a terminal: it costs more than a whole answer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from .text import WIDTH, Block, Grid, Note, Pairs, chunks, clean, plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_STYLES = {"": "", "title": "bold", "warning": "yellow", "command": ""}


def show(blocks: Iterable[Block]) -> None:
    """Print blocks on standard output, in the form that suits it."""
    if on_terminal():
        _draw(list(blocks))
    else:
        echo(plain(blocks, page_width()))


def on_terminal() -> bool:
    """Whether a person reads standard output directly."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def page_width() -> int:
    """Width of a page of plain text: ``COLUMNS`` where it is sensible, else 80."""
    columns = os.environ.get("COLUMNS", "")
    return min(int(columns), 1000) if columns.isascii() and columns.isdigit() and int(columns) >= 40 else WIDTH


def echo(text: str) -> None:
    """Print text as it is; characters that the encoding of standard output lacks become question marks."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding), nl=False)


def _draw(blocks: list[Block]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for number, block in enumerate(blocks):
        if isinstance(block, Note):
            if number and block.kind == "title":
                console.print()
            console.print(Text(clean(block.text), style=_STYLES[block.kind]), soft_wrap=block.kind == "command")
            continue
        if number and (block.title or isinstance(block, Grid)):
            console.print()
        if block.title:
            console.print(Text(clean(block.title), style="bold"))
        for table in _tables(block, console):
            console.print(table)


def _tables(block: Pairs | Grid, console: Console) -> Iterable[Table]:
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    if isinstance(block, Pairs):
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        for name, value in block.rows:
            table.add_row(Text(clean(name)), Text(clean(value)))
        yield Padding(table, (0, 0, 0, 2))  # type: ignore[misc]  # both are drawn the same way
        return
    for part in chunks(block, console.width) if block.split else [block]:
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
        for i, name in enumerate(part.columns):
            right = i in part.right
            table.add_column(Text(clean(name)), justify="right" if right else "left", no_wrap=right, overflow="fold")
        for row in part.rows:
            table.add_row(*(Text(clean(cell)) for cell in row))
        yield table
