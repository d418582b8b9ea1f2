"""Models whose positions are a slope on the attention scores (ALiBi), without a trained value: BLOOM and MPT.

Floor: plugins. Model types: bloom, mpt. Source of ALiBi: arXiv:2108.12409.
"""

from __future__ import annotations

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._fields import common, divided, on
from ._plans import Heads, Layer, Mlp


class Bloom(Architecture):
    """BLOOM: LayerNorm on the embeddings too, MLP of four times the width, biases everywhere."""

    name = "bloom"
    model_types = ("bloom",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(
            config,
            "apply_residual_connection_post_layernorm slow_but_exact attention_softmax_in_fp32 bias_dropout_fusion",
            "masked_softmax_fusion offset_alibi skip_bias_add skip_bias_add_qkv unk_token_id",
        )
        hidden = config.integer("hidden_size", also=("n_embed",))
        heads = config.integer("n_head", also=("num_attention_heads",), maximum=100_000)
        layer = Layer(
            "layer",
            Heads(q_bias=True, kv_bias=True, out_bias=True, rotary=False, dropout=on(config, "attention_dropout")),
            Mlp(gated=False, bias=True, down_bias=True),
            norm="gain+bias",
            dropout=on(config, "hidden_dropout"),
        )
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": divided(config, hidden, heads, "hidden_size", "n_head"),
            "ffn": config.integer("n_inner", 4 * hidden),
            "vocab": config.integer("vocab_size"),
        }
        if sizes["ffn"] != 4 * hidden:
            raise UserError(f"{config.origin}: n_inner is {sizes['ffn']}; BLOOM's MLP is four times its width")
        return build(
            config,
            "bloom",
            Decoder(
                layers=[layer] * config.integer("n_layer", also=("num_hidden_layers",), maximum=10_000),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", True),
                max_positions=config.integer("seq_length", 0, minimum=0),
                embedding_norm="gain+bias",
                final_norm="gain+bias",
            ),
        )


class Mpt(Architecture):
    """MosaicML MPT: no bias anywhere, not even in its norms."""

    name = "mpt"
    model_types = ("mpt",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(
            config,
            "attn_config embedding_fraction learned_pos_emb logit_scale no_bias norm_type tokenizer_name verbose",
            "init_config",
        )
        inner = config.section("attn_config") if "attn_config" in config else Configuration({}, config.origin)
        common(
            inner,
            "attn_type attn_impl softmax_scale prefix_lm attn_uses_sequence_id alibi alibi_bias_max qk_ln qk_gn",
            "kv_n_heads tie_word_embeddings",
        )
        if inner.raw("attn_type") in ("multiquery_attention", "grouped_query_attention"):
            raise UserError(f"{inner.origin}: field 'attn_type' must be multihead_attention (what the model class has)")
        hidden = config.integer("d_model")
        heads = config.integer("n_heads", maximum=100_000)
        clip = inner.number("clip_qkv", 0.0) > 0
        layer = Layer(
            "layer",
            Heads(rotary=False, dropout=on(inner, "attn_pdrop"), clip=clip),
            Mlp(gated=False),
            dropout=on(config, "resid_pdrop"),
        )
        inner.ignore(("dtype", "torch_dtype"))
        inner.finish()
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": divided(config, hidden, heads, "d_model", "n_heads"),
            "ffn": config.integer("expansion_ratio", 4, maximum=1000) * hidden,
            "vocab": config.integer("vocab_size"),
        }
        config.ignore(("emb_pdrop",))
        return build(
            config,
            "mpt",
            Decoder(
                layers=[layer] * config.integer("n_layers", maximum=10_000),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", True),
                max_positions=config.integer("max_seq_len"),
            ),
        )


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Bloom(), Mpt()]
