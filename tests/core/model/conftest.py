"""What the tests of the law share: small models of the bundled families, and the strategies of the golden table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from slipstick.core.model.graph import Block, ModelGraph
from slipstick.core.model.interfaces.strategy import Strategy
from slipstick.core.model.layout import Rules, Split
from slipstick.core.model.mesh import Dimension
from slipstick.core.records.configuration import Configuration
from slipstick.plugins.architectures.deepseek import DeepseekV3
from slipstick.plugins.architectures.falcon import Falcon
from slipstick.plugins.architectures.gpt2 import Gpt2
from slipstick.plugins.architectures.llama import Llama
from slipstick.plugins.architectures.mixtral import Mixtral
from slipstick.plugins.architectures.olmo import Olmo2
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.tensor import TensorParallel

CONFIGURATIONS: dict[str, tuple[type, dict[str, Any]]] = {
    "gpt2": (Gpt2, {"model_type": "gpt2", "n_layer": 8, "n_embd": 128, "n_head": 8, "n_positions": 256,
                    "vocab_size": 512, "tie_word_embeddings": True}),
    "llama": (Llama, {"model_type": "llama", "num_hidden_layers": 8, "hidden_size": 128, "num_attention_heads": 8,
                      "num_key_value_heads": 4, "intermediate_size": 256, "vocab_size": 512,
                      "max_position_embeddings": 256}),
    "mixtral": (Mixtral, {"model_type": "mixtral", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 8,
                          "num_key_value_heads": 4, "intermediate_size": 256, "vocab_size": 512,
                          "num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 256}),
    "deepseek": (DeepseekV3, {"model_type": "deepseek_v3", "num_hidden_layers": 4, "hidden_size": 128,
                              "num_attention_heads": 8, "q_lora_rank": 64, "kv_lora_rank": 32, "qk_nope_head_dim": 16,
                              "qk_rope_head_dim": 8, "v_head_dim": 16, "intermediate_size": 256,
                              "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2,
                              "n_shared_experts": 1, "first_k_dense_replace": 1, "vocab_size": 512,
                              "n_group": 1, "topk_group": 1, "routed_scaling_factor": 2.5, "norm_topk_prob": True,
                              "num_key_value_heads": 8, "max_position_embeddings": 256}),
    "falcon": (Falcon, {"model_type": "falcon", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 8,
                        "num_kv_heads": 8, "new_decoder_architecture": True, "vocab_size": 512, "bias": False,
                        "max_position_embeddings": 256}),
    "olmo2": (Olmo2, {"model_type": "olmo2", "num_hidden_layers": 4, "hidden_size": 128, "num_attention_heads": 8,
                      "num_key_value_heads": 4, "intermediate_size": 256, "vocab_size": 512,
                      "max_position_embeddings": 256}),
}  # fmt: skip


class ContextParallel(Strategy):
    """The whole of a context parallelism: its collectives are derived."""

    name = "context"
    dimensions = (Dimension("cp", "context parallel degree", order=20),)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules(splits=(Split("query", "cp"),))


@pytest.fixture(scope="session")
def graphs() -> dict[str, ModelGraph]:
    """Name → a small model of a bundled family."""
    return {
        name: architecture().graph(Configuration(dict(fields), name))
        for name, (architecture, fields) in CONFIGURATIONS.items()
    }


@pytest.fixture(scope="session")
def layer(graphs: dict[str, ModelGraph]) -> Callable[[str], Block]:
    """A function: name of a model → its last kind of layer."""
    return lambda name: graphs[name].runs[-1].cycle[0]


@pytest.fixture(scope="session")
def context_parallel() -> Strategy:
    """The ten-line strategy of the golden table."""
    return ContextParallel()


@pytest.fixture(scope="session")
def rules(context_parallel: Strategy) -> Callable[[bool], Rules]:
    """A function: with or without sequence parallelism → tensor, context and data parallelism together."""

    def build(sequence_parallel: bool) -> Rules:
        tensor = TensorParallel().rules({"sequence_parallel": sequence_parallel})
        return tensor + context_parallel.rules({}) + DataParallel().rules({"zero": 0})

    return build
