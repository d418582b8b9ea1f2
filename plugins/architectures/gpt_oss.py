"""OpenAI gpt-oss: experts with biases in every layer, attention sinks, every other layer with a short sliding window.

Floor: plugins. Model types: gpt_oss. Source: arXiv:2508.10925.
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._experts import MANY
from ._fields import layer_types, on
from ._llama_like import LlamaLike, every
from ._plans import Experts, Heads, Mlp


class GptOss(LlamaLike):
    """gpt-oss-20b and gpt-oss-120b."""

    name = "gpt-oss"
    model_types = ("gpt_oss",)
    head_dim = "required"
    known = "experts_per_token initial_context_length swiglu_limit swiglu_alpha"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return layer_types(config, layers, every(layers, 2))

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("attention_bias", True)
        plain = Heads(q_bias=bias, kv_bias=bias, out_bias=bias, dropout=on(config, "attention_dropout"))
        return evolve(plain, sinks=True)

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        sizes["ffn@expert"] = config.integer("intermediate_size")
        sizes["experts"] = config.integer("num_local_experts", also=("num_experts",), maximum=MANY)
        sizes["top_k"] = config.integer("num_experts_per_tok", also=("experts_per_token",), maximum=MANY)
        # Gate and linear part are taken apart and clamped, the gate is scaled, goes through a sigmoid and times itself,
        # the other one is raised by one, and both are multiplied (transformers, modeling_gpt_oss.py).
        return [Experts(bias=True, router_bias=True, activation_rounds=8)] * layers


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [GptOss()]
