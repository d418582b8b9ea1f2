"""The bundled configurations of well-known models: one JSON file each in the folder ``presets`` beside this file.

Floor: plugins. The files are listed, not read; which architecture a file belongs to is its ``model_type``'s business.
"""

from __future__ import annotations

from pathlib import Path

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration


class Presets(Architecture):
    """Answers for no ``model_type``; brings the names of the bundled configurations."""

    name = "presets"
    model_types = ()

    def graph(self, config: Configuration) -> ModelGraph:
        raise UserError(f"{config.origin}: the bundled presets describe no architecture of their own")

    def presets(self) -> dict[str, str]:
        folder = Path(__file__).parent / "presets"
        return {path.stem: str(path) for path in sorted(folder.glob("*.json"))}


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Presets()]
