"""Ai2 OLMo: norms without gains (1), norms after each part (2, 3), sliding windows (3), experts (OLMoE).

Floor: plugins. Model types: olmo, olmo2, olmo3, olmoe.
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._experts import MANY
from ._fields import layer_types
from ._llama_like import LlamaLike, every
from ._plans import Experts, Heads, Mlp


class Olmo(LlamaLike):
    """OLMo 1: LayerNorm without trained values."""

    name = "olmo"
    model_types = ("olmo",)
    # OLMo-1B and 7B files have null here: multi-head attention.
    kv = "heads"
    norm = "free"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), clip=config.number("clip_qkv", 0.0) > 0)


class Olmo2(LlamaLike):
    """OLMo 2: RMSNorm after each part; queries and keys normalised over all heads together."""

    name = "olmo2"
    model_types = ("olmo2",)
    kv = "heads"
    order = "post"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="joint")


class Olmo3(Olmo2):
    """OLMo 3: three sliding layers to a full one."""

    name = "olmo3"
    model_types = ("olmo3",)

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return layer_types(config, layers, every(layers, 4))


class Olmoe(LlamaLike):
    """OLMoE: every layer has routed experts; queries and keys normalised over all heads together."""

    name = "olmoe"
    model_types = ("olmoe",)
    kv = "heads"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="joint", clip=config.number("clip_qkv", 0.0) > 0)

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        sizes["ffn@expert"] = config.integer("intermediate_size")
        sizes["experts"] = config.integer("num_experts", maximum=MANY)
        sizes["top_k"] = config.integer("num_experts_per_tok", maximum=MANY)
        return [Experts()] * layers


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Olmo(), Olmo2(), Olmo3(), Olmoe()]
