"""What the rules of names.toml read out of a row: each on rows that it is for, and on their neighbours."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.study.validation.names import rules

BRIDGE = "NVIDIA-NeMo/Megatron-Bridge docs/performance-summary.md container {} Pre-Training Performance"
BLOOM = 'bigscience-workshop/bigscience train/tr11-176B-ml/chronicles-prequel.md "{}" L947'


def said(container: str, model: str, device: str, **more: str) -> dict[str, Any]:
    row = {"source": BRIDGE.format(container), "model": model, "gpu_type": device, "pp": "1", "ep": "8", "notes": ""}
    return rules("train", {**row, **more})


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        # Source: NVIDIA-NeMo/Megatron-Bridge, scripts/performance/configs (moe_flex_dispatcher_backend,
        # moe_a2a_overlap, cuda_graph_impl of each workload), pull requests 3983 and 4249.
        (said("26.04", "DeepSeekV3", "GB300", precision="MXFP8"), {"dispatch": "once"}),
        (said("26.06", "DeepSeekV3", "GB300", precision="MXFP8"),
         {"dispatch": "once", "expert_overlap": True, "cuda_graph": "full"}),
        (said("26.06.01", "Qwen3_235B_a22B", "GB200", precision="MXFP8"),
         {"dispatch": "once", "expert_overlap": True, "cuda_graph": "full"}),
        (said("26.06.01", "Qwen3_235B_a22B", "GB200", precision="BF16"), {"dispatch": "once"}),
        (said("26.02", "Qwen3_235B_a22B", "H100-80GB-SXM"), {"dispatch": "copies", "expert_overlap": True}),
        (said("26.02", "Qwen3_235B_a22B", "B200"), {"dispatch": "copies"}),
        (said("26.02", "Qwen3_235B_a22B", "GB200"), {"dispatch": "once"}),
        (said("26.02", "Qwen3_30B_a3B", "H100-80GB-SXM", pp="2"), {"dispatch": "copies", "expert_overlap": True}),
        (said("26.04", "Qwen3_30B_a3B", "H100-80GB-SXM", pp="1"), {"dispatch": "once"}),
        (said("26.04.01", "DeepSeekV3", "B200", ep="32"), {"dispatch": "once", "expert_overlap": True}),
        (said("26.02", "DeepSeekV3", "B200", ep="8"), {"dispatch": "once"}),
        (said("26.04", "GPT OSS 120B", "GB200", precision="BF16"), {"dispatch": "copies", "expert_overlap": True}),
        (said("26.04", "GPT OSS 120B", "GB300", precision="BF16"), {"dispatch": "copies"}),
    ],
)  # fmt: skip
def test_what_the_recipes_choose_beside_the_tables(row: dict[str, Any], expected: dict[str, Any]) -> None:
    chosen = {name: row[name] for name in ("dispatch", "expert_overlap", "cuda_graph") if name in row}
    assert chosen == expected


def test_stages_that_were_dealt_out_anew() -> None:
    """Two more than the layers of every row of the section are a multiple of its stages: 70 on 12, 100 on 6, ..."""
    assert rules("train", {"source": BLOOM.format("Rebalancing layers"), "notes": ""})["ends"] == "counted as layers"
    other = rules("train", {"source": BLOOM.format("GBS Variations"), "notes": ""})
    assert "ends" not in other
    assert other["bf16_gradients"] == "both"
    assert other["fp16_gradients"] == "16bit"


def test_what_a_row_leaves_out_is_taken_from_what_is_known_of_its_source() -> None:
    atorch = {"source": "intelligent-machine-learning/dlrover atorch/examples/llama2/README.md", "notes": "FSDP"}
    assert rules("train", {**atorch, "model": "Llama-2-7B"}) == {"recompute": "full"}
    assert rules("train", {**atorch, "model": "Llama-2-7B LoRA"})["lora_rank"] == 16
