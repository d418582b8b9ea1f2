"""slipstick's own CSV: what is written is read again, resuming, units, and damage."""

from __future__ import annotations

import contextlib
import string
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.calibration.readers import plain
from slipstick.calibration.readers.plain import Plain, append_rows, read_done, write_rows
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import HEAD, SHAPES, TraceRow

READER = Plain()
HEAD_LINE = "kernel,format,device,us,measured,m,n,k\n"
LINE = 'gemm,bf16,h100-sxm,412.5,"CUDA events, median",4096,4096,8192\n'


def row(**changes: Any) -> TraceRow:
    fields: dict[str, Any] = {"kernel": "gemm", "shape": {"m": 8.0, "n": 16.0, "k": 32.0}, "format": "bf16"}
    fields |= {"device": "h100-sxm", "seconds": 1.5e-6, "measured": "CUDA events, median"}
    return TraceRow(**{**fields, **changes})


def bare(found: TraceRow) -> tuple[Any, ...]:
    """What must survive writing and reading: everything but the line."""
    return (
        found.kernel, dict(found.shape), found.format, found.device, found.seconds, found.measured, found.ranks,
        found.source, found.samples, found.spread, dict(found.facts),
    )  # fmt: skip


def rows(path: Path) -> list[TraceRow]:
    return list(READER.rows(path))


def test_the_documented_file(root: Path) -> None:
    path = root / "tests" / "golden" / "traces" / "plain.csv"
    assert READER.sniff(path, path.read_bytes()[:HEAD])
    gemm, reduction, own = rows(path)
    assert bare(gemm) == (
        "gemm", {"m": 4096, "n": 4096, "k": 8192}, "bf16", "h100-sxm", pytest.approx(412.5e-6), "CUDA events, median",
        1, "cuBLAS", 50, 1.5e-6, {"torch": "2.13.0", "threads": "2", "copies": "3"},
    )  # fmt: skip
    assert (gemm.line, reduction.line, own.line) == (4, 5, 6)
    assert (reduction.kernel, dict(reduction.shape), reduction.ranks) == ("all_reduce", {"bytes": 2**30}, 8)
    assert (own.kernel, dict(own.shape), own.samples) == ("my_kernel", {}, 1)


@pytest.mark.parametrize(
    ("unit", "number"), [("seconds", "0.0004125"), ("ms", "0.4125"), ("us", "412.5"), ("ns", "412500")]
)
def test_the_unit_stands_in_the_name_of_the_column(tmp_path: Path, unit: str, number: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(HEAD_LINE.replace("us", unit) + LINE.replace("412.5", number))
    assert [found.seconds for found in rows(path)] == [pytest.approx(412.5e-6)]


WORDS = st.text(alphabet=string.ascii_letters + string.digits + " ,;\"'-_:()%µ×#", max_size=20).map(
    lambda text: " ".join(text.split())
)
NAMED = WORDS.filter(bool).filter(lambda text: not text.startswith("#"))
EXTENT = st.integers(0, 2**40).map(float) | st.floats(0, 1e15, allow_nan=False).map(lambda x: float(f"{x:.12g}"))
TIME = st.floats(1e-9, 1e3).map(lambda x: float(f"{x:.9g}"))


@st.composite
def any_row(draw: st.DrawFn) -> TraceRow:
    kernel = draw(st.sampled_from(sorted(SHAPES)) | NAMED)
    shape = {name: draw(EXTENT) for name in SHAPES.get(kernel, ("rows", "columns"))}
    spread = draw(st.none() | st.floats(0, 10).map(lambda x: float(f"{x:.6g}")))
    facts = draw(
        st.dictionaries(
            st.text(alphabet=string.ascii_letters + " ", min_size=1)
            .map(lambda text: " ".join(text.split()))
            .filter(bool),
            NAMED,
            max_size=2,
        )
    )
    return row(
        kernel=kernel, shape=shape, format=draw(WORDS), device=draw(NAMED), seconds=draw(TIME), measured=draw(NAMED),
        ranks=draw(st.integers(1, 10**6)), source=draw(WORDS), samples=draw(st.integers(1, 10**9)), spread=spread,
        facts=facts,
    )  # fmt: skip


@given(st.lists(any_row(), min_size=1, max_size=5), st.lists(any_row(), max_size=3))
@settings(max_examples=60, deadline=None)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, first: list[TraceRow], more: list[TraceRow]
) -> None:
    path = tmp_path_factory.mktemp("plain") / "t.csv"
    write_rows(path, first)
    assert [bare(found) for found in rows(path)] == [bare(made) for made in first]
    append_rows(path, more)
    assert [bare(found) for found in rows(path)] == [bare(made) for made in [*first, *more]]
    assert READER.sniff(path, path.read_bytes()[:HEAD])


