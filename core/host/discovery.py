"""Where plugins come from: installed distributions, single files, and the user's own folder of records.

Floor: host. May use model, records, algebra, errors. Nothing is imported here before ``LOADERS`` is asked to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..errors import UserError
from .machines import UserHardware
from .manifest import Row
from .plugin import Plugin, import_file, import_value

LOADERS: dict[str, Callable[[str], Any]] = {
    "distribution": import_value,
    "file": lambda value: import_file(Path(value)),
    "user folder": UserHardware,
}
"""How the object with the hooks is had from the ``value`` of a plugin, by its origin."""


def from_row(row: Row) -> Plugin:
    """The plugin that an entry point declares."""
    where = f"{row.distribution} {row.version}".strip()
    return Plugin(row.name, row.value, "distribution", where, row.version, row.hooks, row=row)


def from_file(file: str | os.PathLike[str]) -> Plugin:
    """The plugin in the single Python file ``file``. Raises ``UserError`` if there is none."""
    path = Path(os.path.expanduser(file))
    if not path.is_file():
        told = "is a folder" if path.is_dir() else "is not there"
        raise UserError(f"plugin file {str(path)!r} {told}; --plugin takes a single Python file")
    return Plugin(path.stem, str(path), "file", str(path))


def from_user_folder(environ: Mapping[str, str]) -> list[Plugin]:
    """The plugin of the user's own hardware records: a folder of TOML files, if there is one."""
    folder = environ.get("SLIPSTICK_HARDWARE_DIR")
    if not folder:
        import platformdirs

        folder = os.path.join(platformdirs.user_config_dir("slipstick", appauthor=False), "hardware")
    if not os.path.isdir(folder):
        return []
    return [Plugin("user", folder, "user folder", folder)]
