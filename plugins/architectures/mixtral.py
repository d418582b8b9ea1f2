"""Experts in every layer, on otherwise plain Llama layers: Mixtral, Granite MoE, Phi-3.5-MoE, MiniMax-M2, DBRX.

Floor: plugins. Model types: mixtral, granitemoe, granitemoeshared, phimoe, minimax_m2, dbrx. Source: arXiv:2401.04088.
"""

from __future__ import annotations

from typing import Any, ClassVar

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._experts import MANY
from ._fields import common, divided, grouped, on
from ._llama_like import LlamaLike
from ._plans import Experts, Heads, Layer, Mlp


class Mixtral(LlamaLike):
    """Mixtral 8x7B and 8x22B."""

    name = "mixtral"
    model_types: ClassVar[tuple[str, ...]] = ("mixtral",)

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return ["sliding_attention" if "sliding_window" in config else "full_attention"] * layers

    def mixer(self, config: Configuration) -> Heads:
        return Heads(dropout=on(config, "attention_dropout"))

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        sizes["ffn@expert"] = config.integer("intermediate_size")
        sizes["experts"] = config.integer("num_local_experts", maximum=MANY)
        sizes["top_k"] = config.integer("num_experts_per_tok", maximum=MANY)
        return [self.experts(config, sizes)] * layers

    def experts(self, config: Configuration, sizes: dict[str, int]) -> Experts:
        """The routed part of a layer; adds further sizes to ``sizes``."""
        return Experts()


class GraniteMoe(Mixtral):
    """IBM Granite 3 MoE, with a shared block in ``granitemoeshared``."""

    name = "granite-moe"
    model_types = ("granitemoe", "granitemoeshared")
    known = "attention_multiplier embedding_multiplier logits_scaling residual_multiplier"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return ["full_attention"] * layers

    def mixer(self, config: Configuration) -> Heads:
        return LlamaLike.mixer(self, config)

    def experts(self, config: Configuration, sizes: dict[str, int]) -> Experts:
        shared = config.integer("shared_intermediate_size", 0, minimum=0)
        if not shared:
            return Experts()
        sizes["ffn@shared"] = shared
        return Experts(shared=Mlp(qualifier="shared"))

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), scaled_residual=config.number("residual_multiplier", 1.0) != 1.0)

    def around(self, config: Configuration) -> dict[str, Any]:
        return {
            "embedding_scaled": config.number("embedding_multiplier", 1.0) != 1.0,
            "logits_scaled": config.number("logits_scaling", 1.0) != 1.0,
        }


class PhiMoe(Mixtral):
    """Microsoft Phi-3.5-MoE: LayerNorm, one bias switch for the attention and one for the logits."""

    name = "phi-moe"
    model_types = ("phimoe",)
    norm = "gain+bias"
    known = "input_jitter_noise hidden_dropout"

    def mixer(self, config: Configuration) -> Heads:
        return LlamaLike.mixer(self, config)

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"head_bias": config.boolean("lm_head_bias", False)}


class MiniMaxM2(Mixtral):
    """MiniMax-M2: queries and keys normalised over all heads together."""

    name = "minimax-m2"
    model_types = ("minimax_m2",)
    head_dim = "required"
    known = (
        "rotary_dim scoring_func use_routing_bias use_qk_norm qk_norm_type attn_type_list mtp_transformer_layers "
        "num_mtp_modules use_mtp layernorm_full_attention_beta layernorm_linear_attention_beta layernorm_mlp_beta "
        "shared_intermediate_size shared_moe_mode max_model_len"
    )

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="joint")


class Dbrx(Architecture):
    """Databricks DBRX: sixteen experts, clamped queries, keys and values, norms with a gain and no offset."""

    name = "dbrx"
    model_types = ("dbrx",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(config, "num_key_value_heads emb_pdrop attn_config ffn_config")
        attention, ffn = config.section("attn_config"), config.section("ffn_config")
        for section in (attention, ffn):
            common(section, "dtype torch_dtype hidden_size tie_word_embeddings")
        common(ffn, "ffn_act_fn moe_jitter_eps moe_loss_weight moe_normalize_expert_weights uniform_expert_assignment")
        hidden = config.integer("d_model")
        heads = config.integer("n_heads", maximum=MANY)
        kv_heads = attention.integer("kv_n_heads", maximum=MANY)
        grouped(config, heads, kv_heads)
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": divided(config, hidden, heads, "d_model", "n_heads"),
            "ffn@expert": ffn.integer("ffn_hidden_size"),
            "experts": ffn.integer("moe_num_experts", maximum=MANY),
            "top_k": ffn.integer("moe_top_k", maximum=MANY),
            "vocab": config.integer("vocab_size"),
        }
        layer = Layer(
            "layer",
            Heads(clip=attention.number("clip_qkv", 0.0) > 0, dropout=on(attention, "attn_pdrop")),
            Experts(),
            dropout=on(config, "resid_pdrop"),
        )
        attention.finish()
        ffn.finish()
        return build(
            config,
            "dbrx",
            Decoder(
                layers=[layer] * config.integer("n_layers", maximum=10_000),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", False),
                max_positions=config.integer("max_seq_len"),
            ),
        )


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Mixtral(), GraniteMoe(), PhiMoe(), MiniMaxM2(), Dbrx()]
