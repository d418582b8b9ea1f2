"""Trace readers: the minimal one on a file, rows that no measurement can be, and the choice among readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.errors import PluginError, UserError
from slipstick.core.model.interfaces.trace_reader import HEAD, TraceReader, TraceRow, reader_for

TEXT = "kernel,m,n,k,format,device,us\ngemm,4096,4096,8192,bf16,h100-sxm,412.5\n"


def row(**changes: Any) -> TraceRow:
    """A sound row with some fields changed."""
    fields = {"kernel": "gemm", "shape": {"m": 1.0}, "format": "bf16", "device": "h100-sxm", "seconds": 1e-6}
    return TraceRow(**{**fields, "measured": "CUDA events", **changes})


class Taker(TraceReader):
    """Takes every file whose first bytes are ``head``."""

    def __init__(self, name: str, head: bytes = b"") -> None:
        self.name = name  # type: ignore[misc]
        self.head, self.seen = head, b""

    def sniff(self, path: Path, head: bytes) -> bool:
        self.seen = head
        return head.startswith(self.head)

    def rows(self, path: Path) -> Iterator[TraceRow]:
        yield row()


def test_the_minimal_plugin_reads_a_file(minimal: Callable[[str], Any], tmp_path: Path) -> None:
    reader, path = minimal("trace_reader"), tmp_path / "gemms.csv"
    path.write_text(TEXT)
    assert reader_for(path, [reader]) is reader
    (found,) = reader.rows(path)
    assert found == TraceRow(
        "gemm", {"m": 4096, "n": 4096, "k": 8192}, "bf16", "h100-sxm", 412.5e-6, "as the file says", line=2
    )


def test_rows_come_one_by_one_and_a_bad_line_is_named(minimal: Callable[[str], Any], tmp_path: Path) -> None:
    path = tmp_path / "gemms.csv"
    path.write_text(TEXT + "gemm,1,2\n")
    rows = minimal("trace_reader").rows(path)
    assert next(rows).line == 2  # the bad line after it has not been looked at
    with pytest.raises(UserError, match=r"gemms\.csv, line 3: write kernel,m,n,k"):
        next(rows)
    path.write_text(TEXT.replace("412.5", "-1"))
    with pytest.raises(UserError, match="line 2: 'gemm' took '-1e-06' s; a positive time"):
        next(minimal("trace_reader").rows(path))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"kernel": ""}, "without a kernel"),
        ({"device": ""}, "without a device"),
        ({"measured": ""}, "without a way of measuring"),
        ({"seconds": 0}, "a positive time"),
        ({"seconds": float("nan")}, "a positive time"),
        ({"seconds": float("inf")}, "a positive time"),
        ({"seconds": "1"}, "a positive time"),
        ({"seconds": True}, "a positive time"),
        ({"shape": {"m": -1}}, "'m' of 'gemm' is '-1'"),
        ({"shape": {"m": "4"}}, "'m' of 'gemm' is '4'"),
        ({"ranks": 0}, "0 ranks"),
        ({"samples": 0}, "0 samples"),
        ({"spread": -1e-9}, "is spread by"),
    ],
)
def test_what_no_measurement_can_be_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        row(**changes)
    with pytest.raises(UserError, match=r"^line 12: "):
        row(**changes, line=12)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False), st.floats(min_value=0, allow_infinity=False))
def test_any_positive_time_and_extent_is_taken(seconds: float, extent: float) -> None:
    assert row(seconds=seconds, shape={"m": extent}).seconds == seconds


def test_the_reader_is_chosen_by_the_head_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b"{" + b"x" * 10_000)
    first, second = Taker("first", b"{"), Taker("second", b"[")
    assert reader_for(path, [second, first]) is first
    assert len(first.seen) == HEAD
    with pytest.raises(UserError, match=r"taken for their own by the trace readers first and third"):
        reader_for(path, [first, second, Taker("third")])
    with pytest.raises(UserError, match=r"no trace reader knows 'trace\.json'; there are: second"):
        reader_for(path, [second])
    with pytest.raises(UserError, match="none is installed"):
        reader_for(path, [])


def test_a_file_that_can_not_be_read_is_a_persons_mistake(tmp_path: Path) -> None:
    for path in (tmp_path / "nothing.csv", tmp_path):
        with pytest.raises(UserError, match="can't be read"):
            reader_for(path, [Taker("any")])


def test_a_reader_that_fails_is_named(tmp_path: Path) -> None:
    class Faulty(Taker):
        def sniff(self, path: Path, head: bytes) -> bool:
            return bool(head.decode("ascii"))

    path = tmp_path / "odd.bin"
    path.write_bytes(b"\xff")
    with pytest.raises(PluginError, match=r"trace reader 'faulty' fails on odd\.bin: UnicodeDecodeError"):
        reader_for(path, [Faulty("faulty")])
