"""``slipstick calibrate deployment``: a few points of one's own, made with known coefficients, re-fit a stack."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from slipstick.calibration.commands import calibrate
from slipstick.calibration.deployment import LEAST, deployments, joined
from slipstick.calibration.stack_parts import SERVING, parts_of
from slipstick.calibration.stack_runs import runs
from slipstick.core.errors import SlipstickError, UserError
from slipstick.core.face.cli.session import Session
from slipstick.core.host.host import Host
from slipstick.core.records.stack import write_stack
from slipstick.core.study.ask import ask

HEAD = "model,system,devices,tp,concurrency,input_len,output_len,precision,tpot_ms\n"
TRAINING = "model,gpus,gpu_type,tp,pp,dp,micro_batch,global_batch,seq,recompute,precision,metric,value\n"
Call = Callable[..., Any]


def point(concurrency: int, tpot: float = 10.0, length: int = 1024) -> str:
    return f"Llama-3.1-8B,h100_sxm,1,1,{concurrency},{length},256,bf16,{tpot!r}\n"


def slow(host: Host, path: Path, *changes: float, noise: float = 0.01, stack: str = "vllm") -> Path:
    """A file of points as ``stack`` would run them with its kernels and host slower by two factors."""
    several = [(2**i, 512 + 512 * (i % 3)) for i in range(7)]
    path.write_text(HEAD + "".join(point(c, length=n) for c, n in several), encoding="utf-8")
    found = runs("serve", [path], host, stack=stack)
    values = {n: float(host.stack(stack).coefficients("serve", "h100-sxm")[n].value) for n in SERVING}
    values["time_factor"] *= changes[0]
    values["step_overhead"] *= changes[1]
    times = found.parts.time(values) * np.exp(noise * np.random.default_rng(0).normal(size=len(several)))
    rows = [point(c, 1e3 * float(t), n) for (c, n), t in zip(several, times, strict=True)]
    path.write_text(HEAD + "".join(rows), encoding="utf-8")
    return path


@pytest.fixture
def points(host: Host, tmp_path: Path) -> Path:
    return slow(host, tmp_path / "points.csv", 1.6, 3.0)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """Call the command with a hardware folder of one's own; (status, output), or the error of a mistake."""
    monkeypatch.setenv("SLIPSTICK_HARDWARE_DIR", str(tmp_path / "mine"))

    def call(*words: object, fails: bool = False) -> Any:
        result = CliRunner().invoke(calibrate, ["deployment", *map(str, words)], obj=Session(()))
        if fails:
            assert isinstance(result.exception, SlipstickError), result.output
            return result.exception
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result.exit_code, result.output

    return call


def test_points_of_ones_own_predict_further_ones_better(host: Host, points: Path) -> None:
    began = time.perf_counter()
    (found,) = deployments([points], host, "vllm", "ours", "2026-11-30")
    assert time.perf_counter() - began < 15  # 5 s on an idle machine
    assert (found.task, found.accelerator, found.stack, found.points) == ("serve", "h100-sxm", "vllm", 7)
    assert found.improved
    assert found.before.mean > 0.3
    assert found.after.mean < 0.1
    assert found.after.mean < found.constant.mean
    before, after = found.values["time_factor"]
    assert after / before == pytest.approx(1.6, rel=0.15)
    assert found.record.fits[0].rows == 7


