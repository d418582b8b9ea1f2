"""Results of vLLM's and SGLang's benchmark programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slipstick.calibration.readers.benchmarks import Benchmarks
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import Unread
from slipstick.core.records.measured import MeasuredPoint


@pytest.fixture
def traces(root: Path) -> Path:
    return root / "tests" / "golden" / "traces"


def points_of(path: Path) -> tuple[list[MeasuredPoint], list[Unread]]:
    found = list(Benchmarks().rows(path))
    return [p for p in found if isinstance(p, MeasuredPoint)], [u for u in found if isinstance(u, Unread)]


def test_vllm_serve(traces: Path) -> None:
    points, unread = points_of(traces / "vllm_serve.json")
    values = {point.metric: point.value for point in points}
    assert values == {
        "throughput": 512,
        "tokens_per_s": 4608,
        "request_rate": 4,
        "ttft": pytest.approx(0.18725),
        "tpot": pytest.approx(0.0125),
    }
    setting = dict(points[0].setting)
    assert setting == {"task": "serve", "requests": 200, "input_tokens": 1024, "output_tokens": 128,
                       "concurrency": 32, "stack": "vllm"}  # fmt: skip
    ttft = next(point for point in points if point.metric == "ttft")
    assert (ttft.facts["median_ttft_ms"], ttft.facts["p99_ttft_ms"]) == ("171.5", "640.0")
    assert ttft.model == "meta-llama/Llama-3.1-8B-Instruct"
    assert [left.what for left in unread] == ["mean_itl_ms"]


def test_vllm_latency_and_throughput(traces: Path) -> None:
    ((latency,), _) = points_of(traces / "vllm_latency.json")
    assert (latency.metric, latency.value, latency.facts["p50"]) == ("latency", 1.25, "1.25")
    points, _ = points_of(traces / "vllm_throughput.json")
    assert {point.metric: point.value for point in points} == {"request_rate": 25, "tokens_per_s": 11500}


def test_sglang_writes_one_result_a_line(traces: Path) -> None:
    points, unread = points_of(traces / "sglang_serving.jsonl")
    first = {point.metric: point for point in points if point.line == 1}
    assert first["latency"].value == pytest.approx(6.2)
    assert first["throughput"].value == 320
    assert first["tokens_per_s"].value == 2880
    assert first["ttft"].model == "Qwen/Qwen3-8B"
    assert first["ttft"].setting["tp"] == 2
    assert "request_rate" not in first["ttft"].setting  # Infinity: all at once
    second = {point.metric: point for point in points if point.line == 2}
    assert second["ttft"].setting["request_rate"] == 4
    assert "tpot" not in second  # one token out has no time per output token
    assert ("mean_tpot_ms", 2) in {(left.what, left.line) for left in unread}


def test_values_of_single_requests_are_counted(tmp_path: Path, traces: Path) -> None:
    result: dict[str, Any] = json.loads((traces / "vllm_serve.json").read_text(encoding="utf-8"))
    path = tmp_path / "detailed.json"
    path.write_text(json.dumps(result | {"ttfts": [0.1, 0.2], "itls": [[0.01]]}), encoding="utf-8")
    _, unread = points_of(path)
    assert Unread("itls, ttfts", "values of single requests", 2, 1) in unread


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"completed": 0}, "line 1: no request was completed"),
        ({"mean_ttft_ms": -1}, "line 1: mean_ttft_ms is '-1'; a number not below 0"),
        ({"mean_ttft_ms": float("nan")}, "line 1: mean_ttft_ms is 'nan'; a number not below 0"),
        ({"output_throughput": "512"}, "line 1: output_throughput is '512'; a number not below 0"),
        ({"output_throughput": True}, "line 1: output_throughput is 'True'"),
        ({"total_input_tokens": 10**400}, "line 1: total_input_tokens is"),
    ],
)
def test_bad_figures_are_named(tmp_path: Path, traces: Path, change: dict[str, Any], told: str) -> None:
    result: dict[str, Any] = json.loads((traces / "vllm_serve.json").read_text(encoding="utf-8"))
    path = tmp_path / "bad.json"
    path.write_text(json.dumps(result | change), encoding="utf-8")
    with pytest.raises(UserError, match=told) as caught:
        list(Benchmarks().rows(path))
    assert "bad.json" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "is empty"),
        ('{"request_throughput": 1,', "line 1: no complete JSON"),
        ('{"request_throughput": 1, "completed": 1}\n{"a"', "line 2: no complete JSON"),
        ("[1]", "an object is expected"),
        ('{"a": 1}', "no result of a benchmark"),
        ('{"avg_latency": 0}', "latency is 0; a positive number"),
        ('{"a": ' + "[" * 100_000, "line 1: nested too deeply|no complete JSON"),
        ('{"a": ' + "9" * 5000 + "}", "thousands of digits"),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=told):
        list(Benchmarks().rows(path))
