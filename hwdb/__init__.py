"""The hardware data base: one TOML file a record, every value with its source (see ``schema`` for its rules).

Floor: hwdb, above core. ``FOLDER`` is where the files are; plugins/hardware offers them to the host.
"""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
"""The folder that holds ``accelerators``, ``clusters`` (node forms), ``hosts`` and ``links``."""
