"""Fitted records in TOML: what is written comes back, whole or not at all; what is unsound is told, all of it."""

from __future__ import annotations

import math
import os
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.records import fitted_catalog
from slipstick.core.records.fitted import ErrorSummary, FittedRecord
from slipstick.core.records.fitted_catalog import FittedCatalog
from slipstick.core.records.fitted_toml import read_records, read_records_of, records_text, write_records
from slipstick.core.records.provenance import Source

SOURCE = Source("table", "a table", "https://example.org/table", "2026-11-30", "measured")


def record(**changes: Any) -> FittedRecord:
    """A sound record, with changes."""
    plain: dict[str, Any] = {
        "accelerator": "h100-sxm", "slot": "gemm", "family": "measured", "formula": "gemm", "format": "bf16",
        "kernel_source": "cuBLAS", "engine": "trtllm", "engine_version": "1.3.0rc20",
        "where": {"head_dim": (128.0, 128.0), "group": (2.0, 16.0)},
        "parameters": {"launch": 2.5e-6, "bend": -0.125}, "spread": {"launch": 0.01}, "unidentified": ("bend",),
        "ranges": {"m": (1.0, 65536.0)}, "rows": 35700,
        "errors": {"held_out": ErrorSummary(7129, 0.065, 0.045, 0.139, -0.0025),
                   "held_out.decode": ErrorSummary(2087, 0.058, 0.039, 0.132, 0.001)},
        "sigma": 0.0785, "calibrated": True, "source": SOURCE, "command": "slipstick calibrate fit x",
        "note": 'a "quoted" \\ note',
    }  # fmt: skip
    return FittedRecord(**{**plain, **changes})


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "h100-sxm.trtllm.toml"
    bad = record(slot="all_reduce", calibrated=False, reason="8 rows", where={}, note="")
    write_records(path, [record(), bad])
    assert read_records(path) == (bad, record())  # in the order of their kernels
    assert tomllib.loads(path.read_text())["kind"] == "fitted"


def test_the_file_does_not_depend_on_the_order_of_records(tmp_path: Path) -> None:
    several = [record(slot=slot, format=f) for slot in ("gemm", "all_reduce") for f in ("fp8", "bf16")]
    write_records(tmp_path / "a.b.toml", several)
    write_records(tmp_path / "c.d.toml", several[::-1])
    assert (tmp_path / "a.b.toml").read_bytes() == (tmp_path / "c.d.toml").read_bytes()


def test_sources_of_one_key_stay_apart(tmp_path: Path) -> None:
    other = evolve(SOURCE, title="another table")
    path = tmp_path / "x.y.toml"
    write_records(path, [record(), record(slot="pointwise", source=other)])
    assert {r.slot: r.source.title for r in read_records(path)} == {"gemm": "a table", "pointwise": "another table"}


numbers = st.floats(allow_nan=False, allow_infinity=False, width=64)


@given(
    parameters=st.dictionaries(st.from_regex(r"[a-z_]{1,12}", fullmatch=True), numbers, min_size=1, max_size=60),
    text=st.text(min_size=1, max_size=60),
)
def test_any_record_comes_back_to_six_digits(
    tmp_path_factory: pytest.TempPathFactory, parameters: dict[str, float], text: str
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.y.toml"
    write_records(path, [record(parameters=parameters, spread={}, unidentified=(), note=f"n{text}")])
    (found,) = read_records(path)
    assert list(found.parameters) == list(parameters)
    for name, value in parameters.items():
        assert math.isclose(found.parameters[name], value, rel_tol=5.1e-6, abs_tol=1e-300)
    assert found.note.isprintable()


def changed(text: str, old: str, new: str) -> str:
    """``text`` with one thing changed."""
    assert old in text
    return text.replace(old, new, 1)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ('kind = "fitted"', 'kind = "fited"', "kind"),
        ("rows = 35700", "rows = 0", "rows"),
        ("rows = 35700", "rowz = 35700", "did you mean rows"),
        ("sigma = 0.0785", "sigma = nan", "sigma"),
        ("sigma = 0.0785", "", "sigma: missing"),
        ("calibrated = true", 'calibrated = "yes"', "calibrated"),
        ("calibrated = true", "calibrated = false", "reason"),
        ("launch = 2.5e-06", "launch = inf", "record[0].parameters.launch"),
        ("launch = 2.5e-06", 'launch = "2 us"', "record[0].parameters.launch"),
        ("launch = 0.01", "launch = -0.01", "record[0].spread.launch"),
        ("launch = 0.01", "lunch = 0.01", "not one of the record's parameters"),
        ("[1, 65536]", "[65536, 1]", "record[0].ranges.m"),
        ("[1, 65536]", "[1]", "record[0].ranges.m"),
        ("[7129, ", "[0, ", "record[0].errors.held_out"),
        ('source = "table"', 'source = "tabel"', "did you mean table"),
        ('date = "2026-11-30"', 'date = "soon"', "date"),
        ('unidentified = ["bend"]', "unidentified = 3", "unidentified"),
        ("[[record]]", "[[records]]", "record"),
    ],
)
def test_what_is_unsound_is_told_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    path = tmp_path / "x.y.toml"
    path.write_text(changed(records_text([record()]), old, new))
    with pytest.raises(UserError) as error:
        read_records(path)
    assert told in str(error.value)
    assert "x.y.toml" in str(error.value)


