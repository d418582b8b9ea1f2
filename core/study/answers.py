"""Figures of one setting, put together: from the values of a compiled program to an ``Answer``.

Floor: study. Plain numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..algebra.units import format_si
from ..model.work import COLLECTIVES
from ..records.prediction import Answer, LedgerRow, Obstacle
from .case import Case, is_broken
from .intervals import Confidence, confidence
from .tree import Trees, shown_tree

SECONDS_PER_DAY = 86_400.0
SECONDS_PER_HOUR = 3_600.0
JOULES_PER_KWH = 3.6e6


def answer(case: Case, settings: Mapping[str, Any]) -> Answer:
    """Everything about one numeric setting. It is given even where the setting is not feasible, with the obstacles."""
    values = case.complete(settings)
    out = case.program.evaluate(values)
    figures = training_figures(case, values, out) if case.task == "train" else serving_figures(case, values, out)
    stage = fullest_stage(case, out)
    described = case.program.ledger["stages"][stage]
    prefix = f"{case.program.ledger['prefix']}{stage}."
    ledger = tuple(
        LedgerRow(row["name"], float(out[prefix + row["name"]]), row["text"], tuple(row["moments"]))
        for row in described["rows"]
    )
    peak = float(out["memory.peak"])
    parameters = {name: float(v) for name, v in values.items() if isinstance(v, (int, float))}
    shown = {name: shown_tree(case.program, root, out) for name, root in case.program.roots.items()}
    main = shown["step" if case.task == "train" else "tpot"]
    obstacles = tuple(find_obstacles(case, settings, values, figures, ledger, peak))
    sizes = {"peak": peak, "capacity": case.machine.accelerator.memory, "kv_cache": 0.0}
    sizes.update({row.name: row.bytes for row in ledger if row.name == "kv_cache"})
    trust = confidence(case, shown, figures, sizes)
    lines = [*assumption_lines(case, settings, values, trust), *narrow_lines(trust, sizes, obstacles)]
    return Answer(
        case.task, case.graph.name, case.machine.name, shown_setting(case, settings, values), figures, ledger,
        described["label"], peak, case.machine.accelerator.memory, Trees(shown, parameters), main.bound_by,
        not obstacles, obstacles, trust.calibrated, tuple(lines), trust.intervals, trust.extrapolated, trust.kernels,
    )  # fmt: skip


def shown_setting(case: Case, settings: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Every setting with its value, defaults and what follows from others included."""
    names = [d.name for d in case.plan.dimensions if not d.size]
    task = (
        ["global_batch", "micro_batch", "micro_batches", "sequence"]
        if case.task == "train"
        else ["input_tokens", "output_tokens", "concurrency", "memory_utilisation"]
    )
    found: dict[str, Any] = {"devices": _plain(values["devices"])}
    found.update({name: _plain(values[name]) for name in (*names, *task)})
    found.update({name: value for name, value in case.structure.items() if name not in found and value is not None})
    found["numerics"] = case.numerics.title
    found["node"] = case.machine.node.name
    found["kernels"] = case.plan.family.name
    # As it was asked: a capacity factor lowers what the formulas get.
    found["load_skew"] = _plain(settings.get("load_skew", values["load_skew"]))
    asked = ("straggler", "capacity_factor", "tokens", "price", "max_tpot", "max_ttft")
    found.update({name: _plain(values[name]) for name in asked if values.get(name) is not None})
    return found


def _plain(value: Any) -> Any:
    """A whole number as an int."""
    number = float(value)
    return int(number) if number == int(number) else number


def _short(value: Any) -> str:
    """A number as an error line shows it."""
    number = _plain(value)
    return str(number) if isinstance(number, int) else f"{number:.4g}"


def training_figures(case: Case, values: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any]:
    """Step time, throughput, utilisation, energy; totals of a run where tokens are given. Works on arrays too."""
    devices = values["devices"]
    step = out["step_time"]
    tokens = values["global_batch"] * values["sequence"]
    peak = case.fixed["gemm_rate"] * devices
    figures = {
        "step_time_s": step,
        "tokens_per_s": tokens / step,
        "tokens_per_s_per_device": tokens / step / devices,
        "tflops_per_device": out["model_flops"] / step / devices / 1e12,
        "hardware_tflops_per_device": out["hardware_flops"] / step / devices / 1e12,
        "mfu": out["model_flops"] / step / peak,
        "hfu": out["hardware_flops"] / step / peak,
    }
    power = case.machine.accelerator.power
    if power is not None:
        figures["step_energy_j"] = power.value * devices * step
        figures["energy_per_token_j"] = figures["step_energy_j"] / tokens
    if values.get("tokens") is not None:
        seconds = values["tokens"] / figures["tokens_per_s"]
        figures["run_days"] = seconds / SECONDS_PER_DAY
        figures["run_device_hours"] = seconds / SECONDS_PER_HOUR * devices
        if power is not None:
            figures["run_energy_kwh"] = figures["energy_per_token_j"] * values["tokens"] / JOULES_PER_KWH
        if values.get("price") is not None:
            figures["run_cost_usd"] = figures["run_device_hours"] * values["price"]
    elif values.get("price") is not None:
        figures["cost_per_million_tokens_usd"] = _per_million(values, figures["tokens_per_s"])
    return figures


