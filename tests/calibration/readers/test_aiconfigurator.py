"""AIConfigurator's kernel tables: where they lie, what their columns mean, and tables that are damaged."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstick.calibration.readers import aiconfigurator_files
from slipstick.calibration.readers.aiconfigurator import Aiconfigurator, columns, find, read, tables
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import SHAPES, TraceRow, Unread

pa = pytest.importorskip("pyarrow", reason="Parquet needs the extra `data`")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet needs the extra `data`")

installed = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="aiconfigurator-core is not installed"
)
GEMM: dict[str, list[Any]] = {
    "framework": ["TRTLLM"] * 3,
    "version": ["1.3.0rc20"] * 3,
    "device": ["NVIDIA H100 80GB HBM3"] * 3,
    "op_name": ["gemm"] * 3,
    "kernel_source": ["torch_flow"] * 3,
    "gemm_dtype": ["bfloat16", "bfloat16", "fp8_block"],
    "m": [16, 16, 4096],
    "n": [4096, 4096, 8192],
    "k": [2048, 2048, 1024],
    "latency": [0.010, 0.014, 0.5],
}


def write(folder: Path, data: dict[str, list[Any]], where: str = "h100_sxm/gemm/trtllm/1.3.0rc20/gemm") -> Path:
    path = folder / f"{where}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(data), path)
    return path


def test_a_table_becomes_rows_and_repeats_become_one_with_the_median(tmp_path: Path) -> None:
    found = list(Aiconfigurator().rows(write(tmp_path, GEMM)))
    small, large, left = found
    assert isinstance(small, TraceRow)
    assert isinstance(large, TraceRow)
    assert (small.kernel, small.format, small.source, small.device) == ("gemm", "bf16", "torch_flow", "h100-sxm")
    assert dict(small.shape) == {"m": 16, "n": 4096, "k": 2048}
    assert small.seconds == pytest.approx(12e-6)  # milliseconds in the table
    assert (small.samples, small.line) == (2, 1)
    assert (large.format, large.line, large.samples) == ("fp8_block", 3, 1)
    assert small.facts["engine"] == "trtllm"
    assert small.facts["engine_version"] == "1.3.0rc20"
    assert left == Unread("gemm", "measured more than once; its row holds the median", 1)


def test_the_folder_names_the_device_where_the_table_does_not(tmp_path: Path) -> None:
    data = {name: values for name, values in GEMM.items() if name not in ("device", "framework", "version")}
    batch = columns(write(tmp_path, data, "l40s/gemm/vllm/0.24.0/gemm"))[0]
    assert (batch.device, batch.engine, batch.engine_version) == ("l40s", "vllm", "0.24.0")
    pq.write_table(pa.table(data), tmp_path / "gemm_perf.parquet")
    with pytest.raises(UserError, match="names no device"):
        columns(tmp_path / "gemm_perf.parquet")


@pytest.mark.parametrize("time", [0.0, -0.01, float("nan"), float("inf")])
def test_a_time_that_is_none_is_named_with_its_row(tmp_path: Path, time: float) -> None:
    path = write(tmp_path, GEMM | {"latency": [0.1, time, 0.2]})
    with pytest.raises(UserError, match=r"gemm_perf\.parquet, row 2: a time of .* positive"):
        read(path)


def test_differences_of_two_measurements_that_are_not_positive_are_counted(tmp_path: Path) -> None:
    data = {
        "kernel_source": ["sglang"] * 3,
        "op_name": ["compute_scale"] * 3,
        "quant_dtype": ["fp8"] * 3,
        "m": [1, 2, 3],
        "k": [64] * 3,
        "latency": [0.01, 0.0, -0.02],
    }
    batches, unread = read(write(tmp_path, data, "h100_sxm/quantize/sglang/0.5.14/computescale"))
    assert [batch.kernel for batch in batches] == ["compute_scale"]
    assert [len(batch) for batch in batches] == [1]
    assert [(left.count, left.why) for left in unread] == [(2, "a difference of two measurements that is not above 0")]


def test_missing_columns_and_empty_tables_are_named(tmp_path: Path) -> None:
    without = {name: values for name, values in GEMM.items() if name not in ("n", "gemm_dtype")}
    with pytest.raises(UserError, match="has no column n, gemm_dtype"):
        read(write(tmp_path, without))
    untimed = {name: values for name, values in GEMM.items() if name != "latency"}
    with pytest.raises(UserError, match=r"no column of times \(latency\)"):
        read(write(tmp_path, untimed))
    with pytest.raises(UserError, match="holds no row"):
        read(write(tmp_path, {name: [] for name in GEMM}))
    with pytest.raises(UserError, match="column m has 1 rows without a value"):
        read(write(tmp_path, GEMM | {"m": [1, None, 2]}))
    attention = {
        "attn_dtype": ["bfloat16"], "kv_cache_dtype": ["fp8"], "batch_size": [1], "num_heads": [8],
        "num_key_value_heads": [1], "head_dim": [128], "latency": [0.1], "isl": [4],
    }  # fmt: skip
    with pytest.raises(UserError, match="has no column step"):
        read(write(tmp_path, attention, "h100_sxm/attention/vllm/0.24.0/context_attention"))


def test_damaged_files_make_one_line(tmp_path: Path) -> None:
    whole = write(tmp_path, GEMM).read_bytes()
    path = tmp_path / "gemm_perf.parquet"
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:length])
        with pytest.raises(UserError, match="can't be read as Parquet") as caught:
            read(path)
        assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match="can't be read as Parquet"):
        read(tmp_path / "absent_perf.parquet")


def test_microseconds_and_milliseconds_are_told_apart(tmp_path: Path) -> None:
    common = {"kernel_source": ["deepep"], "hidden_size": [7168], "num_experts": [256]}
    low = common | {"op_name": ["ll"], "num_token": [8], "dispatch_avg_t_us": [10.0], "combine_avg_t_us": [20.0],
                    "dispatch_bandwidth_gbps": [3.0], "combine_bandwidth_gbps": [3.0]}  # fmt: skip
    found = columns(write(tmp_path, low, "h100_sxm/comm/sglang/0.5.12/wideep_deepep_ll"))
    assert [(batch.kernel, batch.seconds.tolist()) for batch in found] == [
        ("wideep_deepep_ll.dispatch", [pytest.approx(10e-6)]),
        ("wideep_deepep_ll.combine", [pytest.approx(20e-6)]),
    ]
    assert not any("us" in name or "bandwidth" in name for name in found[0].arrays)
    both = common | {"op_name": ["moe_a2a"], "phase": ["combine"], "ep_size": [8], "transmit_us": [30.0],
                     "notify_us": [2.0], "latency": [30.0]}  # fmt: skip
    (batch,) = columns(write(tmp_path, both, "h100_sxm/comm/trtllm/1.3.0rc11/moe_a2a"))
    assert (batch.kernel, batch.ranks.tolist()) == ("moe_a2a.combine", [8])
    assert batch.seconds.tolist() == [pytest.approx(32e-6)]


def test_what_an_address_finds(tmp_path: Path) -> None:
    rows = {name: values * 20 for name, values in GEMM.items()}
    for version, data in (("1.3.0rc5", rows), ("1.3.0rc20", rows), ("1.3.0rc23", GEMM)):
        write(tmp_path, data, f"h100_sxm/gemm/trtllm/{version}/gemm")
    write(tmp_path, rows, "h100_sxm/gemm/vllm/0.5.6.post2/gemm")
    write(tmp_path, rows, "a100_sxm/gemm/vllm/0.5.6/gemm")

    def versions(address: str) -> list[str]:
        return [path.parent.name for path in find(address, tmp_path)]

    assert versions("aiconfigurator:h100_sxm/gemm/trtllm") == ["1.3.0rc20"]  # rc23 holds a twentieth of the rows
    assert versions("h100-sxm/gemm") == ["1.3.0rc20", "0.5.6.post2"]
    assert versions("h100_sxm/gemm/trtllm/1.3.0rc5") == ["1.3.0rc5"]
    assert versions("h100_sxm/gemm/trtllm/*") == ["1.3.0rc5", "1.3.0rc20", "1.3.0rc23"]
    assert [table.system for table in tables(engine="vllm", folder=tmp_path)] == ["a100_sxm", "h100_sxm"]
    for address, told in (
        ("h100_sxn/gemm", "did you mean h100_sxm"),
        ("h100_sxm/gem", "did you mean gemm"),
        ("h100_sxm/gemm/sglang", "engine of AIConfigurator's tables 'sglang'"),
        ("h100_sxm/gemm/trtllm/1.3.0rc21", "version of AIConfigurator's tables '1.3.0rc21'"),
        ("h100_sxm", "is no address of a table"),
        ("h100_sxm//x", "is no address of a table"),
    ):
        with pytest.raises(UserError, match=told):
            find(address, tmp_path)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(aiconfigurator_files, "PACKAGE", "no_such_package_of_tables")
    with pytest.raises(UserError, match=r"aiconfigurator-core"):
        tables()
    with pytest.raises(UserError, match="no table of AIConfigurator lies in"):
        tables(folder=tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(UserError, match=r"slipstick\[data\]"):
        read(tmp_path / "gemm_perf.parquet")


def raw(path: Path) -> list[dict[str, Any]]:
    """The table as its own package's rows, read without the reader."""
    rows: list[dict[str, Any]] = pq.read_table(path, partitioning=None).to_pylist()
    return rows


