"""Meta OPT: GPT-3's shape with ReLU; the smallest sibling has narrow embeddings and norms after each sum.

Floor: plugins. Model types: opt. Source: arXiv:2205.01068.
"""

from __future__ import annotations

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._fields import common, divided, layer_count, on
from ._plans import Heads, Layer, Mlp

POSITION_OFFSET = 2
"""The position table has two rows more than positions: its first two are never used (a habit kept from fairseq)."""


class Opt(Architecture):
    """OPT 125M to 175B."""

    name = "opt"
    model_types = ("opt",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(config, "layerdrop activation_dropout output_projection")
        hidden = config.integer("hidden_size")
        heads = config.integer("num_attention_heads", maximum=100_000)
        positions = config.integer("max_position_embeddings")
        width = config.integer("word_embed_proj_dim", hidden)
        bias = config.boolean("enable_bias", True)
        norm = "gain+bias" if config.boolean("layer_norm_elementwise_affine", True) else "free"
        before = config.boolean("do_layer_norm_before", True)
        layer = Layer(
            "layer",
            Heads(q_bias=bias, kv_bias=bias, out_bias=bias, rotary=False, dropout=on(config, "attention_dropout")),
            Mlp(gated=False, bias=bias, down_bias=bias),
            norm=norm,
            order="pre" if before else "outer",
            dropout=on(config, "dropout", default=0.1),  # OPT's own default, where a file is silent
        )
        removed = config.raw("_remove_final_layer_norm", False) is True
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": divided(config, hidden, heads, "hidden_size", "num_attention_heads"),
            "ffn": config.integer("ffn_dim"),
            "vocab": config.integer("vocab_size"),
        }
        return build(
            config,
            "opt",
            Decoder(
                layers=[layer] * layer_count(config),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", True),
                max_positions=positions,
                positions=positions + POSITION_OFFSET,
                embedding_width=width if width != hidden else 0,
                final_norm=norm if before and not removed else "",
            ),
        )


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Opt()]
