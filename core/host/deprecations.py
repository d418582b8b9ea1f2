"""Everything that a plugin may still do today and not for ever: the one file to read before an upgrade.

Floor: host. Uses nothing of the project.

The rule is **only add**, so this table is empty until a mistake has to be mended. Then, in this order:

1. The replacement is added, and ``API`` in ``hookspecs.py`` goes up by one.
2. A row is added here. From then on an implementation that names the hook or the argument is warned, with a
   ``DeprecationWarning`` that says what to use instead; it keeps working.
3. After two minor releases the row's argument is removed in a release that says so in its changelog, never sooner
   than ``removed_in``; the row stays, so that ``slipstick plugins`` can still explain why such a plugin is broken.
"""

from __future__ import annotations

from typing import NamedTuple


class Deprecation(NamedTuple):
    """One thing to be given up: ``hook``, its ``argument`` ("" for the whole hook), and what to use ``instead``."""

    hook: str
    argument: str
    since: str
    removed_in: str
    instead: str


DEPRECATIONS: tuple[Deprecation, ...] = ()


def _message(row: Deprecation) -> str:
    what = f"argument {row.argument!r} of {row.hook}" if row.argument else row.hook
    return f"{what} is deprecated since slipstick {row.since} and goes in {row.removed_in}; use {row.instead}"


def hook_warning(hook: str, table: tuple[Deprecation, ...] = DEPRECATIONS) -> DeprecationWarning | None:
    """The warning for whoever implements ``hook`` at all, if it is in the table."""
    rows = [row for row in table if row.hook == hook and not row.argument]
    return DeprecationWarning(_message(rows[0])) if rows else None


def argument_warnings(hook: str, table: tuple[Deprecation, ...] = DEPRECATIONS) -> dict[str, Warning]:
    """The warnings for whoever names a deprecated argument of ``hook``, by argument.

    >>> row = Deprecation("slipstick_stacks", "config", "0.3", "0.5", "settings")
    >>> print(argument_warnings("slipstick_stacks", (row,))["config"])
    argument 'config' of slipstick_stacks is deprecated since slipstick 0.3 and goes in 0.5; use settings
    """
    return {row.argument: DeprecationWarning(_message(row)) for row in table if row.hook == hook and row.argument}