def made(address: str) -> tuple[list[dict[str, Any]], list[TraceRow]]:
    (path,) = find(address)
    return raw(path), [row for row in Aiconfigurator().rows(path) if isinstance(row, TraceRow)]


@installed
def test_a_real_table_row_by_row() -> None:
    source, rows = made("aiconfigurator:a100_sxm/gemm/vllm")
    assert len(rows) == len(source) > 9000
    for row in rows[::97]:
        of = source[row.line - 1]
        assert dict(row.shape) == {"m": of["m"], "n": of["n"], "k": of["k"]}
        assert row.seconds == pytest.approx(of["latency"] / 1e3)
        assert (row.device, row.format) == (
            "a100-sxm-80gb",
            {"bfloat16": "bf16"}.get(of["gemm_dtype"], of["gemm_dtype"]),
        )
    assert [row.line for row in rows] == sorted(row.line for row in rows)


@installed
def test_no_gemm_of_a_real_table_is_faster_than_the_data_sheet() -> None:
    for batch in columns(find("aiconfigurator:a100_sxm/gemm/vllm")[0]):
        if batch.format == "bf16":
            rate = 2 * batch.arrays["m"] * batch.arrays["n"] * batch.arrays["k"] / batch.seconds
            assert 0.6 * 312e12 < rate.max() < 312e12  # NVIDIA A100 data sheet: 312 TFLOP/s, dense


