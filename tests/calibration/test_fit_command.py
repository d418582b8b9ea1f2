"""``slipstick calibrate fit`` from a trace to records that the host reads, and what it leaves when it can't."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from slipstick.calibration import store
from slipstick.calibration.commands import calibrate
from slipstick.calibration.fit_device import known_name, slug
from slipstick.calibration.traces import is_address, source_of
from slipstick.core.errors import SlipstickError, UserError
from slipstick.core.face.cli.session import Session
from slipstick.core.host.host import Host
from slipstick.core.records.fitted_toml import read_records

TRUE = {"launch": 2e-6, "compute_efficiency": 0.8, "memory_efficiency": 0.9, "order": 2.0}
H100 = (989.4e12, 3.35e12)  # dense BF16 rate and bandwidth of its datasheet
Call = Callable[..., Any]


def line(kernel: str, seconds: float, device: str, number_format: str = "bf16", ranks: int = 1, **shape: float) -> str:
    """One row in the toy's form."""
    extents = ";".join(f"{name}={value:.17g}" for name, value in shape.items())
    return f"toy;{kernel};{number_format};{device};{seconds:.17g};{ranks};{extents}"


def trace(toy: ModuleType, device: str, rate: float, bandwidth: float, noise: float = 0.03) -> list[str]:
    """Products, decode and prefill attention, passes and all-reduces of a device whose parameters are ``TRUE``."""
    random = np.random.default_rng(7)
    lines = []

    def jitter() -> float:
        return float(np.exp(noise * random.normal()))

    for _ in range(200):
        m = float(np.round(2.0 ** random.uniform(0, 13)))
        n, k = (float(2.0 ** random.integers(9, 14)) for _ in range(2))
        amounts = {"flops": 2 * m * n * k, "bytes": 2 * (m * k + n * k), "rate": rate, "bandwidth": bandwidth}
        lines.append(line("gemm", roof(toy, amounts) * jitter(), device, m=m, n=n, k=k))
    for query, low, high in ((1.0, 7, 15), (0.0, 6, 13)):
        for _ in range(60):
            context = float(np.round(2.0 ** random.uniform(low, high)))
            batch, heads = float(2.0 ** random.integers(0, 6)), float(2.0 ** random.integers(3, 7))
            new, kv = query or context, max(heads / 4, 1.0)
            read = 2 * batch * (kv * context + heads * new) * 256
            amounts = {"flops": 4 * batch * heads * new * context * 128, "bytes": read, "rate": rate,
                       "bandwidth": bandwidth}  # fmt: skip
            lines.append(
                line("attention", roof(toy, amounts) * jitter(), device, batch=batch, query=new, context=context,
                     heads=heads, kv_heads=kv, head_dim=128, window=0, causal=1)
            )  # fmt: skip
    for size in np.geomspace(1e3, 1e9, 40):
        lines.append(line("pointwise", (2e-6 + size / (0.9 * bandwidth)) * jitter(), device, bytes=float(size)))
    return lines


def roof(toy: ModuleType, amounts: dict[str, float]) -> float:
    """Seconds of the toy's roof with the true parameters."""
    return float(toy.ROOF.tape().evaluate({**amounts, **TRUE}, ["value"])["value"])


@pytest.fixture
def run(toy_file: Path) -> Call:
    """Call ``calibrate`` in a session with the toy family; a mistake comes out as its error."""

    def call(*words: str, fails: bool = False) -> Any:
        result = CliRunner().invoke(calibrate, words, obj=Session((str(toy_file),)))
        if fails:
            assert isinstance(result.exception, SlipstickError), result.output
            return result.exception
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == 0, result.output
        return result.output

    return call


