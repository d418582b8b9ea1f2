"""The command line's entrance: the group of commands, global options, and how errors become lines and statuses.

Floor: face. May use every floor of the core below. A command's module is imported when the command is called;
``slipstick --help`` imports click, this file and the manifest of installed plugins, nothing more.

Exit status: 0; 1 not feasible; 2 a person's mistake; 70 a bug; 130 interrupted; 141 the reader of our output left.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

import click

from ...errors import PluginError, SlipstickError, unknown
from ...host import manifest
from ...version import __version__
from .session import session_of

STATUS_BUG = 70
STATUS_INTERRUPTED = 130
STATUS_BROKEN_PIPE = 141

# Name → (module:attribute, the line that --help shows). The line stands here so that --help imports no command.
BUILT_IN: dict[str, tuple[str, str]] = {
    "train": ("slipstick.core.face.cli.train:command", "Step time, throughput and memory of training a model."),
    "serve": (
        "slipstick.core.face.cli.serve:command",
        "Latency, throughput, memory and KV capacity of serving a model.",
    ),
    "explain": (
        "slipstick.core.face.cli.explain:command",
        "Where an answer comes from: formula, value and share of each part.",
    ),
    "derive": (
        "slipstick.core.face.cli.derive:command",
        "The formula of one quantity, and its derivative by one symbol.",
    ),
    "diff": ("slipstick.core.face.cli.diff:command", "What differs between the answers to two saved scenarios."),
    "validate": (
        "slipstick.core.face.cli.validate:command",
        "Predicted beside measured: the evidence of plugins, or files of measured points.",
    ),
    "hardware": (
        "slipstick.core.face.cli.hardware:command",
        "List, show and validate accelerators, hosts, links and nodes.",
    ),
    "models": ("slipstick.core.face.cli.models:command", "List models and show what a configuration amounts to."),
    "plugins": (
        "slipstick.core.face.cli.plugins_cmd:command",
        "List the plugins that are installed, and whether they work.",
    ),
    "completion": (
        "slipstick.core.face.cli.completion:command",
        "Print the script that completes slipstick's words in a shell.",
    ),
}


class _ReaderLeft(Exception):
    """The reader of our output has gone. Not an OSError, so that click leaves it to ``main``."""


@contextlib.contextmanager
def _telling_reader_left() -> Iterator[None]:
    """click and rich leave with status 1 when the reader has gone, which means «not feasible» here: tell it apart."""
    try:
        yield
    except BrokenPipeError as error:
        raise _ReaderLeft from error
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):
            raise _ReaderLeft from error
        raise


class Commands(click.Group):
    """slipstick's own commands, imported when called, and those of plugins."""

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        """The context of a run; ``--help`` prints here."""
        with _telling_reader_left():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        with _telling_reader_left():
            return super().invoke(ctx)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names: slipstick's own in their order, then the plugins'."""
        return [*BUILT_IN, *(name for name, _ in plugin_commands(ctx))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command ``cmd_name``; None if there is none."""
        if cmd_name in BUILT_IN:
            module, _, attribute = BUILT_IN[cmd_name][0].partition(":")
            command: click.Command = getattr(import_module(module), attribute)
            return command
        found = session_of(ctx).host.commands()
        return found.get(cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that ``args`` begin with; an unknown one is told with the nearest names."""
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        command = self.get_command(ctx, name)
        if command is None:
            raise unknown("command", name, self.list_commands(ctx), "see `slipstick --help`")
        return name, command, args[1:]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands with their lines of help, of which none is imported."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in BUILT_IN.items()])
        brought = plugin_commands(ctx)
        if brought:
            with formatter.section("Commands of plugins"):
                formatter.write_dl(brought)


def plugin_commands(ctx: click.Context) -> list[tuple[str, str]]:
    """The plugins' commands as (name, line of help), from the manifest where it is fresh and says all."""
    session = session_of(ctx)
    rows = None if session.plugin_files else manifest.read(os.environ, __version__)
    if rows is not None:
        patterns = manifest.disabled_by(os.environ)
        active = [row for row in rows if not manifest.is_disabled(row.name, patterns)]
        found = {name: line for row in active for name, line in row.commands}
    else:
        try:
            host = session.host
            found = {name: command.get_short_help_str(limit=80) for name, command in host.commands().items()}
        except SlipstickError:
            # A clash or a missing file is told when a command is called; help is for finding out, and is never refused.
            found = {}
    return sorted((name, line) for name, line in found.items() if name not in BUILT_IN)


@click.group(
    cls=Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="slipstick", message="%(prog)s %(version)s")
@click.option(
    "--plugin",
    "plugin_files",
    metavar="FILE",
    multiple=True,
    is_eager=True,
    help="Load a single Python file as a plugin; may be given several times.",
)
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(context: click.Context, plugin_files: tuple[str, ...], debug: bool) -> None:
    """The slide rule of LLM systems: say what you know, leave open what you want, read off the rest.

    A value, a list or range (1,2,4 or 1..8), or `?`: a number, a table or the best setting. Every answer has its
    formula: see `slipstick explain`.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status; an error is one line on the standard error stream.

    >>> main(["--version"])
    slipstick 0.1.0
    0
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status: Any = cli.main(arguments, prog_name="slipstick", standalone_mode=False)
        sys.stdout.flush()
        return status if isinstance(status, int) else 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 0
    except (_ReaderLeft, BrokenPipeError):
        return _reader_left()
    except (KeyboardInterrupt, click.Abort):
        return _told("interrupted", STATUS_INTERRUPTED)
    except SlipstickError as error:
        _traceback(arguments)
        return _told(str(error), error.exit_status)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "slipstick"
        return _told(f"{_on_one_line(error)} (see `{path} --help`)", 2)
    except click.ClickException as error:
        return _told(_on_one_line(error), 2)
    except Exception as error:
        _traceback(arguments)
        return _bug(error)


def _traceback(arguments: Sequence[str]) -> None:
    """Print the traceback of the error in hand, if ``--debug`` stands before the command, where it belongs."""
    # The parser may be what failed, so the words themselves are asked.
    for word in arguments:
        if word == "--debug":
            import traceback

            traceback.print_exc()
        if word in BUILT_IN or word == "--debug":
            return


def _on_one_line(error: click.ClickException) -> str:
    return " ".join(error.format_message().split())


def _told(text: str, status: int) -> int:
    with contextlib.suppress(BrokenPipeError):
        click.echo(f"error: {text}", err=True)
    return status


def _bug(error: Exception) -> int:
    import traceback

    from ...host.plugin import is_plugin_file, one_line

    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    if frames and is_plugin_file(frames[-1].f_globals.get("__name__", "")):
        return _told(f"a plugin failed: {one_line(error)}; `slipstick --debug ...` shows more", PluginError.exit_status)
    return _told(
        f"a bug in slipstick: {one_line(error)}; `slipstick --debug ...` shows more, please report it", STATUS_BUG
    )


def _reader_left() -> int:
    """The reader of our output (such as ``head``) has gone: be silent, also when Python flushes at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return STATUS_BROKEN_PIPE
