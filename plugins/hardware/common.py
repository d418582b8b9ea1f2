"""What accelerators of all vendors share: host computers, and the links of nodes and networks.

Floor: plugins. Uses the host's hook marker, the TOML catalog and the data base's folder.
"""

from __future__ import annotations

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.records.fitted_catalog import FittedCatalog
from slipstick.core.records.hardware_toml import TomlCatalog
from slipstick.hwdb import FOLDER


@hookimpl
def slipstick_hardware() -> list[TomlCatalog | FittedCatalog]:
    """The hosts and links of the data base, and its calibrated kernels; accelerators lie in the vendors' folders."""
    return [TomlCatalog(FOLDER, origin="common"), FittedCatalog(FOLDER / "fitted", "common")]