@installed
def test_decode_context_counts_the_new_token_and_prefill_has_all() -> None:
    source, rows = made("aiconfigurator:a100_sxm/generation_attention/trtllm")
    for row in rows[::53]:
        of = source[row.line - 1]
        assert (row.shape["query"], row.shape["context"]) == (1, of["isl"] + of["step"])
        assert row.facts["kv_format"] == {"bfloat16": "bf16"}.get(of["kv_cache_dtype"], of["kv_cache_dtype"])
    powers = {row.shape["context"] for row in rows}
    assert {2.0, 1024.0, 4096.0} <= powers  # the collector sweeps lengths of whole powers of two
    _, rows = made("aiconfigurator:a100_sxm/context_attention/trtllm")
    assert all(row.shape["query"] == row.shape["context"] for row in rows)


@installed
def test_sizes_of_collectives_are_bytes() -> None:
    for batch in columns(find("aiconfigurator:h100_sxm/nccl/nccl/2.29.2")[0]):
        if batch.kernel == "all_reduce":
            bus = 2 * (batch.ranks - 1) / batch.ranks * batch.arrays["bytes"] / batch.seconds
            assert 300e9 < bus.max() < 480e9  # NVLink 4: 450 GB/s a direction, somewhat more with NVLS
            assert batch.arrays["bytes"].min() == 512  # nccl-tests was run from 512 B to 512 MiB
            assert batch.arrays["bytes"].max() == 1 << 29
    for batch in columns(find("aiconfigurator:b60/oneccl/oneccl/2021.15.9")[0]):
        # PCIe 5.0 x8: no collective is faster than its 32 GB/s, and a ring fills a good part of that
        share = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}[batch.kernel]
        bus = share * (batch.ranks - 1) / batch.ranks * batch.arrays["bytes"] / batch.seconds
        if batch.kernel != "all_to_all":
            assert 8e9 < bus.max() < 32e9


@installed
def test_experts_without_a_gate_have_two_matrices() -> None:
    for batch in columns(find("aiconfigurator:h100_sxm/moe/trtllm")[0]):
        gateless = "nongated" in batch.source  # the collector's own word, for TensorRT-LLM alone
        assert set(batch.arrays["matrices"].tolist()) == {2.0 if gateless else 3.0}
        assert (batch.facts["distribution"] == "balanced") == (batch.arrays["skew"] == 1).all()


@installed
def test_every_table_of_a_system_can_be_read_and_every_row_is_accounted_for() -> None:
    kinds = set()
    for table in tables("a100_sxm"):
        batches, unread = read(table.path)
        parts = len({batch.kernel.rpartition(".")[2] for batch in batches if ".dispatch" in batch.kernel}) or 1
        assert (
            sum(len(b) for b in batches) + sum(u.count for u in unread) == pq.read_metadata(table.path).num_rows * parts
        )
        for batch in batches:
            kinds.add(batch.kernel)
            assert np.isfinite(batch.seconds).all()
            assert (batch.seconds > 0).all()
            assert batch.device == "a100-sxm-80gb"
            if batch.kernel in SHAPES:
                assert set(batch.arrays) == set(SHAPES[batch.kernel])
    assert kinds >= {"gemm", "attention", "latent_attention", "grouped_gemm", "all_reduce", "all_gather"}
