"""Cohere Command R: attention and MLP side by side on one norm, tied and scaled logits; later ones slide a window.

Floor: plugins. Model types: cohere, cohere2.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._fields import layer_types
from ._llama_like import LlamaLike, every
from ._plans import Heads


class Cohere(LlamaLike):
    """Command R and R+: LayerNorm with a gain and no offset; R+ normalises queries and keys, head by head."""

    name = "cohere"
    model_types = ("cohere",)
    order = "parallel"
    tied = True
    known = "use_embedding_sharing use_parallel_block use_parallel_embedding use_gated_activation layer_switch"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="each" if config.boolean("use_qk_norm", False) else "")

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"logits_scaled": config.number("logit_scale", 0.0625) != 1.0}


class Cohere2(Cohere):
    """Command R7B and A: sliding layers rotate, each fourth layer sees everything and rotates nothing."""

    name = "cohere2"
    model_types = ("cohere2",)
    known = Cohere.known + " position_embedding_type rotary_pct order_of_interleaved_layers cache_implementation"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return layer_types(config, layers, every(layers, config.integer("sliding_window_pattern", 4)))

    def positions(self, config: Configuration, mixers: list[Heads]) -> list[Heads]:
        return [evolve(mixer, rotary=bool(mixer.window)) for mixer in mixers]


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Cohere(), Cohere2()]
