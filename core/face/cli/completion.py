"""``slipstick completion SHELL``: the script that makes a shell complete slipstick's words.

Floor: face. May use every floor of the core below.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", short_help="Print the script that completes slipstick's words in a shell.")
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the script that completes slipstick's commands and options in SHELL.

    bash: add `eval "$(slipstick completion bash)"` to ~/.bashrc; zsh: the same with zsh in ~/.zshrc; fish: write the
    output to ~/.config/fish/completions/slipstick.fish.
    """
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "slipstick", "_SLIPSTICK_COMPLETE").source())
