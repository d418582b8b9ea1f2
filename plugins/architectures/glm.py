"""Zhipu GLM: biases on queries, keys and values; norms around each part in GLM-4-0414; experts in 4.5.

Floor: plugins. Model types: glm, glm4, glm4_moe.
"""

from __future__ import annotations

from typing import Any

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._experts import deepseek_experts
from ._llama_like import LlamaLike
from ._plans import Experts, Heads, Mlp


class Glm(LlamaLike):
    """GLM-4 9B."""

    name = "glm"
    model_types = ("glm",)

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), out_bias=False)


class Glm4(Glm):
    """GLM-4-0414 and Z1."""

    name = "glm4"
    model_types = ("glm4",)
    order = "sandwich"


class Glm4Moe(Glm):
    """GLM-4.5 and later: leading dense layers, then routed and shared experts, and a layer that predicts ahead."""

    name = "glm4-moe"
    model_types = ("glm4_moe",)
    known = "n_group topk_group scoring_func topk_method"

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="shared" if config.boolean("use_qk_norm", False) else "")

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        first = config.integer("first_k_dense_replace", minimum=0)
        return deepseek_experts(config, [i >= first for i in range(layers)], sizes)

    def around(self, config: Configuration) -> dict[str, Any]:
        return {"mtp": config.integer("num_nextn_predict_layers", 0, minimum=0, maximum=100)}


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Glm(), Glm4(), Glm4Moe()]
