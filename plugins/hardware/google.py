"""Google accelerators and their node forms, from the hardware data base.

Floor: plugins. Uses the host's hook marker, the TOML catalog and the data base's folder.
"""

from __future__ import annotations

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.records.hardware_toml import TomlCatalog
from slipstick.hwdb import FOLDER


@hookimpl
def slipstick_hardware() -> list[TomlCatalog]:
    """The records in the folders ``google`` of the data base."""
    return [TomlCatalog(FOLDER, origin="google", part="google")]
