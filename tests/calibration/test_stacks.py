"""The shipped stacks are remade by one command: sound records, the same bytes each time, errors of rows left out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstick.calibration import stacks
from slipstick.calibration.stack_parts import parts_of
from slipstick.calibration.stack_runs import runs
from slipstick.calibration.stacks import KERNELS, STATED, TITLES, fitted_stacks, main, serving_folds
from slipstick.core.host.host import Host
from slipstick.core.model.interfaces.stack import NEUTRAL
from slipstick.core.model.recorded_stack import UNITS, RecordedStack
from slipstick.core.records.stack import StackRecord, read_stack, write_stack
from slipstick.hwdb import FOLDER

SERVING = "id,model,system,devices,tp,concurrency,input_len,output_len,engine,precision,tpot_ms\n"
TRAINING = "id,model,gpus,gpu_type,tp,pp,dp,micro_batch,global_batch,seq,recompute,precision,source,metric,value\n"
TRUE: dict[str, dict[str, float]] = {
    "serve": {**NEUTRAL, "time_factor": 1.3, "step_overhead": 1e-3, "prefill_factor": 1.0},
    "train": {**NEUTRAL, "time_factor": 1.2, "exposed_share": 0.4, "kernel_overhead": 2e-5, "step_overhead": 3e-3},
}


def served(tpots: Iterable[float] | None = None) -> str:
    """Two engines, two accelerators, two models, four loads."""
    asked = [
        f"{engine},{model},{device},{concurrency}"
        for engine in ("vllm", "sglang")
        for device in ("h100_sxm", "h200_sxm")
        for model in ("Llama-3.1-8B", "Qwen2.5-7B")
        for concurrency in (1, 8, 32, 64)
    ]
    times = list(tpots) if tpots is not None else [10.0] * len(asked)
    rows = []
    for number, (row, tpot) in enumerate(zip(asked, times, strict=True)):
        engine, model, device, concurrency = row.split(",")
        rows.append(
            f"S-{number},{model},{device},1,1,{concurrency},{512 * (1 + number % 2)},256,{engine},bf16,{tpot!r}\n"
        )
    return SERVING + "".join(rows)


def trained(steps: Iterable[float] | None = None) -> str:
    asked = [(tp, 8 // tp, batch) for tp in (1, 2, 4) for batch in (8, 16, 32, 64)]
    times = list(steps) if steps is not None else [1.0] * len(asked)
    return TRAINING + "".join(
        f"T-{number},Llama-3.1-8B,8,H100,{tp},1,{dp},1,{batch},2048,full,bf16,Megatron-LM paper,iter_time_s,{step!r}\n"
        for number, ((tp, dp, batch), step) in enumerate(zip(asked, times, strict=True))
    )


@pytest.fixture(scope="module")
def folder(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Published runs as one engine's coefficients would have made them, with 3 % of noise."""
    made = tmp_path_factory.mktemp("published")
    random = np.random.default_rng(0)
    for task, name, write in (("serve", "serving_points.csv", served), ("train", "training_points.csv", trained)):
        (made / name).write_text(write(), encoding="utf-8")
        found = runs(task, [made / name], host)
        parts = found.parts if task == "serve" else parts_of(task, found.questions, TRUE[task])
        times = parts.time(parts.at or TRUE[task]) * np.exp(0.03 * random.normal(size=parts.kernels.size))
        scale = 1e3 if task == "serve" else 1.0
        (made / name).write_text(write([scale * float(t) for t in times]), encoding="utf-8")
    return made


@pytest.fixture(scope="module")
def made(folder: Path, host: Host) -> tuple[list[StackRecord], list[str]]:
    return fitted_stacks(folder, host)


def by_name(made: tuple[list[StackRecord], list[str]]) -> dict[str, StackRecord]:
    return {record.name: record for record in made[0]}


def test_each_stack_with_runs_has_shared_coefficients_and_its_devices(
    made: tuple[list[StackRecord], list[str]],
) -> None:
    found = by_name(made)
    assert list(found) == ["vllm", "sglang", "megatron-lm"]
    assert [(f.task, f.accelerator, f.rows) for f in found["vllm"].fits] == [
        ("serve", "", 16), ("serve", "h100-sxm", 8), ("serve", "h200-sxm", 8)
    ]  # fmt: skip
    assert [(f.task, f.accelerator) for f in found["megatron-lm"].fits] == [("train", ""), ("train", "h100-sxm")]
    assert found["sglang"].kernels == KERNELS["sglang"]


def test_the_coefficients_are_those_that_made_the_runs(made: tuple[list[StackRecord], list[str]]) -> None:
    for name, task in (("vllm", "serve"), ("megatron-lm", "train")):
        fit = by_name(made)[name].fit(task, "h100-sxm")
        assert fit is not None
        assert fit.values["time_factor"].value == pytest.approx(TRUE[task]["time_factor"], rel=0.1)
        assert fit.errors["train"].mean < 0.06
        assert fit.values["reserve"].value == STATED[name]["reserve"][0]


