"""What a person's own files add to what plugins bring: calibrated kernels and stacks; and presets, by name.

Floor: host. May use model, records, algebra, errors.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import PluginError, SlipstickError
from .plugin import Plugin, clash, one_line

if TYPE_CHECKING:
    from ..model.interfaces.architecture import Architecture
    from ..model.interfaces.hardware import FittedRecords
    from ..model.interfaces.stack import Stack
    from ..records.fitted import FittedRecord


SEE = {
    "accelerator": "see `slipstick hardware list`, or give the path of a .toml file",
    "architecture": "see `slipstick models list`",
    "host": "see `slipstick hardware list`",
    "link": "see `slipstick hardware list`",
    "node": "see `slipstick hardware list`",
}
"""Kind of a name → where all names of the kind are seen."""


def fitted_records(
    accelerator: str, folder: str, owners: Iterable[tuple[Plugin, FittedRecords]]
) -> tuple[tuple[FittedRecord, ...], ...]:
    """The records of an accelerator in order of precedence: beside its own file, a person's folder, plugins."""
    from ..records.fitted_catalog import FittedCatalog

    beside = FittedCatalog(Path(folder) / "fitted", "beside").records(accelerator) if folder else ()
    own: list[FittedRecord] = []
    brought: list[FittedRecord] = []
    for plugin, records in owners:
        try:
            (own if plugin.origin == "user folder" else brought).extend(records.records(accelerator))
        except SlipstickError:
            raise
        except Exception as error:
            raise PluginError(f"plugin {plugin} failed to bring fitted records: {one_line(error)}") from error
    return beside, tuple(own), tuple(brought)


def stack_file(path: str) -> Stack:
    """The stack whose coefficients stand in the TOML file ``path``."""
    from ..model.recorded_stack import RecordedStack

    return RecordedStack(Path(path).stem, Path(os.path.expanduser(path)))


def presets_of(owners: Iterable[tuple[Plugin, Architecture]]) -> dict[str, str]:
    """Preset → path of its ``config.json``. Raises ``PluginError`` for one that two plugins bring."""
    owner: dict[str, Plugin] = {}
    found: dict[str, str] = {}
    for plugin, architecture in owners:
        for name, path in architecture.presets().items():
            if name in found and found[name] != path:
                raise clash("model preset", name, [owner[name], plugin])
            found[name], owner[name] = path, plugin
    return dict(sorted(found.items()))
