"""Reader of serving benchmarks: what vLLM's and SGLang's own benchmark programs save as JSON.

Calibration. Stands on the core alone.

``vllm bench serve --save-result`` (before that ``benchmark_serving.py``), ``vllm bench latency``, ``vllm bench
throughput``; SGLang's ``bench_serving`` and ``bench_one_batch``, one object a line. Times are milliseconds where the
name ends in ``_ms``, else seconds. The figures are means; medians and percentiles go into the facts.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slipstick.core.errors import UserError, shown
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, Unread
from slipstick.core.records.measured import MeasuredPoint

MARKS = (
    rb'"request_throughput"',
    rb'"mean_ttft_ms"',
    rb'"avg_latency"',
    rb'"requests_per_second"',
    rb'"random_range_ratio"',
    rb'"overall_throughput"',
)
"""Names that stand near the beginning of a result and in no other JSON that is read here."""

STATISTICS = ("median", "std", "p50", "p90", "p95", "p99")
MOST = 1 << 28
"""Bytes of the largest result that is read at once; a result of a million requests with every token time is less."""


class Benchmarks(TraceReader):
    """Results of serving benchmarks of vLLM and SGLang."""

    name = "benchmarks"

    def sniff(self, path: Path, head: bytes) -> bool:
        start = head.lstrip()
        return start.startswith(b"{") and b'"traceEvents"' not in head and any(mark in head for mark in MARKS)

    def rows(self, path: Path) -> Iterator[MeasuredPoint | Unread]:
        if path.stat().st_size > MOST:
            raise UserError(
                f"{path} is larger than {MOST >> 20} MiB; save the result without the times of each request"
            )
        text = path.read_text(encoding="utf-8", errors="replace")
        found = False
        for line, result in _objects(path, text):
            found = True
            try:
                yield from _points(result, path, line)
            except UserError as error:
                raise UserError(f"{path}, line {line}: {str(error).removeprefix(f'line {line}: ')}") from None
        if not found:
            raise UserError(f"{path} is empty; a result of a benchmark is expected")


def _objects(path: Path, text: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of the file, one after the other, with their lines: one object, or one a line."""
    decoder = json.JSONDecoder()  # Infinity stands for a request rate without a limit, so it is let in
    position, end = 0, len(text)
    space = re.compile(r"\s*")
    while True:
        start = space.match(text, position)
        position = start.end() if start else position
        if position >= end:
            return
        line = text.count("\n", 0, position) + 1
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise UserError(f"{path}, line {error.lineno}: no complete JSON ({error.msg})") from None
        except RecursionError:
            raise UserError(f"{path}, line {line}: nested too deeply") from None
        except ValueError:  # a whole number of thousands of digits
            raise UserError(f"{path}, line {line}: a number of thousands of digits") from None
        if not isinstance(value, dict):
            raise UserError(f"{path}, line {line}: {shown(type(value).__name__)}; an object is expected")
        yield line, value


def _points(result: Mapping[str, Any], path: Path, line: int) -> Iterator[MeasuredPoint | Unread]:
    if "prefill_latency" in result:
        yield from _one_batch(result, path, line)
    elif "avg_latency" in result:
        yield from _latency(result, path, line)
    elif "requests_per_second" in result:
        yield from _offline(result, path, line)
    elif "request_throughput" in result:
        yield from _served(result, path, line)
    else:
        raise UserError(
            "no result of a benchmark: none of request_throughput, avg_latency, requests_per_second is there"
        )