def test_all_problems_of_a_file_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.y.toml"
    text = changed(records_text([record()]), "rows = 35700", "rows = 0")
    path.write_text(changed(text, "sigma = 0.0785", 'sigma = "wide"'))
    with pytest.raises(UserError, match="2 problems") as error:
        read_records(path)
    assert "rows" in str(error.value)
    assert "sigma" in str(error.value)


@given(st.binary(max_size=400))
def test_bytes_of_any_kind_are_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "x.y.toml"
    path.write_bytes(content)
    with pytest.raises(UserError):
        read_records(path)


@given(st.integers(0, 900), st.integers(0, 255))
def test_a_damaged_file_loads_or_says_so(tmp_path_factory: pytest.TempPathFactory, place: int, byte: int) -> None:
    content = bytearray(records_text([record()]).encode())
    content[place % len(content)] = byte
    path = tmp_path_factory.mktemp("damaged") / "x.y.toml"
    path.write_bytes(bytes(content))
    try:
        (found,) = read_records(path)
    except UserError:
        return
    assert found.rows >= 1
    assert found.sigma >= 0


def test_records_of_two_accelerators_or_none_are_refused() -> None:
    with pytest.raises(UserError, match="one accelerator"):
        records_text([record(), record(accelerator="h200-sxm")])
    with pytest.raises(UserError, match="no fitted record"):
        records_text([])
    with pytest.raises(UserError, match="cannot hold"):
        records_text([record(sigma=math.nan)])


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.y.toml"
    write_records(path, [record()])
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(UserError, match="No space left"):
        write_records(path, [record(rows=1)])
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.y.toml"]


def test_a_catalog_finds_the_files_of_an_accelerator(tmp_path: Path) -> None:
    write_records(tmp_path / "h100-sxm.trtllm.toml", [record()])
    write_records(tmp_path / "h100-sxm.vllm.toml", [record(engine="vllm")])
    write_records(tmp_path / "h200-sxm.vllm.toml", [record(engine="vllm", accelerator="h200-sxm")])
    (tmp_path / "notes.toml").write_text("x = 1")
    catalog = FittedCatalog(tmp_path, "a test")
    assert [r.engine for r in catalog.records("h100-sxm")] == ["trtllm", "vllm"]
    assert [r.accelerator for r in catalog.records("h200-sxm")] == ["h200-sxm"]
    assert catalog.records("h100") == ()
    assert catalog.accelerators() == ("h100-sxm", "h200-sxm")
    assert FittedCatalog(tmp_path / "none", "a test").records("h100-sxm") == ()


def test_an_accelerator_beside_the_records_is_not_one_of_them(tmp_path: Path) -> None:
    # the accelerator "chip.v2" has its own file, which looks like the records of a "chip" from an engine "v2"
    (tmp_path / "chip.v2.toml").write_text('schema = 1\nkind = "accelerator"\nname = "chip.v2"\n')
    assert FittedCatalog(tmp_path, "a test").records("chip") == ()
    assert read_records_of(tmp_path / "chip.v2.toml", "chip") == ()


def test_a_catalog_sees_a_changed_file_and_is_quick_the_second_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTICK_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "fitted" / "h100-sxm.trtllm.toml"
    # as large as a shipped file: sixty records of sixteen parameters
    many = {f"parameter_{i}": 1.5 + i for i in range(16)}
    write_records(
        path,
        [record(format=f"f{i}", parameters=many, spread=many, unidentified=(), ranges=dict.fromkeys(many, (1.0, 2.5)))
         for i in range(60)],
    )  # fmt: skip
    catalog = FittedCatalog(path.parent, "a test")
    first = catalog.records("h100-sxm")
    best = math.inf
    for _ in range(5):
        began = time.perf_counter()
        again = catalog.records("h100-sxm")
        best = min(best, time.perf_counter() - began)
    assert repr(again) == repr(first)
    assert best < 0.03  # 5 ms on an idle machine
    write_records(path, [record(rows=7)])
    os.utime(path, ns=(1, 1))
    assert [r.rows for r in catalog.records("h100-sxm")] == [7]
    path.write_text("not toml")
    with pytest.raises(UserError, match="not TOML"):
        catalog.records("h100-sxm")


def test_an_unsound_cache_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTICK_CACHE_DIR", str(tmp_path / "cache"))
    write_records(tmp_path / "h100-sxm.trtllm.toml", [record()])
    catalog = FittedCatalog(tmp_path, "a test")
    first = catalog.records("h100-sxm")
    for entry in (tmp_path / "cache" / "records").iterdir():
        entry.write_bytes(entry.read_bytes()[:-5])
    monkeypatch.setattr(fitted_catalog, "_LOADED", {})  # as a new process has it
    assert repr(catalog.records("h100-sxm")) == repr(first)
