"""The shipped stacks: coefficients fitted to published runs, judged on runs that were left out.

Floor: calibration. ``python -m slipstick.calibration.stacks FOLDER`` remakes ``hwdb/stacks`` from a folder with
``serving_points.csv`` and ``training_points.csv``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve

from slipstick.core.files import replace_file
from slipstick.core.host.host import Host
from slipstick.core.model.interfaces.stack import COEFFICIENTS
from slipstick.core.model.recorded_stack import RecordedStack, unit_of
from slipstick.core.records.fitted import ErrorSummary
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.stack import StackFit, StackRecord, write_stack

from .stack_fit import coverage, fit, held_out, predicted, spreads, summary
from .stack_memory import Reserve, reserves
from .stack_runs import Runs, configuration, fifth, runs
from .stack_training import FITTED, trained
from .stack_training import STATED as TRAINING_STATED

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

TITLES = {
    "vllm": "vLLM", "sglang": "SGLang", "tensorrt-llm": "TensorRT-LLM",
    "megatron-lm": "Megatron-LM of 2024 on (Megatron Core) and NeMo",
    "megatron-lm-2021": "Megatron-LM of 2021, no sequence parallelism, attention not fused",
    "megatron-lm-2022": "Megatron-LM of 2022, with sequence parallelism, attention not fused",
    "megatron-bridge": "NVIDIA Megatron-Bridge from container 26.06 on",
    "megatron-bridge-25": "NVIDIA Megatron-Bridge, containers 25.09 to 26.04",
    "megatron-deepspeed": "Megatron-DeepSpeed of 2022 and 2023",
    "bigscience": "BigScience's Megatron-DeepSpeed on Jean Zay",
    "deepspeed": "DeepSpeed ZeRO-3 without model parallelism",
    "fsdp": "PyTorch FSDP: fms-fsdp, ATorch", "llm-foundry": "MosaicML llm-foundry (FSDP, eager)",
    "torchtitan": "torchtitan (FSDP2, torch.compile)", "llama3": "Meta's training software of Llama 3 (4D)",
    "nemo-automodel": "NVIDIA NeMo Automodel (FSDP2, DeepEP)", "maxtext": "MaxText and Paxml (JAX)",
}  # fmt: skip

TRAINING_KERNELS = ("nccl", "trtllm", "vllm", "sglang")

KERNELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    **{name: {"train": TRAINING_KERNELS} for name in FITTED},
    "vllm": {"serve": ("gptossmxfp4moe", "flashinfer_trtllm", "moe_triton_tritonexperts", "vllm", "nccl")},
    "sglang": {"serve": ("flashinfer_trtllm_moe", "fused_moe_triton", "sglang", "nccl")},
    "tensorrt-llm": {"serve": ("moe_torch_flow_min_latency", "trtllm", "nccl")},
}  # fmt: skip
"""Whose kernels each stack runs: parts of kernels' names (its own choice where an engine has several), then engines.
Training runs cuBLAS for its products, which the records of all three engines hold."""

STATED: Mapping[str, Mapping[str, tuple[float, str]]] = {
    **dict.fromkeys(FITTED, TRAINING_STATED),
    "vllm": {"reserve": (1.0e9, ""), "memory_utilisation": (0.9, "default of gpu_memory_utilization"),
             "prefill_tokens": (8192.0, "default of max_num_batched_tokens for an API server")},
    "sglang": {"reserve": (1.0e9, ""), "memory_utilisation": (0.88, "typical mem_fraction_static"),
               "prefill_tokens": (8192.0, "default of chunked_prefill_size")},
    "tensorrt-llm": {"reserve": (1.0e9, ""), "memory_utilisation": (0.9, "default of free_gpu_memory_fraction"),
                     "prefill_tokens": (8192.0, "default of max_num_tokens")},
}  # fmt: skip

DEFAULT = Source("default", "stated default, not fitted", "docs/stacks.md", "2026-11-30", "default")
DATE = "2026-11-30"


def _with_stated(name: str, values: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """``values``, and what is stated of a stack beside them; what was stated before is as it is stated now."""
    fitted = {n: quantity for n, quantity in values.items() if quantity.source.kind != DEFAULT.kind}
    stated = {n: Quantity(v, COEFFICIENTS[n][0], DEFAULT, note=hint) for n, (v, hint) in STATED[name].items()}
    return {**fitted, **{n: quantity for n, quantity in stated.items() if n not in fitted}}


def _before(name: str, record: StackRecord | None) -> StackRecord:
    """The record that runs are priced with while its stack is fitted: its own kernels, and what is stated of it."""
    bare = tuple(StackFit(task=task, values={}) for task in KERNELS[name])
    known = StackRecord(name=name, title=TITLES[name], kernels={}, fits=()) if record is None else record
    fits = tuple(evolve(one, values=_with_stated(name, one.values)) for one in known.fits or bare)
    return evolve(known, kernels=KERNELS[name], fits=fits)


def serving_folds(found: Runs) -> dict[str, list[str]]:
    """Ways to leave rows out: name of the part of the errors → a label a row, one label is left out at a time."""
    layout = [str([q.settings.get(n) for n in ("devices", "tp", "pp", "dp", "ep")]) for q in found.questions]
    lengths = [str([q.settings.get(n) for n in ("input_tokens", "output_tokens")]) for q in found.questions]
    models, devices, stacks = found.models, found.devices, found.stacks
    group = [f"{m} {d} {s} {x}" for m, d, s, x in zip(models, devices, stacks, layout, strict=True)]
    return {
        "held_out": [str(fifth(g)) for g in group],
        "new_layout": [str(fifth(x)) for x in layout],
        "new_lengths": lengths,
        "new_model": models,
    }


def fitted_stacks(folder: Path, host: Host) -> tuple[list[StackRecord], list[str]]:
    """The records of all stacks, and lines that tell what was fitted, left out and reached."""
    lines: list[str] = []
    fits: dict[str, list[StackFit]] = {name: [] for name in TITLES}
    for task, file in (("serve", "serving_points.csv"), ("train", "training_points.csv")):
        found = runs(task, [folder / file], host, lambda q: str(q.case.structure.get("stack")) in TITLES)
        for reason, count in sorted(found.skipped.items()):
            lines.append(f"{file}: {count} rows left out: {reason}")
        for name, part in _task(task, found, file, lines).items():
            fits[name] += part
    training = folder / "training_points.csv"
    for name, reserve in reserves(training, host, lambda q: str(q.case.structure.get("stack")) in FITTED).items():
        fits[name] = [_with_reserve(one, reserve) for one in fits[name]]
        lines.append(f"train {name}: reserve {reserve.value / 1e9:.1f} GB, {_told({'memory': reserve.errors})}")
    records = [
        StackRecord(name=name, title=title, kernels=KERNELS[name], fits=tuple(fits[name]))
        for name, title in TITLES.items()
        if fits[name]
    ]
    return records, lines


def _task(task: str, found: Runs, file: str, lines: list[str]) -> dict[str, list[StackFit]]:
    import numpy as np

    measured, stacks, devices = found.measured, found.stacks, found.devices
    tested: dict[str, Array] = {}
    if task == "serve":
        parts = found.parts
        chosen = np.isfinite(measured) & (measured > 0)
        rows = np.flatnonzero(chosen).tolist()
        whole = fit(parts.take(rows), measured[rows], [stacks[i] for i in rows], [devices[i] for i in rows])
        for name, folds in serving_folds(found).items():
            tested[name] = held_out(parts, measured, stacks, devices, folds)
        tested["new_device"] = held_out(parts, measured, stacks, devices, devices, forget_device=True)
        # People ask for models that were fitted and for ones that were not: the spread is that of both together.
        known = np.exp(0.5 * (np.log(tested["held_out"]) + np.log(tested["new_model"])))
    else:
        done = trained(found)
        parts, chosen, whole = done.found.parts, done.chosen, done.whole
        tested["held_out"] = known = done.held_out
    # Rows of one model under one layout stand or fall together: spreads for some come from the others.
    folds = [str(fifth(configuration(q))) for q in found.questions]
    if task == "serve":
        folds = serving_folds(found)["held_out"]
    train = np.where(chosen, predicted(whole, parts, stacks, devices), np.nan)
    source = Source("fit", f"slipstick's fit to published runs ({file})", "docs/stacks.md", DATE, "fitted")
    result: dict[str, list[StackFit]] = {name: [] for name in TITLES}
    for name in sorted(set(stacks)):
        of_stack = np.array([s == name for s in stacks])
        own_devices = sorted({d for d, s in zip(devices, stacks, strict=True) if s == name})
        for device in ("", *own_devices):
            group = of_stack & np.array([not device or d == device for d in devices])
            count = int((group & chosen).sum())
            if not count:
                continue
            errors = {"train": summary(train[group], measured[group])}
            errors |= {part: summary(times[group], measured[group]) for part, times in tested.items()}
            if device:
                errors.pop("new_device", None)
            errors = {part: error for part, error in errors.items() if error.n}
            judged = tested["new_device"] if task == "serve" and not device else known
            share, spread = spreads(judged[group], measured[group], parts.kernels[group])
            if int(np.isfinite(judged[group]).sum()) < FEW:  # too few to tell: what all runs of the stack show
                share, of_all = spreads(known[of_stack], measured[of_stack], parts.kernels[of_stack])
                spread = max(spread, of_all)
            values = whole.values(name, device)
            own = [i for i in range(len(stacks)) if group[i]]
            held = coverage(judged[group], measured[group], parts.kernels[group], [folds[i] for i in own])
            note = (
                f"80 % intervals hold {held.inside:.0%} of {held.n} rows that were not fitted, with spreads from other "
                f"rows; median width {held.width:.3f}, {held.width / max(held.error, 1e-9):.1f} times the median error "
                f"of {held.error:.3f}; interval score {held.score:.3f}"
            )
            fits = (share, spread)
            result[name].append(_record(task, name, device, values, fits, count, errors, source, note))
            told = f"spread {spread:.3f} and {share:g} of the kernels'"
            lines.append(f"{task} {name} {device or 'all'}: {count} fitted, {_told(errors)}, {told}; {note}")
    return result


def _with_reserve(one: StackFit, found: Reserve) -> StackFit:
    source = Source("fit", "slipstick's fit to published runs (training_points.csv)", "docs/stacks.md", DATE, "fitted")
    note = f"median of {found.rows} measured peaks over the ledger"
    values = {**one.values, "reserve": Quantity(found.value, "B", source, note=note)}
    spread = {**one.spread, "memory_peak_bytes": round(found.spread, 4)}
    return evolve(one, values=values, spread=spread, errors={**one.errors, "memory": found.errors})


FEW = 10
"""Runs that were not fitted, below which a device's own spread is not told from them."""


