"""Hostile options and scenario files through the command line: an answer, or one line and status 2."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick.core.host.host import default_host
from slipstick.core.records.scenario import Scenario
from slipstick.core.study.saving import save_scenario
from slipstick.core.study.settings import settings_for

MODELS = ("llama-3.1-8b", "mixtral-8x7b")  # two structures: an answer never waits for a formula to be built
INFOS = {task: settings_for(task, default_host()) for task in ("train", "serve")}
WORDS = (
    "",
    " ",
    "-1",
    "0",
    "1",
    "2",
    "3",
    "7",
    "8",
    "64",
    "1e3",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "0x10",
    "1_000",
    "１２",
    "²",
    "½",
    "1,2",
    "1,,2",
    ",",
    "1..4",
    "4..1",
    "..",
    "1..",
    "1..8*2",
    "1..8*1",
    "1..8*",
    "1..1e18",
    "1..4,8",
    "?",
    "??",
    "1,?",
    "true",
    "false",
    "none",
    "None",
    "null",
    "full",
    "bf16",
    "fp8",
    "nf4",
    "auto",
    "30ms",
    "30 GB",
    "1 s",
    "-5ms",
    "15T",
    "1T1",
    "1k",
    "k",
    "9" * 500,
    "x" * 5000,
    "--tp",
    "-h",
    "$HOME",
    "%s",
    "{0}",
    "\\",
    "'",
    '"',
    "\n",
    "a\x1b[2Jb",
    "\u202e",
    "../x",
    "/etc/passwd",
)


@pytest.fixture(scope="module", autouse=True)
def formulas(line: Any) -> None:
    """Every program that these questions need is in the cache before time is measured."""
    for model in MODELS:
        for task in ("train", "serve"):
            assert line(task, model, "--on", "h200-sxm", "--gpus", "8", "--tp", "8").status in (0, 1)


@given(data=st.data())
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_words_for_any_options(line: Any, code: list[str], canary: Path, data: st.DataObject) -> None:
    task = data.draw(st.sampled_from(["train", "serve"]))
    # Options that decide the formula (--recompute, --zero, ...) are left to the next test: a new one takes a second.
    names = [n for n, info in INFOS[task].items() if not info.structural and info.kind in ("count", "number", "choice")]
    names = [n for n in names if n != "attention"]
    words = []
    for name in data.draw(st.lists(st.sampled_from(sorted(names)), max_size=3, unique=True)):
        value = data.draw(st.sampled_from([*WORDS, *code]) | st.text(max_size=8))
        words += [data.draw(st.sampled_from([INFOS[task][name].flag, *INFOS[task][name].aliases])), value]
    line.answer(task, data.draw(st.sampled_from(MODELS)), "--on", "h200-sxm", *words)
    assert not canary.exists()


@pytest.mark.parametrize("task", ["train", "serve"])
def test_every_option_with_words_that_are_never_right(line: Any, code: list[str], canary: Path, task: str) -> None:
    for info in INFOS[task].values():
        if info.kind == "flag":
            continue
        for word in ("", "-1", "nan", "1e400", "8..1", "1,,2", "x" * 5000, "a\nb", *code):
            ran = line(task, "llama-3.1-8b", "--on", "h200-sxm", info.flag, word)
            ran.is_clear()
            assert ran.status == 2, (info.flag, word, ran.out[:200])
            assert info.flag in ran.err or info.kind == "text", (info.flag, ran.err)
    assert not canary.exists()


@pytest.mark.parametrize(
    "words",
    [
        ("train",),
        ("train", "llama-3.1-8b"),
        ("train", "--on", "h100-sxm"),
        ("train", "llama-3.1-8b", "--on", ""),
        ("train", "llama-3.1-8b", "--on", "h100-sxm,"),
        ("train", "llama-3.1-8b,", "--on", "h100-sxm"),
        ("trian",),
        ("--bad",),
        ("train", "llama-3.1-8b", "--on", "h100-sxm", "--tpp", "8"),
        ("train", "a", "b", "--on", "h100-sxm"),
        ("train", "llama-3.1-8b", "--on", "h100-sxm", "--tp"),
        ("train", "--scenario", "/nowhere"),
        ("train", "llama-3.1-8b", "--on", "h100-sxm", "--save", "/nowhere/x.toml"),
        ("derive", "train", "llama-3.1-8b", "--on", "h100-sxm", "--for", "speed", "--by", "tp"),
        ("derive", "train", "llama-3.1-8b", "--on", "h100-sxm", "--for", "step_time", "--by", "__class__"),
        ("diff", "/nowhere", "/nowhere"),
        ("--plugin", "/nowhere.py", "plugins"),
        ("hardware", "show", "../../etc/passwd"),
        ("models", "show", "../../etc/passwd"),
        ("explain", "train", "llama-3.1-8b", "--on", "h100-sxm", "--depth", "-1"),
    ],
    ids=" ".join,
)
def test_questions_with_something_missing(line: Any, words: tuple[str, ...]) -> None:
    ran = line(*words)
    ran.is_clear()
    assert ran.status == 2


SCENARIO = 'schema = 1\ntask = "train"\nmodel = "llama-3.1-8b"\non = "h200-sxm"\n\n[settings]\ndevices = 8\ntp = 8\n'


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_scenarios(line: Any, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = SCENARIO.encode()
    at = data.draw(st.integers(0, len(whole)))
    more = data.draw(
        st.binary(max_size=6)
        | st.sampled_from([b"\n[x]\n", b'"', b"=", b"nan", b"inf", b"1979-05-27", b"[[a]]", b"9" * 5000])
    )
    path = tmp_path_factory.mktemp("fuzz") / "run.toml"
    path.write_bytes(whole[:at] + more + whole[data.draw(st.integers(at, min(at + 4, len(whole)))) :])
    line.answer("train", "--scenario", str(path))


VALUES = st.one_of(
    st.integers(),
    st.floats(),
    st.booleans(),
    st.text(max_size=10),
    st.sampled_from(WORDS),
    st.lists(st.integers(), max_size=4),
    st.lists(st.text(max_size=3), max_size=3),
)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_scenarios_with_any_values(
    line: Any, tmp_path_factory: pytest.TempPathFactory, code: list[str], canary: Path, data: st.DataObject
) -> None:
    names = st.sampled_from(
        ["tp", "dp", "micro_batch", "devices", "price", "tokens", "load_skew", "precision", "sequence", "straggler"]
    )
    given_ = data.draw(st.dictionaries(names, VALUES | st.sampled_from(code), max_size=3))
    path = tmp_path_factory.mktemp("fuzz") / "run.toml"
    texts = {n: tuple(v) if isinstance(v, list) else v for n, v in given_.items()}
    save_scenario(path, Scenario("train", "llama-3.1-8b", "h200-sxm", texts))
    line.answer("train", "--scenario", str(path))
    assert not canary.exists()
