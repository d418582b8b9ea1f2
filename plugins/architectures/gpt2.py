"""GPT-2 and its multi-query child: LayerNorm, learned positions, plain MLP, biases everywhere, dropout.

Floor: plugins. Model types: gpt2, gpt_bigcode (StarCoder 1, SantaCoder).
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

KNOWN = (
    "n_ctx summary_type summary_use_proj summary_activation summary_proj_to_labels summary_first_dropout "
    "scale_attn_weights scale_attn_by_inverse_layer_idx reorder_and_upcast_attn "
    "attention_softmax_in_fp32 scale_attention_softmax_in_fp32 inference_runner validate_runner_input "
    "pre_allocate_kv_cache max_sequence_length max_batch_size num_key_value_heads gradient_checkpointing"
)


class Gpt2(Architecture):
    """GPT-2, and GPT-3 as its paper describes it."""

    name = "gpt2"
    model_types = ("gpt2",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(config, KNOWN)
        if config.raw("add_cross_attention", False):
            raise UserError(
                f"{config.origin}: add_cross_attention is for encoder-decoder models, which are not described"
            )
        hidden = config.integer("n_embd", also=("hidden_size",))
        heads = config.integer("n_head", also=("num_attention_heads",), maximum=100_000)
        positions = config.integer("n_positions", also=("max_position_embeddings",))
        layers = config.integer("n_layer", also=("num_hidden_layers",), maximum=10_000)
        residual = on(config, "resid_pdrop", default=0.1)  # GPT-2's own default, where a file is silent
        mixer = Heads(
            q_bias=True, kv_bias=True, out_bias=True, rotary=False, dropout=on(config, "attn_pdrop", default=0.1)
        )
        layer = Layer("layer", mixer, Mlp(gated=False, bias=True, down_bias=True), norm="gain+bias", dropout=residual)
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": self.kv_heads(config, heads),
            "head_dim": divided(config, hidden, heads, "n_embd", "n_head"),
            "ffn": config.integer("n_inner", 4 * hidden),
            "vocab": config.integer("vocab_size"),
        }
        return build(
            config,
            self.model_types[0],
            Decoder(
                layers=[layer] * layers,
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", True),
                max_positions=positions,
                positions=positions,
                embedding_dropout=on(config, "embd_pdrop", default=0.1),
                final_norm="gain+bias",
            ),
        )

    def kv_heads(self, config: Configuration, heads: int) -> int:
        """As many as query heads."""
        return heads


class GptBigCode(Gpt2):
    """StarCoder 1 and SantaCoder: GPT-2 with one key/value head."""

    name = "gpt-bigcode"
    model_types = ("gpt_bigcode",)

    def kv_heads(self, config: Configuration, heads: int) -> int:
        return 1 if config.boolean("multi_query", True) else heads


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Gpt2(), GptBigCode()]
