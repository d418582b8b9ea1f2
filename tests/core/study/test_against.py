"""A trace beside the model: kernels priced from their shapes, found in the answer, or missed on either side."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.face.cli.main import main
from slipstick.core.host.host import Host
from slipstick.core.records.fitted_toml import write_records
from slipstick.core.study.against import Comparison, against, machine_values
from slipstick.core.study.ask import ask
from slipstick.core.study.prediction import Prediction
from slipstick.core.study.tree import leaves

HEAD = "kernel,format,device,ranks,us,measured,m,n,k,bytes\n"
# Llama 3.1 8B (hidden 4096, feed-forward 14336): a prefill of 1024 tokens, its product mlp.down, on 100 TFLOP/s.
DOWN = 2 * 1024 * 4096 * 14336 / 100e12 * 1e6
MODEL = {"input_tokens": 1024, "output_tokens": 64}


@pytest.fixture(scope="module")
def slotted(slotted_file: Path) -> Host:
    return Host.load(files=[slotted_file])


@pytest.fixture
def answer(slotted: Host, chip: Path) -> Prediction:
    return ask("serve", ("llama-3.1-8b",), (str(chip),), MODEL, slotted).predictions[0]


@pytest.fixture
def trace(tmp_path: Path) -> Callable[..., Path]:
    """Write a trace in slipstick's own form."""

    def write(*rows: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(HEAD + "".join(f"{row}\n" for row in rows), encoding="utf-8")
        return path

    return write


@pytest.fixture
def compared(answer: Prediction, trace: Callable[..., Path], slotted: Host) -> Callable[..., Comparison]:
    return lambda *rows: against(answer, trace(*rows), slotted)


def gemm(us: float, m: int = 1024, n: int = 4096, k: int = 14336) -> str:
    return f"gemm,bf16,bench-chip,1,{us!r},events,{m},{n},{k},"


def test_a_product_is_priced_from_its_shape_and_found_in_the_model(compared: Callable[..., Comparison]) -> None:
    """At the stated half of the rate the product takes twice its time at the full one."""
    found = compared(gemm(2 * DOWN), gemm(2 * DOWN), gemm(2.5 * DOWN))
    (kernel,) = found.kernels
    assert (kernel.slot, kernel.leaf, kernel.count, kernel.times) == ("gemm", "mlp.down", 3, 32)
    assert kernel.measured == pytest.approx(2e-6 * DOWN)  # the median
    assert kernel.predicted == pytest.approx(2e-6 * DOWN)
    assert kernel.error == pytest.approx(0)
    assert found.priced == 1
    assert found.deviation == pytest.approx(0)
    assert found.device == "bench-chip"


def test_a_slower_run_is_told_by_how_much(compared: Callable[..., Comparison]) -> None:
    found = compared(gemm(4 * DOWN))
    assert found.kernels[0].error == pytest.approx(-0.5)
    assert found.deviation == pytest.approx(-0.5)


def test_fitted_parameters_price_the_trace_too(
    slotted: Host, chip: Path, trace: Callable[..., Path], fitted: Callable[..., Any]
) -> None:
    parameters = {"compute_efficiency": 0.8, "memory_efficiency": 0.9, "launch": 5e-6}
    write_records(chip.parent / "fitted" / "bench-chip.lab.toml", [fitted(parameters=parameters)])
    prediction = ask("serve", ("llama-3.1-8b",), (str(chip),), MODEL, slotted).predictions[0]
    (kernel,) = against(prediction, trace(gemm(DOWN)), slotted).kernels
    assert kernel.predicted == pytest.approx(1e-6 * DOWN / 0.8 + 5e-6)


def test_a_collective_is_priced_over_the_machines_link(compared: Callable[..., Comparison]) -> None:
    """2·3/4 of 40 MB at half of 100 GB/s, and 6 hops of 1 µs."""
    found = compared("all_reduce,bf16,bench-chip,4,1000,events,,,,40000000")
    (kernel,) = found.kernels
    assert (kernel.slot, kernel.leaf) == ("all_reduce", "")  # one device: the model has no collective
    assert kernel.predicted == pytest.approx(1.5 * 40e6 / 50e9 + 6e-6)


def test_what_only_one_side_has_is_told(compared: Callable[..., Comparison], answer: Prediction) -> None:
    found = compared(gemm(2 * DOWN), gemm(5, 7, 11, 13), "my_own_kernel,bf16,bench-chip,1,900,events,,,,")
    by_name = {(k.kernel, k.shape.get("m")): k for k in found.kernels}
    odd, unknown = by_name["gemm", 7], by_name["my_own_kernel", None]
    assert (odd.leaf, odd.times) == ("", 0)
    assert math.isfinite(odd.predicted)
    assert (unknown.slot, unknown.leaf) == ("", "")
    assert math.isnan(unknown.predicted)
    assert found.priced == pytest.approx((2 * DOWN + 5) / (2 * DOWN + 905))
    missing = dict(found.missing)
    assert "mlp.down" not in missing
    wanted = {leaf.name for leaf in leaves(answer.tree) if leaf.slot} - {"mlp.down"}
    assert set(missing) == wanted
    seconds = [time for _, time in found.missing]
    assert seconds == sorted(seconds, reverse=True)


def test_kernels_stand_in_the_order_of_their_share(compared: Callable[..., Comparison]) -> None:
    found = compared(*[gemm(10, 1)] * 30, gemm(200, 2), gemm(100, 3))
    assert [k.shape["m"] for k in found.kernels] == [1, 2, 3]
    assert found.seconds == pytest.approx(600e-6)


def test_what_was_not_read_is_counted(answer: Prediction, slotted: Host, tmp_path: Path) -> None:
    path = tmp_path / "trace.txt"
    path.write_text("slotted 1024 4096 14336 0.001\nlost\nlost\n", encoding="utf-8")
    found = against(answer, path, slotted)
    assert [(u.what, u.why, u.count) for u in found.unread] == [("lost", "the reader passes it over", 2)]
    assert found.kernels[0].leaf == "mlp.down"


def test_a_trace_without_kernels_is_one_line(answer: Prediction, slotted: Host, tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="no trace reader knows"):
        against(answer, path, slotted)


def test_a_family_without_slots_prices_nothing(trace: Callable[..., Path], slotted: Host, chip: Path) -> None:
    chip.write_text(chip.read_text(encoding="utf-8").replace('"slotted"', '"roofline"'), encoding="utf-8")
    prediction = ask("serve", ("llama-3.1-8b",), (str(chip),), MODEL, slotted).predictions[0]
    assert not prediction.case.plan.family.slots()
    found = against(prediction, trace(gemm(2 * DOWN)), slotted)
    assert found.priced == 0
    assert math.isnan(found.deviation)
    assert found.missing == ()


def test_what_a_formula_needs_of_a_machine(answer: Prediction) -> None:
    values = machine_values(answer.case.machine, "fp8_block")
    assert (values["rate"], values["vector_rate"], values["bandwidth"]) == (200e12, 10e12, 1e12)
    assert (values["link_bandwidth"], values["link_latency"]) == (100e9, pytest.approx(1e-6))
    assert machine_values(answer.case.machine, "bf16/fp8")["rate"] == 100e12
    assert machine_values(answer.case.machine, "of my own")["rate"] in (100e12, 200e12, 10e12)


# --- the command --------------------------------------------------------------------------------------------------


@pytest.fixture
def explain(chip: Path, slotted_file: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def run(path: Path, *words: str) -> tuple[int, str, str]:
        status = main(["--plugin", str(slotted_file), "explain", "serve", "llama-3.1-8b", "--on", str(chip), "--input",
                       "1024", "--output", "64", "--against", str(path), *words])  # fmt: skip
        out, err = capsys.readouterr()
        return status, out, err

    return run


def test_the_page_shows_measured_beside_predicted(
    explain: Callable[..., tuple[int, str, str]], trace: Callable[..., Path]
) -> None:
    status, out, err = explain(trace(gemm(4 * DOWN), "my_own_kernel,bf16,bench-chip,1,9,events,,,,"))
    assert (status, err) == (0, "")
    text = " ".join(out.split())
    for told in ("serve llama-3.1-8b on bench-chip", "m 1024", "-50%", "mlp.down", "no formula",
                 "In the model, not in the trace"):  # fmt: skip
        assert told in text


def test_many_kernels_end_in_one_line(explain: Callable[..., tuple[int, str, str]], trace: Callable[..., Path]) -> None:
    _, out, _ = explain(trace(*(gemm(100 - m, m) for m in range(1, 31))))
    assert "5 more" in out


def test_json_holds_all_of_it(explain: Callable[..., tuple[int, str, str]], trace: Callable[..., Path]) -> None:
    status, out, _ = explain(trace(gemm(4 * DOWN), "my_own_kernel,bf16,bench-chip,1,9,events,,,,"), "--json")
    document = json.loads(out)
    assert (status, document["schema"], document["device"]) == (0, 1, "bench-chip")
    first, second = document["kernels"]
    assert first["error"] == pytest.approx(-0.5)
    assert (second["kernel"], second["predicted_s"], second["error"]) == ("my_own_kernel", None, None)
    assert first["share"] + second["share"] == pytest.approx(1)


@pytest.mark.parametrize("text", ["", "\x00\x01", "kernel,us\n", HEAD, HEAD + gemm(-1) + "\n", HEAD + "gemm,bf16\n"])
def test_a_file_that_is_no_trace_is_one_line(
    explain: Callable[..., tuple[int, str, str]], tmp_path: Path, text: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text, encoding="utf-8")
    status, out, err = explain(path)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
