"""The same counts taken anew on real model classes: on PyTorch's meta device, and with its FLOP counter on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slipstick.core.model.counting import forward_matmul_flops, training_matmul_flops
from slipstick.core.model.graph import ModelGraph

pytest.importorskip("torch", reason="counting on real model classes needs the torch extra")
pytest.importorskip("transformers", reason="counting on real model classes needs the torch extra")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore"),  # what another library warns of at import is not ours to fail on
]
GraphOf = Callable[[dict[str, Any]], ModelGraph]


@pytest.fixture(scope="module")
def cases(root: Path) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads((root / "tests/golden/architecture_cases.json").read_text("utf-8"))
    return listed


def test_parameters_on_the_meta_device(cases: list[dict[str, Any]], graph_of: GraphOf, remake: ModuleType) -> None:
    wrong = {}
    for case in cases:
        config = remake.small(case)
        found, real = graph_of(config.to_dict()).parameters, remake.parameters(config)
        if found != real:
            wrong[case["name"]] = (found, real)
    assert not wrong


def test_every_key_of_the_librarys_configurations_is_known(
    cases: list[dict[str, Any]], graph_of: GraphOf, remake: ModuleType
) -> None:
    """A newer library may write a new key: this test names it (the graph raises for a field it does not know)."""
    for case in cases:
        graph_of(remake.small(case).to_dict())


# One of each kind of layer; all cases are counted when the golden file is made.
COUNTED = ["gpt2", "opt-350m-like", "falcon-40b-like", "llama", "gemma3_text", "qwen2_moe", "gpt_oss", "deepseek_v3"]


@pytest.mark.parametrize("name", COUNTED)
def test_matrix_flops_with_the_flop_counter(
    name: str, cases: list[dict[str, Any]], graph_of: GraphOf, remake: ModuleType
) -> None:
    config = remake.small(next(case for case in cases if case["name"] == name))
    graph = graph_of(config.to_dict())
    forward, training = remake.flops(config)
    assert forward_matmul_flops(graph, remake.BATCH, remake.QUERY, remake.QUERY) == pytest.approx(forward, rel=1e-3)
    assert training_matmul_flops(graph, remake.BATCH, remake.QUERY) == pytest.approx(training, rel=1e-3)


# Full size on the meta device: a dense, a tied, a latent-attention, a biased-expert and an interleaved model.
FULL_SIZE = ["llama-3.1-70b", "gemma-3-27b", "deepseek-v3", "gpt-oss-120b", "llama-4-maverick", "falcon-40b"]


@pytest.mark.slow
@pytest.mark.parametrize("name", FULL_SIZE)
def test_full_size_on_the_meta_device(name: str, graph_of: GraphOf, remake: ModuleType) -> None:
    fields = json.loads((remake.PRESETS / f"{name}.json").read_text(encoding="utf-8"))
    config = remake.configuration(fields["model_type"], fields)
    assert graph_of(fields).parameters == remake.parameters(config)
