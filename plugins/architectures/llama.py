"""Llama and the families that differ from it in a switch or two: RMSNorm before each part, gated MLP, rotary positions.

Floor: plugins. Model types: llama, mistral, ministral, ministral3, granite, smollm3, seed_oss, arcee, helium,
hunyuan_v1_dense, internlm2, internlm3.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._fields import on, same_length
from ._llama_like import LlamaLike
from ._plans import Heads, Layer, Mlp


class Llama(LlamaLike):
    """Llama 1 to 3, and everything published under its ``model_type``."""

    name = "llama"
    model_types = ("llama",)
    # Llama 1 and 2 files leave out num_key_value_heads and mean one key/value head per query head.
    kv = "heads"

    def mlp(self, config: Configuration) -> Mlp:
        bias = config.boolean("mlp_bias", False)
        return Mlp(bias=bias, down_bias=bias)


class Mistral(LlamaLike):
    """Mistral: as Llama, with a sliding window in every layer where the file gives its width."""

    name = "mistral"
    model_types = ("mistral", "ministral", "ministral3")

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        kind = "sliding_attention" if "sliding_window" in config else "full_attention"
        listed = super().kinds(config, layers) if "layer_types" in config else [kind] * layers
        config.ignore(("layer_types",))
        return listed

    def mixer(self, config: Configuration) -> Heads:
        return Heads(dropout=on(config, "attention_dropout"))


class Granite(Llama):
    """IBM Granite 3: Llama with scaled embeddings, residuals and logits."""

    name = "granite"
    model_types = ("granite",)
    kv = "required"
    known = "attention_multiplier embedding_multiplier logits_scaling residual_multiplier"

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), scaled_residual=config.number("residual_multiplier", 1.0) != 1.0)

    def around(self, config: Configuration) -> dict[str, Any]:
        return {
            "embedding_scaled": config.number("embedding_multiplier", 1.0) != 1.0,
            "logits_scaled": config.number("logits_scaling", 1.0) != 1.0,
        }


class SmolLM3(Llama):
    """SmolLM3: Llama with layers that rotate nothing."""

    name = "smollm3"
    model_types = ("smollm3",)
    kv = "required"
    tied = True
    known = "use_sliding_window max_window_layers layer_types"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        if "layer_types" in config:
            return super().kinds(config, layers)
        return [
            "sliding_attention" if config.boolean("use_sliding_window", False) and rotated else "full_attention"
            for rotated in rotations(config, layers)
        ]

    def positions(self, config: Configuration, mixers: list[Heads]) -> list[Heads]:
        rotated = rotations(config, len(mixers))
        return [evolve(mixer, rotary=turn) for mixer, turn in zip(mixers, rotated, strict=True)]


def rotations(config: Configuration, layers: int) -> list[bool]:
    """Which layers rotate queries and keys: ``no_rope_layers`` (1: rotates), else all but each interval-th."""
    listed = config.integers("no_rope_layers", [], maximum=1)
    interval = config.integer("no_rope_layer_interval", 4)
    if not listed:
        return [(i + 1) % interval != 0 for i in range(layers)]
    same_length(config, listed, layers, "no_rope_layers")
    return [item == 1 for item in listed]


class SeedOss(Llama):
    """ByteDance Seed-OSS: Llama with a bias switch of its own for the attention's output, and dropout."""

    name = "seed-oss"
    model_types = ("seed_oss",)
    kv = "required"
    head_dim = "required"

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("attention_bias")
        out_bias = config.boolean("attention_out_bias")
        return Heads(q_bias=bias, kv_bias=bias, out_bias=out_bias, dropout=on(config, "attention_dropout"))

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), dropout=on(config, "residual_dropout"))


class Arcee(Llama):
    """Arcee AFM: Llama with a plain MLP of squared ReLU."""

    name = "arcee"
    model_types = ("arcee",)
    kv = "required"

    def mlp(self, config: Configuration) -> Mlp:
        return evolve(super().mlp(config), gated=False)


class Helium(Llama):
    """Kyutai Helium: the attention's output never has a bias."""

    name = "helium"
    model_types = ("helium",)
    kv = "required"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), out_bias=False)


class Hunyuan(LlamaLike):
    """Tencent Hunyuan, dense: queries and keys are normalised after their rotation."""

    name = "hunyuan-dense"
    model_types = ("hunyuan_v1_dense",)
    known = "eod_token_id attention_head_dim cla_share_factor use_cla use_qk_norm org_vocab_size pad_id eod_id"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="shared", norm_first=False)


class InternLM(LlamaLike):
    """InternLM 2 and 3: Llama's layers; files call their bias switches ``bias`` and ``qkv_bias``."""

    name = "internlm"
    model_types = ("internlm2", "internlm3")
    known = "attn_implementation rope_theta"

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("bias", False)
        qkv = config.boolean("qkv_bias", bias)
        return Heads(q_bias=qkv, kv_bias=qkv, out_bias=bias, dropout=on(config, "attention_dropout"))

    def mlp(self, config: Configuration) -> Mlp:
        bias = config.boolean("bias", False)
        return Mlp(bias=bias, down_bias=bias)


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [
        Llama(), Mistral(), Granite(), SmolLM3(), SeedOss(), Arcee(), Helium(), Hunyuan(), InternLM(),
    ]  # fmt: skip
