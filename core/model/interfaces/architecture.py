"""What an architecture plugin is: a model configuration becomes a graph.

A minimal plugin::

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.architecture import Architecture

    class TinyArchitecture(Architecture):
        name = "tiny"
        model_types = ("tiny",)

        def graph(self, config):
            hidden = config.integer("hidden_size", minimum=1)
            ...
            return ModelGraph(...)

    @hookimpl
    def slipstick_architectures():
        return [TinyArchitecture()]

Floor: model; uses graphs and configurations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from ...records.configuration import Configuration
from ..graph import ModelGraph


class Architecture(ABC):
    """A family of models, recognised by the ``model_type`` of a Hugging Face ``config.json``."""

    name: ClassVar[str]
    model_types: ClassVar[tuple[str, ...]]

    @abstractmethod
    def graph(self, config: Configuration) -> ModelGraph:
        """The graph of the model that ``config`` describes.

        Errors: UserError naming the field that is missing, unknown or out of range (``config`` raises it).
        """

    def presets(self) -> dict[str, str]:
        """Bundled configurations this plugin brings: preset name → path of its ``config.json``."""
        return {}
