"""The table of deprecations reaches whoever implements what is in it."""

from __future__ import annotations

import pluggy
import pytest

from slipstick.core.host.deprecations import DEPRECATIONS, Deprecation, argument_warnings, hook_warning
from slipstick.core.host.hookspecs import PROJECT, hookimpl, hookspec
from slipstick.core.host.plugin import HOOK_NAMES

TABLE = (
    Deprecation("slipstick_stacks", "config", "0.3", "0.5", "settings"),
    Deprecation("slipstick_schedulers", "", "0.4", "0.6", "slipstick_stacks"),
)


class Specification:
    """Two hooks as they would be specified with the table."""

    @hookspec(warn_on_impl_args=argument_warnings("slipstick_stacks", TABLE))
    def slipstick_stacks(self, config: object, settings: object) -> list[object]:
        raise NotImplementedError

    @hookspec(warn_on_impl=hook_warning("slipstick_schedulers", TABLE))
    def slipstick_schedulers(self) -> list[object]:
        raise NotImplementedError


class Old:
    """Uses the argument that is to go."""

    @hookimpl
    def slipstick_stacks(self, config: object) -> list[object]:
        return [config]


class Older:
    """Uses the hook that is to go."""

    @hookimpl
    def slipstick_schedulers(self) -> list[object]:
        return []


class New:
    """Uses what stays."""

    @hookimpl
    def slipstick_stacks(self, settings: object) -> list[object]:
        return [settings]


@pytest.fixture
def manager() -> pluggy.PluginManager:
    """A plugin manager with the two hooks."""
    made = pluggy.PluginManager(PROJECT)
    made.add_hookspecs(Specification)
    return made


def test_a_deprecated_argument_is_warned_about_and_works(manager: pluggy.PluginManager) -> None:
    with pytest.warns(DeprecationWarning, match="argument 'config' of slipstick_stacks .* goes in 0.5; use settings"):
        manager.register(Old())
    assert manager.hook.slipstick_stacks(config=1, settings=2) == [[1]]


def test_a_deprecated_hook_is_warned_about(manager: pluggy.PluginManager) -> None:
    with pytest.warns(DeprecationWarning, match="slipstick_schedulers is deprecated since slipstick 0.4"):
        manager.register(Older())


def test_what_stays_is_not_warned_about(manager: pluggy.PluginManager) -> None:
    manager.register(New())
    assert manager.hook.slipstick_stacks(config=1, settings=2) == [[2]]


def test_the_table_speaks_of_hooks_that_are_there() -> None:
    # Only add: a hook in the table is still specified.
    assert {row.hook for row in DEPRECATIONS} <= set(HOOK_NAMES)
