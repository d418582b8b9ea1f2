"""Every golden trace is known to exactly one of these readers, and each reader is a plugin."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import TraceReader, reader_for

MODULES = ("kineto", "nsys", "nccltests", "plain")
OWNERS = {
    "kineto_gpu.json": "pytorch-profiler",
    "nsys_stats.csv": "nsight-systems",
    "nccl_all_gather_gb10.txt": "nccl-tests",
    "nccl_all_reduce_mi355x.txt": "nccl-tests",
    "plain.csv": "plain-csv",
}


@pytest.fixture(scope="module")
def readers() -> list[TraceReader]:
    modules = [importlib.import_module(f"slipstick.calibration.readers.{name}") for name in MODULES]
    return [reader for module in modules for reader in module.slipstick_trace_readers()]


@pytest.mark.parametrize("name", OWNERS)
def test_a_trace_has_one_reader(root: Path, readers: list[TraceReader], name: str) -> None:
    assert reader_for(root / "tests" / "golden" / "traces" / name, readers).name == OWNERS[name]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hello",
        '{"backend": "vllm", "mean_ttft_ms": 12.5}',
        "[]",
        "a,b,c\n1,2,3\n",
        "size,count\n1,2\n",
        "iteration 10/ 100 | elapsed time per iteration (ms): 1234.5 |",
        "time_stats.all_reduce.median,size,num_workers\n0.1,1024,2\n",
    ],
)
def test_other_files_have_none_of_these(tmp_path: Path, readers: list[TraceReader], text: str) -> None:
    path = tmp_path / "other"
    path.write_text(text)
    with pytest.raises(UserError, match="no trace reader knows"):
        reader_for(path, readers)
