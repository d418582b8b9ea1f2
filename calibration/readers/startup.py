"""Reader of start-up logs of serving engines: how much key-value cache vLLM, SGLang or TensorRT-LLM found room for.

Calibration. Stands on the core alone.

vLLM prints GiB; SGLang prints GB and means GiB (it divides by 1 << 30); TensorRT-LLM prints GiB. Bytes are those of
one device, tokens those of one engine (of each data-parallel replica). Ranks print the line each; the engine goes by
the smallest. TensorRT-LLM allocates twice, first to find out how much it can have: its last line counts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, Unread
from slipstick.core.records.measured import MeasuredPoint

from .log_lines import amount, kind, lines

GIB = 1 << 30
BLOCK = 16
"""Tokens of a block of vLLM's cache where the log does not tell."""

START = re.compile(r"Initializing an? (?:V1 )?LLM engine|server_args=ServerArgs\(")
"""The line with the settings that opens the log of an engine."""

N = r"(-?[\d.,]+|nan|inf)"
FIGURES: tuple[tuple[str, str, str, float, re.Pattern[str]], ...] = tuple(
    (stack, metric, take, factor, re.compile(pattern))
    for stack, metric, take, factor, pattern in (
        ("vllm", "kv_capacity", "min", 1.0, rf"GPU KV cache size: {N} tokens"),
        ("vllm", "max_concurrency", "min", 1.0, rf"Maximum concurrency for [\d,]+ tokens per request: {N}x"),
        ("vllm", "kv_bytes", "min", GIB, rf"Available KV cache memory: {N} GiB"),
        ("vllm", "kv_bytes", "min", GIB, rf"the rest of the memory reserved for KV Cache is {N}GiB"),
        ("vllm", "kv_bytes", "min", GIB, rf"\bkv_cache_size={N}GiB"),
        ("vllm", "blocks", "min", 1.0, rf"# (?:GPU|CUDA|cuda) blocks: {N}"),
        ("sglang", "kv_capacity", "min", 1.0, rf"\bmax_total_num_tokens={N}"),
        ("sglang", "kv_capacity", "min", 1.0, rf"KV Cache is allocated\. .*?#tokens: {N}"),
        ("sglang", "kv_bytes", "min", GIB, rf"KV Cache is allocated\. .*?\bKV size: {N} GB"),
        ("sglang", "k_bytes", "min", GIB, rf"KV Cache is allocated\. .*?\bK size: {N} GB"),
        ("sglang", "v_bytes", "min", GIB, rf"KV Cache is allocated\. .*?\bV size: {N} GB"),
        ("tensorrt-llm", "kv_bytes", "last", GIB, rf"Allocated {N} GiB for max tokens in paged KV cache"),
        ("tensorrt-llm", "kv_capacity", "last", 1.0, rf"for max tokens in paged KV cache \({N}\)"),
        ("tensorrt-llm", "kv_bytes", "last", 1.0, rf"Allocate {N} bytes for k/v cache"),
        ("tensorrt-llm", "kv_capacity", "last", 1.0, rf"Using {N} tokens in paged KV cache"),
    )
)
"""Stack, metric (or an intermediate), which of several counts, unit, and the text that tells it."""

SETTINGS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("tp", r"\b(?:tensor_parallel_size|tp_size)['\"]?[=:] ?(\d+)"),
        ("pp", r"\b(?:pipeline_parallel_size|pp_size)['\"]?[=:] ?(\d+)"),
        ("dp", r"\b(?:data_parallel_size|dp_size)['\"]?[=:] ?(\d+)"),
        ("ep", r"\b(?:expert_parallel_size|ep_size|moe_ep_size)['\"]?[=:] ?(\d+)"),
        ("max_length", r"\b(?:max_seq_len|max_model_len|context_len|context_length)['\"]?[=:] ?(\d+)"),
        ("max_length", r"Maximum concurrency for ([\d,]+) tokens per request"),
        ("memory_fraction", r"\b(?:gpu_memory_utilization|mem_fraction_static|free_gpu_memory_fraction)['\"]?[=:] ?"
                            r"([\d.]+)"),
        ("memory_fraction", r"gpu_memory_utilization \(([\d.]+)\)"),
        ("block_size", r"\b(?:block_size|page_size)['\"]?[=:] ?(\d+)"),
        ("block_size", r"Number of tokens per block: (\d+)"),
        ("max_batch", r"\b(?:max_running_requests|max_num_seqs|max_batch_size)['\"]?[=:] ?(\d+)"),
    )
)  # fmt: skip
TEXTS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("model", r"(?<![\w'])['\"]?\b(?:model|model_path)['\"]?[=:] ?'([^']+)'"),
        ("model", r"(?<![\w'])['\"]?\b(?:model|model_path)['\"]?[=:] ?\"([^\"]+)\""),
        ("precision", r"(?<!_)\bdtype=(?:torch\.|')?(\w+)"),
        ("quantization", r"\bquantization=['\"]?([\w-]+)"),
        ("kv_precision", r"\bkv_cache_dtype=['\"]?([\w.]+)"),
        ("version", r"LLM engine \(v([^)\s]+)\)"),
        ("version", r"vLLM API server version v?(\S+)"),
    )
)
MEMORY = (
    ("weights", re.compile(r"(?:Model loading took|model weights take|Loading model weights took) ([\d.]+ ?Gi?B)")),
    ("activations", re.compile(r"PyTorch activation peak memory takes ([\d.]+ ?GiB)")),
    ("non_torch", re.compile(r"non_torch_memory takes ([\d.]+ ?GiB)")),
    ("total", re.compile(r"total_gpu_memory \(([\d.]+ ?GiB)\)")),
    ("available", re.compile(r"available_gpu_mem=([\d.]+ ?GB)")),
)
AMOUNT = re.compile(r"\d ?(?:[KMG]i?B)\b|blocks in KV cache")
"""What else looks like a figure of memory; such lines are counted."""

