"""Machines by name: the records of all catalogs, their aliases, and files by path.

Floor: host. May use model, records, algebra, errors. Names are listed for every catalog; a record is read when it
is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PluginError, SlipstickError, UserError, shown, unknown
from .hookspecs import hookimpl
from .plugin import Plugin, clash, one_line

if TYPE_CHECKING:
    from ..model.interfaces.hardware import FittedRecords, HardwareCatalog
    from ..model.interfaces.stack import Stack
    from ..records.hardware import Machine, Node
    from ..records.hardware_toml import Record

RECORD_KINDS = ("accelerator", "host", "link", "node")
_CLASSES = {"accelerator": "Accelerator", "host": "Host", "link": "Link", "node": "Node"}


class Machines:
    """The hardware records of ``catalogs``, each with the plugin that brings it.

    ``hint`` gives the end of an error line for an unknown name of a kind.
    """

    def __init__(self, catalogs: Iterable[tuple[Plugin, HardwareCatalog]], hint: Callable[[str], str]) -> None:
        self._catalogs = list(catalogs)
        self._hint = hint
        self._names: dict[str, dict[str, list[tuple[Plugin, HardwareCatalog]]]] = {}
        self._records: dict[tuple[str, str], Record] = {}

    def owners(self, kind: str) -> dict[str, list[tuple[Plugin, HardwareCatalog]]]:
        """Name → who brings it, for the records of ``kind``; more than one owner is a clash."""
        if kind not in RECORD_KINDS:
            raise unknown("kind of hardware record", kind, RECORD_KINDS)
        if kind not in self._names:
            found: dict[str, list[tuple[Plugin, HardwareCatalog]]] = {}
            for plugin, catalog in self._catalogs:
                try:
                    for name in catalog.names(kind):
                        found.setdefault(name, []).append((plugin, catalog))
                except Exception as error:
                    plugin.fail(f"its catalog can't list its {kind} records: {one_line(error)}")
            self._names[kind] = dict(sorted(found.items()))
        return self._names[kind]

    def names(self, kind: str) -> tuple[str, ...]:
        """The names of all records of ``kind``, sorted. Raises ``PluginError`` for a name that two plugins bring."""
        for error in self.clashes(kind):
            raise error
        return tuple(self.owners(kind))

    def clashes(self, kind: str) -> list[PluginError]:
        """The names of ``kind`` that more than one plugin brings."""
        return [
            clash(kind, name, [plugin for plugin, _ in owners])
            for name, owners in self.owners(kind).items()
            if len(owners) > 1
        ]

    def aliases(self, kind: str) -> dict[str, str]:
        """Other name → name of the records of ``kind``. Reads every record: for lists and for names not found."""
        return {alias: owners[0][1] for alias, owners in self._aliases(kind).items()}

    def _aliases(self, kind: str) -> dict[str, list[tuple[Plugin, str]]]:
        found: dict[str, list[tuple[Plugin, str]]] = {}
        for plugin, catalog in self._catalogs:
            try:
                for alias, name in catalog.aliases(kind).items():
                    found.setdefault(alias, []).append((plugin, name))
            except Exception as error:
                plugin.fail(f"its catalog can't list the other names of its {kind} records: {one_line(error)}")
        return dict(sorted(found.items()))

    def owner(self, kind: str, name: str) -> Plugin:
        """The plugin that brings the record ``name`` of ``kind``."""
        return self._find(kind, name)[1]

    def record(self, kind: str, name: str) -> Record:
        """The record ``name`` of ``kind``, by its name or an alias. Raises ``UserError`` or ``PluginError``."""
        name, plugin, catalog = self._find(kind, name)
        key = (kind, name)
        if key not in self._records:
            try:
                record = catalog.load(kind, name, self.record)
            except SlipstickError:
                raise
            except Exception as error:
                raise PluginError(f"plugin {plugin} failed to bring {kind} {name!r}: {one_line(error)}") from error
            if type(record).__name__ != _CLASSES[kind]:
                raise PluginError(f"plugin {plugin}: {kind} {name!r} is a {type(record).__name__}")
            self._records[key] = record
        return self._records[key]

    def _find(self, kind: str, name: str) -> tuple[str, Plugin, HardwareCatalog]:
        known = self.owners(kind)
        if name not in known:
            aliases = self._aliases(kind)
            meant = aliases.get(name, [])
            if not meant:
                raise unknown(kind, name, [*known, *aliases], self._hint(kind))
            if len({record for _, record in meant}) > 1:
                raise clash(f"other name of {kind}", name, [plugin for plugin, _ in meant])
            name = meant[0][1]
        owners = known[name]
        if len(owners) > 1:
            raise clash(kind, name, [plugin for plugin, _ in owners])
        return name, *owners[0]

    def machine(self, name: str, node: str = "") -> Machine:
        """The accelerator ``name`` (a name, an alias or the path of a ``.toml`` file) in a node form.

        ``node`` names another node form than the accelerator's own, by name or path. Raises ``UserError``.
        """
        from ..records.hardware import Accelerator
        from ..records.hardware_toml import assemble, read_machine

        def resolve(kind: str, wanted: str) -> Record:
            # Only what the person named may be a path: a name inside a record never reaches the file system.
            return self._node_file(node) if kind == "node" and wanted == node else self.record(kind, wanted)

        find = resolve if is_path(node) else self.record
        if is_path(name):
            return read_machine(Path(os.path.expanduser(name)), find, node)
        if os.sep in name:
            # A name has no separator, so a path was meant.
            raise UserError(f"accelerator {shown(name)} is no name, and as a path it has to end in .toml")
        accelerator = self.record("accelerator", name)
        assert isinstance(accelerator, Accelerator)
        return assemble(accelerator, find, node)

    def _node_file(self, path: str) -> Node:
        from ..records.hardware import Node
        from ..records.hardware_toml import load_file

        record = load_file(Path(os.path.expanduser(path)), self.record)
        if not isinstance(record, Node):
            raise UserError(f"{path} describes a {type(record).__name__.lower()}; a node form is needed here")
        return record


def is_path(name: str) -> bool:
    """Whether ``name`` is the path of a record file: it ends in ``.toml``.

    >>> is_path("./mychip.toml"), is_path("h100-sxm")
    (True, False)
    """
    return name.casefold().endswith(".toml")


class UserHardware:
    """The plugin of a person's own folder of hardware records."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    @hookimpl
    def slipstick_hardware(self) -> Sequence[HardwareCatalog | FittedRecords]:
        """The records of the folder, and the calibrated kernels in its folder ``fitted``."""
        from ..records.fitted_catalog import FittedCatalog
        from ..records.hardware_toml import TomlCatalog

        folder = Path(self._folder)
        return [TomlCatalog(folder, origin="user"), FittedCatalog(folder / "fitted", "user")]

    @hookimpl
    def slipstick_stacks(self) -> Sequence[Stack]:
        """The software stacks that a person has calibrated, in the folder ``stacks``."""
        from ..model.recorded_stack import RecordedStack

        return [RecordedStack(path.stem, path) for path in sorted((Path(self._folder) / "stacks").glob("*.toml"))]
