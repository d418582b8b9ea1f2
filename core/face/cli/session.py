"""What a command of one run shares: the global options and the host that they ask for.

Floor: face. May use every floor of the core below. Imports only click, so that ``--help`` starts fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import click

if TYPE_CHECKING:
    from ...host.host import Host

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Session:
    """The global options of one run of the command line, and its host, made when it is first asked for."""

    def __init__(self, plugin_files: tuple[str, ...] = (), debug: bool = False) -> None:
        self.plugin_files = plugin_files
        self.debug = debug
        self._host: Host | None = None

    @property
    def host(self) -> Host:
        """The host of this run: installed plugins, the files of ``--plugin``, the user's folder."""
        return self.load(fresh=False)

    def load(self, *, fresh: bool) -> Host:
        """The host; ``fresh``: made anew, without the manifest of an earlier run. Raises ``UserError``."""
        if self._host is None or fresh:
            from ...host.host import Host
            from .main import BUILT_IN

            self._host = Host.load(files=self.plugin_files, reserved_commands=BUILT_IN, fresh=fresh)
            for broken in self._host.broken_files():
                click.echo(f"warning: plugin {broken.where} is broken: {broken.reason}", err=True)
        return self._host


def session_of(context: click.Context) -> Session:
    """The session of the run that ``context`` belongs to."""
    root = context.find_root()
    if not isinstance(root.obj, Session):
        files = root.params.get("plugin_files") or ()
        root.obj = Session(tuple(files), bool(root.params.get("debug")))
    return root.obj


def pass_session(function: Callable[Concatenate[Session, _P], _R]) -> Callable[_P, _R]:
    """Give a command's function the session as its first argument."""

    @click.pass_context
    def inner(context: click.Context, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        return function(session_of(context), *args, **kwargs)

    inner.__doc__ = function.__doc__
    inner.__name__ = function.__name__
    return inner
