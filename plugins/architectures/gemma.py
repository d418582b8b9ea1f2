"""Google Gemma 1 to 3: wide heads, tied and scaled embeddings; from 2 on norms around each part and sliding windows.

Floor: plugins. Model types: gemma, gemma2, gemma3_text, gemma3 (its language model; the image tower is left out).
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._fields import common, grouped, layer_types
from ._llama_like import LlamaLike, every
from ._plans import Heads

VISION = "vision_config image_token_index boi_token_index eoi_token_index mm_tokens_per_image image_token_id"
TEXT_ONLY = "the language model only; the image tower of this configuration is left out"


class Gemma(LlamaLike):
    """Gemma 1."""

    name = "gemma"
    model_types: ClassVar[tuple[str, ...]] = ("gemma",)
    tied = True
    head_dim = "required"
    known = "use_bidirectional_attention"

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"embedding_scaled": True}


class Gemma2(Gemma):
    """Gemma 2: every other layer slides its window; attention scores and logits are soft-capped."""

    name = "gemma2"
    model_types: ClassVar[tuple[str, ...]] = ("gemma2",)
    order = "sandwich"
    known = "use_bidirectional_attention query_pre_attn_scalar attn_logit_softcapping"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return layer_types(config, layers, every(layers, 2))

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"embedding_scaled": True, "logits_capped": config.number("final_logit_softcapping", 0.0) > 0}


class Gemma3(Gemma2):
    """Gemma 3: five sliding layers to a full one; queries and keys normalised instead of capped scores."""

    name = "gemma3"
    model_types = ("gemma3_text", "gemma3")
    known = Gemma2.known + " sliding_window_pattern"

    def graph(self, config: Configuration) -> ModelGraph:
        if "text_config" not in config:
            return self.text_graph(config)
        common(config, VISION)
        return self.text_graph(config.section("text_config"), config, scope=TEXT_ONLY)

    def sizes(self, config: Configuration) -> dict[str, int]:
        # Published multimodal files name in text_config only what differs from the 4B model's language model, which is
        # what the library's class assumes; the width and the number of layers are always there.
        sizes = {
            "hidden": config.integer("hidden_size"),
            "heads": config.integer("num_attention_heads", 8, maximum=100_000),
            "kv_heads": config.integer("num_key_value_heads", 4, maximum=100_000),
            "head_dim": config.integer("head_dim", 256),
            "vocab": config.integer("vocab_size", 262_208),
        }
        grouped(config, sizes["heads"], sizes["kv_heads"])
        return sizes

    def max_positions(self, config: Configuration) -> int:
        return config.integer("max_position_embeddings", 131_072)

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return layer_types(config, layers, every(layers, config.integer("sliding_window_pattern", 6)))

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="shared")


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Gemma(), Gemma2(), Gemma3()]
