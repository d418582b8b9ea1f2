"""The host: finds plugins, loads those that a question needs, and hands out what they bring, by kind and name.

Floor: host. May use model, records, algebra, errors. Nothing else in slipstick touches pluggy.

A plugin's fault stays the plugin's: what can't be imported, raises in a hook or breaks a contract becomes a row of
``slipstick plugins`` with its reason. Two plugins that bring one name are refused by naming both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import pluggy

from ..errors import PluginError, unknown
from . import hookspecs, manifest
from .discovery import LOADERS, from_file, from_row, from_user_folder
from .machines import RECORD_KINDS, Machines, is_path
from .own_records import SEE, fitted_records, presets_of, stack_file
from .plugin import (
    HOOK_NAMES,
    HOOKS,
    Plugin,
    PluginInfo,
    check_api,
    check_hooks,
    checked,
    clash,
    one_line,
)

if TYPE_CHECKING:
    import click

    from ..model.interfaces.architecture import Architecture
    from ..model.interfaces.evidence import Claim
    from ..model.interfaces.hardware import HardwareCatalog
    from ..model.interfaces.kernels import KernelFamily
    from ..model.interfaces.offload import OffloadPolicy
    from ..model.interfaces.scheduler import Scheduler
    from ..model.interfaces.stack import Stack
    from ..model.interfaces.strategy import Strategy
    from ..model.interfaces.trace_reader import TraceReader
    from ..model.interfaces.transform import Transform
    from ..records.fitted import FittedRecord
    from ..records.hardware import Machine
    from ..records.hardware_toml import Record

_HOOK_OF = {kind: hook for hook in HOOKS for kind, _ in hook.kinds}


class Host:
    """The plugins of one process and what they bring. Make one with ``Host.load()``."""

    def __init__(self, plugins: Iterable[Plugin], reserved_commands: Iterable[str] = ()) -> None:
        self._plugins = list(plugins)
        self._reserved = frozenset(reserved_commands)
        self._manager = pluggy.PluginManager(hookspecs.PROJECT)
        self._manager.add_hookspecs(hookspecs)
        self._brought: dict[tuple[str, str, str], list[tuple[str, Any]]] = {}
        self._machines: Machines | None = None
        taken: dict[str, Plugin] = {}
        for plugin in self._plugins:
            first = taken.setdefault(plugin.name, plugin)
            if first is not plugin and plugin.state == "active":
                plugin.fail(f"another plugin has this name: {first}; one of them has to go")

    @classmethod
    def load(
        cls,
        *,
        disable: Iterable[str] = (),
        files: Iterable[str | os.PathLike[str]] = (),
        reserved_commands: Iterable[str] = (),
        environ: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Host:
        """The host with every plugin there is: installed distributions', single ``files``, the user's own folder.

        ``disable``: name patterns to switch off beside those of ``SLIPSTICK_DISABLE_PLUGINS``;
        ``reserved_commands``: command names that no plugin may bring; ``environ``: in place of the process's;
        ``fresh``: look anew instead of trusting the manifest.
        Errors: ``UserError`` for a file of ``files`` that is not there. A plugin that fails is no error.
        """
        from ..version import __version__

        environ = os.environ if environ is None else environ
        patterns = manifest.disabled_by(environ, disable)
        rows = None if fresh else manifest.read(environ, __version__)
        taken = None
        if rows is None:
            taken = manifest.environment(__version__)
            rows = manifest.scan()
        plugins = [*map(from_row, rows), *map(from_file, files), *from_user_folder(environ)]
        for plugin in plugins:
            if manifest.is_disabled(plugin.name, patterns):
                plugin.state, plugin.reason = "disabled", "switched off by name"
        host = cls(plugins, reserved_commands)
        if taken is not None:
            manifest.write(environ, taken, host._rows())
        return host

    # --- what plugins bring, one typed method a kind --------------------------------------------------------------

    def catalogs(self) -> dict[str, HardwareCatalog]:
        """The hardware catalogs by name; for records and machines ask ``record`` and ``machine``."""
        return self._by_name("hardware catalog")

    def kernel_families(self) -> dict[str, KernelFamily]:
        """The kernel families by name."""
        return self._by_name("kernel family")

    def fitted_groups(self, accelerator: str, folder: str = "") -> tuple[tuple[FittedRecord, ...], ...]:
        """Calibrated kernels of an accelerator in groups, those that count most first.

        ``folder``: where the accelerator's own file lies; records beside it come before a person's own folder, and
        that before what plugins bring. Raises ``UserError`` for a file that is not sound.
        """
        owners = [pair for several in self._owners("fitted records").values() for pair in several]
        return fitted_records(accelerator, folder, owners)

    def fitted(self, accelerator: str, folder: str = "") -> tuple[FittedRecord, ...]:
        """All of ``fitted_groups``, one after the other."""
        return tuple(record for group in self.fitted_groups(accelerator, folder) for record in group)

    def architectures(self) -> dict[str, Architecture]:
        """The architectures by name."""
        return self._by_name("architecture")

    def architectures_with(self, wanted: str) -> dict[str, Architecture]:
        """The architectures that may answer for a ``model_type``, or that bring "presets"; others are not loaded.

        What a plugin brings is known from the manifest; one that is not in it is asked.
        """
        hook = "slipstick_architectures"
        found: dict[str, tuple[Plugin, Any]] = {}
        for plugin in self._plugins:
            known = plugin.row is not None and plugin.row.hooks is not None
            if known and plugin.row is not None and wanted not in plugin.row.brings:
                continue
            for _, item in self._bring(hook, plugin):
                if item.name in found:
                    raise clash("architecture", item.name, [found[item.name][0], plugin])
                found[item.name] = (plugin, item)
        return {name: item for name, (plugin, item) in found.items() if plugin.state == "active"}

    def strategies(self) -> dict[str, Strategy]:
        """The parallel strategies by name."""
        return self._by_name("strategy")

    def offload_policies(self) -> dict[str, OffloadPolicy]:
        """The offload policies by name."""
        return self._by_name("offload policy")

    def stacks(self) -> dict[str, Stack]:
        """The software stacks by name."""
        return self._by_name("stack")

    def stack(self, name: str) -> Stack:
        """The software stack that ``--stack`` names: by name, or the path of a .toml file of its coefficients."""
        found: Stack = stack_file(name) if is_path(name) else self.get("stack", name)
        return found

    def schedulers(self) -> dict[str, Scheduler]:
        """The serving schedulers by name."""
        return self._by_name("scheduler")

    def transforms(self) -> dict[str, Transform]:
        """The transforms of scenarios by name."""
        return self._by_name("transform")

    def trace_readers(self) -> dict[str, TraceReader]:
        """The readers of measured files by name."""
        return self._by_name("trace reader")

    def evidence(self) -> dict[str, Claim]:
        """The claims by name."""
        return self._by_name("claim")

    def commands(self) -> dict[str, click.Command]:
        """The commands that plugins bring, by name."""
        return self._by_name("command")

    def get(self, kind: str, name: str) -> Any:
        """The object ``name`` of ``kind``, such as "strategy" or "accelerator".

        Errors: ``UserError`` with the nearest names for an unknown one, ``PluginError`` for one that two bring.
        """
        if kind in RECORD_KINDS:
            return self.record(kind, name)
        if kind not in _HOOK_OF:
            raise unknown("kind of plugin object", kind, [*_HOOK_OF, *RECORD_KINDS])
        owners = self._owners(kind)
        if name not in owners:
            raise unknown(kind, name, owners, self.hint(kind))
        if len(owners[name]) > 1:
            raise clash(kind, name, [plugin for plugin, _ in owners[name]])
        return owners[name][0][1]

    def owners(self, kind: str) -> dict[str, str]:
        """Name of each object of a kind → the name of the plugin that brings it (the first, where several do)."""
        return {name: several[0][0].name for name, several in self._owners(kind).items()}

    # --- hardware and models, by the names people use -------------------------------------------------------------

    def machines(self) -> Machines:
        """All hardware records: their names, aliases and owners."""
        if self._machines is None:
            brought = self._collect("slipstick_hardware")
            catalogs = [(plugin, item) for plugin, kind, item in brought if kind == "hardware catalog"]
            self._machines = Machines(catalogs, self.hint)
        return self._machines

    def record(self, kind: str, name: str) -> Record:
        """The hardware record ``name`` of ``kind`` (accelerator, host, link, node). Raises ``UserError``."""
        return self.machines().record(kind, name)

    def machine(self, name: str, node: str | None = None) -> Machine:
        """What ``--on`` names: an accelerator by name, alias or path of a .toml file, in its node form or ``node``.

        Errors: ``UserError`` for an unknown name or a record that is not sound, ``PluginError`` for a clash.
        """
        return self.machines().machine(name, node or "")

    def presets(self) -> dict[str, str]:
        """Bundled model configurations: preset name → path of its ``config.json``. Raises ``PluginError``."""
        return presets_of(pair for several in self._owners("architecture").values() for pair in several)

    # --- what is loaded -------------------------------------------------------------------------------------------

    def plugins(self) -> list[PluginInfo]:
        """Every plugin with its hooks and state, after loading each and calling each of its hooks once."""
        for hook in HOOKS:
            self._collect(hook.name)
        for kind in RECORD_KINDS:
            self.machines().owners(kind)
        return [
            PluginInfo(p.name, p.version, p.hooks or (), p.state, p.reason, p.origin, p.where) for p in self._plugins
        ]

    def clashes(self) -> list[str]:
        """One line for each name that more than one plugin brings."""
        found = []
        for kind in _HOOK_OF:
            several = {name: owners for name, owners in self._owners(kind).items() if len(owners) > 1}
            found += [clash(kind, name, [plugin for plugin, _ in owners]) for name, owners in several.items()]
        for kind in RECORD_KINDS:
            found += self.machines().clashes(kind)
        return [str(error) for error in found]

    def broken_files(self) -> list[PluginInfo]:
        """The plugins given by file that are broken: somebody asked for them by name, so somebody should be told."""
        files = [plugin for plugin in self._plugins if plugin.origin == "file"]
        for plugin in files:
            for hook in HOOKS:  # a hook that fails later would leave its reason where nobody looks
                self._bring(hook.name, plugin)
        return [
            PluginInfo(plugin.name, "", (), plugin.state, plugin.reason, plugin.origin, plugin.where)
            for plugin in files
            if plugin.state == "broken"
        ]

    def hint(self, kind: str) -> str:
        """The end of an error line about an unknown ``kind``: where to see all, and whether a plugin is broken."""
        return SEE.get(kind, "see `slipstick plugins`") + self._broken_hint()

    def _broken_hint(self) -> str:
        names = [plugin.name for plugin in self._plugins if plugin.state == "broken"]
        return f" (broken plugins: {', '.join(names[:3])}; see `slipstick plugins`)" if names else ""

    # --- loading and calling, one plugin at a time ----------------------------------------------------------------

    def _load(self, plugin: Plugin) -> bool:
        """Import and register ``plugin`` once; whether it can be called."""
        if plugin.state != "active" or plugin.object is not None:
            return plugin.state == "active"
        try:
            self._register(plugin, LOADERS[plugin.origin](plugin.value))
        except KeyboardInterrupt:
            raise
        except PluginError as error:
            plugin.fail(str(error))
        except BaseException as error:  # SystemExit too: a plugin that leaves on import must not take us with it
            plugin.fail(one_line(error))
        return plugin.state == "active"

    def _register(self, plugin: Plugin, found: Any) -> None:
        check_api(found)
        if plugin.hooks is None:  # else the manifest knows this very file: its hooks were in order when it was written
            check_hooks(found)
        try:
            self._manager.register(found, name=plugin.name)
            self._manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._manager.has_plugin(plugin.name):
                self._manager.unregister(name=plugin.name)
            raise PluginError(" ".join(str(error).split())) from error
        plugin.object = found
        callers = self._manager.get_hookcallers(found) or []
        plugin.hooks = tuple(name for name in HOOK_NAMES if name in {caller.name for caller in callers})
        if plugin.origin == "file":
            plugin.version = str(getattr(found, "__version__", ""))

    def _collect(self, hook_name: str) -> list[tuple[Plugin, str, Any]]:
        """What the hook brings: (plugin, kind, object), from every plugin that has it."""
        return [(plugin, kind, item) for plugin in self._plugins for kind, item in self._bring(hook_name, plugin)]

    def _bring(self, hook_name: str, plugin: Plugin) -> list[tuple[str, Any]]:
        """What one plugin brings by a hook: (kind, object), called once and apart from the others."""
        found = self._brought.get((hook_name, plugin.name, plugin.value))
        if found is None:
            found = self._brought[hook_name, plugin.name, plugin.value] = self._call(hook_name, plugin)
        return found

    def _call(self, hook_name: str, plugin: Plugin) -> list[tuple[str, Any]]:
        if plugin.hooks is not None and hook_name not in plugin.hooks:
            return []
        if not self._load(plugin) or hook_name not in (plugin.hooks or ()):
            return []
        hook = next(hook for hook in HOOKS if hook.name == hook_name)
        others = [other for other in self._manager.get_plugins() if other is not plugin.object]
        try:
            returned = self._manager.subset_hook_caller(hook_name, others)()
            # pluggy leaves a result of None out, so an implementation without a return statement gives no part.
            items = [pair for part in returned or [None] for pair in checked(hook, part)]
            self._refuse_reserved(items)
        except KeyboardInterrupt:
            raise
        except PluginError as error:
            plugin.fail(str(error))
        except BaseException as error:
            plugin.fail(f"{hook_name} failed: {one_line(error)}")
        else:
            return items
        return []

    def _refuse_reserved(self, items: list[tuple[str, Any]]) -> None:
        for kind, item in items:
            if kind == "command" and item.name in self._reserved:
                raise PluginError(f"command {item.name!r} is slipstick's own; the plugin's needs another name")

    def _owners(self, kind: str) -> dict[str, list[tuple[Plugin, Any]]]:
        found: dict[str, list[tuple[Plugin, Any]]] = {}
        for plugin, known, item in self._collect(_HOOK_OF[kind].name):
            if known == kind and plugin.state == "active":
                found.setdefault(item.name, []).append((plugin, item))
        return found

    def _by_name(self, kind: str) -> dict[str, Any]:
        owners = self._owners(kind)
        for name, several in owners.items():
            if len(several) > 1:
                raise clash(kind, name, [plugin for plugin, _ in several])
        return {name: several[0][1] for name, several in owners.items()}

    def _rows(self) -> list[manifest.Row]:
        """What to remember of the installed plugins; loads each that is not switched off."""
        rows = []
        commands: dict[str, list[tuple[str, str]]] = {}
        for plugin in self._plugins:
            if plugin.origin == "distribution":
                self._load(plugin)
        for plugin, _, command in self._collect("slipstick_commands"):
            commands.setdefault(plugin.name, []).append((command.name, command.get_short_help_str(limit=80)))
        for plugin in self._plugins:
            if plugin.row is None:
                continue
            file = str(getattr(plugin.object, "__file__", None) or "")
            stamp = manifest.stamp_of(file) if file else None
            brings = self._brings(plugin)  # first: a plugin that fails at being asked is not remembered
            if plugin.state == "active" and plugin.hooks is not None and stamp is not None:
                listed = tuple(commands.get(plugin.name, ()))
                rows.append(
                    plugin.row._replace(hooks=plugin.hooks, commands=listed, file=file, stamp=stamp, brings=brings)
                )
            else:
                rows.append(plugin.row)
        return rows

    def _brings(self, plugin: Plugin) -> tuple[str, ...]:
        """What a plugin's architectures answer for."""
        found: dict[str, None] = {}
        for _, architecture in self._bring("slipstick_architectures", plugin):
            found.update(dict.fromkeys(map(str, architecture.model_types)))
            if architecture.presets():
                found["presets"] = None
        return tuple(found)


@cache
def default_host() -> Host:
    """The host that the Python API uses where it is given none: every installed plugin, loaded when needed."""
    return Host.load()
