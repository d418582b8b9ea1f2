"""Baidu ERNIE 4.5: Llama's layers with one bias switch for all linear layers, dense or with routed and shared experts.

Floor: plugins. Model types: ernie4_5, ernie4_5_moe.
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._experts import MANY, dense_or_routed
from ._llama_like import LlamaLike
from ._plans import Experts, Heads, Mlp


class Ernie(LlamaLike):
    """Baidu ERNIE 4.5, dense: one bias switch for all linear layers."""

    name = "ernie4.5"
    model_types = ("ernie4_5",)
    tied = True
    head_dim = "required"

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("use_bias", False)
        return Heads(q_bias=bias, kv_bias=bias, out_bias=bias)

    def mlp(self, config: Configuration) -> Mlp:
        bias = config.boolean("use_bias", False)
        return Mlp(bias=bias, down_bias=bias)


class ErnieMoe(LlamaLike):
    """Baidu ERNIE 4.5 21B-A3B and 300B-A47B."""

    name = "ernie4.5-moe"
    model_types = ("ernie4_5_moe",)
    tied = True
    known = "moe_norm_min moe_capacity moe_gate moe_gate_act moe_use_aux_free use_rmsnorm num_nextn_predict_layers"

    def mixer(self, config: Configuration) -> Heads:
        bias = config.boolean("use_bias", False)
        return Heads(q_bias=bias, kv_bias=bias, out_bias=bias)

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        bias = config.boolean("use_bias", False)
        width = config.integer("moe_intermediate_size")
        shared = config.integer("moe_num_shared_experts", 0, minimum=0, maximum=1000)
        sizes |= {
            "ffn@expert": width,
            "ffn@shared": shared * width,
            "experts": config.integer("moe_num_experts", maximum=MANY),
            "top_k": config.integer("moe_k", maximum=MANY),
        }
        first = config.integer("moe_layer_start_index", minimum=0)
        last = config.integer("moe_layer_end_index", -1, minimum=-1)
        last = layers - 1 if last == -1 else last
        step = config.integer("moe_layer_interval", 1)
        routed = [first <= i <= last and (i + 1) % step == 0 for i in range(layers)]
        block = Mlp(bias=bias, down_bias=bias)
        # The offset of the choice is a parameter of this model class (a buffer elsewhere).
        experts = Experts(correction_bias=True, shared=evolve(block, qualifier="shared") if shared else None)
        return dense_or_routed(config, routed, block, experts, config.integer("intermediate_size"), sizes)

    def around(self, config: Configuration) -> dict[str, bool]:
        return {"head_bias": config.boolean("use_bias", False)}


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Ernie(), ErnieMoe()]
