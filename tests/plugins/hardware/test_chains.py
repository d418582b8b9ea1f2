"""Chains of pointwise operations: what the law says of those in a model is what the microbenchmarks measure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import slipstick
from slipstick.calibration.measure_design import PASSES
from slipstick.core.host.host import default_host
from slipstick.core.study.ask import ask
from slipstick.core.study.tree import leaves
from slipstick.plugins.hardware.kernels import formulas

TOKENS, HIDDEN, FFN, WIDTH = 2 * 1024, 4096, 14336, 2.0
MARGIN = 0.02
"""A norm reads its gain beside the tensors."""


@pytest.fixture(scope="module")
def passes() -> dict[tuple[str, str], dict[str, float]]:
    """(operation, direction) → inputs of the pass, of one training step of llama-3.1-8b."""
    settings = {"devices": 1, "micro_batch": 2, "global_batch": 2, "sequence": 1024}
    answer = ask("train", ("llama-3.1-8b",), ("h100-sxm",), settings, default_host()).predictions[0].answer
    return {
        (leaf.name, leaf.tags["direction"]): {name: value for name, (_, value) in leaf.inputs.items()}
        for leaf in leaves(answer.trees["step"])
        if leaf.slot == "pointwise"
    }


@pytest.mark.parametrize(
    ("operation", "direction", "name", "elements"),
    [
        ("attention.residual + mlp.norm", "forward", "add_rms_norm", TOKENS * HIDDEN),
        ("attention.norm", "input gradient", "rms_norm_backward", TOKENS * HIDDEN),
        ("mlp.act", "forward", "silu_mul", TOKENS * FFN),
        ("mlp.act", "input gradient", "silu_mul_backward", TOKENS * FFN),
    ],
)
def test_a_measured_pass_is_one_of_the_law(
    passes: dict[tuple[str, str], dict[str, float]], operation: str, direction: str, name: str, elements: int
) -> None:
    reads, writes, flops, rounds, tensors = PASSES[name]
    found, size = passes[operation, direction], elements * WIDTH
    assert found["flops"] == flops * elements
    assert found["bytes"] == pytest.approx((reads + writes) * size, rel=MARGIN)
    assert found["further"] == rounds - 1
    assert found["bytes"] + found["spilled"] == pytest.approx(tensors * size, rel=MARGIN)


def seconds(**more: float) -> float:
    inputs: dict[str, Any] = {
        "flops": 0.0, "bytes": 8e6, "spilled": 16e6, "further": 3.0, "rate": 1e14, "bandwidth": 1e12, "cache": 1e7,
        "launch": 2e-6, "compute_efficiency": 1.0, "memory_efficiency": 0.5, "unfused_share": 0.0, "warm_cache": 1.0,
        "warm_gain": 1.0,
    }  # fmt: skip
    return float(formulas()["pointwise"].tape().evaluate({**inputs, **more})["value"])


def test_what_is_fused_is_one_kernel_and_what_is_not_is_several() -> None:
    assert seconds() == pytest.approx(2e-6 + 8e6 / 0.5e12)
    assert seconds(unfused_share=1.0) == pytest.approx(4 * 2e-6 + 24e6 / 0.5e12)
    assert seconds(unfused_share=0.5) == pytest.approx((seconds() + seconds(unfused_share=1.0)) / 2)


def test_what_fits_the_cache_moves_faster() -> None:
    assert seconds(warm_gain=4.0) == pytest.approx(2e-6 + 8e6 / 2e12)
    assert seconds(warm_gain=4.0, cache=4e6) == pytest.approx(seconds())  # twice the cache: none of it stays


def test_heads_that_tensor_cores_can_not_take_run_without_them(tmp_path: Path) -> None:
    """BLOOM's tuning runs were slow at 108, 150 and 225 elements a head; 112 and 128 were not."""
    rates = []
    for hidden, heads in ((14336, 128), (14336, 112), (14400, 96), (13824, 128)):
        config = {
            "model_type": "bloom", "hidden_size": hidden, "n_head": heads, "n_layer": 2, "vocab_size": 250880,
        }  # fmt: skip
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        settings: dict[str, Any] = {"devices": 1, "micro_batch": 1, "global_batch": 1, "sequence": 2048}
        answer = slipstick.train(str(path), on="a100-sxm-80gb", **settings).answer
        leaf = next(leaf for leaf in leaves(answer.trees["step"]) if leaf.slot == "attention.context")
        rates.append(leaf.inputs["rate"][1])
    assert rates == [312e12, 312e12, 19.5e12, 19.5e12]
