"""Reader of training logs: the lines that Megatron-LM, DeepSpeed and torchtitan print for each iteration.

Calibration. Stands on the core alone.

A run makes one point a metric: the median over its iterations after the first ones, which are slower (compilation,
caches, allocation). Where the log prints the arguments of the run, they become its setting. Memory is the greatest.
Units: Megatron prints ms, TFLOP/s and MiB (as MB); DeepSpeed ms, samples/s and GiB (as GB); torchtitan tokens/s of one
device, TFLOP/s, GiB and per cent.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from pathlib import Path

from attrs import define, field

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.trace_reader import TraceReader, Unread
from slipstick.core.records.measured import MeasuredPoint

from .log_lines import amount, kind, lines

WARM_UP = 2
"""Iterations at the beginning that are left out where at least ``ENOUGH`` remain; of fewer, the first one."""

ENOUGH = 3
MIB, GIB = 1 << 20, 1 << 30
N = r"(-?[\d.,]+(?:[eE][+-]?\d+)?|-?nan|-?inf)"

MEGATRON = re.compile(r"\biteration\s+(\d+)\s*/\s*\d+\s*\|")
TITAN = re.compile(r"\bstep:\s*(\d+)\s+\S*loss:")
DEEPSPEED = re.compile(r"CurrSamplesPerSec=|(?<!RunningAvg)(?<!Curr)SamplesPerSec=|time \(ms\) \| (?:fwd|forward):")

FIELDS: tuple[tuple[str, float, re.Pattern[str]], ...] = tuple(
    (metric, factor, re.compile(pattern))
    for metric, factor, pattern in (
        ("iteration", 1e-3, rf"elapsed time per iteration \(ms\): {N}"),
        ("tflops", 1e12, rf"throughput per GPU \(TFLOP/s/GPU\): {N}"),
        ("tflops", 1e12, rf"approx flops per GPU: {N} ?TFLOPS"),
        ("tflops", 1e12, rf"\| TFLOPs: {N}"),
        ("tokens_per_s_per_device", 1.0, rf"tokens per GPU \(tokens/s/GPU\): {N}"),
        ("tokens_per_s_per_device", 1.0, rf"tokens per gpu per second \(tgs\): {N}"),
        ("tokens_per_s_per_device", 1.0, rf"\btps: {N}"),
        ("tflops", 1e12, rf"\btflops: {N}"),
        ("mfu", 1e-2, rf"\bmfu: {N}%"),
        ("memory", GIB, rf"\bmemory:\s+{N}GiB"),
        ("memory", GIB, rf"\bMaxMemAllocated={N} ?GB"),
        ("memory", MIB, rf"memory \(MB\) \|.*?\bmax allocated: {N}"),
        ("samples", 1.0, rf"(?<!RunningAvg)SamplesPerSec={N}"),
        ("step", 1e-3, rf"time \(ms\) \| (?:fwd|forward): .*?\| step: {N}"),
    )
)
"""Metric (samples: per second of all devices) → unit and the text that tells it; the first that fits a line counts."""

ARGUMENTS = {
    "tensor_model_parallel_size": "tp", "pipeline_model_parallel_size": "pp", "context_parallel_size": "cp",
    "expert_model_parallel_size": "ep", "data_parallel_size": "dp", "world_size": "devices",
    "micro_batch_size": "micro_batch", "global_batch_size": "global_batch", "seq_length": "sequence",
    "train_micro_batch_size_per_gpu": "micro_batch", "train_batch_size": "global_batch",
    "gradient_accumulation_steps": "accumulation", "zero_optimization_stage": "zero_stage",
}  # fmt: skip
"""Argument as the logs print it → setting."""

SIZES = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups", "num_experts",
         "padded_vocab_size", "recompute_granularity", "sequence_parallel", "virtual_pipeline_model_parallel_size",
         "use_distributed_optimizer", "overlap_grad_reduce", "transformer_impl")  # fmt: skip
"""Arguments that are kept as facts."""

ARGUMENT = re.compile(r"^(?:\S*\s)?\s*(\w+) \.{3,} ?(\S+)\s*$")
CONFIG = re.compile(r"\[config\.py:\d+:print\]\s+(\w+) [. ]*(\S+)\s*$")
ELSEWHERE: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("devices", r"using world size: ?(\d+)"),
        ("dp", r"data-parallel[- ]size: ?(\d+)"),
        ("tp", r"tensor-model-parallel[- ]size: ?(\d+)"),
        ("pp", r"pipeline-model-parallel[- ]size: ?(\d+)"),
        ("cp", r"context-parallel[- ]size: ?(\d+)"),
        ("micro_batch", r"initialized with local batch size (\d+)"),
        ("global_batch", r"local batch size \d+, global batch size (\d+)"),
        ("sequence", r"\bsequence length (\d+), total steps"),
        ("pp", r"Building device mesh with parallelism: pp=(\d+)"),
        ("dp", r"Building device mesh .*?\bdp_shard=(\d+)"),
        ("cp", r"Building device mesh .*?\bcp=(\d+)"),
        ("tp", r"Building device mesh .*?\btp=(\d+)"),
        ("ep", r"Building device mesh .*?\bep=(\d+)"),
    )
)
MODEL = re.compile(r"\bModel (\S+ \S+) size: [\d,]+ total parameters")
DEVICE = re.compile(r"CUDA capacity: (.+?) with [\d.]+ ?GiB memory")
UNUSED = re.compile(r"time \(ms\) \||time across ranks \(ms\)|validation loss at|samples/sec: |\bMA [\d.]+ GB")
"""What else looks like a measurement; such lines are counted."""
BATCH = re.compile(r"global batch size:\s*(\d+)")


@define
class _Run:
    """What was read of the run so far. ``steps``: iteration → metric → values of all ranks that printed it."""

    stack: str = ""
    setting: dict[str, float | str] = field(factory=lambda: {"task": "train"})
    facts: dict[str, str] = field(factory=dict)
    steps: dict[int, dict[str, list[float]]] = field(factory=dict)
    batches: dict[int, float] = field(factory=dict)
    first_line: int = 0
    current: int = 0
    unused: int = 0
    memory: float = 0.0
    model: str = ""
    device: str = ""


class TrainingLogs(TraceReader):
    """Logs of Megatron-LM, DeepSpeed and torchtitan with a line for each iteration."""

    name = "training-logs"

    def sniff(self, path: Path, head: bytes) -> bool:
        return kind(head) == "training"

    def rows(self, path: Path) -> Iterator[MeasuredPoint | Unread]:
        run = _Run()
        for line, text in lines(path):
            _line(run, path, line, text)
        if not run.steps and not run.memory:
            raise UserError(f"{path} has no line of an iteration of Megatron-LM, DeepSpeed or torchtitan")
        yield from _points(run, path)
        if run.unused:
            yield Unread(
                "lines of times, samples or memory", "not those of an iteration or of its optimizer", run.unused
            )


def _line(run: _Run, path: Path, line: int, text: str) -> None:
    megatron, titan = MEGATRON.search(text), TITAN.search(text)
    if megatron or titan:
        match = megatron or titan
        assert match is not None
        run.current = int(match[1][:12])
        # DeepSpeed's own lines stand between those of a Megatron that trains with it
        run.stack = run.stack if run.stack and not titan else ("megatron" if megatron else "torchtitan")
    elif DEEPSPEED.search(text):
        run.stack = "deepspeed"
        if "SamplesPerSec=" in text:
            told = re.search(r"global_step=(\d+)|\b\d+/(\d+), ", text)
            run.current = int((told[1] or told[2])[:12]) if told else run.current + 1
    elif "max allocated:" not in text:
        _setting(run, path, line, text)
        run.unused += bool(UNUSED.search(text))
        return
    found: dict[str, float] = {}
    for metric, factor, pattern in FIELDS:
        if metric not in found and (match := pattern.search(text)):
            found[metric] = amount(path, line, metric, match[1].rstrip(".,"), zero=metric == "step") * factor
    if not found:
        return
    run.first_line = run.first_line or line
    run.memory = max(run.memory, found.pop("memory", 0.0))
    if found:
        step = run.steps.setdefault(run.current, {})
        for metric, value in found.items():
            step.setdefault(metric, []).append(value)
    if batch := BATCH.search(text):
        run.batches[run.current] = amount(path, line, "global batch size", batch[1])


def _setting(run: _Run, path: Path, line: int, text: str) -> None:
    match = ARGUMENT.match(text) or CONFIG.search(text)
    if match:
        name, value = match[1], match[2]
        if name in ARGUMENTS and re.fullmatch(r"\d{1,12}", value):
            run.setting.setdefault(ARGUMENTS[name], float(value))
        elif name in SIZES and value != "None":
            run.facts.setdefault(name, value)
        elif name in ("bf16", "fp16", "bfloat16_enabled", "fp16_enabled", "float16_enabled") and value == "True":
            run.setting.setdefault("precision", "bf16" if name.startswith("bf") else "fp16")
        elif name == "fp8" and value not in ("None", "False"):
            run.setting["precision"] = "fp8"
        return
    for name, pattern in ELSEWHERE:
        if name not in run.setting and (told := pattern.search(text)):
            run.setting[name] = amount(path, line, name, told[1], zero=True)
    if told := MODEL.search(text):
        run.model = run.model or told[1]
    if told := DEVICE.search(text):
        run.device = run.device or told[1]


def _points(run: _Run, path: Path) -> Iterator[MeasuredPoint | Unread]:
    setting = run.setting | {"stack": run.stack or "megatron"}
    steps = dict(sorted(run.steps.items()))
    if len(set(run.batches.values())) > 1:  # the batch was ramped up
        last = run.batches[max(run.batches)]
        other = [step for step in steps if run.batches.get(step, last) != last]
        for step in other:
            del steps[step]
        yield Unread("iterations", f"with another global batch than {last:g}", len(other))
    if run.batches:
        setting["global_batch"] = run.batches[max(run.batches)]
    kept = list(steps.values())
    cut = WARM_UP if len(kept) >= WARM_UP + ENOUGH else 1 if len(kept) > 1 else 0
    if cut:
        yield Unread("iterations", "warm-up", cut)
    pooled = kept[cut:]
    batch = setting.get("global_batch")
    for metric in dict.fromkeys(name for step in pooled for name in step):
        values = [statistics.median(step[metric]) for step in pooled if metric in step]
        value, told = statistics.median(values), f"median of {len(values)} iterations"
        if cut:
            told += f", the first {cut} left out"
        if metric == "samples":
            if any("iteration" in step for step in pooled):
                continue
            if not isinstance(batch, float):
                yield Unread(
                    "SamplesPerSec", "the log does not tell train_batch_size, so it gives no time", len(values)
                )
                continue
            metric, value, told = "iteration", batch / value, f"from samples per second, {told}"
        if not value:
            yield Unread(metric, "0", len(values))
            continue
        yield _point(run, path, metric, value, setting, told)
    if run.memory:
        yield _point(run, path, "memory", run.memory, setting, "the greatest of the log")


def _point(run: _Run, path: Path, metric: str, value: float, setting: dict[str, float | str], note: str
           ) -> MeasuredPoint:  # fmt: skip
    return MeasuredPoint(metric, value, dict(setting), run.model, run.device, source=path.name, line=run.first_line,
                         note=note, facts=dict(run.facts))  # fmt: skip


@hookimpl
def slipstick_trace_readers() -> list[TraceReader]:
    """The reader of training logs."""
    return [TrainingLogs()]
