"""Training stacks: the fit that follows tangents, rows and weights, reserves, and the table of sets."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest

from slipstick.calibration import training_table
from slipstick.calibration.stack_memory import LEAST, reserves
from slipstick.calibration.stack_parts import TRAINING, UNFUSED, parts_of
from slipstick.calibration.stack_runs import SMALL, Runs, configuration, is_fitted, runs
from slipstick.calibration.stack_tangent import followed
from slipstick.calibration.stack_training import FITTED, SHRINKAGE, start_of, trained, weights_of
from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask

HEAD = (
    "id,model,gpus,gpu_type,tp,pp,dp,micro_batch,global_batch,seq,recompute,precision,zero_stage,source,metric,value\n"
)
TRUE = {"time_factor": 1.3, "collective_factor": 1.2, "exposed_share": 0.4, "launch_time": 1.5e-4}
STACK = "megatron-deepspeed"


def asked() -> list[tuple[int, int, int, int]]:
    """Tensor parallel degree, micro-batch, batch, tokens: from a host that can't keep up to products that fill it."""
    return [(tp, mb, 8 * mb, seq) for tp in (1, 2, 4, 8) for mb in (1, 2, 8) for seq in (256, 2048)]


def written(path: Path, steps: list[float]) -> Path:
    rows = [
        f"T-{i},Llama-3.1-8B,8,H100,{tp},1,{8 // tp},{mb},{batch},{seq},full,bf16,1,measured with Megatron-DeepSpeed,"
        f"iter_time_s,{step!r}\n"
        for i, ((tp, mb, batch, seq), step) in enumerate(zip(asked(), steps, strict=True))
    ]
    path.write_text(HEAD + "".join(rows), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def found(host: Host, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs as the coefficients ``TRUE`` make them, with 2 % of noise."""
    path = tmp_path_factory.mktemp("training") / "runs.csv"
    first = runs("train", [written(path, [1.0] * len(asked()))], host)
    assert set(first.stacks) == {STACK}
    made = parts_of("train", first.questions, {**start(first), **TRUE})
    noise = np.exp(0.02 * np.random.default_rng(0).normal(size=len(asked())))
    return runs("train", [written(path, (made.time(made.at) * noise).tolist())], host)


def start(found: Runs) -> dict[str, float]:
    return {name: float(values[0]) for name, values in start_of(found.stacks).items()}


def test_a_fit_along_tangents_finds_what_hides_behind_what(found: Runs) -> None:
    """Some steps are bound by the host and some by the device; the fit starts with a host half as slow."""
    rows = range(len(found.questions))
    whole, parts = followed(found, rows, start_of(found.stacks), found.stacks, found.devices, **SHRINKAGE)
    got = whole.values(STACK, "h100-sxm")
    assert set(got) == set(FITTED[STACK])
    assert got["time_factor"] == pytest.approx(TRUE["time_factor"], rel=0.05)
    assert got["launch_time"] == pytest.approx(TRUE["launch_time"], rel=0.15)
    assert float(np.abs(parts.time(parts.at) / found.measured - 1).mean()) < 0.03
    # What is not fitted stays as it was stated.
    assert np.all(parts.at["step_overhead"] == start(found)["step_overhead"])
    assert np.all(parts.at[UNFUSED] == 0.0)


def test_small_sets_are_fitted_whole_and_judged_without_each_configuration(found: Runs) -> None:
    done = trained(found)
    assert done.chosen.all()
    assert np.isfinite(done.held_out).all()
    assert float(np.abs(done.held_out / found.measured - 1).mean()) < 0.06
    assert weights_of(found, done.chosen).tolist() == [1.0] * len(asked())


def test_a_large_set_counts_as_forty_rows_at_most(found: Runs) -> None:
    several = Runs("train", found.questions * 4, np.tile(found.measured, 4), found.parts, {})
    chosen = np.ones(len(several.questions), bool)
    weights = weights_of(several, chosen)
    assert float(weights.sum()) == pytest.approx(SMALL)


def test_a_stack_has_a_start_for_every_coefficient() -> None:
    for stack, own in FITTED.items():
        given = start_of([stack])
        assert set(given) == set(TRAINING)
        assert all(given[name][0] > 0 for name in own), stack
        assert len(own) <= 4


def test_the_constant_is_one_rate_of_flops(found: Runs) -> None:
    """Runs at one rate are predicted to the last digit by it; a run twice as slow is off by a half."""
    work = training_table.hardware_flops(found)
    devices = np.full(len(work), 8.0)
    measured = work / devices / 3e14
    measured[0] *= 2
    ways = [configuration(q) for q in found.questions]
    guess = training_table.constant(work, measured, devices, np.ones(len(work), bool), ways)
    assert guess[0] / measured[0] == pytest.approx(0.5)
    fitted = np.arange(len(work)) % 2 == 1
    carried = training_table.constant(work, measured, devices, fitted, ways)
    assert carried[1:] == pytest.approx(measured[1:])


def test_repeats_say_how_well_a_run_can_be_known() -> None:
    error, several = training_table.floor(np.array([1.0, 1.1, 5.0]), ["a", "a", "b"])
    assert (error, several) == (pytest.approx((0.1 + 1 / 11) / 2), 2)
    assert training_table.floor(np.array([1.0]), ["a"]) == (0.0, 0)


def test_the_table_goes_between_its_marks() -> None:
    text = f"a\n{training_table.BEGIN}\nold\n{training_table.END}\nb\n"
    assert training_table.written(text, "new") == text.replace("old", "new")
    with pytest.raises(ValueError, match="no place for the table"):
        training_table.written("a page without marks", "new")


def test_each_set_has_rows_of_its_own(reference: Path) -> None:
    """Each set is found in the published runs, and no row is in two but by its accelerator."""
    with (reference / training_table.FILE).open(encoding="utf-8", newline="") as stream:
        names = [row["id"] for row in csv.DictReader(stream)]
    patterns = {one.rows.partition("@")[0] for one in training_table.SETS}
    for pattern in patterns:
        assert any(re.match(f"({pattern})", name) for name in names), pattern
    for name in names:
        assert sum(bool(re.match(f"({pattern})", name)) for pattern in patterns) <= 1, name


def test_a_reserve_is_what_peaks_hold_beside_the_ledger(host: Host, tmp_path: Path) -> None:
    """Peaks 6 GB above the ledger: that is the reserve, and peaks that the allocator counted are left out."""
    layouts = [(tp, pp, mb) for tp in (4, 8) for pp in (1, 2, 4, 8) for mb in (1, 2, 4)]
    lines, peaks = [], []
    for i, (tp, pp, mb) in enumerate(layouts):
        settings = {"devices": tp * pp, "tp": tp, "pp": pp, "micro_batch": mb, "global_batch": 8 * mb, "sequence": 2048,
                    "precision": "fp16", "gradients": "16bit", "recompute": "full", "zero": 1,
                    "attention": "unfused"}  # fmt: skip
        answer = ask("train", ("opt-13b",), ("a100-sxm-80gb",), settings, host).predictions[0].answer
        peaks.append(answer.peak - 1e9 + 6e9)
        for note, value in (("nvidia-smi", peaks[-1]), ("max_memory_allocated", 0.5 * peaks[-1])):
            lines.append(
                f"B-{i}-{note[0]},opt-13b,{tp * pp},A100-80GB,{tp},{pp},1,{mb},{8 * mb},2048,full,fp16,1,"
                f"bigscience chronicles,mem_gb_per_gpu,{value / 2**30!r},{note}\n"
            )
    path = tmp_path / "peaks.csv"
    path.write_text(HEAD.strip() + ",notes\n" + "".join(lines), encoding="utf-8")
    got = reserves(path, host, lambda q: True)
    assert set(got) == {"bigscience"}
    assert got["bigscience"].value == pytest.approx(6e9, rel=1e-3)
    assert got["bigscience"].rows >= LEAST
    assert got["bigscience"].errors.mean < 1e-3
    few = tmp_path / "few.csv"
    few.write_text(HEAD.strip() + ",notes\n" + "".join(lines[:4]), encoding="utf-8")
    assert reserves(few, host, lambda q: True) == {}
    assert is_fitted([]) == []