def _served(result: Mapping[str, Any], path: Path, line: int) -> Iterator[MeasuredPoint | Unread]:
    completed = _number(result, "completed")
    if not completed:
        raise UserError("no request was completed; there is nothing to read")
    setting: dict[str, float | str] = {"task": "serve", "requests": completed}
    for name, total in (("input_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        if tokens := _number(result, total):
            setting[name] = tokens / completed
    if concurrency := _number(result, "max_concurrency"):
        setting["concurrency"] = concurrency
    rate = result.get("request_rate")
    if isinstance(rate, int | float) and math.isfinite(rate) and rate > 0:
        setting["request_rate"] = float(rate)  # "inf" stands for all at once
    stack = _stack(result)
    if stack:
        setting["stack"] = stack
    server = result.get("server_info")
    if isinstance(server, dict):
        for name, key in (("tp", "tp_size"), ("pp", "pp_size"), ("dp", "dp_size"), ("ep", "ep_size")):
            if isinstance(server.get(key), int) and server[key] > 0:
                setting[name] = float(server[key])
    common = _common(result)
    for metric, key, unit in (
        ("throughput", "output_throughput", 1.0),
        ("tokens_per_s", "total_token_throughput", 1.0),
        ("tokens_per_s", "total_throughput", 1.0),
        ("request_rate", "request_throughput", 1.0),
        ("ttft", "mean_ttft_ms", 1e-3),
        ("tpot", "mean_tpot_ms", 1e-3),
        ("latency", "mean_e2el_ms", 1e-3),
        ("latency", "mean_e2e_latency_ms", 1e-3),
    ):
        if key not in result or result[key] is None:
            continue
        value = _number(result, key)
        if not value:
            yield Unread(key, "0: nothing of the kind was measured", 1, line)
            continue
        yield _point(metric, value * unit, setting, result, path, line, {**common, **_spread(result, key)})
    if _number(result, "mean_itl_ms"):
        yield Unread("mean_itl_ms", "the time between tokens, which time per output token stands for", 1, line)
    lists = [key for key, value in result.items() if isinstance(value, list)]
    if lists:
        yield Unread(", ".join(sorted(lists)), "values of single requests", len(lists), line)


def _latency(result: Mapping[str, Any], path: Path, line: int) -> Iterator[MeasuredPoint | Unread]:
    percentiles = result.get("percentiles")
    facts = {f"p{key}": f"{value}" for key, value in percentiles.items()} if isinstance(percentiles, dict) else {}
    runs = result.get("latencies")
    setting: dict[str, float | str] = {"task": "serve", "stack": "vllm"}
    note = f"mean of {len(runs)} runs" if isinstance(runs, list) else ""
    yield _point("latency", _number(result, "avg_latency"), setting, result, path, line, facts, note)


def _offline(result: Mapping[str, Any], path: Path, line: int) -> Iterator[MeasuredPoint | Unread]:
    setting: dict[str, float | str] = {"task": "serve", "stack": "vllm"}
    if requests := _number(result, "num_requests"):
        setting["requests"] = requests
    note = "all requests at once, offline"
    yield _point("request_rate", _number(result, "requests_per_second"), setting, result, path, line, {}, note)
    if "tokens_per_second" in result:
        yield _point("tokens_per_s", _number(result, "tokens_per_second"), setting, result, path, line, {}, note)


def _one_batch(result: Mapping[str, Any], path: Path, line: int) -> Iterator[MeasuredPoint | Unread]:
    setting: dict[str, float | str] = {"task": "serve", "stack": "sglang"}
    for name, key in (("concurrency", "batch_size"), ("input_tokens", "input_len"), ("output_tokens", "output_len")):
        if value := _number(result, key):
            setting[name] = value
    run = result.get("run_name")
    facts = {"run_name": str(run)} if run else {}
    for metric, key in (
        ("ttft", "prefill_latency"), ("tpot", "median_decode_latency"), ("latency", "total_latency"),
        ("tokens_per_s", "overall_throughput"),
    ):  # fmt: skip
        if key in result:
            yield _point(metric, _number(result, key), setting, result, path, line, facts, "one static batch")


def _point(metric: str, value: float, setting: Mapping[str, float | str], result: Mapping[str, Any], path: Path,
           line: int, facts: Mapping[str, str], note: str = "") -> MeasuredPoint:  # fmt: skip
    model = next((result[key] for key in ("model_id", "model", "model_path") if result.get(key)), "")
    if not model and isinstance(result.get("server_info"), dict):
        model = result["server_info"].get("model_path") or ""
    return MeasuredPoint(metric, value, dict(setting), str(model), source=path.name, line=line, note=note, facts=facts)


def _stack(result: Mapping[str, Any]) -> str:
    """The software that served, where the name of the client's protocol tells it."""
    backend = str(result.get("backend", "")).lower()
    for mark, stack in (("sglang", "sglang"), ("vllm", "vllm"), ("trt", "tensorrt-llm"), ("tensorrt", "tensorrt-llm")):
        if mark in backend:
            return stack
    return ""


def _common(result: Mapping[str, Any]) -> dict[str, str]:
    wanted = ("backend", "endpoint_type", "dataset_name", "date", "duration", "num_prompts", "failed", "concurrency",
              "random_range_ratio", "burstiness")  # fmt: skip
    return {key: str(result[key]) for key in wanted if result.get(key) is not None}


def _spread(result: Mapping[str, Any], key: str) -> dict[str, str]:
    if not key.startswith("mean_"):
        return {}
    names = {statistic: f"{statistic}_{key.removeprefix('mean_')}" for statistic in STATISTICS}
    return {name: str(result[name]) for name in names.values() if result.get(name) is not None}


def _number(result: Mapping[str, Any], key: str) -> float:
    """The number under ``key``, 0 where there is none. Errors: UserError for what is no number, or below 0."""
    value = result.get(key)
    if value is None:
        return 0.0
    good = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        number = float(value) if good else math.nan
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise UserError(f"{key} is {shown(value)}; a number not below 0 is expected")
    return number


@hookimpl
def slipstick_trace_readers() -> list[TraceReader]:
    """The reader of serving benchmarks."""
    return [Benchmarks()]
