"""DeepSeek-V2 and V3: latent attention, leading dense layers, then routed and shared experts; V3 predicts tokens ahead.

Floor: plugins. Model types: deepseek_v2, deepseek_v3, kimi_k2; dots1 (the same experts on grouped-query attention).
Sources: DeepSeek-V2 arXiv:2405.04434, DeepSeek-V3 arXiv:2412.19437.
"""

from __future__ import annotations

from typing import ClassVar

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._experts import MANY, deepseek_experts
from ._fields import common, layer_count, same_length
from ._llama_like import LlamaLike, named
from ._plans import Experts, Heads, Latent, Layer, Mlp


class DeepseekV2(Architecture):
    """DeepSeek-V2 and V2-Lite."""

    name = "deepseek-v2"
    model_types: ClassVar[tuple[str, ...]] = ("deepseek_v2",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(
            config,
            "n_group topk_group topk_method scoring_func ep_size attention_dropout mlp_bias",
            "num_key_value_heads head_dim qk_head_dim",  # both follow from the latent sizes
        )
        hidden, heads = config.integer("hidden_size"), config.integer("num_attention_heads", maximum=MANY)
        nope, rope = config.integer("qk_nope_head_dim"), config.integer("qk_rope_head_dim")
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "head_dim@nope": nope,
            "head_dim@rope": rope,
            "head_dim@qk": nope + rope,
            "head_dim@value": config.integer("v_head_dim"),
            "latent@kv": config.integer("kv_lora_rank"),
            "vocab": config.integer("vocab_size"),
        }
        q_latent = "q_lora_rank" in config  # V2-Lite has null here: queries are projected directly
        config.ignore(("q_lora_rank",))
        if q_latent:
            sizes["latent@q"] = config.integer("q_lora_rank")
        bias = config.boolean("attention_bias", False)
        mixer = Latent(q_latent=q_latent, down_bias=bias, out_bias=bias)
        layers = layer_count(config)
        routed = self.routed(config, layers)
        feeds = deepseek_experts(config, routed, sizes)
        return build(
            config,
            self.model_types[0],
            Decoder(
                layers=named([Layer("layer", mixer, feed) for feed in feeds]),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", False),
                max_positions=config.integer("max_position_embeddings"),
                mtp=config.integer("num_nextn_predict_layers", 0, minimum=0, maximum=100),
            ),
        )

    def routed(self, config: Configuration, layers: int) -> list[bool]:
        """Whether each layer has routed experts."""
        first = config.integer("first_k_dense_replace", 0, minimum=0)
        every = config.integer("moe_layer_freq", 1)
        types = config.raw("mlp_layer_types")
        if types is not None:
            named = config.texts("mlp_layer_types", among=("dense", "sparse"))
            same_length(config, named, layers, "mlp_layer_types")
            return [t == "sparse" for t in named]
        return [i >= first and i % every == 0 for i in range(layers)]


class DeepseekV3(DeepseekV2):
    """DeepSeek-V3, R1, and Kimi K2, which has the same layers with other sizes."""

    name = "deepseek-v3"
    model_types = ("deepseek_v3", "kimi_k2")


class Dots(LlamaLike):
    """rednote dots.llm1: grouped-query attention with normalised queries and keys, DeepSeek's kind of experts."""

    name = "dots1"
    model_types = ("dots1",)
    known = "n_group topk_group scoring_func topk_method max_window_layers moe_layer_freq use_sliding_window"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="shared")

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        first = config.integer("first_k_dense_replace", minimum=0)
        return deepseek_experts(config, [i >= first for i in range(layers)], sizes)


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [DeepseekV2(), DeepseekV3(), Dots()]
