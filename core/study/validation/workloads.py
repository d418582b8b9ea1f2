"""Settings of one task from a measured row: batch, lengths, load and number formats.

Floor: study. What a row leaves blank takes slipstick's own default, and the row a note that says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...errors import shown
from ...model.graph import ModelGraph
from ...records.measured import MeasuredPoint
from ..settings import SettingInfo
from .names import Skipped, first_of, found

WITHOUT_LOAD = ("kv_capacity", "kv_bytes", "max_concurrency")
"""Figures of a server that do not depend on its load."""

Infos = Mapping[str, SettingInfo]


def training(
    point: MeasuredPoint, graph: ModelGraph, said: Mapping[str, Any], infos: Infos, notes: list[str], pp: int = 1
) -> dict[str, Any]:
    """The settings of a training row beside its layout; ``notes`` gains what was taken for granted. Raises Skipped.

    ``pp``: its pipeline stages.
    """
    setting = point.setting
    wanted: dict[str, Any] = {}
    if "micro_batch" not in setting and "global_batch" not in setting:
        raise Skipped("neither the micro-batch nor the whole batch is stated")
    for name in ("micro_batch", "global_batch", "sequence"):
        value = setting.get(name)
        if value is None:
            notes.append(f"{name.replace('_', ' ')} not stated: slipstick's default")
        else:
            wanted[name] = whole(value, name)
    recompute = setting.get("recompute", said.get("recompute"))
    if "recompute" not in setting:
        notes.append(f"recomputation not stated: {recompute or 'none'} taken")
    if recompute is not None:
        wanted["recompute"] = recompute
    if "zero" in setting:
        wanted["zero"] = whole(setting["zero"], "zero stage")
    if "sequence_parallel" in setting:
        wanted["sequence_parallel"] = bool(whole(setting["sequence_parallel"], "sequence parallelism"))
    interleave = setting.get("interleave", 1)
    option = first_of(("interleave", "virtual_stages"), infos)
    if ("interleave" not in setting and said.get("interleaved")) or isinstance(interleave, str):
        possible = infos[option].choices if option is not None else ()
        interleave = max((v for v in possible if v * pp <= graph.layers), default=1)
        notes.append(f"interleaved, the row not saying how often: {interleave} parts a device, as many as layers allow")
    if interleave != 1:
        if option is not None:
            wanted[option] = whole(interleave, "interleave")
        else:
            notes.append(f"{interleave:g} stages a device, interleaved: predicted as 1F1B without")
    if "ends" in said and pp > 1 and {"first_layers", "last_layers"} <= infos.keys():
        each, more = divmod(graph.layers + 2, pp)
        if more:
            raise Skipped(f"{graph.layers + 2} layers, embedding and output counted, are not dealt out to {pp} stages")
        wanted |= {"first_layers": each - 1, "last_layers": each - 1}
    text = str(setting.get("precision", ""))
    chosen = number_format("train", text, point.model, infos)
    if chosen is not None:
        wanted["precision"] = chosen
    if f"{chosen}_gradients" in said:
        wanted["gradients"] = said[f"{chosen}_gradients"]
    if "attention" in said:
        wanted["attention"] = said["attention"]
    if "dispatch" in said and "dispatch" in infos and "experts" in graph.sizes:
        wanted["dispatch"] = said["dispatch"]
    for name in ("expert_overlap", "cuda_graph"):
        if name in said and name in infos and (name != "expert_overlap" or "experts" in graph.sizes):
            wanted[name] = said[name]
    if "lora_rank" in said:
        wanted["lora_rank"] = int(said["lora_rank"])
        notes.append(f"rank of the adapters not stated: {wanted['lora_rank']} taken, on all layers")
    if said.get("mtp") and "mtp" in graph.extras:
        wanted["mtp"] = True
    return wanted


def serving(
    point: MeasuredPoint, said: Mapping[str, Any], infos: Infos, notes: list[str]
) -> tuple[dict[str, Any], str, float]:
    """The settings of a serving row beside its layout, the kind of load, and the rate [requests/s] of an open one."""
    setting = point.setting
    loaded = point.metric not in WITHOUT_LOAD
    wanted: dict[str, Any] = {}
    first_token = point.metric == "ttft" or said.get("tokens") == "prefill"
    for name, what in (("input_tokens", "prompt length"), ("output_tokens", "length of the answer")):
        value = setting.get(name)
        if value is not None:
            wanted[name] = _length(value, what, notes)
        elif loaded and name == "output_tokens" and first_token:
            wanted[name] = 1
        elif loaded:
            raise Skipped(f"the {what} is not stated")
    load, rate = "closed", 0.0
    if loaded:
        concurrency, load, rate = _load(setting)
        if load == "closed" and said.get("load") == "static":
            load = "static"
        wanted["concurrency"] = concurrency
        if load == "max":
            notes.append("batch not stated: as many requests as fit, at most 2,048 a replica")
    weights, _, cache = str(setting.get("precision", "")).partition("/kv ")
    chosen = number_format("serve", weights, point.model, infos)
    if chosen is not None:
        wanted["precision"] = chosen
    if cache:
        kept = first_of((cache,), infos["kv_precision"].choices)
        if kept is None:
            raise Skipped(f"a cache in {shown(cache)} is not modelled yet")
        wanted["kv_precision"] = kept
    if "memory_utilisation" in said:
        wanted["memory_utilisation"] = float(said["memory_utilisation"])
    if "free_fraction" in said:
        wanted["memory_utilisation"] = 1.0
    return wanted, load, rate


def number_format(task: str, text: str, model: str, infos: Infos) -> str | None:
    """The number format that a row's text means to ``task``; None where it says nothing. Raises Skipped."""
    if not text.replace("gemm=", "").replace("moe=", "").strip():
        return None
    entry = found("precision", text, task=task, model=model)
    if entry is None:
        raise Skipped(f"number format {shown(text)} is not known")
    wanted = list(map(str, entry.data["formats"]))
    chosen = first_of(wanted, infos["precision"].choices)
    if chosen is None:
        raise Skipped(f"{'training' if task == 'train' else 'serving'} in {wanted[0]} is not modelled yet")
    return chosen


