"""Qwen 2 and 3, dense: biases on queries, keys and values (2), or normalised queries and keys (3).

Floor: plugins. Model types: qwen2, qwen3.
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._fields import layer_types, on
from ._llama_like import LlamaLike
from ._plans import Heads


class Qwen2(LlamaLike):
    """Qwen 1.5, 2 and 2.5."""

    name = "qwen2"
    model_types = ("qwen2",)
    known = "use_mrope"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return qwen_kinds(config, layers)

    def mixer(self, config: Configuration) -> Heads:
        return Heads(q_bias=True, kv_bias=True, dropout=on(config, "attention_dropout"))


class Qwen3(LlamaLike):
    """Qwen 3."""

    name = "qwen3"
    model_types = ("qwen3",)
    head_dim = "required"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        return qwen_kinds(config, layers)

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="shared")


def qwen_kinds(config: Configuration, layers: int) -> list[str]:
    """Layers from ``max_window_layers`` on slide their window, where ``use_sliding_window`` says so."""
    first = config.integer("max_window_layers", layers, minimum=0)
    used = config.boolean("use_sliding_window", False)
    rule = ["sliding_attention" if used and i >= first else "full_attention" for i in range(layers)]
    return layer_types(config, layers, rule)


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Qwen2(), Qwen3()]
