"""The model of a row: presets by every spelling, configurations that are published, and models made from columns."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.host.host import Host
from slipstick.core.records.measured import MeasuredPoint
from slipstick.core.study.validation.names import Skipped, squeezed
from slipstick.core.study.validation.shapes import Shapes


@pytest.fixture(scope="module")
def shapes(host: Host) -> Shapes:
    return Shapes(host)


def point(model: str, **setting: Any) -> MeasuredPoint:
    return MeasuredPoint("iteration", 1.0, {"task": "train", **setting}, model)


# Narayanan et al., arXiv:2104.04473, table 1: parameters [1e9], heads, hidden size, layers.
@pytest.mark.parametrize(
    ("billions", "heads", "hidden", "layers"),
    [
        (1.7, 24, 2304, 24), (3.6, 32, 3072, 30), (7.5, 32, 4096, 36), (18.4, 48, 6144, 40), (39.1, 64, 8192, 48),
        (76.1, 80, 10240, 60), (145.6, 96, 12288, 80), (310.1, 128, 16384, 96), (529.6, 128, 20480, 105),
        (1008.0, 160, 25600, 128),
    ],
)  # fmt: skip
def test_gpt_from_columns_has_the_published_parameters(
    shapes: Shapes, billions: float, heads: int, hidden: int, layers: int
) -> None:
    row = point("GPT", layers=layers, hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden, vocab=51200,
                sequence=2048)  # fmt: skip
    assert shapes.shape(row).graph.parameters / 1e9 == pytest.approx(billions, abs=0.051)


# llm-foundry, scripts/train/benchmarking/README.md, column NumParams, learned positions among them.
@pytest.mark.parametrize(
    ("name", "layers", "hidden", "heads", "parameters"),
    [
        ("MPT-125m", 12, 768, 12, 125311488), ("MPT-1b", 24, 2048, 16, 1315950592),
        ("MPT-7b", 32, 4096, 32, 6658859008), ("MPT-30b", 48, 7168, 56, 29975214080),
        ("MPT-70b", 80, 8192, 64, 64862437376),
    ],
)  # fmt: skip
def test_mpt_from_columns_has_the_published_parameters(
    shapes: Shapes, name: str, layers: int, hidden: int, heads: int, parameters: int
) -> None:
    row = point(name, layers=layers, hidden=hidden, heads=heads, kv_heads=heads, ffn=4 * hidden, vocab=50368)
    positions = 2048 * hidden  # this MPT has none; the benchmarked one learned them
    assert shapes.shape(row).graph.parameters + positions == pytest.approx(parameters, rel=2e-3)


def test_a_gated_model_from_columns_is_the_preset(shapes: Shapes) -> None:
    columns = {"layers": 126, "hidden": 16384, "heads": 128, "kv_heads": 8, "ffn": 53248, "vocab": 128256}
    made = shapes.shape(point("LLAMA3.1_405B", **columns)).graph
    assert made.parameters == shapes.shape(point("meta-llama/Llama-3.1-405B-Instruct")).graph.parameters


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Meta-Llama-3.1-8B", "llama-3.1-8b"), ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("GPT OSS 120B", "gpt-oss-120b"), ("DeepSeekV3 (tokendrop)", "deepseek-v3"), ("Kimi_K2", "kimi-k2"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"), ("nvidia/DeepSeek-V3.1-NVFP4", "deepseek-v3"),
        ("Llama-2-70B-chat", "llama-2-70b"), ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
    ],
)  # fmt: skip
def test_every_spelling_finds_its_preset(shapes: Shapes, name: str, preset: str) -> None:
    assert shapes.shape(point(name)).graph.name == preset


# Nominal sizes as their model cards state them [1e9].
@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("MiniMaxAI/MiniMax-M2.5", 230), ("zhipuai/GLM-5", 744), ("Qwen/Qwen3.5-397B-A17B", 397), ("Falcon 180B", 180),
        ("EleutherAI/gpt-j-6b", 6.05), ("facebook/opt-6.7b", 6.7), ("bigscience/bloom-7b1", 7.07),
        ("01-ai/Yi-34B", 34.4), ("Qwen2.5-1.5B-Instruct", 1.54), ("mistralai/Mistral-Nemo-Instruct-2407", 12.2),
        ("GPT3-5B", 5), ("GPT3-20B", 20),
    ],
)  # fmt: skip
def test_configurations_beside_the_presets_have_their_size(shapes: Shapes, name: str, billions: float) -> None:
    assert shapes.shape(point(name)).graph.parameters / 1e9 == pytest.approx(billions, rel=0.02)


def test_layers_of_a_row_cut_a_preset_and_other_columns_must_agree(shapes: Shapes) -> None:
    cut = shapes.shape(point("DeepSeek-V3 (layers cut to 4)", layers=4, hidden=7168, heads=128)).graph
    assert cut.layers == 4
    assert cut.sizes["experts"] == 256
    with pytest.raises(Skipped, match="hidden is 4096 in the row and 7168 in deepseek-v3"):
        shapes.shape(point("DeepSeek-V3", layers=61, hidden=4096, heads=128))


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (point("a model of ours"), "no preset or configuration is known"),
        (point("PaLM-540B"), "no published configuration"),
        (point("Nemotron_3_Nano"), "no architecture here describes its layers"),
        (point("GPT", layers=2.5, hidden=64, heads=4), "layers is 2.5; a whole number is expected"),
        (point("GPT", layers=2, hidden=65, heads=4), "4 heads do not divide a hidden size of 65"),
    ],
)
def test_what_is_no_model_is_a_reason(shapes: Shapes, row: MeasuredPoint, reason: str) -> None:
    with pytest.raises(Skipped, match=reason):
        shapes.shape(row)


def test_names_are_squeezed_to_what_spellings_share() -> None:
    assert len({squeezed(n) for n in ("Qwen/Qwen3-32B", "Qwen3_32B", "nvidia/Qwen3-32B-NVFP4", "qwen3-32b-FP8")}) == 1
    assert squeezed("llama-3.1-8b") != squeezed("llama-3-18b-x")