def test_the_record_is_a_stack_that_predicts_the_points(host: Host, points: Path, tmp_path: Path) -> None:
    found = deployments([points], host, "vllm", "ours", "2026-11-30")
    path = tmp_path / "ours.toml"
    path.write_text(write_stack(joined(found)), encoding="utf-8")
    for row in points.read_text(encoding="utf-8").splitlines()[1:]:
        *_, concurrency, length, _, _, measured = row.split(",")
        settings = {"concurrency": int(concurrency), "input_tokens": int(length), "output_tokens": 256,
                    "stack": str(path), "precision": "bf16"}  # fmt: skip
        answer = ask("serve", ("llama-3.1-8b",), ("h100-sxm",), settings, host).predictions[0].answer
        assert 1e3 * answer.figures["tpot_s"] == pytest.approx(float(measured), rel=0.1)
        assert answer.setting["stack"] == str(path)
    # What was not fitted is as it was: memory that the software keeps.
    mine, base = (host.stack(name).coefficients("serve", "h100-sxm") for name in (str(path), "vllm"))
    for name in ("reserve", "memory_utilisation", "prefill_tokens"):
        assert mine[name].value == base[name].value
    assert host.stack(str(path)).kernel_sources("serve") == host.stack("vllm").kernel_sources("serve")
    assert host.stack(str(path)).standing("serve", "b200") != ""


def test_the_same_points_give_the_same_record(host: Host, points: Path) -> None:
    first, again = (write_stack(joined(deployments([points], host, "vllm", "ours", "2026-11-30"))) for _ in range(2))
    assert first == again