def written(path: Path, lines: Iterable[str]) -> str:
    """The path of a trace with these lines."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def host() -> Host:
    """A host of what is installed."""
    return Host.load()


FIT = ("--family", "toy", "--date", "2026-11-30")


def test_a_trace_of_a_known_accelerator_becomes_records(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    name = written(tmp_path / "trace.toy", [*trace(toy, "NVIDIA H100 80GB HBM3", *H100), "toy;lost;;x;1;1;"])
    output = run("fit", name, *FIT, "--engine", "vllm", "--output", str(tmp_path / "out"))
    assert "attention.decode (group 2 to 16, head_dim 128)" in output
    assert "1 × lost" in output
    assert "the toy can't read it" in output
    path = tmp_path / "out" / "fitted" / "h100-sxm.vllm.toml"
    found = {record.slot: record for record in read_records(path)}
    assert set(found) == {"gemm", "attention.decode", "attention.context", "pointwise"}
    assert all(record.calibrated for record in found.values()), [record.reason for record in found.values()]
    gemm = found["gemm"]
    assert {n: gemm.parameters[n] for n in TRUE} == pytest.approx(TRUE, rel=0.1)
    assert gemm.rows == 199  # two of the 200 random shapes are equal: one row, their median
    assert gemm.errors["held_out"].median < 0.04
    assert (gemm.source.date, gemm.kernel_source, gemm.engine) == ("2026-11-30", "lib", "vllm")
    assert gemm.command == f"slipstick calibrate fit {name} --engine vllm --family toy --date 2026-11-30"
    assert found["attention.decode"].where == {"group": (2, 16), "head_dim": (128, 128)}
    assert not (tmp_path / "out" / "h100-sxm.toml").exists()  # slipstick knows it already


def test_the_same_trace_gives_the_same_bytes(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    name = written(tmp_path / "trace.toy", trace(toy, "h100-sxm", *H100))
    for out in ("a", "b"):
        run("fit", name, *FIT, "--output", str(tmp_path / out))
    first, second = (tmp_path / out / "fitted" / "h100-sxm.trace.toml" for out in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()


def test_an_unheard_of_accelerator_becomes_one_in_one_command(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    lines = trace(toy, "Acme Wonder X1", 2e14, 1e12)
    for bytes_ in np.geomspace(1e4, 1e9, 12):
        for ranks in (2, 4):
            seconds = 2 * (ranks - 1) * 1e-6 + 2 * (ranks - 1) / ranks * bytes_ / (0.8 * 1e11)
            lines.append(line("all_reduce", seconds, "Acme Wonder X1", ranks=ranks, bytes=float(bytes_)))
    name = written(tmp_path / "trace.toy", lines)
    output = run("fit", name, *FIT, "--memory", "96GB", "--output", str(tmp_path / "out"))
    assert "acme-wonder-x1" in output
    file = tmp_path / "out" / "acme-wonder-x1.toml"
    host = Host.load()
    machine = host.machine(str(file))
    assert machine.accelerator.memory_capacity.value == 96e9
    # the highest rate that was measured lies a little below what the roof can do, and so does the bandwidth
    assert 0.6 * 0.8 * 2e14 < machine.accelerator.rates["bf16"].value < 1.15 * 0.8 * 2e14
    assert 0.8 * 0.9e12 < machine.accelerator.memory_bandwidth.value < 1.15 * 0.9e12
    assert machine.accelerator.rates["bf16"].source.kind == "measured"
    assert machine.accelerator.rates["fp32"].source.kind == "default"  # no product in FP32 was measured
    assert machine.node.tiers[0].span == 4
    assert machine.accelerator.kernels == "toy"
    found = {record.slot: record for record in host.fitted(machine.name, machine.folder)}
    assert found["gemm"].calibrated
    assert found["all_reduce"].rows == 24
    # the fitted fraction of a lower rate is higher: together they are the rate that the device really has
    real = found["gemm"].parameters["compute_efficiency"] * machine.accelerator.rates["bf16"].value
    assert real == pytest.approx(0.8 * 2e14, rel=0.05)


def test_the_memory_of_an_unknown_device_is_asked_for(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    name = written(tmp_path / "trace.toy", trace(toy, "Acme Wonder X1", 2e14, 1e12))
    out = tmp_path / "out"
    error = run("fit", name, *FIT, "--output", str(out), fails=True)
    assert "--memory" in str(error)
    assert "--like" in str(error)
    assert not out.exists()
    run("fit", name, *FIT, "--like", "h100-sxm", "--output", str(out))
    assert 'value = "80 GB"' in (out / "acme-wonder-x1.toml").read_text()
    run("fit", name, *FIT, "--device", "h100-sxm", "--output", str(out))  # or it is a known one
    assert (out / "fitted" / "h100-sxm.trace.toml").exists()


def test_records_in_ones_own_folder_are_shown_and_listed(
    toy: ModuleType, run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTICK_HARDWARE_DIR", str(tmp_path / "mine"))
    name = written(tmp_path / "trace.toy", trace(toy, "Acme Wonder X1", 2e14, 1e12))
    run("fit", name, *FIT, "--memory", "96GB")
    shown = run("show", "acme-wonder-x1", "--slot", "gemm")
    assert "compute_efficiency" in shown
    assert "held_out" in shown
    assert "calibrated" in shown
    assert "acme-wonder-x1" in run("records")
    assert "acme-wonder-x1" in json.loads(run("records", "--json"))["accelerators"]
    assert "gemm" in str(run("show", "acme-wonder-x1", "--slot", "gem", fails=True))
    assert "nothing is calibrated" in str(run("show", "tpu-v4", fails=True))


def test_a_second_engine_and_a_second_fit_keep_what_is_there(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    rows = trace(toy, "h100-sxm", *H100)
    out = ("--output", str(tmp_path / "out"))
    run("fit", written(tmp_path / "a.toy", rows[:200]), *FIT, *out)
    run("fit", written(tmp_path / "b.toy", rows[200:]), *FIT, *out)
    run("fit", written(tmp_path / "c.toy", rows[:150]), *FIT, *out)
    found = {record.slot: record for record in read_records(tmp_path / "out" / "fitted" / "h100-sxm.trace.toml")}
    assert set(found) == {"gemm", "attention.decode", "attention.context", "pointwise"}
    assert found["gemm"].rows == 149  # the last fit of a kernel stands; two equal shapes are one row
    assert found["pointwise"].rows == 40


def test_json_and_dry_run(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    name = written(tmp_path / "trace.toy", trace(toy, "h100-sxm", *H100))
    body = json.loads(run("fit", name, *FIT, "--output", str(tmp_path / "out"), "--dry-run", "--json"))
    assert body["written"] == []
    assert not (tmp_path / "out").exists()
    assert {record["slot"] for record in body["records"]} >= {"gemm", "attention.decode"}
    assert body["rows"] == 199 + 120 + 40  # two equal shapes are one row
    assert all(
        set(record["errors"]["held_out"]) == {"n", "mean", "median", "p90", "bias"} for record in body["records"]
    )


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["toy;lost;;x;1;1;"], "nothing to fit"),
        (["toy;strange;bf16;h100-sxm;1;1;m=1"], "strange"),
        (["toy;gemm;bf16;h100-sxm;no;1;m=1"], "not a toy"),
        (["toy;gemm;bf16;h100-sxm;-1;1;m=1;n=1;k=1"], "positive"),
        (["other"], "no trace reader knows"),
    ],
)
def test_a_trace_with_nothing_to_fit_is_one_line_and_no_record(
    run: Call, tmp_path: Path, lines: list[str], told: str
) -> None:
    name = written(tmp_path / "trace.toy", lines)
    error = run("fit", name, *FIT, "--output", str(tmp_path / "out"), fails=True)
    assert told in str(error)
    assert "\n" not in str(error)
    assert not (tmp_path / "out").exists()


def test_mistakes_in_options_are_told(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    name = written(tmp_path / "trace.toy", trace(toy, "h100-sxm", *H100)[:50])
    assert "toy" in str(run("fit", name, "--family", "toi", fails=True))
    assert "no slots" in str(run("fit", name, "--family", "roofline", "--dry-run", fails=True))
    assert "date" in str(run("fit", name, "--family", "toy", "--date", "soon", fails=True))
    assert "can't be read" in str(run("fit", str(tmp_path / "none.toy"), *FIT, fails=True))
    assert "--memory" in str(
        run("fit", written(tmp_path / "u.toy", trace(toy, "Unknown", 1e14, 1e12)), *FIT, fails=True)
    )


def test_an_unsound_file_of_records_is_told_and_kept(toy: ModuleType, run: Call, tmp_path: Path) -> None:
    name = written(tmp_path / "trace.toy", trace(toy, "h100-sxm", *H100)[:100])
    path = tmp_path / "out" / "fitted" / "h100-sxm.trace.toml"
    path.parent.mkdir(parents=True)
    path.write_text("schema = 9\n")
    run("fit", name, *FIT, "--output", str(tmp_path / "out"), fails=True)
    assert path.read_text() == "schema = 9\n"


def test_a_write_that_fails_takes_back_what_was_written(
    toy: ModuleType, run: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(tmp_path / "trace.toy", trace(toy, "Acme Wonder X1", 2e14, 1e12))
    out = tmp_path / "out"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "replace_file", full)  # the accelerator's file, which is written last
    error = run("fit", name, *FIT, "--memory", "96GB", "--output", str(out), fails=True)
    assert "No space left" in str(error)
    assert [path for path in out.rglob("*") if path.is_file()] == []


def test_a_row_of_several_kernels_holds_what_was_fitted_of_the_others(
    toy: ModuleType, run: Call, tmp_path: Path
) -> None:
    rate, bandwidth = H100
    random = np.random.default_rng(3)
    # passes over memory at a fifth of the toy's stated efficiency of 0.7: held at that, the experts could not fit
    lines = [
        line("pointwise", 2e-6 + size / (0.14 * bandwidth), "h100-sxm", bytes=float(size))
        for size in np.geomspace(1e4, 1e10, 60)
    ]
    for _ in range(200):
        tokens = float(2.0 ** random.integers(0, 15))
        hidden, ffn = (float(random.choice([1024, 2048, 4096])) for _ in range(2))
        experts, top_k = float(random.choice([8, 16, 64])), float(random.choice([1, 2, 8]))
        amounts = {"flops": 6 * tokens * top_k * hidden * ffn, "bytes": 6 * experts * hidden * ffn, "rate": rate,
                   "bandwidth": bandwidth}  # fmt: skip
        seconds = roof(toy, amounts) + 2e-6 + 4 * tokens * top_k * hidden / (0.14 * bandwidth)
        lines.append(
            line("grouped_gemm", seconds, "h100-sxm", tokens=tokens, hidden=hidden, ffn=ffn, experts=experts,
                 top_k=top_k, tp=1, ep=1, skew=1, matrices=3)
        )  # fmt: skip
    name = written(tmp_path / "trace.toy", lines)
    run("fit", name, *FIT, "--output", str(tmp_path / "out"))
    found = {record.slot: record for record in read_records(tmp_path / "out" / "fitted" / "h100-sxm.trace.toml")}
    assert found["pointwise"].parameters["memory_efficiency"] == pytest.approx(0.14, rel=0.02)
    assert found["grouped_gemm"].parameters == pytest.approx(TRUE, rel=0.1)
    assert "pointwise" in found["grouped_gemm"].note


@pytest.mark.parametrize(
    ("device", "name"),
    [
        # as drivers report them (nvidia-smi, rocm-smi)
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H200", "h200-sxm"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000"),
        ("AMD Instinct MI300X", "mi300x"),
        ("h100", "h100-sxm"),
        ("NVIDIA H900 Ultra", ""),
        ("cpu", ""),
    ],
)
def test_names_of_drivers_are_known(host: Host, device: str, name: str) -> None:
    assert known_name(device, host) == name


def test_small_parts() -> None:
    assert slug("Intel(R) Xeon(R) CPU @ 2.20GHz") == "intel-r-xeon-r-cpu-2-20ghz"
    with pytest.raises(UserError, match="--device"):
        slug("☃")
    assert is_address("aiconfigurator:h100_sxm/gemm")
    assert source_of(["a/b/trace.json"], "2026-11-30").title == "measured: trace.json"


def test_help_names_every_command_without_loading_them() -> None:
    output = CliRunner().invoke(calibrate, ["--help"]).output
    for name in ("fit", "show", "records", "measure"):
        assert f"  {name}" in output
