"""Answers held against what others have published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

GPT = {
    "model_type": "gpt2",
    "vocab_size": 51200,
    "n_positions": 2048,
    "activation_function": "gelu",
    "tie_word_embeddings": True,
}


def gpt(folder: Path, layers: int, hidden: int, heads: int, **changes: Any) -> str:
    path = folder / f"gpt-{layers}-{hidden}.json"
    fields = {**GPT, "n_layer": layers, "n_embd": hidden, "n_head": heads, **changes}
    path.write_text(json.dumps(fields), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("stage", "gigabytes"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_zero_memory_table(one: Any, stage: int, gigabytes: float) -> None:
    """Rajbhandari et al., arXiv:1910.02054, figure 1: Ψ = 7.5B, 64 ranks, K = 12, FP16 weights and gradients."""
    made = one("train", "llama-3.1-8b", "h100-sxm", devices=64, dp=64, global_batch=64, zero=stage)
    case = made.case
    values = {**case.complete(made.settings), "gradient_width": 2.0}
    out = case.program.evaluate(values)
    total = sum(out[f"memory.0.{row}"] for row in ("weights", "gradients", "optimizer"))
    assert round(total * 7.5e9 / 8_030_261_248 / 1e9, 1) == gigabytes


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "saved"), [(96, 12288, 96, 0.70), (105, 20480, 128, 0.65)], ids=["GPT-3", "MT-NLG"]
)
def test_selective_recomputation_saves_what_its_authors_say(
    one: Any, tmp_path: Path, layers: int, hidden: int, heads: int, saved: float
) -> None:
    """Korthikanti et al., arXiv:2205.05198, section 5: 70 % of GPT-3's activation memory, 65 % of MT-NLG's."""
    ask = {"devices": 8, "tp": 8, "global_batch": 1, "sequence": 2048, "attention": "unfused"}
    model = gpt(tmp_path, layers, hidden, heads)
    none, selective = (
        one.rows(one("train", model, "h100-sxm", recompute=mode, **ask))["activations"]
        for mode in ("none", "selective")
    )
    assert 1 - selective / none == pytest.approx(saved, abs=0.01)


@pytest.mark.parametrize(("model", "per_token"), [("deepseek-v3", 70_272), ("llama-3.1-70b", 327_680)])
def test_cache_bytes_per_token(one: Any, model: str, per_token: int) -> None:
    """DeepSeek-V3 (arXiv:2505.09343, table 1): 70.272 KB a token, and 327.680 KB for Qwen-2.5 72B, of Llama's shape."""
    made = one("serve", model, "h200-sxm", devices=8, tp=8, concurrency=4, input_tokens=100, output_tokens=28)
    replicas = 8 if model == "deepseek-v3" else 1  # a latent has no heads to split: each device keeps it whole
    assert one.rows(made)["kv_cache"] * 8 / replicas == 4 * 128 * per_token


@pytest.mark.parametrize(
    ("model", "precision", "gigabytes"),
    [
        ("llama-3.1-8b", "bf16", 16),
        ("llama-3.1-70b", "bf16", 140),
        ("llama-3.1-405b", "bf16", 810),
        ("llama-3.1-8b", "fp8", 8),
        ("llama-3.1-70b", "fp8", 70),
        ("llama-3.1-405b", "fp8", 405),
    ],
)
def test_weights_of_llama(one: Any, model: str, precision: str, gigabytes: float) -> None:
    """Hugging Face, «Llama 3.1 - 405B, 70B & 8B», 2024-07-23, table of inference memory for weights (rounded there;
    embedding and output layer stay in 16 bits here)."""
    rows = one.rows(one("serve", model, "h200-sxm", precision=precision))
    kept = {"llama-3.1-8b": 4096, "llama-3.1-70b": 8192, "llama-3.1-405b": 16384}[model] * 2 * 128256
    more = kept if precision == "fp8" else 0
    assert (rows["weights"] - more) / 1e9 == pytest.approx(gigabytes, rel=0.015)


def test_what_fits_on_one_accelerator(one: Any) -> None:
    """The same page: 8B in 16 bits fits one 80 GB device, 70B does not, and 405B in FP8 fits one node of eight."""
    assert one("serve", "llama-3.1-8b", "h100-sxm").feasible
    assert not one("serve", "llama-3.1-70b", "h100-sxm").feasible
    assert one("serve", "llama-3.1-70b", "h100-sxm", devices=4, tp=4).feasible
    assert not one("serve", "llama-3.1-405b", "h100-sxm", devices=8, tp=8, precision="bf16").feasible
    assert one("serve", "llama-3.1-405b", "h100-sxm", devices=8, tp=8, precision="fp8").feasible


@pytest.mark.parametrize(("stages", "micro_batches"), [(2, 4), (4, 8), (8, 64)])
def test_the_bubble_of_an_even_pipeline(one: Any, tmp_path: Path, stages: int, micro_batches: int) -> None:
    """Narayanan et al., arXiv:2104.04473, section 2.2.1: idle time over ideal time is (p − 1)/m."""
    model = gpt(tmp_path, 96, 8192, 64, vocab_size=64)  # so small a vocabulary leaves the stages even
    made = one("train", model, "h100-sxm", devices=stages * 8, tp=8, pp=stages, global_batch=micro_batches)
    pipeline = next(node for node in made.tree.children if node.kind == "pipelined")
    period = pipeline.children[1].seconds
    ideal = micro_batches * period
    assert (pipeline.seconds - ideal) / ideal == pytest.approx((stages - 1) / micro_batches, rel=0.02)