def serving_figures(case: Case, values: Mapping[str, Any], out: Mapping[str, Any]) -> dict[str, Any]:
    """Latencies, throughput, capacity and energy. Works on arrays too."""
    figures = {
        "ttft_s": out["ttft"],
        "tpot_s": out["tpot"],
        "output_tokens_per_s": out["output_tokens_per_s"],
        "output_tokens_per_s_per_device": out["output_tokens_per_s"] / values["devices"],
        "tokens_per_s_per_request": 1 / out["tpot"],
        # Little's law of a closed loop: requests in flight over requests finished in a second.
        "request_s": values["concurrency"] * values["output_tokens"] / out["output_tokens_per_s"],
        "kv_capacity_tokens": out["kv_capacity_tokens"],
        "max_concurrency": out["max_concurrency"],
    }
    power = case.machine.accelerator.power
    if power is not None:
        figures["energy_per_output_token_j"] = power.value * values["devices"] / out["output_tokens_per_s"]
    if values.get("price") is not None:
        figures["cost_per_million_tokens_usd"] = _per_million(values, figures["output_tokens_per_s"])
    return figures


def _per_million(values: Mapping[str, Any], rate: Any) -> Any:
    return values["price"] * values["devices"] / SECONDS_PER_HOUR / rate * 1e6


def fullest_stage(case: Case, out: Mapping[str, Any]) -> int:
    """Number of the candidate stage whose peak is the largest."""
    stages = range(len(case.program.ledger["stages"]))
    return max(stages, key=lambda i: float(out[f"memory.{i}.peak"]))


def find_obstacles(
    case: Case,
    settings: Mapping[str, Any],
    values: Mapping[str, Any],
    figures: Mapping[str, Any],
    ledger: tuple[LedgerRow, ...],
    peak: float,
) -> list[Obstacle]:
    """Why a setting is not feasible: broken conditions, memory that overflows, limits that are not met."""
    found = [
        Obstacle(" ".join(filter(None, (c.message, _numbers(c, values)))), layout=True)
        for c, broken in case.violations(values)
        if bool(broken)
    ]
    if found:
        return found
    capacity = case.machine.accelerator.memory
    if peak > capacity:
        from .remedies import remedy

        own = [row for row in ledger if row.name != "reserve"]
        largest = max(own, key=lambda row: row.bytes)
        needs = f"{format_si(peak, 'B', 3)} of {format_si(capacity, 'B', 3)}"
        found.append(
            Obstacle(
                f"does not fit: needs {needs} on the fullest device; the largest row is {largest.name} "
                f"({format_si(largest.bytes, 'B', 3)})",
                largest.name,
                partial(remedy, case, dict(settings)),
            )
        )
    for name, limit, unit in (("tpot_s", "max_tpot", "s"), ("ttft_s", "max_ttft", "s")):
        bound = values.get(limit)
        if bound is not None and figures.get(name) is not None and figures[name] > bound:
            told = f"{format_si(figures[name], unit, 3)}, longer than the {format_si(bound, unit, 3)} asked for"
            found.append(Obstacle(f"{name[:-2]} is {told}"))
    return found


def _numbers(constraint: Any, values: Mapping[str, Any]) -> str:
    names = [name for name in dict.fromkeys((*constraint.left, *constraint.right)) if name in values]
    hidden = {"mesh_devices": "product", "reachable_devices": "reach", "layers_total": "layers"}
    told = ", ".join(f"{hidden.get(name, name)} {_short(values[name])}" for name in names)
    return f"({told})" if told else ""


