"""TII Falcon: multi-query attention beside the MLP (7B), grouped queries with two norms (40B, 180B), GPT's order (RW).

Floor: plugins. Model types: falcon. Source: arXiv:2311.16867.
"""

from __future__ import annotations

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._fields import common, divided, grouped, layer_count, on
from ._plans import Heads, Layer, Mlp


class Falcon(Architecture):
    """Falcon 7B, 40B, 180B, RW and 2."""

    name = "falcon"
    model_types = ("falcon",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(config, "activation apply_residual_connection_post_layernorm")
        hidden = config.integer("hidden_size")
        heads = config.integer("num_attention_heads", maximum=100_000)
        new = config.boolean("new_decoder_architecture", False)
        one = config.boolean("multi_query", True)
        listed = config.integer("num_kv_heads", 0, minimum=0, maximum=100_000)
        if new and not listed:
            raise UserError(f"{config.origin}: field 'num_kv_heads' is missing (new_decoder_architecture needs it)")
        # The older form has one key/value head or as many as query heads, whatever num_kv_heads says.
        kv_heads = listed if new else 1 if one else heads
        grouped(config, heads, kv_heads)
        parallel = config.boolean("parallel_attn", True)
        norms = config.integer("num_ln_in_parallel_attn", 2 if new else 1, maximum=2)
        bias = config.boolean("bias", False)
        layer = Layer(
            "layer",
            Heads(
                q_bias=bias,
                kv_bias=bias,
                out_bias=bias,
                rotary=not config.boolean("alibi", False),
                dropout=on(config, "attention_dropout"),
            ),
            Mlp(gated=False, bias=bias, down_bias=bias),
            norm="gain+bias",
            order="parallel" if parallel else "pre",
            two_norms=parallel and norms == 2,
            dropout=on(config, "hidden_dropout"),
        )
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": kv_heads,
            "head_dim": divided(config, hidden, heads, "hidden_size", "num_attention_heads"),
            "ffn": config.integer("ffn_hidden_size", 4 * hidden),
            "vocab": config.integer("vocab_size"),
        }
        return build(
            config,
            "falcon",
            Decoder(
                layers=[layer] * layer_count(config),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", True),
                # Files of 2023 leave it out and mean the 2,048 tokens they were trained on.
                max_positions=config.integer("max_position_embeddings", 2048),
                final_norm="gain+bias",
            ),
        )


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Falcon()]