def test_rows_left_out_are_predicted_well_too(made: tuple[list[StackRecord], list[str]]) -> None:
    (shared, *_) = by_name(made)["vllm"].fits
    # All runs have one layout: without it there is nothing to predict it from.
    assert set(shared.errors) == {"train", "held_out", "new_lengths", "new_model", "new_device"}
    for part in ("held_out", "new_model", "new_device"):
        assert shared.errors[part].mean < 0.1, part
        assert shared.errors[part].n == 16
    fit = by_name(made)["vllm"].fit("serve", "h100-sxm")
    assert fit is not None
    assert "new_device" not in fit.errors  # its own runs are in it
    trained_fit = by_name(made)["megatron-lm"].fit("train", "")
    assert trained_fit is not None
    assert trained_fit.errors["held_out"].mean < 0.1
    assert trained_fit.errors["held_out"].n == 12  # a small set: every row is fitted, and judged without itself


def test_spreads_are_of_the_size_of_the_noise(made: tuple[list[StackRecord], list[str]]) -> None:
    for record in made[0]:
        for fit in record.fits:
            figures = {name: value for name, value in fit.spread.items() if name != "kernels"}
            assert figures
            assert all(0 <= value < 0.15 for value in figures.values()), (record.name, fit.accelerator)
            assert 0 <= fit.spread["kernels"] <= 1


def test_the_same_runs_make_the_same_bytes_and_load(
    made: tuple[list[StackRecord], list[str]], folder: Path, host: Host, tmp_path: Path
) -> None:
    again, lines = fitted_stacks(folder, host)
    assert lines == made[1]
    for first, second in zip(made[0], again, strict=True):
        text = write_stack(first)
        assert text == write_stack(second)
        path = tmp_path / f"{first.name}.toml"
        path.write_text(text, encoding="utf-8")
        assert [f.rows for f in read_stack(path, UNITS).fits] == [f.rows for f in first.fits]


def test_the_command_writes_a_record_for_each_stack(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main([str(folder), "--output", str(tmp_path / "out")])
    assert left.value.code == 0
    out = capsys.readouterr().out
    assert "serve vllm h100-sxm: 8 fitted" in out
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == sorted(f"{name}.toml" for name in TITLES)  # a stack without runs has its name alone
    vllm = RecordedStack("vllm", tmp_path / "out" / "vllm.toml")
    assert vllm.calibrated_for("serve", "h200-sxm")
    assert not RecordedStack("fsdp", tmp_path / "out" / "fsdp.toml").calibrated_for("train", "h100-sxm")


def test_rows_that_cannot_be_asked_are_told_in_the_report(folder: Path, host: Host, tmp_path: Path) -> None:
    for name in ("serving_points.csv", "training_points.csv"):
        text = (folder / name).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text + text.splitlines()[-1].replace("Llama-3.1-8B", "NoSuch").replace(
            "Qwen2.5-7B", "NoSuch") + "\n", encoding="utf-8")  # fmt: skip
    _, lines = fitted_stacks(tmp_path, host)
    assert sum("1 rows left out" in line for line in lines) == 2


def test_a_task_without_a_run_makes_no_record(folder: Path, host: Host, tmp_path: Path) -> None:
    (tmp_path / "serving_points.csv").write_text((folder / "serving_points.csv").read_text(), encoding="utf-8")
    unknown = trained().replace("Megatron-LM paper", "a paper")
    (tmp_path / "training_points.csv").write_text(unknown, encoding="utf-8")
    records, _ = fitted_stacks(tmp_path, host)
    assert [record.name for record in records] == ["vllm", "sglang"]


def test_folds_leave_out_what_they_are_named_after(folder: Path, host: Host) -> None:
    found = runs("serve", [folder / "serving_points.csv"], host)
    folds = serving_folds(found)
    assert len(set(folds["new_model"])) == 2
    assert len(set(folds["new_lengths"])) == 2
    groups: dict[Any, set[str]] = {}
    for model, device, stack, label in zip(found.models, found.devices, found.stacks, folds["held_out"], strict=True):
        groups.setdefault((model, device, stack), set()).add(label)
    assert all(len(labels) == 1 for labels in groups.values())  # rows of one model and layout go together


@pytest.mark.parametrize("name", TITLES)
def test_the_shipped_records_state_what_they_were_tested_on(name: str) -> None:
    record = RecordedStack(name, FOLDER / "stacks" / f"{name}.toml").record
    assert (record.name, record.title, record.kernels) == (name, TITLES[name], KERNELS[name])
    assert record.fits
    for fit in record.fits:
        assert fit.rows > 0
        assert "held_out" in fit.errors or fit.rows < stacks.FEW
        assert fit.spread


def test_a_stack_that_has_no_record_yet_is_fitted_with_what_is_stated_of_it() -> None:
    """The fit must not depend on what stood in the record before; what was fitted stays until it is fitted anew."""
    for name in TITLES:
        (first, *_) = stacks._before(name, None).fits
        assert {n: q.value for n, q in first.values.items()} == {n: value for n, (value, _) in STATED[name].items()}
        path = FOLDER / "stacks" / f"{name}.toml"
        again = stacks._before(name, RecordedStack(name, path).record)
        assert write_stack(again) == path.read_text(encoding="utf-8")
