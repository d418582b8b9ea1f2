"""Shared by the tests of readers: one training step under PyTorch's profiler."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def torch_profile() -> Callable[..., dict[str, float]]:
    """Runs a small training step on the CPU and writes its trace; gives the wall time [s]."""
    torch = pytest.importorskip("torch", reason="torch is in the `torch` extra")
    profiler = pytest.importorskip("torch.profiler")

    def run(path: Path, record_shapes: bool = True) -> dict[str, float]:
        functional = torch.nn.functional
        torch.manual_seed(0)
        linear, table, norm = torch.nn.Linear(256, 512), torch.nn.Embedding(1000, 256), torch.nn.LayerNorm(256)
        weights = [*linear.parameters(), *table.parameters(), *norm.parameters()]
        optimizer = torch.optim.AdamW(weights, fused=True)

        def step() -> None:
            x = norm(table(torch.randint(0, 1000, (4, 64))))
            q = x.view(4, 64, 4, 64).transpose(1, 2).contiguous()
            attention = functional.scaled_dot_product_attention(q, q, q, is_causal=True)
            y = torch.softmax(functional.silu(linear(x)), -1)
            (y.sum() + attention.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()

        step()
        with profiler.profile(activities=[profiler.ProfilerActivity.CPU], record_shapes=record_shapes) as profile:
            begin = time.perf_counter()
            step()
            wall = time.perf_counter() - begin
        profile.export_chrome_trace(str(path))
        return {"seconds": wall}

    return run
