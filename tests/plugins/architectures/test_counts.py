"""Parameters, matrix FLOPs and cache bytes against the real model classes and published figures.

The counts of the classes are stored (``tests/golden/architectures.json``), so these tests need no torch;
``test_oracle.py`` counts again where torch is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from attrs import evolve

from slipstick.core.model.counting import forward_matmul_flops, training_matmul_flops
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.study.models import load_model

GraphOf = Callable[[dict[str, Any]], ModelGraph]


class Host:
    """The part of a host that models need."""

    def __init__(self, found: dict[str, Architecture]) -> None:
        self.found = found

    def architectures(self) -> dict[str, Architecture]:
        return self.found

    def architectures_with(self, wanted: str) -> dict[str, Architecture]:
        return self.found


@pytest.fixture(scope="module")
def host(architectures: dict[str, Architecture]) -> Host:
    return Host(architectures)


def test_parameters_of_small_models_equal_the_real_classes(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    wrong = {}
    for name, row in golden["cases"].items():
        found = graph_of(row["fields"]).parameters
        if found != row["parameters"]:
            wrong[name] = (found, row["parameters"])
    assert not wrong
    assert len({row["fields"]["model_type"] for row in golden["cases"].values()}) >= 55


def as_the_class_runs(graph: ModelGraph) -> ModelGraph:
    """Llama 4's class sends every token to all experts and zeroes what was not chosen: as if all were chosen."""
    if graph.architecture == "llama4_text":
        return evolve(graph, sizes=graph.sizes | {"top_k": graph.sizes["experts"]})
    return graph


def test_matrix_flops_of_small_models_agree_with_pytorchs_counter(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    batch, query = golden["tokens"]["batch"], golden["tokens"]["query"]
    wrong, counted = {}, 0
    for name, row in golden["cases"].items():
        graph = as_the_class_runs(graph_of(row["fields"]))
        forward = forward_matmul_flops(graph, batch, query, query)
        training = training_matmul_flops(graph, batch, query)
        counted += 1
        if abs(forward / row["forward_flops"] - 1) > 1e-3 or abs(training / row["training_flops"] - 1) > 1e-3:
            wrong[name] = (forward / row["forward_flops"], training / row["training_flops"])
    assert not wrong
    assert counted >= 70


def test_parameters_of_full_size_presets_equal_the_real_classes(host: Host, golden: dict[str, Any]) -> None:
    assert len(golden["presets"]) >= 40
    found = {name: load_model(name, host).parameters for name in golden["presets"]}
    assert found == golden["presets"]


# Figures that the publishers state to the last digit (model cards and papers), independent of any class here.
PUBLISHED_PARAMETERS = {
    "gpt2": 124_439_808,
    "bloom-176b": 176_247_271_424,
    "llama-2-7b": 6_738_415_616,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "gemma-7b": 8_537_680_896,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED_PARAMETERS.items())
def test_published_parameter_counts(host: Host, name: str, parameters: int) -> None:
    assert load_model(name, host).parameters == parameters


# Active parameters as the publishers round them: total, active, in billions, and how coarse the rounding is.
PUBLISHED_ACTIVE = [
    ("mixtral-8x7b", 46.7, 12.9, 0.05),  # arXiv:2401.04088 (47B, 13B); 46.7B and 12.9B in its announcement
    ("deepseek-v3", 671, 37, 0.7),  # arXiv:2412.19437: 671B, 37B for each token
    ("deepseek-v2", 236, 21, 0.5),  # arXiv:2405.04434: 236B, 21B for each token
    ("qwen3-30b-a3b", 30.5, 3.3, 0.06),  # model card: 30.5B, 3.3B activated
    ("qwen3-235b-a22b", 235, 22, 0.5),  # model card
    ("llama-4-scout", 109, 17, 1.3),  # model card: 109B with the image tower (1.3B less here), 17B
]


@pytest.mark.parametrize(("name", "total", "active", "within"), PUBLISHED_ACTIVE)
def test_active_parameters_as_published(host: Host, name: str, total: float, active: float, within: float) -> None:
    graph = load_model(name, host)
    assert graph.parameters / 1e9 == pytest.approx(total, abs=within)
    assert graph.active_parameters / 1e9 == pytest.approx(active, abs=within)


# 2 · layers · kv_heads · head_dim · 2 bytes, and (512 + 64) · 61 · 2 for DeepSeek-V3's latent cache (70 KB in its
# authors' hardware paper, arXiv:2505.09343, table 1, with 516 KB for Llama-3.1 405B and 327 KB for Qwen-2.5 72B).
CACHE_BYTES = {
    "llama-3.1-8b": 131_072,
    "deepseek-r1-distill-qwen-14b": 196_608,
    "qwen2.5-32b": 262_144,
    "llama-3.1-70b": 327_680,
    "qwen2.5-72b": 327_680,
    "llama-3.1-405b": 516_096,
    "deepseek-v3": 70_272,
}


@pytest.mark.parametrize(("name", "expected"), CACHE_BYTES.items())
def test_cache_bytes_per_token(host: Host, name: str, expected: int) -> None:
    assert load_model(name, host).kv_bytes_per_token(2) == expected


def test_gpt_parameters_follow_the_closed_form(graph_of: GraphOf) -> None:
    """12Lh²(1 + 13/12h + (V+s)/12Lh) + 2h, the last for the final norm (arXiv:2104.04473, section 5.1)."""
    layers, hidden, vocab, positions = 7, 96, 1000, 128
    fields = {"n_layer": layers, "n_embd": hidden, "n_head": 8, "vocab_size": vocab, "n_positions": positions}
    graph = graph_of({"model_type": "gpt2", **fields})
    body = 12 * layers * hidden**2 + 13 * layers * hidden + (vocab + positions) * hidden
    assert graph.parameters == body + 2 * hidden


def test_gpt_flops_follow_the_closed_form(graph_of: GraphOf) -> None:
    """Forward matrix FLOPs 24BsLh²(1 + s/6h + V/12Lh), a third of the training step (arXiv:2104.04473, section 5.1)."""
    batch, sequence, layers, hidden, vocab = 3, 64, 5, 96, 1000
    fields = {"n_layer": layers, "n_embd": hidden, "n_head": 8, "vocab_size": vocab, "n_positions": 128}
    graph = graph_of({"model_type": "gpt2", **fields})
    tokens = batch * sequence
    expected = 24 * tokens * layers * hidden**2 + 4 * tokens * layers * hidden * sequence + 2 * tokens * hidden * vocab
    assert forward_matmul_flops(graph, batch, sequence, sequence) == expected


def test_internlm_has_llamas_parameters(graph_of: GraphOf) -> None:
    """No class of the library reads internlm2: its layers are Llama's (arXiv:2403.17297, section 2.2)."""
    fields = {
        "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "vocab_size": 112, "max_position_embeddings": 64,
    }  # fmt: skip
    counts = {t: graph_of({"model_type": t, **fields}).parameters for t in ("llama", "internlm2", "internlm3")}
    assert len(set(counts.values())) == 1