def test_training_points_fit_too(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "steps.csv"
    shapes = [(t, 8 // t, b) for t in (1, 2, 4) for b in (8, 64)]

    def written(times: list[float]) -> None:
        rows = [f"Llama-3.1-8B,8,H100,{t},1,{d},1,{b},2048,full,bf16,iter_time_s,{s!r}\n"
                for (t, d, b), s in zip(shapes, times, strict=True)]  # fmt: skip
        path.write_text(TRAINING + "".join(rows), encoding="utf-8")

    written([1.0] * len(shapes))
    parts = runs("train", [path], host, stack="megatron-lm").parts
    stated = host.stack("megatron-lm").coefficients("train", "h100-sxm")
    values = {n: float(q.value) for n, q in stated.items()}
    slower = {n: 1.5 * values[n] if n == "time_factor" else values.get(n, float(v[0])) for n, v in parts.at.items()}
    made = parts_of("train", runs("train", [path], host, stack="megatron-lm").questions, slower)
    written([float(s) for s in made.time(made.at)])
    (found,) = deployments([path], host, "megatron-lm", "ours", "2026-11-30")
    assert (found.task, found.points, found.improved) == ("train", 6, True)
    assert found.after.mean < found.before.mean / 3
    assert set(found.record.fits[0].spread) == {"kernels", "step_time_s"}


@pytest.mark.parametrize("rows", [LEAST - 1, 1])
def test_too_few_points_are_one_line(host: Host, tmp_path: Path, rows: int) -> None:
    path = tmp_path / "few.csv"
    path.write_text(HEAD + "".join(point(2**i) for i in range(rows)), encoding="utf-8")
    with pytest.raises(UserError, match=rf"few\.csv: {rows} different settings; 6 or more are needed$") as caught:
        deployments([path], host, "vllm", "ours", "2026-11-30")
    assert "\n" not in str(caught.value)


def test_one_setting_measured_often_is_one_setting(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "often.csv"
    path.write_text(HEAD + point(8) * 20, encoding="utf-8")
    with pytest.raises(UserError, match="1 different settings"):
        deployments([path], host, "vllm", "ours", "2026-11-30")


def test_points_that_cannot_be_asked_are_named(host: Host, tmp_path: Path) -> None:
    path = tmp_path / "odd.csv"
    path.write_text(HEAD + point(8).replace("Llama-3.1-8B", "NoSuchModel") * 7, encoding="utf-8")
    with pytest.raises(UserError, match=r"no point that tells a time .left out: 7 × "):
        deployments([path], host, "vllm", "ours", "2026-11-30")


# --- the command --------------------------------------------------------------------------------------------------


def test_a_fit_that_improves_is_written_where_stack_finds_it(run: Call, points: Path, tmp_path: Path) -> None:
    status, out = run(points, "--name", "ours", "--date", "2026-11-30")
    path = tmp_path / "mine" / "stacks" / "ours.toml"
    assert status == 0, out
    assert "use it with --stack ours" in " ".join(out.split())
    assert "serve on h100-sxm: 7 points, stack vllm" in out
    document = tomllib.loads(path.read_text(encoding="utf-8"))
    assert (document["name"], document["fit"][0]["accelerator"]) == ("ours", "h100-sxm")
    assert document["sources"]["deployment"]["date"] == "2026-11-30"
    assert Host.load().stack("ours").calibrated_for("serve", "h100-sxm")
    assert [entry.name for entry in path.parent.iterdir()] == ["ours.toml"]


def test_a_dry_run_writes_nothing(run: Call, points: Path, tmp_path: Path) -> None:
    status, out = run(points, "--dry-run", "--json")
    document = json.loads(out)
    assert (status, document["written"]) == (0, None)
    assert not (tmp_path / "mine").exists()


def test_json_says_what_improved(run: Call, points: Path, tmp_path: Path) -> None:
    status, out = run(points, "--json", "--output", tmp_path / "out")
    document = json.loads(out)
    assert (status, document["written"]) == (0, str(tmp_path / "out" / "deployment.toml"))
    (found,) = document["deployments"]
    assert found["improved"] is True
    assert found["after"]["mean"] < found["before"]["mean"]
    assert set(found["before"]) == {"n", "mean", "median", "p90", "bias"}
    assert set(found["coefficients"]) == set(SERVING)
    assert (tmp_path / "out" / "deployment.toml").is_file()


def test_a_fit_that_improves_nothing_is_not_written(run: Call, host: Host, tmp_path: Path) -> None:
    """The shipped stack already predicts the points to the last digit: there is nothing to gain."""
    exact = slow(host, tmp_path / "exact.csv", 1.0, 1.0, noise=0.0)
    status, out = run(exact, "--output", tmp_path / "out")
    assert status == 1
    assert "nothing written" in out
    assert not (tmp_path / "out").exists()
    status, out = run(exact, "--output", tmp_path / "out", "--json")
    assert (status, json.loads(out)["written"]) == (1, None)


def test_an_old_record_is_replaced_and_stays_where_nothing_improves(
    run: Call, host: Host, points: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    run(points, "--output", out)
    before = (out / "deployment.toml").read_bytes()
    run(slow(host, tmp_path / "exact.csv", 1.0, 1.0, noise=0.0), "--output", out)
    assert (out / "deployment.toml").read_bytes() == before
    run(slow(host, tmp_path / "other.csv", 2.0, 10.0), "--output", out)
    assert (out / "deployment.toml").read_bytes() != before


def test_a_fit_may_start_from_the_ideal_stack(run: Call, host: Host, tmp_path: Path) -> None:
    """It names no kernels; the record is read again all the same."""
    path = slow(host, tmp_path / "points.csv", 1.5, 1.0, stack="ideal")
    status, out = run(path, "--stack", "ideal", "--output", tmp_path / "out")
    assert status == 0, out
    stack = Host.load().stack(str(tmp_path / "out" / "deployment.toml"))
    assert stack.kernel_sources("serve") == ()
    assert stack.calibrated_for("serve", "h100-sxm")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--stack", "vlm"), "unknown stack 'vlm'; did you mean vllm"),
        (("--name", "../x"), "--name '../x': a name is at most 64"),
        (("--name", ""), "--name '': a name is"),
        (("--stack", "none.toml"), "none.toml: no such file"),
    ],
)
def test_mistakes_are_one_line(run: Call, points: Path, tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    error = run(points, *words, fails=True)
    assert told in str(error)
    assert "\n" not in str(error)
    assert not (tmp_path / "mine").exists()


@pytest.mark.parametrize("row", ["", point(8, -1.0), point(8, float("nan")), "a,b\n", point(8).replace("10.0", "ten")])
def test_a_file_that_is_none_is_one_line(run: Call, tmp_path: Path, row: str) -> None:
    path = tmp_path / "points.csv"
    path.write_text(HEAD + row, encoding="utf-8")
    error = run(path, fails=True)
    assert "points.csv" in str(error)
    assert "\n" not in str(error)
    assert not (tmp_path / "mine").exists()