def feasible_mask(case: Case, values: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """For arrays: where every condition holds, and for each broken condition where it is broken first."""
    import numpy as np

    shape = np.broadcast_shapes(*(np.shape(v) for v in values.values()))
    open_ = np.ones(shape, dtype=bool)
    reasons: dict[str, Any] = {}
    for constraint in case.constraints():
        broken = is_broken(constraint, values)
        if broken is not None:
            first = np.broadcast_to(broken, shape) & open_
            if first.any():
                reasons[constraint.message] = first
                open_ = open_ & ~first
    return open_, reasons


def trust_lines(case: Case, trust: Confidence) -> list[str]:
    """What was measured and what is only stated, in two or three lines."""
    by_share = sorted(trust.kernels.items(), key=lambda pair: -float(pair[1]["share"]))
    measured = {slot: known for slot, known in by_share if known["calibrated"]}
    refused = [slot for slot, known in by_share if slot not in measured and "engine" in known]
    stated = [slot for slot, _ in by_share if slot not in measured and slot not in refused and slot != "host"]
    lines = []
    if measured:
        told = ", ".join(
            f"{slot} {known['held_out_error']['median']:.1%}" if "held_out_error" in known else slot
            for slot, known in measured.items()
        )
        lines.append(f"kernels calibrated on measurements (median held-out error): {told}")
        if stated:
            lines.append(f"at stated efficiencies, not measured: {', '.join(stated)}")
    elif stated:
        told = ", ".join(f"{slot} {text}" for slot in stated if (text := _efficiencies(case, slot)))
        lines.append(f"uncalibrated: datasheet rates and bandwidths times stated efficiencies ({told})")
    if refused:
        lines.append(f"fitted to measurements, but not well enough to be called calibrated: {', '.join(refused)}")
    if not case.calibrated:
        name = case.stack.name if case.stack is not None else "none"
        lines.append(f"software: {name}" + (", which costs no time" if name == "ideal" else ", not calibrated"))
    lines += [f"extrapolated: {line}" for line in trust.extrapolated]
    return lines


def _efficiencies(case: Case, slot: str) -> str:
    """Fractions of rate, memory and link bandwidth that are stated for a slot, or for a kind of work without one."""
    names = ("compute_efficiency", "memory_efficiency", "link_efficiency")
    own = [case.coefficients.get(f"{name}@{slot}") for name in names]
    if not any(own):
        own = [case.coefficients.get(name) for name in (names[2:] if slot in COLLECTIVES else names[:2])]
    return "/".join(f"{quantity.value:g}" for quantity in own if quantity is not None)


def narrow_lines(trust: Confidence, memory: Mapping[str, float], obstacles: Sequence[Obstacle]) -> list[str]:
    """Whether the verdict on memory lies within the peak's uncertainty, either way; nothing without a layout."""
    if any(obstacle.layout for obstacle in obstacles):
        return []
    low, high = trust.intervals["memory_peak_bytes"]
    capacity = memory["capacity"]
    there = f"{format_si(capacity, 'B', 3)} are there"
    if memory["peak"] <= capacity < high:
        return [f"fits narrowly: the 80 % interval of the memory peak reaches {format_si(high, 'B', 3)}, {there}"]
    if low <= capacity < memory["peak"]:
        begins = format_si(low, "B", 3)
        return [f"does not fit, narrowly: the 80 % interval of the memory peak begins at {begins}, {there}"]
    return []


def slowed_lines(case: Case, settings: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """What a straggler and a capacity of experts were taken to mean."""
    lines = []
    factor, capacity = values.get("straggler", 1), values.get("capacity_factor")
    if factor != 1:
        where = "; every pipeline stage is taken to have one" if values.get("pp", 1) != 1 else ""
        lines.append(f"straggler: kernels take {factor:g} times as long, transfers as long as ever{where}")
    if capacity is not None:
        # One rank alone has every copy, whatever the skew that was asked for.
        skew = min(settings.get("load_skew", 1), values.get("ep", 1))
        if skew > capacity:
            lines.append(f"capacity factor {capacity:g}: the busiest expert rank drops {1 - capacity / skew:.1%} of "
                         "its token copies; FLOP/s and MFU still count them")  # fmt: skip
        else:
            lines.append(f"capacity factor {capacity:g}: nothing is dropped at a load skew of {skew:g}")
    return lines


def assumption_lines(
    case: Case, settings: Mapping[str, Any], values: Mapping[str, Any], trust: Confidence
) -> list[str]:
    """What a reader has to know beside the figures."""
    lines = [*case.assumptions, *trust_lines(case, trust)]
    if case.plan.recompute == "selective" and case.plan.fused_attention:
        lines.append("selective recomputation frees nothing beside fused attention: it only costs time")
    lines += slowed_lines(case, settings, values)
    power = case.machine.accelerator.power
    if power is not None:
        lines.append(
            f"energy: full board power ({format_si(power.value, 'W')}) of every device all the time, an upper "
            "estimate without hosts and network; its interval is the time's"
        )
    if case.task == "train" and case.plan.fused_attention:
        lines.append("mfu counts attention without its causal half, as published figures do; the time has it")
    if case.task == "serve":
        beside = "no prefill beside it"
        if values["prefill_factor"] > 0:
            beside = "with its share of the prefills of requests that join"
        lines.append(f"ttft is the prefill of one unqueued request; tpot a decode step at mean context, {beside}")
        tokens = values["input_tokens"] + values["output_tokens"]
    else:
        tokens = values["sequence"]
    if case.plan.packed:  # positions begin anew with each document
        tokens = values["document_tokens"]
        lines.append(f"packed: attention takes each document of {_short(tokens)} tokens for a sequence of its own")
    if case.graph.max_positions and tokens > case.graph.max_positions:
        lines.append(f"{_plain(tokens):,} tokens exceed the model's {case.graph.max_positions:,} positions")
    for key in ("text_only", "note"):
        if key in case.graph.facts:
            lines.append(case.graph.facts[key])
    return lines
