"""Published runs that the bundled stacks are held against: `slipstick validate` prints predicted beside measured.

Floor: plugins. Facts with their sources; the records of the stacks say which runs their coefficients were fitted to.
"""

from __future__ import annotations

from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.evidence import Claim
from slipstick.core.records.provenance import Source
from slipstick.core.records.scenario import Scenario

LOGS = Source(
    "inference-sim-kv", "KV blocks of vLLM on H100 80 GB: inference-sim, testdata/trained_physics_iter29.json",
    "https://github.com/inference-sim/inference-sim", "2026-02", "measured",
)  # fmt: skip
SELECTIVE = Source(
    "korthikanti2022", "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models, table 5",
    "https://arxiv.org/abs/2205.05198", "2022-05-10", "measured",
)  # fmt: skip

CAPACITIES = (("llama-2-7b", 1, 119_408), ("llama-3.1-70b", 4, 484_016), ("qwen2.5-7b", 1, 1_045_632))
"""Model, tensor parallel degree, tokens of cache: blocks × 16 at the default utilisation of 0.9."""

STEPS = (("full", 18.13), ("selective", 13.75))
"""Recomputation, seconds a step: GPT 175B on 64 A100 80 GB, tensor parallel 8, pipeline 8, batch 64 of 2,048 tokens."""


def _capacity(model: str, tp: int, tokens: int) -> Claim:
    settings = {
        "devices": tp, "tp": tp, "concurrency": 128, "input_tokens": 2048, "output_tokens": 512, "stack": "vllm",
    }  # fmt: skip
    return Claim(
        name=f"vllm-cache-{model}", scenario=Scenario("serve", model, "h100-sxm", settings),
        figure="kv_capacity_tokens", value=tokens, unit="1", relation="equal within", tolerance=0.04, source=LOGS,
        trust="DATA",
    )  # fmt: skip


def _step(recompute: str, seconds: float) -> Claim:
    settings = {
        "devices": 64, "tp": 8, "pp": 8, "micro_batch": 1, "global_batch": 64, "sequence": 2048, "precision": "fp16",
        "attention": "unfused", "recompute": recompute, "sequence_parallel": recompute == "selective", "zero": 0,
        "interleave": 3,
        "stack": "megatron-lm-2022",
    }  # fmt: skip
    return Claim(
        name=f"megatron-175b-{recompute}", scenario=Scenario("train", "gpt3-175b", "a100-sxm-80gb", settings),
        figure="step_time_s", value=seconds, unit="s", relation="equal within", tolerance=0.1, source=SELECTIVE,
        trust="DATA",
        note="published with a vocabulary of 51,200, asked with GPT-3's 50,257",
    )  # fmt: skip


@hookimpl
def slipstick_evidence() -> list[Claim]:
    """Cache capacities of vLLM, step times of Megatron-LM."""
    return [*(_capacity(*row) for row in CAPACITIES), *(_step(*row) for row in STEPS)]
