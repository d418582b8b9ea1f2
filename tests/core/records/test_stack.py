"""Stacks in TOML: what is written comes back, and every problem of a file is told at once."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.stack import COEFFICIENTS
from slipstick.core.records.fitted import ErrorSummary
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.stack import FIGURES, StackFit, StackRecord, read_stack, write_stack

UNITS = {name: unit for name, (unit, _) in COEFFICIENTS.items()}
SOURCE = Source("fit", "a fit", "https://example.org", "2026-11-30", "fitted")

SOUND = """
schema = 1
kind = "stack"
name = "mine"
title = "My stack"
[sources.fit]
title = "a fit"
url = "https://example.org"
date = "2026-11-30"
kind = "fitted"
[kernels]
serve = ["vllm", "trtllm"]
[[fit]]
task = "serve"
rows = 12
[fit.values]
time_factor = { value = 1.2, source = "fit" }
kernel_overhead = { value = "3 us", source = "fit" }
reserve = { value = "2 GB", source = "fit", note = "CUDA graphs" }
[fit.spread]
kernels = 0.5
tpot_s = 0.1
[fit.errors.held_out]
n = 12
mean = 0.1
median = 0.08
p90 = 0.2
bias = -0.01
"""


def read(tmp_path: Path, text: str) -> StackRecord:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return read_stack(path, UNITS)


def test_a_file_reads_in_si_units(tmp_path: Path) -> None:
    record = read(tmp_path, SOUND)
    assert (record.name, record.title, record.kernels) == ("mine", "My stack", {"serve": ("vllm", "trtllm")})
    (fit,) = record.fits
    values = {name: (quantity.value, quantity.unit) for name, quantity in fit.values.items()}
    assert values == {
        "time_factor": (1.2, "1"), "kernel_overhead": (pytest.approx(3e-6), "s"), "reserve": (2e9, "B")
    }  # fmt: skip
    assert fit.values["reserve"].note == "CUDA graphs"
    assert fit.spread == {"kernels": 0.5, "tpot_s": 0.1}
    assert fit.errors == {"held_out": ErrorSummary(12, 0.1, 0.08, 0.2, -0.01)}
    assert record.fit("serve", "") is fit
    assert record.fit("serve", "h100-sxm") is None
    assert record.fit("train", "") is None


def quantities(name: str) -> st.SearchStrategy[Quantity]:
    return st.builds(
        lambda value, note: Quantity(value, UNITS[name], SOURCE, "", note),
        st.floats(1e-9, 1e12),
        st.text(string.ascii_letters + ' "\\µ', max_size=20).map(str.strip),
    )


def fits() -> st.SearchStrategy[StackFit]:
    error = st.builds(ErrorSummary, st.integers(0, 9999), *[st.floats(0, 9)] * 3, st.floats(-1, 9))
    return st.builds(
        StackFit,
        task=st.sampled_from(["train", "serve"]),
        accelerator=st.sampled_from(["", "h100-sxm", "b200"]),
        values=st.lists(st.sampled_from(sorted(UNITS)), unique=True).flatmap(
            lambda names: st.fixed_dictionaries({name: quantities(name) for name in names})
        ),
        spread=st.dictionaries(st.sampled_from(FIGURES), st.floats(0, 10)),
        rows=st.integers(0, 10**6),
        errors=st.dictionaries(st.sampled_from(["train", "held_out", "new_model"]), error),
        command=st.sampled_from(["", "slipstick calibrate deployment 'a b.csv'"]),
        note=st.sampled_from(["", 'a "note"']),
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(fits(), max_size=4, unique_by=lambda f: (f.task, f.accelerator)))
def test_what_is_written_comes_back(tmp_path_factory: pytest.TempPathFactory, several: list[StackFit]) -> None:
    record = StackRecord(name="mine", title='My "own" stack', kernels={"serve": ("vllm",), "train": ()},
                         fits=tuple(several), note="a note")  # fmt: skip
    text = write_stack(record)
    found = read(tmp_path_factory.mktemp("stack"), text)
    assert (found.name, found.title, found.note, found.kernels) == (
        record.name, record.title, record.note, record.kernels,
    )  # fmt: skip
    assert len(found.fits) == len(several)
    for mine, other in zip(several, found.fits, strict=True):
        for key in ("task", "accelerator", "rows", "command", "note"):
            assert getattr(mine, key) == getattr(other, key)
        assert list(mine.values) == list(other.values)
        for name, quantity in mine.values.items():
            back = other.values[name]
            assert back.value == pytest.approx(quantity.value, rel=1e-4)
            assert (back.unit, back.source, back.note) == (quantity.unit, SOURCE, quantity.note)
        assert other.spread == pytest.approx(dict(mine.spread), rel=1e-3, abs=1e-12)
        for name, error in mine.errors.items():
            assert other.errors[name].n == error.n
            for key in ("mean", "median", "p90", "bias"):
                assert getattr(other.errors[name], key) == pytest.approx(getattr(error, key), abs=1e-4)
    # What was read is written as it was: two rounds differ in nothing.
    assert write_stack(found) == write_stack(read(tmp_path_factory.mktemp("again"), write_stack(found)))


def test_a_long_list_of_files_can_be_read_again(tmp_path: Path) -> None:
    files = ", ".join(f"r{i}.0.json" for i in range(60))
    source = Source("deployment", f"fitted to {files}"[:200], files[:200], "2026-11-30", "fitted")
    fit = StackFit(task="serve", values={"time_factor": Quantity(1.1, "1", source)}, command=f"slipstick {files}"[:400],
                   note=f"{files}\x7f")  # fmt: skip
    found = read(tmp_path, write_stack(StackRecord(name="mine", title="t", kernels={}, fits=(fit,))))
    assert found.fits[0].command.startswith("slipstick r0.0.json, r1.0.json")
    assert found.fits[0].values["time_factor"].value == 1.1


def test_two_sources_under_one_key_stay_apart(tmp_path: Path) -> None:
    other = Source("fit", "another fit", "https://example.org/2", "2026-11-29", "default")
    values = {"time_factor": Quantity(1.1, "1", SOURCE), "reserve": Quantity(1e9, "B", other)}
    record = StackRecord(name="mine", title="t", kernels={}, fits=(StackFit(task="serve", values=values),))
    found = read(tmp_path, write_stack(record)).fits[0].values
    assert [found[name].source.title for name in values] == ["a fit", "another fit"]
    assert [found[name].source.kind for name in values] == ["fitted", "default"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("schema = 1", "schema = 2", "schema"),
        ('kind = "stack"', 'kind = "fitted"', "kind: is not 'stack'"),
        ('name = "mine"', 'name = "../mine"', "is no name"),
        ('title = "My stack"', "colour = 3", "colour: unknown key"),
        ('serve = ["vllm", "trtllm"]', 'serving = ["vllm"]', "kernels.serving: unknown key; did you mean serve"),
        ('task = "serve"', 'task = "service"', "'service' is not one of train, serve"),
        ("time_factor =", "time_faktor =", "time_faktor: unknown key; did you mean time_factor"),
        ('"3 us"', '"3 GB"', "kernel_overhead"),
        ('"3 us"', "3", "has no unit"),
        ("value = 1.2,", "value = -1.2,", "out of range"),
        ('value = "2 GB", source = "fit"', 'value = "2 GB", source = "fitt"', "did you mean fit"),
        ("tpot_s = 0.1", "tpot = 0.1", "tpot: unknown key; did you mean tpot_s"),
        ("tpot_s = 0.1", "tpot_s = -0.1", "a number from 0 to 10"),
        ("rows = 12", "rows = 1.5", "a whole number"),
        ("bias = -0.01", "bias = nan", "bias"),
    ],
)
def test_what_is_unsound_is_told_with_its_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert SOUND.count(old) == 1
    with pytest.raises(UserError, match=r"mine\.toml") as caught:
        read(tmp_path, SOUND.replace(old, new))
    assert told in str(caught.value)


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    text = SOUND.replace("time_factor =", "time_faktor =").replace('"3 us"', '"3 GB"').replace("rows = 12", "rows = -1")
    with pytest.raises(UserError, match="3 problems") as caught:
        read(tmp_path, text + '[[fit]]\ntask = "train"\n')
    told = str(caught.value).splitlines()[1:]
    assert [line.split(":")[0].strip() for line in told] == [
        "fit[0].values.time_faktor", "fit[0].values.kernel_overhead.value", "fit[0].rows"
    ]  # fmt: skip


def test_two_fits_of_one_kind_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two for serve on all accelerators; keep one"):
        read(tmp_path, SOUND + '[[fit]]\ntask = "serve"\n')


@pytest.mark.parametrize("content", [b"\xff", b"[[fit", b"a = " + b"[" * 5000, b"x = 1\n" * 100_000])
def test_what_is_no_record_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_stack(path, UNITS)
    assert "\n" not in str(caught.value)