def test_facts_of_the_whole_file_stand_at_its_head(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    append_rows(path, [row()], {"torch": "2.13.0"})
    append_rows(path, [row(facts={"copies": "3"})])  # a column that the file has not yet
    assert path.read_text().startswith("# torch: 2.13.0\nkernel,format,")
    assert [dict(found.facts) for found in rows(path)] == [{"torch": "2.13.0"}, {"torch": "2.13.0", "copies": "3"}]


def test_a_torn_last_line_is_left_out_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    assert read_done(path) == []
    made = [row(seconds=1e-6 * i) for i in range(1, 5)]
    write_rows(path, made)
    whole = path.read_bytes()
    for cut in range(1, len(whole) - whole.rstrip(b"\n").rfind(b"\n") - 1):
        path.write_bytes(whole[:-cut])
        assert [bare(found) for found in read_done(path)] == [bare(kept) for kept in made[:3]]
        append_rows(path, [made[3]])
        assert path.read_bytes() == whole


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    write_rows(path, [row()])
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plain.os, "replace", full)
    with pytest.raises(UserError, match=r"t\.csv can't be written: No space left"):
        write_rows(path, [row(), row()])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "names no columns"),
        ("# only: facts\n", "names no columns"),
        (HEAD_LINE, "holds no measurement"),
        (HEAD_LINE.replace("us,", "us,ms,") + LINE, "line 1: one time column is expected, .* there is us and ms"),
        (HEAD_LINE.replace("us,", ""), "line 1: one time column is expected, .* there is none"),
        (HEAD_LINE.replace("device", "gpu"), "line 1: the column device is missing"),
        (HEAD_LINE.replace(",n,", ",m,"), "line 1: two columns are called 'm'"),
        (HEAD_LINE.replace(",n,", ",n (rows),"), r"line 1: 'n \(rows\)' is no column"),
        (HEAD_LINE + "gemm,bf16,h100-sxm,1\n", "line 2 has 4 fields where 8 are expected"),
        (HEAD_LINE + LINE.replace("412.5", "0"), "line 2: 'gemm' took '0.0' s; a positive time"),
        (HEAD_LINE + LINE.replace("412.5", "-1"), "line 2: 'gemm' took '-1e-06' s"),
        (HEAD_LINE + LINE.replace("412.5", "nan"), "line 2: 'gemm' took 'nan' s"),
        (HEAD_LINE + LINE.replace("412.5", "inf"), "line 2: 'gemm' took 'inf' s"),
        (HEAD_LINE + LINE.replace("412.5", "4 us"), "line 2: us is '4 us'; a number"),
        (HEAD_LINE + LINE.replace("8192", "-1"), "line 2: 'k' of 'gemm' is '-1.0'"),
        (HEAD_LINE + LINE.replace("8192", ""), "line 2: gemm without k"),
        (HEAD_LINE + LINE + LINE.replace('"CUDA', '"CUDA" x'), "line 3: no CSV"),
        (HEAD_LINE + LINE.replace("h100-sxm", ""), "line 2: a measurement without a device"),
        (HEAD_LINE.replace("us", "us,ranks") + LINE.replace("412.5", "412.5,8.5"), "line 2: ranks is '8.5'"),
    ],
)
def test_damage_is_told_in_one_line(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(UserError, match=told) as caught:
        rows(path)
    assert str(caught.value).startswith("bad.csv")
    assert "\n" not in str(caught.value)


@given(st.integers(0, 200), st.binary(max_size=30))
@settings(max_examples=150, deadline=None)
def test_cut_and_overwritten_files_give_rows_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, noise: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "cut.csv"
    whole = (HEAD_LINE + LINE * 2).encode()
    path.write_bytes(whole[:place] + noise + whole[place + len(noise) :] * (place % 2))
    READER.sniff(path, path.read_bytes())
    for read in (rows, read_done, lambda file: append_rows(file, [row()])):
        with contextlib.suppress(UserError):
            read(path)
