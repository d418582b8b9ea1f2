"""A measured metric from an answer: the same figure, counted as the row counts it.

Floor: study. Each metric is a function of the answer's figures, so that an interval of a figure becomes one of the
metric by evaluating the function at both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...records.prediction import Answer
from .names import Skipped
from .scenarios import Question

Figures = Mapping[str, float]

HIGHER_IS_BETTER = frozenset(
    ("tflops", "mfu", "tokens_per_s", "tokens_per_s_per_device", "throughput", "request_rate", "kv_capacity",
     "kv_bytes", "max_concurrency")
)  # fmt: skip
"""Metrics of which more is better; of all others less."""

SPEEDS = frozenset(("iteration", "tflops", "mfu", "tokens_per_s", "tokens_per_s_per_device"))
"""Metrics of a training run that a constant rate of FLOPs would predict."""

_TRAINING: dict[str, tuple[str, float]] = {
    "iteration": ("step_time_s", 1.0),
    "tflops": ("tflops_per_device", 1e12),
    "mfu": ("mfu", 1.0),
    "tokens_per_s": ("tokens_per_s", 1.0),
    "tokens_per_s_per_device": ("tokens_per_s_per_device", 1.0),
}


def metric_of(question: Question, answer: Answer) -> Callable[[Figures], float]:
    """How the question's metric follows from the answer's figures. Raises Skipped for one that slipstick lacks."""
    metric = question.point.metric
    if metric == "oom":
        return lambda figures: float(figures["memory_peak_bytes"] > answer.capacity)
    if metric == "memory":
        outside = sum(r.bytes for r in answer.ledger if r.name == "reserve") if "reserve" in question.said else 0.0
        return lambda figures: figures["memory_peak_bytes"] - outside
    if answer.task == "serve":
        return _served(metric, question, answer)
    if metric not in _TRAINING:
        raise Skipped(f"slipstick has no figure for {metric} of a training run yet")
    name, factor = _TRAINING[metric]
    if metric == "tflops" and question.said.get("flops") == "hardware":
        name = "hardware_tflops_per_device"
    return lambda figures: figures[name] * factor


def _served(metric: str, question: Question, answer: Answer) -> Callable[[Figures], float]:
    setting, said = answer.setting, question.said
    concurrency, prompt, output = (setting[n] for n in ("concurrency", "input_tokens", "output_tokens"))
    replicas = setting.get("dp", 1)
    if metric == "tpot":
        return lambda figures: figures["tpot_s"]
    if metric == "ttft":
        return lambda figures: figures.get("batch_ttft_s", figures["ttft_s"])
    if metric == "max_concurrency":
        return lambda figures: figures["max_concurrency"]
    if metric == "kv_capacity":
        return lambda figures: figures["kv_capacity_tokens"] * float(said.get("free_fraction", 1.0))
    if metric == "kv_bytes":
        room = max(answer.capacity - sum(row.bytes for row in answer.ledger if row.name != "kv_cache"), 0.0)
        tokens = max(answer.figures["kv_capacity_tokens"], 1.0)
        return lambda figures: room * figures["kv_capacity_tokens"] / tokens if room else 0.0
    if metric == "latency":
        return lambda figures: figures.get("batch_ttft_s", figures["ttft_s"]) + (output - 1) * figures["tpot_s"]
    if metric == "request_rate":
        return lambda figures: figures["output_tokens_per_s"] / output
    if metric not in ("throughput", "tokens_per_s"):
        raise Skipped(f"slipstick has no figure for {metric} of a server yet")
    counted = (prompt + output) / output if said.get("tokens") == "all" or metric == "tokens_per_s" else 1.0
    if said.get("tokens") == "prefill":
        return lambda figures: prompt * replicas / figures["ttft_s"]
    if said.get("tokens") == "decode":
        return lambda figures: concurrency / figures["tpot_s"]
    if question.load == "static":
        return lambda figures: (
            counted * concurrency * output / (figures["batch_ttft_s"] + (output - 1) * figures["tpot_s"])
        )
    return lambda figures: counted * figures["output_tokens_per_s"]


def with_interval(value: Callable[[Figures], float], answer: Answer, extra: Figures) -> tuple[float, float, float]:
    """The metric and the ends of its 80 % interval, which are the value itself where the answer has none."""
    figures = {**answer.figures, "memory_peak_bytes": answer.peak, **extra}
    point = float(value(figures))
    intervals: Mapping[str, tuple[float, float]] = getattr(answer, "intervals", {})
    if not intervals:
        return point, point, point
    ends = []
    for i in (0, 1):
        moved = {name: float(pair[i]) for name, pair in intervals.items() if name in figures}
        if "batch_ttft_s" in extra and "ttft_s" in moved:
            moved["batch_ttft_s"] = extra["batch_ttft_s"] * moved["ttft_s"] / answer.figures["ttft_s"]
        ends.append(float(value({**figures, **moved})))
    return point, min(ends), max(ends)