def _record(
    task: str, name: str, device: str, values: Mapping[str, float], spread: tuple[float, float], rows: int,
    errors: Mapping[str, ErrorSummary], source: Source, note: str,
) -> StackFit:  # fmt: skip
    quantities = _with_stated(name, {n: Quantity(v, unit_of(n), source) for n, v in values.items()})
    figures = ("tpot_s", "output_tokens_per_s", "request_s") if task == "serve" else ("step_time_s",)
    told = {"kernels": spread[0], **dict.fromkeys(figures, round(spread[1], 4))}
    return StackFit(
        task=task, accelerator=device, values=quantities, spread=told, rows=rows, errors=errors,
        command="python -m slipstick.calibration.stacks FOLDER", note=note,
    )  # fmt: skip


def _told(errors: Mapping[str, ErrorSummary]) -> str:
    """Mean, median and p90 of each part."""
    return ", ".join(
        f"{part} {e.mean:.1%}/{e.median:.1%}/{e.p90:.1%} (n {e.n}, bias {e.bias:+.1%})" for part, e in errors.items()
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Remake the records."""
    import click

    from slipstick.hwdb import FOLDER

    @click.command()
    @click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
    @click.option("--output", type=click.Path(file_okay=False, path_type=Path), default=FOLDER / "stacks")
    def remake(folder: Path, output: Path) -> None:
        """Fit the stacks to the published runs in FOLDER."""
        # Runs are priced with what their stack's record names and states: one that says something else, or is not there
        # yet, would be fitted to kernels that it does not run.
        for path in (place / f"{name}.toml" for place in {output, FOLDER / "stacks"} for name in TITLES):
            record = RecordedStack(path.stem, path).record if path.exists() else None
            replace_file(path, write_stack(_before(path.stem, record)))
        records, lines = fitted_stacks(folder, Host.load())
        for line in lines:
            click.echo(line)
        for record in records:
            replace_file(output / f"{record.name}.toml", write_stack(record))
            click.echo(f"wrote {output / record.name}.toml")

    remake.main(args=list(arguments) if arguments is not None else None, standalone_mode=True)


if __name__ == "__main__":
    main()
