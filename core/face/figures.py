"""Figures in a person's words and units: the label and the text of each key of the JSON schema.

Floor: face. Uses the unit table. A figure that is not named here, such as one of a plugin, is shown by its suffix.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..algebra.units import format_count, format_si

LABELS: dict[str, str] = {
    "step_time_s": "step time",
    "tokens_per_s": "throughput",
    "tokens_per_s_per_device": "per device",
    "tflops_per_device": "model FLOP/s per device",
    "hardware_tflops_per_device": "hardware FLOP/s per device",
    "mfu": "MFU",
    "hfu": "HFU",
    "run_days": "run",
    "run_device_hours": "device-hours",
    "run_cost_usd": "cost of the run",
    "step_energy_j": "energy of a step",
    "energy_per_token_j": "energy per token",
    "run_energy_kwh": "energy of the run",
    "energy_per_output_token_j": "energy per output token",
    "cost_per_million_tokens_usd": "cost per million tokens",
    "ttft_s": "time to first token",
    "tpot_s": "time per output token",
    "output_tokens_per_s": "output throughput",
    "output_tokens_per_s_per_device": "output per device",
    "tokens_per_s_per_request": "speed of one request",
    "request_s": "time of one request",
    "kv_capacity_tokens": "KV capacity",
    "max_concurrency": "most requests at once",
}
"""Key → how a person calls it."""

SHORT: dict[str, str] = {
    "step_time_s": "step",
    "tokens_per_s": "tokens/s",
    "tokens_per_s_per_device": "per device",
    "ttft_s": "TTFT",
    "tpot_s": "TPOT",
    "output_tokens_per_s": "output tokens/s",
    "mfu": "MFU",
    "devices": "GPUs",
    "global_batch": "batch",
    "micro_batch": "micro batch",
    "input_tokens": "input",
    "output_tokens": "output",
}
"""Key → the head of a narrow column."""


def label(key: str) -> str:
    """How a person calls a figure."""
    return LABELS.get(key) or key.replace("_", " ")


def short(key: str) -> str:
    """The head of a column of a figure or setting."""
    return SHORT.get(key) or key.replace("_", " ")


def figure_text(key: str, value: Any) -> str:
    """A figure in human units.

    >>> figure_text("step_time_s", 29.94), figure_text("mfu", 0.5325), figure_text("tflops_per_device", 526.86)
    ('29.94 s', '53.2%', '526.9 TFLOP/s')
    >>> figure_text("tokens_per_s", 70039.1), figure_text("kv_capacity_tokens", 698717.0), figure_text("ttft_s", None)
    ('70,040 tokens/s', '698,717 tokens', '–')
    >>> figure_text("energy_per_token_j", 0.6613), figure_text("run_energy_kwh", 2.755e6)
    ('661.3 mJ', '2.755 GWh')
    """
    if value is None:
        return "–"
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return format_si(number, "1")
    if key in ("mfu", "hfu"):
        return f"{number:.1%}"
    if "tflops" in key:
        return f"{_grouped(number)} TFLOP/s"
    if "tokens_per_s" in key:
        return f"{_grouped(number)} tokens/s"
    if key.endswith("_kwh"):
        # By its prefixes as a watt: the unit table knows them for that.
        return format_si(number * 1e3, "W") + "h"
    for ending, unit in (("_bytes", "B"), ("_usd", "USD"), ("_j", "J")):
        if key.endswith(ending):
            return format_si(number, unit)
    if key.endswith("_days"):
        return format_si(number * 86_400, "s", 3)
    if key.endswith("_s"):
        return format_si(number, "s")
    if key.endswith("_tokens"):
        return f"{_grouped(number)} tokens"
    return _grouped(number)


def setting_text(key: str, value: Any) -> str:
    """A setting's value: numbers grouped, flags as yes and no, a list as it is written, a limit with its unit.

    >>> setting_text("", (2, 4)), setting_text("max_tpot", 0.02)
    ('2,4', '20 ms')
    """
    if isinstance(value, (list, tuple)):
        return ",".join(setting_text(key, item) for item in value)
    if key in ("max_tpot", "max_ttft"):
        return format_si(value, "s")
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)):
        return format_count(value) if abs(value) >= 1e9 else _grouped(float(value))
    return str(value)


def differing(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The keys whose values are not the same in all rows, in the order of the first row that has them."""
    keys = dict.fromkeys(key for row in rows for key in row)
    return [key for key in keys if any(row.get(key) != rows[0].get(key) for row in rows[1:])]


def _grouped(value: float) -> str:
    """Four significant digits below ten thousand, grouped thousands above; whole numbers exactly."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 1e15:
        return f"{value:.4g}"
    if abs(value) >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    return format_si(value, "1")
