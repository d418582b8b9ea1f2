"""Output of nccl-tests: two published runs, whose own bandwidth column says whether sizes and times are read right."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.calibration.readers.nccltests import NcclTests
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import HEAD, TraceRow, Unread

READER = NcclTests()

HEADER = """\
# nThread 1 nGpus 2 minBytes 8 maxBytes 8 step: 2(factor) warmup iters: 5 iters: 30 agg iters: 4 validation: 1 graph: 0
# Using devices
#  Rank  0 Group  0 Pid  1 on h device  0 [0x18] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  1 on h device  1 [0x2a] NVIDIA H100 80GB HBM3
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
LINE = (
    "     1048576        262144     float     sum      -1"
    "    100.0   10.49   10.49      0    101.0   10.38   10.38      0\n"
)


@pytest.fixture(scope="module")
def traces(root: Path) -> Path:
    return root / "tests" / "golden" / "traces"


def rows(path: Path) -> list[TraceRow]:
    return [row for row in READER.rows(path) if isinstance(row, TraceRow)]


def write(folder: Path, text: str, name: str = "all_reduce.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("name", "kind", "ranks", "device", "bandwidths"),
    [
        # algbw [GB/s] as the program printed it, out of place and in place: size by time
        ("nccl_all_gather_gb10.txt", "all_gather", 2, "NVIDIA GB10", [45.88, 45.96]),
        ("nccl_all_reduce_mi355x.txt", "all_reduce", 8, "AMD Instinct MI355X", [232.43, 232.72, 232.43, 232.42]),
    ],
)
def test_published_runs(traces: Path, name: str, kind: str, ranks: int, device: str, bandwidths: list[float]) -> None:
    path = traces / name
    assert READER.sniff(path, path.read_bytes()[:HEAD])
    found = rows(path)
    assert {(row.kernel, row.ranks, row.device, row.format) for row in found} == {(kind, ranks, device, "fp32")}
    assert [row.shape["bytes"] / row.seconds / 1e9 for row in found] == pytest.approx(bandwidths, rel=3e-4)
    assert {row.samples for row in found} == {20}
    assert found[0].facts["in place"] == "no"
    assert found[1].facts["in place"] == "yes"


def test_the_test_is_told_by_the_name_of_the_file(tmp_path: Path) -> None:
    (row, in_place) = rows(write(tmp_path, HEADER + LINE, "run-reduce_scatter_perf.log"))
    assert (row.kernel, row.shape["bytes"], row.ranks, row.samples) == ("reduce_scatter", 1048576, 2, 120)
    assert (row.seconds, in_place.seconds) == (pytest.approx(100e-6), pytest.approx(101e-6))
    with pytest.raises(UserError, match=r"run\.log, line 7: .* put the test's name \(all_reduce"):
        rows(write(tmp_path, HEADER + LINE, "run.log"))


def test_output_under_mpirun_and_older_and_newer_columns(tmp_path: Path) -> None:
    tagged = "".join(f"[1,0]<stdout>:{line}\n" for line in (HEADER + LINE).splitlines())
    assert rows(write(tmp_path, tagged)) == rows(write(tmp_path, HEADER + LINE, "plain_all_reduce.txt"))
    old = HEADER.replace("   redop    root", "").replace("#wrong", "error")
    line = "     1048576        262144     float    100.0   10.49   10.49  2e-07    101.0   10.38   10.38  2e-07\n"
    assert [row.seconds for row in rows(write(tmp_path, old + line))] == pytest.approx([100e-6, 101e-6])
    new = HEADER.replace("#wrong", "#wrong i_min").replace("i_min\n", "i_min  timestamp\n", 1)
    line = LINE.replace("   0   ", "   0  98.1 ").rstrip("\n") + "  99.0  2026-09-26 10:00:00\n"
    assert [row.seconds for row in rows(write(tmp_path, new + line))] == pytest.approx([100e-6, 101e-6])


def test_what_makes_no_row_is_counted(tmp_path: Path) -> None:
    text = HEADER + LINE.replace("1048576", "0") + LINE.replace("      0    101", "      7    101")
    found = list(READER.rows(write(tmp_path, text)))
    assert [entry for entry in found if isinstance(entry, Unread)] == [
        Unread("messages of no bytes", "nothing was sent"),
        Unread("all_reduce with wrong results", "the test found errors in the data"),
    ]
    exchange = list(READER.rows(write(tmp_path, HEADER + LINE.replace("sum", "none"), "alltoall_perf.txt")))
    assert [getattr(row, "kernel", "") for row in exchange] == ["all_to_all", ""]
    assert exchange[1] == Unread("all_to_all in place", "the test doesn't support it")
    other = HEADER.replace("# nThread", "# Collective test starting: gather_perf\n# nThread")
    assert [
        entry.count for entry in READER.rows(write(tmp_path, other + LINE, "x.txt")) if isinstance(entry, Unread)
    ] == [1]


def test_several_tests_in_one_file(tmp_path: Path) -> None:
    one = "# Collective test starting: all_reduce_perf\n" + HEADER + LINE
    other = "# Collective test starting: sendrecv_perf\n" + HEADER + LINE
    assert [(row.kernel, row.ranks) for row in rows(write(tmp_path, one + other, "both.log"))] == [
        ("all_reduce", 2), ("all_reduce", 2), ("send", 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no results of nccl-tests"),
        (HEADER, "no results of nccl-tests"),
        (HEADER + "     1048576        262144     float     sum      -1    100.0   10.49\n", "line 7 has 7 fields"),
        (HEADER + LINE.replace("100.0", "nan"), "line 7: 'all_reduce' took 'nan' s"),
        (HEADER + LINE.replace("100.0", "-1.0"), "line 7: 'all_reduce' took '-1e-06' s"),
        (HEADER + LINE.replace("100.0", " 0.00"), "line 7: 'all_reduce' took '0.0' s"),
        (HEADER + LINE.replace("100.0", "  x.y"), "line 7: time is 'x.y'"),
        ("\n".join(line for line in (HEADER + LINE).split("\n") if "Rank" not in line), "no line .* tells how many"),
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(UserError, match=told) as caught:
        rows(write(tmp_path, text))
    assert "all_reduce.txt" in str(caught.value)


@given(st.integers(0, 2000), st.binary(max_size=20))
@settings(max_examples=100, deadline=None)
def test_cut_and_overwritten_files_give_rows_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "all_reduce_cut.txt"
    whole = (HEADER + LINE).encode()
    path.write_bytes(whole[:place] + noise + whole[place + len(noise) :] * (place % 2))
    with contextlib.suppress(UserError):
        rows(path)