NOTHING = ("None", "auto", "none", "")
FORMATS = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16", "float32": "fp32", "fp8_e4m3": "fp8",
           "fp8_e5m2": "fp8"}  # fmt: skip


@define
class _Engine:
    """What was read of one engine so far: metric → values with their lines."""

    found: dict[str, list[tuple[float, int]]] = field(factory=dict)
    setting: dict[str, float | str] = field(factory=lambda: {"task": "serve"})
    model: str = ""
    facts: dict[str, str] = field(factory=dict)
    take: str = "min"


class Startup(TraceReader):
    """Logs of vLLM, SGLang and TensorRT-LLM with the size of the key-value cache."""

    name = "startup"

    def sniff(self, path: Path, head: bytes) -> bool:
        return kind(head) == "serving"

    def rows(self, path: Path) -> Iterator[MeasuredPoint | Unread]:
        engine, opened, any_point, unused = _Engine(), 0, False, 0
        for line, text in lines(path):
            if START.search(text):
                if engine.found and opened:  # the log of another start follows
                    yield from _points(engine, path)
                    engine, any_point = _Engine(), True
                opened = line
            used = _figures(engine, path, line, text)
            used |= _settings(engine, path, line, text)
            unused += not used and AMOUNT.search(text) is not None
        if engine.found:
            yield from _points(engine, path)
            any_point = True
        if not any_point:
            raise UserError(f"{path} says nothing of the key-value cache; a log up to the end of the start is expected")
        if unused:
            yield Unread("lines with an amount of memory", "no figure of the key-value cache", unused)


def _figures(engine: _Engine, path: Path, line: int, text: str) -> bool:
    """Take what the line says of the cache; whether it says anything."""
    used = False
    for stack, metric, take, factor, pattern in FIGURES:
        match = pattern.search(text)
        if match is None:
            continue
        value = amount(path, line, metric, match[1].rstrip(".,"))
        engine.found.setdefault(metric, []).append((value * factor, line))
        engine.setting["stack"] = stack
        engine.take = take
        used = True
    return used


def _settings(engine: _Engine, path: Path, line: int, text: str) -> bool:
    """Take what the line says of the setting; whether it tells an amount of memory that is kept."""
    used = False
    for name, pattern in SETTINGS:
        if name not in engine.setting and (match := pattern.search(text)):
            value = amount(path, line, name, match[1].rstrip(".,"), zero=True)
            if value:
                engine.setting[name] = value
    for name, pattern in TEXTS:
        match = pattern.search(text)
        if match is None or match[1] in NOTHING:
            continue
        if name == "model":
            engine.model = engine.model or match[1]
        elif name == "version":
            engine.setting.setdefault("stack_version", match[1])
        else:
            engine.setting.setdefault(name, FORMATS.get(match[1], match[1]))
    for name, pattern in MEMORY:
        if match := pattern.search(text):
            engine.facts.setdefault(name, match[1])
            used = True
    return used


def _points(engine: _Engine, path: Path) -> Iterator[MeasuredPoint | Unread]:
    found = {metric: _taken(values, engine.take) for metric, values in engine.found.items()}
    counts = {metric: len(values) for metric, values in engine.found.items()}
    notes = dict.fromkeys(found, "")
    if "blocks" in found:
        blocks, line = found.pop("blocks")
        if "kv_capacity" not in found:
            block, told = _block(engine, found, blocks)
            found["kv_capacity"], notes["kv_capacity"] = (
                (blocks * block, line),
                f"{blocks:g} blocks of {block:g}, {told}",
            )
    if "k_bytes" in found:
        keys, line = found.pop("k_bytes")
        values, _ = found.pop("v_bytes", (0.0, 0))
        found.setdefault("kv_bytes", (keys + values, line))
    found.pop("v_bytes", None)
    for metric, (value, line) in found.items():
        several = counts.get(metric, 1)
        note = notes.get(metric, "")
        if several > 1:
            which = "the smallest" if engine.take == "min" else "the last"
            note = "; ".join(filter(None, (note, f"{which} of {several} lines")))
        yield MeasuredPoint(metric, value, dict(engine.setting), engine.model, source=path.name, line=line, note=note,
                            facts=dict(engine.facts))  # fmt: skip


def _taken(values: list[tuple[float, int]], take: str) -> tuple[float, int]:
    return min(values) if take == "min" else values[-1]


def _block(engine: _Engine, found: dict[str, tuple[float, int]], blocks: float) -> tuple[float, str]:
    """Tokens of a block, and how they are known."""
    stated = engine.setting.get("block_size")
    if isinstance(stated, float):
        return stated, "as the log says"
    longest, concurrency = engine.setting.get("max_length"), found.get("max_concurrency")
    if isinstance(longest, float) and concurrency is not None:
        guess = concurrency[0] * longest / blocks
        for block in (1, 8, 16, 32, 64, 128, 256):
            if abs(guess / block - 1) < 0.1:
                return float(block), "from the concurrency"
    return float(BLOCK), "the default size"


@hookimpl
def slipstick_trace_readers() -> list[TraceReader]:
    """The reader of engines' start-up logs."""
    return [Startup()]
