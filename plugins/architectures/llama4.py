"""Meta Llama 4: chunked attention in three of four layers, the fourth without rotation, experts beside a shared one.

Floor: plugins. Model types: llama4_text, llama4 (its language model; the image tower is left out).
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._experts import MANY, dense_or_routed
from ._fields import common, layer_types
from ._llama_like import LlamaLike
from ._plans import Experts, Heads, Mlp
from .llama import rotations

TEXT_ONLY = "the language model only; the image tower of this configuration is left out"


class Llama4(LlamaLike):
    """Llama 4 Scout and Maverick."""

    name = "llama4"
    model_types = ("llama4_text", "llama4")
    head_dim = "required"
    known = "attn_scale attn_temperature_tuning floor_scale cache_implementation for_llm_compressor"

    def graph(self, config: Configuration) -> ModelGraph:
        if "text_config" not in config:
            return self.text_graph(config)
        common(config, "vision_config boi_token_index eoi_token_index image_token_index tie_word_embeddings")
        return self.text_graph(config.section("text_config"), config, scope=TEXT_ONLY)

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        chunk = config.integer("attention_chunk_size", 0, minimum=0)
        rule = ["chunked_attention" if turned and chunk else "full_attention" for turned in rotations(config, layers)]
        return layer_types(config, layers, rule)

    def mixer(self, config: Configuration) -> Heads:
        norm = "free" if config.boolean("use_qk_norm", True) else ""
        return evolve(super().mixer(config), qk_norm=norm, norm_first=False)

    def positions(self, config: Configuration, mixers: list[Heads]) -> list[Heads]:
        turned = rotations(config, len(mixers))
        return [
            evolve(m, rotary=turn, qk_norm=m.qk_norm if turn else "") for m, turn in zip(mixers, turned, strict=True)
        ]

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        width = config.integer("intermediate_size")
        sizes |= {
            "ffn@expert": width,
            "ffn@shared": width,
            "experts": config.integer("num_local_experts", maximum=MANY),
            "top_k": config.integer("num_experts_per_tok", maximum=MANY),
        }
        step = config.integer("interleave_moe_layer_step", 1)
        listed = config.integers("moe_layers", list(range(step - 1, layers, step)))
        if any(i >= layers for i in listed):
            raise UserError(f"{config.origin}: field 'moe_layers' names layer {max(listed)} of {layers}")
        routed = [i in set(listed) for i in range(layers)]
        dense = config.integer("intermediate_size_mlp", 0, minimum=0)
        if not all(routed) and not dense:
            raise UserError(f"{config.origin}: field 'intermediate_size_mlp' is missing")
        return dense_or_routed(config, routed, Mlp(), Experts(shared=Mlp(qualifier="shared")), dense, sizes)


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Llama4()]