def whole(value: Any, name: str) -> int:
    """A whole number. Raises Skipped for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise Skipped(f"{name} is {shown(value)}; a whole number is expected")
    return int(value)


def _length(value: float | str, what: str, notes: list[str]) -> int:
    """Tokens: a number, a mean ("512 avg"), or a shared prefix and what follows it ("100+466 (...)")."""
    if isinstance(value, float | int):
        return max(1, round(value))
    match = re.match(r"(\d+)(?:\+(\d+))?(?: avg|\s*\(|$)", value)
    if match is None:
        raise Skipped(f"the {what} is {shown(value)}, a distribution")
    if match[2]:
        notes.append("a prefix shared by all prompts is computed for each")
    else:
        notes.append(f"the {what} is a mean")
    return int(match[1]) + int(match[2] or 0)


def _load(setting: Mapping[str, float | str]) -> tuple[int, str, float]:
    """Requests in flight, the kind of load, and the rate of an open one."""
    value = setting.get("concurrency")
    if isinstance(value, int | float):
        return whole(value, "concurrency"), "closed", 0.0
    if value is None:
        rate = setting.get("request_rate")
        if isinstance(rate, int | float) and rate > 0:
            return 1, "rate", float(rate)
        raise Skipped("how many requests are in flight is not stated")
    if value == "max":
        return 1, "max", 0.0
    match = re.fullmatch(r"rate ([\d.]+) req/s", value)
    if match is not None:
        return 1, "rate", float(match[1])
    raise Skipped(f"a load of {shown(value)} is no number of requests in flight")
