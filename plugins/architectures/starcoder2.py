"""BigCode StarCoder 2: LayerNorm, a plain MLP, grouped queries, one bias switch for all linear layers.

Floor: plugins. Model types: starcoder2.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._fields import on
from ._llama_like import LlamaLike
from ._plans import Heads, Layer, Mlp


class Starcoder2(LlamaLike):
    """StarCoder 2."""

    name = "starcoder2"
    model_types = ("starcoder2",)
    norm = "gain+bias"
    tied = True
    known = "mlp_type norm_type"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return ["sliding_attention" if "sliding_window" in config else "full_attention"] * layers

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("use_bias", True)
        return Heads(q_bias=bias, kv_bias=bias, out_bias=bias, dropout=on(config, "attention_dropout"))

    def mlp(self, config: Configuration) -> Mlp:
        bias = config.boolean("use_bias", True)
        return Mlp(gated=False, bias=bias, down_bias=bias)

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), dropout=on(config, "residual_dropout"))

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"embedding_dropout": on(config, "embedding_dropout")}


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Starcoder2()]
