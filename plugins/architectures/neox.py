"""EleutherAI's families and their relatives: rotary positions in GPT's layers, attention and MLP side by side.

Floor: plugins. Model types: gpt_neox, gptj, codegen, gpt_neo, stablelm, persimmon, nemotron.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._fields import common, divided, layer_count, on, same_length
from ._llama_like import LlamaLike, named
from ._plans import Heads, Layer, Mlp

PLAIN = Mlp(gated=False, bias=True, down_bias=True)


class GptNeoX(LlamaLike):
    """GPT-NeoX-20B and Pythia: two norms read the same stream, one for each part."""

    name = "gpt-neox"
    model_types = ("gpt_neox",)
    kv = "heads"  # multi-head attention only: the files have no such field
    norm = "gain+bias"

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("attention_bias", True)
        return Heads(q_bias=bias, kv_bias=bias, out_bias=bias, dropout=on(config, "attention_dropout"))

    def mlp(self, config: Configuration) -> Mlp:
        return PLAIN

    def layer(self, config: Configuration) -> Layer:
        parallel = config.boolean("use_parallel_residual", True)
        return evolve(
            super().layer(config),
            order="parallel" if parallel else "pre",
            two_norms=parallel,
            dropout=on(config, "hidden_dropout"),
        )

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"embedding_dropout": on(config, "hidden_dropout")}


class GptJ(Architecture):
    """GPT-J-6B and CodeGen: one norm for both parts, no bias in the attention, a bias on the logits."""

    name = "gptj"
    model_types = ("gptj", "codegen")

    def graph(self, config: Configuration) -> ModelGraph:
        common(
            config,
            "n_ctx rotary rotary_dim scale_attn_weights summary_activation summary_first_dropout",
            "summary_type summary_use_proj summary_proj_to_labels gradient_checkpointing",
        )
        hidden = config.integer("n_embd", also=("hidden_size",))
        heads = config.integer("n_head", also=("num_attention_heads",), maximum=100_000)
        layer = Layer(
            "layer",
            Heads(dropout=on(config, "attn_pdrop")),
            PLAIN,
            norm="gain+bias",
            order="parallel",
            dropout=on(config, "resid_pdrop"),
        )
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": divided(config, hidden, heads, "n_embd", "n_head"),
            "ffn": config.integer("n_inner", 4 * hidden),
            "vocab": config.integer("vocab_size"),
        }
        return build(
            config,
            config.text("model_type", "gptj"),
            Decoder(
                layers=[layer] * config.integer("n_layer", also=("num_hidden_layers",), maximum=10_000),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", False),
                max_positions=config.integer("n_positions"),
                embedding_dropout=on(config, "embd_pdrop"),
                final_norm="gain+bias",
                head_bias=True,
            ),
        )


class GptNeo(Architecture):
    """GPT-Neo: GPT-2's layers, every other one looking back 256 tokens only."""

    name = "gpt-neo"
    model_types = ("gpt_neo",)

    def graph(self, config: Configuration) -> ModelGraph:
        common(
            config,
            "summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj",
            "gradient_checkpointing",
        )
        hidden = config.integer("hidden_size")
        heads = config.integer("num_heads", maximum=100_000)
        layers = layer_count(config, "num_layers")
        positions = config.integer("max_position_embeddings")
        kinds = self.kinds(config, layers)
        mixer = Heads(out_bias=True, rotary=False, dropout=on(config, "attention_dropout"))
        layer = Layer("layer", mixer, PLAIN, norm="gain+bias", dropout=on(config, "resid_dropout"))
        local = evolve(layer, mixer=evolve(mixer, window="window"))
        sizes = {
            "hidden": hidden,
            "heads": heads,
            "kv_heads": heads,
            "head_dim": divided(config, hidden, heads, "hidden_size", "num_heads"),
            "ffn": config.integer("intermediate_size", 4 * hidden),
            "vocab": config.integer("vocab_size"),
            "window": config.integer("window_size", 256),
        }
        if "local" not in kinds:
            del sizes["window"]
        return build(
            config,
            "gpt_neo",
            Decoder(
                layers=named([local if kind == "local" else layer for kind in kinds]),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", True),
                max_positions=positions,
                positions=positions,
                embedding_dropout=on(config, "embed_dropout"),
                final_norm="gain+bias",
            ),
        )

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        """``attention_layers``, or ``attention_types`` unrolled: ``[[["global", "local"], 12]]``."""
        listed = config.texts("attention_layers", [], among=("global", "local"))
        groups = config.raw("attention_types")
        if not listed:
            if not isinstance(groups, list):
                raise UserError(f"{config.origin}: field 'attention_types' is missing")
            for group in groups:
                match group:
                    case [list() as cycle, int() as times] if 0 < times <= layers:
                        listed += [kind for kind in cycle * times if kind in ("global", "local")]
                    case _:
                        raise UserError(
                            f'{config.origin}: field \'attention_types\' must look like [[["global", "local"], 12]]'
                        )
        same_length(config, listed, layers, "attention_types")
        return listed


class StableLm(LlamaLike):
    """Stability's StableLM 2 and 3B: Llama's layers with LayerNorm and partial rotation."""

    name = "stablelm"
    model_types = ("stablelm",)
    norm = "gain+bias"
    known = "rotary_scaling_factor"

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("use_qkv_bias", False)
        norm = "each" if config.boolean("qk_layernorm", False) else ""
        return Heads(q_bias=bias, kv_bias=bias, qk_norm=norm, dropout=on(config, "attention_dropout"))

    def layer(self, config: Configuration) -> Layer:
        parallel = config.boolean("use_parallel_residual", False)
        order = "parallel" if parallel else "pre"
        return evolve(super().layer(config), order=order, dropout=on(config, "hidden_dropout"))


class Persimmon(LlamaLike):
    """Adept Persimmon-8B: GPT's layers, rotation, squared ReLU, queries and keys normalised with gain and offset."""

    name = "persimmon"
    model_types = ("persimmon",)
    kv = "heads"  # multi-head attention only: the files have no such field
    norm = "gain+bias"

    def mixer(self, config: Configuration) -> Heads:
        norm = "shared" if config.boolean("qk_layernorm", True) else ""
        dropout = on(config, "attention_dropout")
        return Heads(q_bias=True, kv_bias=True, out_bias=True, qk_norm=norm, qk_kind="gain+bias", dropout=dropout)

    def mlp(self, config: Configuration) -> Mlp:
        return PLAIN

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), dropout=on(config, "hidden_dropout"))


class Nemotron(LlamaLike):
    """NVIDIA Nemotron-3 8B, Nemotron-4 and Minitron: LayerNorm, plain MLP of squared ReLU."""

    name = "nemotron"
    model_types = ("nemotron",)
    known = "kv_channels"
    norm = "gain+bias"

    def mlp(self, config: Configuration) -> Mlp:
        bias = config.boolean("mlp_bias", False)
        return Mlp(gated=False, bias=bias, down_bias=bias)


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [GptNeoX(), GptJ(), GptNeo(), StableLm(), Persimmon(), Nemotron()]
