"""Paths as a person writes them on the command line.

Floor: face. Uses errors.
"""

from __future__ import annotations

import os
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from ...errors import UserError, shown


def path_of(text: str, where: str) -> Path:
    """The path that ``text`` names, its ``~`` put out. Errors: UserError naming ``where`` for what can be no path.

    >>> path_of("a/b.toml", "--save").name
    'b.toml'
    """
    if not text or "\0" in text:
        raise UserError(f"{where}: {shown(text)} is no path")
    # Unlike Path.expanduser, this leaves the home of an unknown user as it is, for the error of a file not found.
    return Path(os.path.expanduser(text))


def complete_file(ctx: click.Context, param: click.Parameter, start: str) -> list[CompletionItem]:
    """Leave the completion of a path to the shell. (``click.Path`` would look at the path itself, and trip on some.)"""
    return [CompletionItem(start, type="file")]
