"""The rules of the data base as a whole, and their check.

Floor: hwdb. Uses core only. What one file may say is checked when it is read (core/records/hardware_toml.py) and
described in docs/hardware.md. Over all files together:

* a file is ``accelerators/<vendor>/NAME.toml``, ``clusters/<vendor>/NAME.toml`` (node forms), ``hosts/NAME.toml`` or
  ``links/NAME.toml``; NAME is the record's name;
* names and aliases are unique in their kind, over all vendors, and no alias is another record's name;
* the node form an accelerator names, and the links and the host a node form names, exist;
* every source that a file declares stands behind one of its values.
"""

from __future__ import annotations

from pathlib import Path

from slipstick.core.errors import UserError, unknown
from slipstick.core.records.hardware import Accelerator
from slipstick.core.records.hardware_toml import KIND_FOLDERS, Record, TomlCatalog, assemble
from slipstick.core.records.toml_walk import read_toml

from . import FOLDER


def catalogs(folder: Path = FOLDER) -> list[TomlCatalog]:
    """One catalog a vendor, and one of what all share, as plugins/hardware offers them."""
    vendors = {
        path.name
        for kind in ("accelerator", "node")
        for path in (folder / KIND_FOLDERS[kind]).glob("*")
        if path.is_dir()
    }
    return [*(TomlCatalog(folder, vendor, vendor) for vendor in sorted(vendors)), TomlCatalog(folder, "common")]


class Base:
    """All records of a data base folder, found by kind and name in whichever catalog has them."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.catalogs = catalogs(folder)
        self._loaded: dict[tuple[str, str], Record] = {}

    def names(self, kind: str) -> list[str]:
        """Every name of ``kind``, once for each catalog that has it."""
        return sorted(name for catalog in self.catalogs for name in catalog.names(kind))

    def load(self, kind: str, name: str) -> Record:
        """The record; ``UserError`` for an unknown one and for one that does not load."""
        key = kind, name
        if key not in self._loaded:
            owner = next((catalog for catalog in self.catalogs if name in catalog.names(kind)), None)
            if owner is None:
                raise unknown(kind, name, self.names(kind))
            self._loaded[key] = owner.load(kind, name, self.load)
        return self._loaded[key]


def problems(folder: Path = FOLDER) -> list[str]:
    """What is wrong with the data base in ``folder``, one line each; an empty list where all is well."""
    base = Base(folder)
    found: list[str] = []
    seen: set[Path] = set()
    for kind in KIND_FOLDERS:
        names = base.names(kind)
        found.extend(f"{kind} {name}: two files have this name" for name in sorted(set(names)) if names.count(name) > 1)
        found.extend(_alias_problems(base, kind, set(names)))
        for catalog in base.catalogs:
            for name in catalog.names(kind):
                path = catalog.path(kind, name)
                seen.add(path)
                try:
                    record = catalog.load(kind, name, base.load)
                    if isinstance(record, Accelerator):
                        assemble(record, base.load)
                except UserError as error:
                    found.append(f"{kind} {name}: {error}")
                else:
                    found.extend(f"{kind} {name}: source {key} stands behind no value" for key in _idle_sources(path))
    for kind_folder in KIND_FOLDERS.values():
        for path in sorted((folder / kind_folder).rglob("*.toml")):
            if path not in seen:
                found.append(f"{path.relative_to(folder)}: no catalog sees this file; check its folder and its name")
    return found


def _alias_problems(base: Base, kind: str, names: set[str]) -> list[str]:
    owners: dict[str, str] = {}
    found: list[str] = []
    for catalog in base.catalogs:
        # Not catalog.aliases(): of two files with one alias, it tells the second only.
        pairs = [
            (alias, name) for name in catalog.names(kind) for alias in _listed(catalog.path(kind, name), "aliases")
        ]
        for alias, name in pairs:
            if alias in names:
                found.append(f"{kind} {name}: the alias {alias} is the name of a record")
            if alias in owners:
                found.append(f"{kind} {name}: the alias {alias} belongs to {owners[alias]} too")
            owners[alias] = name
    return found


def _listed(path: Path, key: str) -> list[str]:
    """The texts listed at ``key`` of a file; none where it cannot be read, which is told elsewhere."""
    try:
        listed = read_toml(path).get(key, [])
    except UserError:
        return []
    return [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []


def _idle_sources(path: Path) -> list[str]:
    """The keys of the sources of a file that nothing in it names."""
    content = read_toml(path)
    used: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, dict):
            if isinstance(value.get("source"), str):
                used.add(value["source"])
            for inner in value.values():
                walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(content)
    return sorted(set(content.get("sources", {})) - used)
