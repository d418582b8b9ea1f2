"""Scenarios in files: what is saved is read back, a failure leaves no half file; two answers leaf by leaf."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.records.scenario import Scenario
from slipstick.core.study.ask import ask
from slipstick.core.study.saving import MAX_BYTES, diff_scenarios, load_scenario, save_scenario

# Any text but lone surrogates, which UTF-8 cannot hold.
TEXTS = st.text(st.characters(blacklist_categories=("Cs",)), min_size=1, max_size=40)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), TEXTS
)
VALUES = st.one_of(NUMBERS, st.lists(NUMBERS, min_size=1, max_size=5).map(tuple))


@given(
    task=st.sampled_from(["train", "serve"]),
    model=TEXTS,
    machine=TEXTS,
    values=st.dictionaries(TEXTS, VALUES, max_size=6),
)
@settings(max_examples=150, deadline=None)
def test_what_is_saved_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, task: str, model: str, machine: str, values: dict[str, Any]
) -> None:
    path = tmp_path_factory.mktemp("saved") / "run.toml"
    scenario = Scenario(task, model, machine, values)
    save_scenario(path, scenario)
    back = load_scenario(path)
    assert back == scenario
    assert all(type(back.settings[name]) is type(value) for name, value in values.items())
    assert [file.name for file in path.parent.iterdir()] == ["run.toml"]


def test_a_saved_question_has_the_same_answer(tmp_path: Path, host: Host, one: Any) -> None:
    given_ = {
        "devices": 64,
        "tp": 8,
        "pp": 2,
        "global_batch": 256,
        "recompute": "selective",
        "zero": 2,
        "tokens": 15e12,
    }
    save_scenario(tmp_path / "run.toml", Scenario("train", "llama-3.1-70b", "h100-sxm", given_))
    back = load_scenario(tmp_path / "run.toml")
    again = one(back.task, back.model, back.machine, **back.settings)
    assert again.to_json() == one("train", "llama-3.1-70b", "h100-sxm", **given_).to_json()


def test_a_file_reads_as_a_person_would_write_it(tmp_path: Path) -> None:
    save_scenario(
        tmp_path / "run.toml", Scenario("serve", "a", "b", {"tp": (1, 2), "stack": "x", "mtp": True, "pp": None})
    )
    assert (tmp_path / "run.toml").read_text(encoding="utf-8").splitlines() == [
        "schema = 1",
        'task = "serve"',
        'model = "a"',
        'on = "b"',
        "",
        "[settings]",
        "tp = [1, 2]",
        'stack = "x"',
        "mtp = true",
    ]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
def test_a_failure_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "run.toml"
    save_scenario(path, Scenario("train", "old", "m"))
    before = path.read_bytes()

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, fail)
        with pytest.raises(UserError, match=r"^--save .*run\.toml'?: cannot be written \(No space left on device\)$"):
            save_scenario(path, Scenario("train", "new", "m"))
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]


@pytest.mark.parametrize("place", ["nowhere/run.toml", ".", "a\0b", "file/run.toml", "x" * 300])
def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match=r"^--save .*: cannot be written") as caught:
        save_scenario(Path(place), Scenario("train", "a", "b"))
    assert len(str(caught.value)) < 400
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_what_a_file_cannot_hold_is_refused(tmp_path: Path) -> None:
    from slipstick.core.algebra.symbols import symbol

    with pytest.raises(UserError, match="cannot be written"):
        save_scenario(tmp_path / "run.toml", Scenario("train", "a\udc80", "b"))
    with pytest.raises(UserError, match="symbol 'tp' cannot be saved"):
        save_scenario(tmp_path / "run.toml", Scenario("train", "a", "b", {"tp": symbol("tp")}))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "schema must be 1"),
        ("schema = 2\n", "schema must be 1, not '2'"),
        ("schema = 1\nmodell = 1\n", "unknown key of scenario .* 'modell'; did you mean model"),
        ("schema = 1\ntask = 3\n", "key 'task' must be a string"),
        (
            'schema = 1\ntask = "trane"\nmodel = "a"\non = "b"\n',
            "unknown task of scenario .* 'trane'; did you mean train",
        ),
        ('schema = 1\ntask = "train"\n', "key 'model' must be a string"),
        ('schema = 1\ntask = "train"\nmodel = "a"\non = "b"\nsettings = 3\n', "'settings' must be a table"),
        ("schema = 1\ntask = \n", "not valid TOML"),
        ("schema = " + "9" * 6000, "not valid TOML"),
        ("a = " + "[" * 20_000, "not valid TOML .*nested too deep|not valid TOML"),
        ("x = 1\n" * 100_000, f"bytes; a scenario has less than {MAX_BYTES:,}"),
    ],
)
def test_files_that_are_no_scenario(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "run.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message) as caught:
        load_scenario(path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_things_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    for name, message in (
        ("absent", "no such scenario file"),
        (".", "no such scenario file"),
        ("fifo", "no such scenario file"),
        ("bytes", "not UTF-8 text"),
        ("a\0b", "no such scenario file|cannot be read"),
    ):
        with pytest.raises(UserError, match=message):
            load_scenario(tmp_path / name)


def test_only_what_the_change_touches_moves(host: Host) -> None:
    given_ = {"devices": 8, "ep": 8, "global_batch": 64}
    a = Scenario("train", "mixtral-8x7b", "h100-sxm", given_)
    b = Scenario("train", "mixtral-8x7b", "h100-sxm", {**given_, "load_skew": 1.5})
    rows = diff_scenarios(a, b, host)
    assert rows
    # What is computed on routed copies moves; attention, dense layers and the optimizer do not.
    assert all("moe." in row.path and "router" not in row.path for row in rows), [row.path for row in rows]
    assert all(row.change > 0 for row in rows)
    changes = [abs(row.change) for row in rows]
    assert changes == sorted(changes, reverse=True)


@pytest.mark.parametrize(
    ("change", "model"),
    [
        ({"sequence": 4096}, "llama-3.1-8b"),
        ({"tp": 2}, "llama-3.1-8b"),
        ({"recompute": "full"}, "llama-3.1-8b"),
        ({}, "qwen3-8b"),
    ],
)
def test_the_changes_add_up_to_the_change_of_the_step(host: Host, change: dict[str, Any], model: str) -> None:
    given_ = {"devices": 16, "tp": 4, "pp": 2, "global_batch": 32}
    a, b = (
        Scenario("train", "llama-3.1-8b", "h100-sxm", given_),
        Scenario("train", model, "h100-sxm", {**given_, **change}),
    )
    before, after = (ask(s.task, (s.model,), (s.machine,), s.settings, host).predictions[0].time for s in (a, b))
    rows = diff_scenarios(a, b, host)
    assert sum(row.change for row in rows) == pytest.approx(after - before, rel=1e-9)
    back = diff_scenarios(b, a, host)
    assert sum(row.change for row in back) == pytest.approx(before - after, rel=1e-9)


def test_what_changes_no_time_moves_nothing(host: Host) -> None:
    a = Scenario("train", "llama-3.1-8b", "h100-sxm", {"devices": 8, "tp": 8})
    b = Scenario("train", "llama-3.1-8b", "h100-sxm", {"devices": 8, "tp": 8, "price": 2.5, "tokens": 1e12})
    assert diff_scenarios(a, b, host) == []
    with pytest.raises(UserError, match="one value for every setting"):
        diff_scenarios(a, Scenario("train", "llama-3.1-8b", "h100-sxm", {"tp": (1, 2), "devices": 8}), host)
