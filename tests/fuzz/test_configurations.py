"""Hostile model configurations: a sane answer or one line that names file and field, fast, and nothing is executed."""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.host.host import default_host
from slipstick.core.study.models import describe, load_model, preset_paths

PRESETS = (
    "llama-3.1-8b",
    "mixtral-8x7b",
    "deepseek-v3",
    "gpt2",
    "gemma-2-9b",
    "gpt-oss-20b",
    "qwen3-8b",
    "bloom",
    "opt-6.7b",
)
FIELDS = {
    name: json.loads(Path(path).read_text(encoding="utf-8"))
    for name, path in preset_paths(default_host()).items()
    if name in PRESETS
}
JUNK: dict[str, Any] = {"a": {"b": [{"c": [[[[]]]]}]}}
VALUES = st.one_of(
    st.sampled_from(
        [
            None,
            True,
            False,
            -1,
            0,
            1,
            2,
            3,
            1.5,
            -0.0,
            1e308,
            float("nan"),
            float("inf"),
            -float("inf"),
            10**18,
            10**400,
            -(10**30),
            "",
            "8",
            "silu",
            "../../../etc/passwd",
            "a\nb\x00\x1b[31m",
            "x" * 10_000,
            [],
            {},
            [[]],
            JUNK,
            [0] * 2000,
            ["full_attention"] * 3,
            [None],
            [True],
            {"type": "linear"},
            {"quant_method": "fp8"},
            {"quant_method": 3},
        ]
    ),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda s: st.lists(s) | st.dictionaries(st.text(), s),
        max_leaves=8,
    ),
)


def judged(path: Path) -> str:
    """Load and describe a configuration; the error line, or "" where it is taken."""
    start = time.process_time()
    try:
        shown = describe(load_model(str(path), default_host()))
    except UserError as error:
        line = str(error)
        assert time.process_time() - start < 2.0
        assert "\n" not in line
        assert len(line) <= 1000
        assert line.isprintable()
        assert path.name in line
        return line
    assert time.process_time() - start < 2.0
    json.dumps(shown, allow_nan=False)
    assert shown["parameters"] > 0
    assert shown["kv_bytes_per_token"] >= 0
    assert 0 < shown["active_parameters_per_token"] <= shown["parameters"]
    return ""


@given(data=st.data())
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_changed_fields(tmp_path_factory: pytest.TempPathFactory, code: list[str], data: st.DataObject) -> None:
    fields = copy.deepcopy(FIELDS[data.draw(st.sampled_from(sorted(FIELDS)))])
    for _ in range(data.draw(st.integers(1, 3))):
        kind = data.draw(st.sampled_from(["set", "set", "set", "drop", "add", "code", "nest"]))
        names = sorted(fields)
        name = data.draw(st.sampled_from(names)) if names else "model_type"
        if kind == "set":
            fields[name] = data.draw(VALUES)
        elif kind == "drop":
            fields.pop(name, None)
        elif kind == "add":
            fields[data.draw(st.text(max_size=12))] = data.draw(VALUES)
        elif kind == "code":
            fields[name] = data.draw(st.sampled_from(code))
        else:
            fields[name] = {name: fields.get(name)}
    path = tmp_path_factory.mktemp("fuzz") / "config.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    judged(path)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_damaged_text(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    whole = json.dumps(FIELDS[data.draw(st.sampled_from(sorted(FIELDS)))], indent=1).encode()
    at = data.draw(st.integers(0, len(whole)))
    how = data.draw(st.sampled_from(["cut", "insert", "flip"]))
    if how == "cut":
        whole = whole[:at]
    elif how == "insert":
        whole = whole[:at] + data.draw(st.binary(min_size=1, max_size=8)) + whole[at:]
    elif at < len(whole):
        whole = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    path = tmp_path_factory.mktemp("fuzz") / "config.json"
    path.write_bytes(whole)
    judged(path)


@pytest.mark.parametrize("preset", sorted(FIELDS))
def test_every_number_wrong_in_every_way(tmp_path: Path, preset: str) -> None:
    """Field by field: what is not a plain number in range is named, in a file that is otherwise right."""
    path = tmp_path / "config.json"
    for name, value in FIELDS[preset].items():
        if isinstance(value, bool) or not isinstance(value, int) or name.startswith("_"):
            continue
        for wrong in (-1, "many", [1], {}, float("nan"), 10**30):
            path.write_text(json.dumps({**FIELDS[preset], name: wrong}), encoding="utf-8")
            told = judged(path)
            if told:
                assert repr(name) in told, told


@pytest.mark.parametrize("preset", sorted(FIELDS))
def test_a_size_missing_is_named_or_has_a_stated_default(tmp_path: Path, preset: str) -> None:
    path = tmp_path / "config.json"
    refused = 0
    for name in FIELDS[preset]:
        fields = {key: value for key, value in FIELDS[preset].items() if key != name}
        path.write_text(json.dumps(fields), encoding="utf-8")
        told = judged(path)
        refused += bool(told)
        if told:
            assert repr(name) in told, told
    assert refused >= 4


def test_whole_answers_of_strange_sizes(line: Any, tmp_path: Path) -> None:
    """What passes as a configuration gives an answer without NaN, infinity or a negative amount."""
    path = tmp_path / "config.json"
    for change in (
        {},
        {"num_hidden_layers": 1},
        {"num_hidden_layers": 10**6},
        {"vocab_size": 1},
        {"vocab_size": 10**9},
        {"intermediate_size": 1},
        {"max_position_embeddings": 1},
        {"head_dim": 1},
        {"hidden_size": 10**9, "head_dim": 10**6},
        {"num_attention_heads": 10**9, "num_key_value_heads": 1, "head_dim": 10**9},
    ):
        path.write_text(json.dumps({**FIELDS["llama-3.1-8b"], **change}), encoding="utf-8")
        line.answer("train", str(path), "--on", "h100-sxm", "--gpus", "8")
        line.answer("serve", str(path), "--on", "h100-sxm", "--gpus", "8", "--tp", "8")
        line.answer("serve", str(path), "--on", "l4", "--gpus", "?", "--tp", "?", "--max-tpot", "1ms")


def test_names_that_reach_for_other_files(line: Any, tmp_path: Path, code: list[str], canary: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("password", encoding="utf-8")
    for name in (
        "../../../../etc/passwd",
        "/etc/passwd",
        str(secret),
        "~root/x.json",
        "file:///etc/passwd",
        "llama-3.1-8b/../../x",
        "%2e%2e/x",
        "https://example.org/config.json",
        "a\nb.json",
        "\x1b[31m.json",
        "x" * 5000,
        "\udc80.json",
        "..",
        "",
        " ",
        *code,
    ):
        ran = line("train", name, "--on", "h100-sxm")
        ran.is_clear()
        assert ran.status == 2
        assert "password" not in ran.err
        for words in (("--on", name), ("--on", "h100-sxm", "--stack", name), ("--on", "h100-sxm", "--node", name)):
            other = line("train", "llama-3.1-8b", *words)
            other.is_clear()
            assert other.status == 2
            assert "password" not in other.err
    assert not canary.exists()


def test_a_gigabyte_and_things_that_never_end(line: Any, tmp_path: Path) -> None:
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(2**30)
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    for path in (huge, tmp_path / "fifo.json", tmp_path / "loop.json", Path("/dev/zero"), Path("/dev/stdin"), tmp_path):
        ran = line("serve", str(path), "--on", "h100-sxm")
        ran.is_clear()
        assert ran.status == 2
