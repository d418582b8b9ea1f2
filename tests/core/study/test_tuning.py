"""Fine-tuning with adapters, asked as a person asks: published memory, formats of the frozen weights, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.errors import UserError

LLAMA_65B = {  # arXiv:2302.13971, table 2
    "model_type": "llama", "num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64,
    "num_key_value_heads": 64, "intermediate_size": 22016, "vocab_size": 32000, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip


@pytest.fixture(scope="module")
def llama_65b(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("llama") / "llama-65b.json"
    path.write_text(json.dumps(LLAMA_65B))
    return str(path)


def test_qlora_brings_65b_from_more_than_780_gb_to_less_than_48(one: Any, llama_65b: str) -> None:
    """The abstract of arXiv:2305.14314; its setting is rank 64 on every layer, sequences of 512 and checkpointing
    (appendices B and G). Its optimizer pages what does not fit: here its state is kept in 8 bits instead."""
    setting = {"micro_batch": 1, "global_batch": 1, "sequence": 512, "recompute": "full"}
    plain = one("train", llama_65b, "h100-sxm", **setting).answer
    assert plain.peak > 780e9
    small = {**setting, "lora_rank": 64, "gradients": "16bit", "optimizer_states": "8bit"}
    packed = one("train", llama_65b, "h100-sxm", base_precision="nf4", **small).answer
    assert 33e9 < packed.peak < 48e9
    assert one("train", llama_65b, "h100-sxm", **small).answer.peak > 2.5 * 48e9


def test_lora_of_gpt3_needs_little_more_than_its_weights(one: Any) -> None:
    """arXiv:2106.09685, section 4.2: r = 4 on query and value takes training of GPT-3 from 1.2 TB to 350 GB."""
    setting = {"micro_batch": 1, "global_batch": 1, "sequence": 2048, "recompute": "full"}
    rows = one.rows(one("train", "gpt3-175b", "h100-sxm", lora_rank=4, lora_targets="q+v", **setting))
    state = [rows[name] for name in ("weights", "gradients", "optimizer")]
    assert sum(state) == pytest.approx(350e9, rel=0.01)
    whole = one.rows(one("train", "gpt3-175b", "h100-sxm", **setting))
    assert sum(whole[name] for name in ("weights", "gradients", "optimizer")) > 1.2e12


@pytest.mark.parametrize(
    ("precision", "base", "width", "passes"),
    [
        ("bf16", "bf16", 2.0, False),
        ("bf16", "fp8", 1.0, True),
        ("bf16", "nf4", 0.5 + 1 / 128, True),
        ("fp8", "bf16", 2.0, False),
        ("fp8", "fp8", 1.0, False),  # what the recipe multiplies in: read as it is
        ("fp8", "nf4", 0.5 + 1 / 128, True),
        ("fp32", "fp32", 4.0, False),
        ("fp32", "bf16", 2.0, True),
    ],
)
def test_the_format_of_frozen_weights(one: Any, precision: str, base: str, width: float, passes: bool) -> None:
    made = one("train", "llama-2-7b", "h100-sxm", precision=precision, lora_rank=8, base_precision=base)
    hidden, ffn, vocab, layers = 4096, 11008, 32000, 32
    linear = layers * (4 * hidden**2 + 3 * hidden * ffn)
    kept = {"fp32": 4.0}.get(precision, 2.0)
    adapters = 8 * layers * (4 * 2 * hidden + 3 * (hidden + ffn))
    rest = 2 * vocab * hidden + (2 * layers + 1) * hidden + adapters
    assert one.rows(made)["weights"] == pytest.approx(linear * width + rest * kept, rel=1e-12)
    texts = json.dumps([tree.to_json() for tree in made.answer.trees.values()], default=str)
    assert ("expansion" in texts) is passes


def test_an_answer_says_what_is_trained(one: Any) -> None:
    made = one("train", "llama-2-7b", "h100-sxm", lora_rank=16, base_precision="nf4").answer
    assert any("39,976,960 trained parameters beside 6,738,415,616 frozen" in line for line in made.assumptions)
    assert made.setting["numerics"].endswith("frozen linear weights nf4")
    assert made.setting["lora_rank"] == 16


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ({"lora_rank": 0}, "--lora-rank: between 1 and"),
        ({"lora_rank": 4097}, "--lora-rank 4097: the rank of an adapter is between 1 and the hidden size (4096"),
        ({"lora_targets": "all"}, "--lora-targets all: only adapters leave weights frozen"),
        ({"base_precision": "nf4"}, "--base-precision nf4: only adapters leave weights frozen"),
        ({"lora_rank": 8, "lora_targets": "q+w"}, "unknown layer of llama-2-7b for adapters 'w'"),
        ({"lora_rank": 8, "lora_targets": "q,v"}, "unknown layer of llama-2-7b for adapters 'q,v'"),
        ({"lora_rank": 8, "base_precision": "int3"}, "--base-precision: 'int3' is none of"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(one: Any, setting: dict[str, Any], line: str) -> None:
    with pytest.raises(UserError) as error:
        one("train", "llama-2-7b", "h100-sxm", **setting)
    assert line in str(error.value)
    assert "\n" not in str(error.value)


def test_several_ranks_are_answered_by_one_formula(host: Any) -> None:
    from slipstick.core.study.ask import ask

    outcome = ask("train", ("llama-2-7b",), ("h100-sxm",), {"lora_rank": (8, 64)}, host)
    small, large = outcome.predictions
    assert small.case.program is large.case.program
    assert small.answer.figures["step_time_s"] < large.answer.figures["step_time_s"]
