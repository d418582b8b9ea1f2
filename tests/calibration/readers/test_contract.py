"""The contract of a trace reader, on readers whose files do not need a folder around them."""

from __future__ import annotations

import importlib
import importlib.util
import io
from pathlib import Path
from typing import ClassVar

import pytest

from slipstick.calibration.readers.aiconfigurator import Aiconfigurator
from slipstick.calibration.readers.benchmarks import Benchmarks
from slipstick.calibration.readers.startup import Startup
from slipstick.calibration.readers.training_logs import TrainingLogs
from slipstick.core.testkit.light import TraceReaderContract

TRACES = Path(__file__).resolve().parents[2] / "golden" / "traces"


class TestBenchmarks(TraceReaderContract):
    reader = Benchmarks()
    files: ClassVar = {
        "serve.json": ((TRACES / "vllm_serve.json").read_bytes(), 5),
        "latency.json": ((TRACES / "vllm_latency.json").read_bytes(), 1),
        "throughput.json": ((TRACES / "vllm_throughput.json").read_bytes(), 2),
    }


class TestStartup(TraceReaderContract):
    reader = Startup()
    files: ClassVar = {
        "vllm.log": ((TRACES / "vllm_v1_startup.log").read_bytes(), 3),
        "sglang.log": ((TRACES / "sglang_startup.log").read_bytes(), 2),
        "trtllm.log": ((TRACES / "trtllm_startup.log").read_bytes(), 2),
    }


class TestTrainingLogs(TraceReaderContract):
    reader = TrainingLogs()
    files: ClassVar = {
        "megatron.log": ((TRACES / "megatron.log").read_bytes(), 3),
        "deepspeed.log": ((TRACES / "deepspeed.log").read_bytes(), 3),
        "torchtitan.log": ((TRACES / "torchtitan.log").read_bytes(), 4),
    }


def gemms() -> dict[str, tuple[bytes, int]]:
    """A table of two rows; none where Parquet can't be written."""
    if importlib.util.find_spec("pyarrow") is None:
        return {}
    pa, pq = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    rows = {"device": ["NVIDIA H200"] * 2, "gemm_dtype": ["fp8"] * 2, "m": [1, 2], "n": [64, 64], "k": [64, 64]}
    file = io.BytesIO()
    pq.write_table(pa.table(rows | {"latency": [0.1, 0.2]}), file)
    return {"gemm_perf.parquet": (file.getvalue(), 2)}


@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="Parquet needs the extra `data`")
class TestAiconfigurator(TraceReaderContract):
    reader = Aiconfigurator()
    files: ClassVar = gemms()
