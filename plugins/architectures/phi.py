"""Microsoft Phi: parallel parts with one LayerNorm and biases everywhere (phi), or Llama's layers (phi3, Phi-4).

Floor: plugins. Model types: phi, phi3.
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


class Phi(LlamaLike):
    """Phi 1, 1.5 and 2."""

    name = "phi"
    model_types = ("phi",)
    # Phi-1 and Phi-2 files have null here and mean as many as query heads.
    kv = "heads"
    norm = "gain+bias"
    order = "parallel"

    def mixer(self, config: Configuration) -> Heads:
        norm = "shared" if config.boolean("qk_layernorm", False) else ""
        dropout = on(config, "attention_dropout")
        return Heads(q_bias=True, kv_bias=True, out_bias=True, qk_norm=norm, qk_kind="gain+bias", dropout=dropout)

    def mlp(self, config: Configuration) -> Mlp:
        return Mlp(gated=False, bias=True, down_bias=True)

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), dropout=on(config, "resid_pdrop"))

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"head_bias": True, "embedding_dropout": on(config, "embd_pdrop")}


class Phi3(LlamaLike):
    """Phi 3, 3.5 and 4, dense."""

    name = "phi3"
    model_types = ("phi3",)

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        kind = "sliding_attention" if "sliding_window" in config else "full_attention"
        return [kind] * layers

    def mixer(self, config: Configuration) -> Heads:
        config.ignore(("attention_bias",))  # published files set it, the model class has no such switch
        return Heads(dropout=on(config, "attention_dropout"))

    def layer(self, config: Configuration) -> Layer:
        return evolve(super().layer(config), dropout=on(config, "resid_pdrop"))

    def around(self, config: Configuration) -> dict[str, Any]:
        config.ignore(("embd_pdrop",))  # read by no layer of the model class
        return {}


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Phi(), Phi3()]
