"""Qwen's experts: a shared expert with a gate of its own (Qwen 1.5 and 2), or routed experts only (Qwen 3).

Floor: plugins. Model types: qwen2_moe, qwen3_moe.
"""

from __future__ import annotations

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._experts import MANY, dense_or_routed
from ._fields import on
from ._plans import Experts, Heads, Mlp
from .qwen import Qwen2, Qwen3


def routed_layers(config: Configuration, layers: int) -> list[bool]:
    """Every ``decoder_sparse_step``-th layer, without those in ``mlp_only_layers``."""
    step = config.integer("decoder_sparse_step", 1)
    dense = set(config.integers("mlp_only_layers", []))
    return [(i + 1) % step == 0 and i not in dense for i in range(layers)]


def experts_sizes(config: Configuration) -> dict[str, int]:
    """Sizes of the routed part; the number of experts has two names in published files."""
    return {
        "ffn@expert": config.integer("moe_intermediate_size"),
        "experts": config.integer("num_experts", also=("num_local_experts",), maximum=MANY),
        "top_k": config.integer("num_experts_per_tok", maximum=MANY),
    }


class Qwen2Moe(Qwen2):
    """Qwen1.5-MoE and Qwen2-57B-A14B."""

    name = "qwen2-moe"
    model_types = ("qwen2_moe",)

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("qkv_bias", True)
        return Heads(q_bias=bias, kv_bias=bias, dropout=on(config, "attention_dropout"))

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        sizes |= experts_sizes(config)
        sizes["ffn@shared"] = config.integer("shared_expert_intermediate_size")
        experts = Experts(shared=Mlp(qualifier="shared"), shared_gate=True)
        width = config.integer("intermediate_size", 0, minimum=0)
        return dense_or_routed(config, routed_layers(config, layers), Mlp(), experts, width, sizes)


class Qwen3Moe(Qwen3):
    """Qwen3-30B-A3B and 235B-A22B."""

    name = "qwen3-moe"
    model_types = ("qwen3_moe",)

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        sizes |= experts_sizes(config)
        width = config.integer("intermediate_size", 0, minimum=0)
        return dense_or_routed(config, routed_layers(config, layers), Mlp(), Experts(), width, sizes)


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Qwen2Moe(), Qwen3Moe()]
