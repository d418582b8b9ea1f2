"""Profiles of Nsight Systems: the CSV of ``nsys stats``, and data bases with the tables of its export."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.calibration.readers.nsys import Nsys
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import HEAD, TraceRow, Unread

READER = Nsys()
H100 = "NVIDIA H100 80GB HBM3"
THREAD = (1 << 56) | (4242 << 24) | 4242  # a process id and a thread id in one number
PROCESS = THREAD & ~0xFFFFFF


@pytest.fixture(scope="module")
def stats(root: Path) -> Path:
    return root / "tests" / "golden" / "traces" / "nsys_stats.csv"


def split(path: Path) -> tuple[list[TraceRow], list[Unread]]:
    found = list(READER.rows(path))
    return [row for row in found if isinstance(row, TraceRow)], [row for row in found if isinstance(row, Unread)]


# --- nsys stats ---------------------------------------------------------------------------------------------------


def test_reports_of_nsys_stats(stats: Path) -> None:
    assert READER.sniff(stats, stats.read_bytes()[:HEAD])
    rows, skipped = split(stats)
    copy, product, fill, decode, attention = rows
    assert (copy.kernel, copy.shape["bytes"], copy.seconds, copy.device) == (
        "host_to_device", pytest.approx(16.777e6), pytest.approx(304.64e-6), H100,
    )  # fmt: skip
    # the report's own throughput [MB/s] is bytes by time
    assert copy.shape["bytes"] / copy.seconds / 1e6 == pytest.approx(55072, rel=1e-4)
    grid = {"grid_x": 132, "grid_y": 1, "grid_z": 1, "block_x": 384, "block_y": 1, "block_z": 1}
    assert (product.kernel, dict(product.shape)) == ("nvjet_hsh_256x128_64x4_2x1_v_bz_coopA_NNT", grid)
    assert (product.seconds, product.source, product.line) == (pytest.approx(412.5e-6), "cuBLAS", 6)
    assert (fill.source, fill.seconds) == ("ATen", pytest.approx(2.016e-6))
    assert (decode.samples, decode.seconds, decode.spread) == (48523, pytest.approx(7.776e-6), pytest.approx(225.8e-9))
    assert (attention.samples, attention.source) == (23947, "FlashAttention")
    assert [(entry.what, entry.count) for entry in skipped] == [("[CUDA memset]", 1), ("a report by Num Calls", 1)]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (",412500,", ",0,", "line 6: .* took '0.0' s"),
        (",412500,", ",-5,", "line 6: .* took"),
        (",412500,", ",nan,", "line 6: .* took"),
        (",412500,", ",x,", "line 6: Duration is 'x'"),
        ("Duration (ns)", "Duration (parsec)", "line 5: Duration is in 'parsec'"),
        (",412500,12,132,1,1,", ",412500,12", "line 6 has 17 fields"),
    ],
)
def test_a_bad_line_is_told(stats: Path, tmp_path: Path, old: str, new: str, told: str) -> None:
    text = stats.read_text()
    assert old in text
    path = tmp_path / "bad.csv"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UserError, match=rf"bad\.csv, {told}"):
        list(READER.rows(path))


def test_older_names_and_other_units(tmp_path: Path) -> None:
    path = tmp_path / "old.csv"
    path.write_text(
        "Time(%),Total Time (ns),Instances,Average,Minimum,Maximum,Name\n"
        "60.0,6000,3,2000.0,1000,3000,volta_sgemm_128x64_nn\n"
        "\nStart(us),Duration(us),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Bytes(MiB),Device,Ctx,Strm,Name\n"
        "1.0,8.5,1,,,,,,,2.0,Tesla T4 (0),1,7,[CUDA memcpy DtoD]\n"
    )
    assert READER.sniff(path, path.read_bytes())
    (kernel, copy), skipped = split(path)
    assert (kernel.seconds, kernel.samples, kernel.source) == (pytest.approx(2e-6), 3, "cuBLAS")
    assert (copy.kernel, copy.shape["bytes"], copy.seconds) == ("memory_copy", 2 * 2 * 2**20, pytest.approx(8.5e-6))
    assert skipped == []


def test_a_file_without_reports_of_kernels(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    path.write_text("Processing [a.sqlite] with [cuda_gpu_kern_sum.py]... \nSKIPPED: no CUDA kernel data.\n")
    assert READER.sniff(path, path.read_bytes())
    with pytest.raises(UserError, match=r"none\.csv holds no report of kernels; give `nsys stats"):
        list(READER.rows(path))


@given(st.integers(0, 2500), st.binary(max_size=20))
@settings(max_examples=100, deadline=None)
def test_cut_and_overwritten_files_give_rows_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, stats: Path, place: int, noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.csv"
    whole = stats.read_bytes()
    path.write_bytes(whole[:place] + noise + whole[place + len(noise) :] * (place % 2))
    with contextlib.suppress(UserError):
        list(READER.rows(path))


# --- the SQLite export --------------------------------------------------------------------------------------------

Kernel = tuple[int, int, int, str]  # start, end [ns], correlation, name
Range = tuple[int, int, str]


def export(
    path: Path, kernels: Sequence[Kernel], launches: Sequence[tuple[int, int]] = (), ranges: Sequence[Range] = ()
) -> Path:
    """A data base with the tables and columns of an export that matter; launches: time and correlation."""
    path.unlink(missing_ok=True)
    base = sqlite3.connect(path)
    base.executescript(
        """
        CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE TARGET_INFO_GPU (vmId INTEGER, id INTEGER, name TEXT, busLocation TEXT, totalMemory INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
            streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER,
            gridX INTEGER, gridY INTEGER, gridZ INTEGER, blockX INTEGER, blockY INTEGER, blockZ INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER,
            correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
        CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
            correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
        CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
            textId INTEGER);
        """
    )
    base.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 0, ?, '0000:18:00.0', 85000000000)", (H100,))
    for place, (start, end, correlation, name) in enumerate(kernels):
        base.execute("INSERT INTO StringIds VALUES (?, ?)", (place, name))
        row = (start, end, 0, 1, 7, correlation, PROCESS, place, place, 132, 1, 1, 384, 1, 1)
        base.execute(f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES ({', '.join('?' * len(row))})", row)
    for start, correlation in launches:
        launch = (start, start + 5, THREAD, correlation, 0, 0)
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?)", launch)
    for place, (start, end, text) in enumerate(ranges):
        # newer exports keep texts among the strings
        base.execute("INSERT INTO StringIds VALUES (?, ?)", (1000 + place, text))
        own = (start, end, 59, text, THREAD, None) if place % 2 else (start, end, 59, None, THREAD, 1000 + place)
        base.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", own)
    base.commit()
    base.close()
    return path


PRODUCT = "aten::mm, op_id = 7, sizes = [[4096, 8192], [8192, 4096]], input_op_ids = [(5,0), (6,0)]"
LINEAR = "aten::linear, op_id = 6, sizes = [[4096, 8192], [4096, 8192], []], input_op_ids = [(5,0), (6,0), (0,-1)]"
NVJET = "nvjet_tst_256x128_64x4_2x1_v_bz_coopA_NNT"


def test_nvtx_ranges_give_kernels_their_shapes(tmp_path: Path) -> None:
    path = export(
        tmp_path / "run.sqlite",
        [
            (5000, 417500, 1, NVJET),
            (418000, 420000, 2, "void cublasLt::splitKreduce_kernel<32>()"),
            (430000, 433000, 3, "k"),
        ],
        launches=[(110, 1), (120, 2), (500, 3)],
        ranges=[(100, 200, LINEAR), (105, 190, PRODUCT), (90, 600, "step 3"), (450, 520, "my range, no sizes here")],
    )
    assert READER.sniff(path, path.read_bytes()[:HEAD])
    rows, skipped = split(path)
    product, other = sorted(rows, key=lambda row: row.kernel)
    assert (product.kernel, dict(product.shape), product.format) == ("gemm", {"m": 4096, "n": 4096, "k": 8192}, "bf16")
    assert product.seconds == pytest.approx((412500 + 2000) * 1e-9)
    assert (product.device, product.source, product.facts["operator"]) == (H100, "cuBLAS", "aten::mm")
    assert (other.kernel, other.seconds) == ("k", pytest.approx(3e-6))
    assert other.shape["grid_x"] == 132
    assert skipped == []


def test_without_ranges_kernels_keep_their_names(tmp_path: Path) -> None:
    rows, _ = split(
        export(tmp_path / "run.sqlite", [(10, 2010, 1, NVJET), (3000, 3500, 2, "void my::kernel<float>()")])
    )
    assert [(row.kernel, row.seconds) for row in rows] == [
        (NVJET, pytest.approx(2e-6)),
        ("void my::kernel<float>()", pytest.approx(0.5e-6)),
    ]


def test_transfers_and_their_kinds(tmp_path: Path) -> None:
    path = export(tmp_path / "run.sqlite", [])
    with contextlib.closing(sqlite3.connect(path)) as base:
        for kind in (1, 2, 8, 10):
            base.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0, 1000, 0, 7, 1, ?, 4096, ?)", (PROCESS, kind)
            )
        base.execute("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (0, 1000, 0, 7, 1, ?, 0, 1)", (PROCESS,))
        base.commit()
    rows, skipped = split(path)
    assert [(row.kernel, row.shape["bytes"]) for row in rows] == [
        ("host_to_device", 4096), ("device_to_host", 4096), ("memory_copy", 8192), ("memcpy PtoP", 4096),
    ]  # fmt: skip
    assert skipped == [Unread("memcpy HtoD", "no bytes")]


def test_a_bad_time_in_the_data_base_is_told(tmp_path: Path) -> None:
    path = export(tmp_path / "run.sqlite", [(10, 10, 1, "k")])
    with pytest.raises(UserError, match=r"run\.sqlite: 'k' took '0\.0' s"):
        list(READER.rows(path))
    path = export(tmp_path / "run.sqlite", [(50, 10, 1, NVJET)], [(5, 1)], [(0, 9, PRODUCT)])
    with pytest.raises(UserError, match=r"run\.sqlite: kernel .* took -4e-08 s"):
        list(READER.rows(path))


def test_other_and_damaged_data_bases_are_told(tmp_path: Path) -> None:
    path = tmp_path / "other.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as base:
        base.execute("CREATE TABLE t (x)")
        base.commit()
    with pytest.raises(UserError, match=r"other\.sqlite is a data base without GPU kernels"):
        list(READER.rows(path))
    whole = export(tmp_path / "run.sqlite", [(i, i + 9, i, f"kernel {i} " + "x" * 500) for i in range(50)]).read_bytes()
    for part in (100, 5000, len(whole) // 2):
        path.write_bytes(whole[:part])
        with pytest.raises(UserError, match=r"other\.sqlite"):
            list(READER.rows(path))


def test_the_data_base_is_not_changed(tmp_path: Path) -> None:
    path = export(tmp_path / "run.sqlite", [(10, 2010, 1, NVJET)])
    before = path.read_bytes()
    list(READER.rows(path))
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.sqlite"]
