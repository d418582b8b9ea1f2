"""Configurations read field by field: right values pass, each wrong one is one line that names file and field."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.records.configuration import MAX_BYTES, Configuration

FIELDS = {
    "hidden_size": 4096,
    "float_size": 4096.0,
    "rope_theta": 500000.0,
    "tie": True,
    "act": "silu",
    "types": ["a", "b"],
    "windows": [1, 2],
    "text_config": {"hidden_size": 8},
    "gone": None,
    "zero": 0,
    "big": 10**12,
    "text": "4096",
    "half": 0.5,
    "nan": float("nan"),
    "infinite": float("inf"),
    "mixed": [1, "a"],
}


@pytest.fixture
def config() -> Configuration:
    return Configuration(FIELDS, "c.json")


def test_fields_of_every_type(config: Configuration) -> None:
    assert config.integer("hidden_size") == 4096
    assert config.integer("float_size") == 4096
    assert type(config.integer("float_size")) is int
    assert config.integer("n_embd", also=("hidden_size",)) == 4096
    assert config.integer("gone", 7) == 7  # null is as good as absent
    assert config.integer("zero", minimum=0) == 0
    assert config.number("rope_theta") == 500_000.0
    assert config.boolean("tie") is True
    assert config.text("act", among=("silu", "gelu")) == "silu"
    assert config.texts("types", among=("a", "b", "c")) == ["a", "b"]
    assert config.integers("windows") == [1, 2]
    assert config.section("text_config").integer("hidden_size") == 8
    assert config.raw("mixed") == [1, "a"]
    assert "act" in config
    assert "gone" not in config
    assert "absent" not in config


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda c: c.integer("hidden_sise"), "c.json: field 'hidden_sise' is missing; is 'hidden_size' meant?"),
        (lambda c: c.integer("gone"), "c.json: field 'gone' is missing"),
        (lambda c: c.integer("half"), "c.json: field 'half' must be a whole number, not '0.5'"),
        (lambda c: c.integer("tie"), "c.json: field 'tie' must be a whole number, not true"),
        (lambda c: c.integer("text"), "c.json: field 'text' must be a whole number, not '4096'"),
        (lambda c: c.integer("nan"), "c.json: field 'nan' must be a whole number, not 'nan'"),
        (lambda c: c.integer("types"), "c.json: field 'types' must be a whole number, not a list"),
        (lambda c: c.integer("text_config"), "c.json: field 'text_config' must be a whole number, not an object"),
        (lambda c: c.integer("zero"), "c.json: field 'zero' must be between 1 and 1,000,000,000, not '0'"),
        (lambda c: c.integer("big"), "c.json: field 'big' must be between 1 and 1,000,000,000, not '1000000000000'"),
        (lambda c: c.number("infinite"), "c.json: field 'infinite' must be a finite number, not 'inf'"),
        (lambda c: c.number("nan"), "c.json: field 'nan' must be a finite number, not 'nan'"),
        (lambda c: c.number("tie"), "c.json: field 'tie' must be a finite number, not true"),
        (lambda c: c.number("half", minimum=1), "c.json: field 'half' must be between 1 and"),
        (lambda c: c.boolean("zero"), "c.json: field 'zero' must be true or false, not '0'"),
        (lambda c: c.text("half"), "c.json: field 'half' must be a string, not '0.5'"),
        (lambda c: c.text("act", among=("gelu", "relu")), "c.json: field 'act' is 'silu'; known values: gelu, relu"),
        (lambda c: c.texts("mixed"), "c.json: field 'mixed' must be a list of strings, not a list"),
        (lambda c: c.texts("types", among=("a",)), "c.json: field 'types' holds 'b'; known: a"),
        (lambda c: c.integers("mixed"), "c.json: field 'mixed' must be a list of whole numbers, not a list"),
        (lambda c: c.integers("windows", maximum=1), "c.json: field 'windows' holds '2', outside 0..1"),
        (lambda c: c.section("act"), "c.json: field 'act' must be an object, not 'silu'"),
        (lambda c: c.section("text_config").integer("heads"), "c.json: text_config: field 'heads' is missing"),
        (lambda c: c.finish(), "c.json: unknown field 'hidden_size'"),
    ],
)
def test_wrong_fields(config: Configuration, read: Callable[[Configuration], Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(config)
    assert str(caught.value).startswith(message)


def test_leftovers_are_named_and_notes_are_free() -> None:
    config = Configuration({"hidden_size": 1, "_note": 1, "bos_token_id": 2, "hidden_sizes": 3}, "c.json")
    config.integer("hidden_size")
    config.ignore(["bos_token_id"])
    with pytest.raises(UserError, match=r"^c\.json: unknown field 'hidden_sizes'; did you mean 'hidden_size'\?$"):
        config.finish()
    config.ignore(["hidden_sizes"])
    config.finish()


def test_numbers_too_long_to_write_are_still_one_line() -> None:
    config = Configuration({"n": 10**5000, "x": 10**400, "s": [10**5000]}, "c.json")
    for read in (
        lambda: config.integer("n"),
        lambda: config.number("x"),
        lambda: config.integers("s"),
        lambda: config.text("n"),
    ):
        with pytest.raises(UserError, match=r"^c\.json: field '.'") as caught:
            read()
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not valid JSON at line 1, column 1"),
        (b'{"a": 1', "not valid JSON at line 1"),
        (b"[]", "a JSON object, this is a list"),
        (b"3", "a JSON object, this is '3'"),
        (b"null", "a JSON object, this is null"),
        (b"\xff\xfe", "cannot be read (not UTF-8 text)"),
        (b"[" * 50_000, "not valid JSON"),
        (b'{"a":' * 50_000, "not valid JSON"),
        (b'{"a": ' + b"9" * 6000 + b"}", "not valid JSON"),
        (b" " * (MAX_BYTES + 1), "4,000,001 bytes; a model configuration has less than 4,000,000"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        Configuration.load(path)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_obstacle(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    (tmp_path / "config.json").write_bytes(b'\xef\xbb\xbf{"hidden_size": 8}')
    assert Configuration.load(tmp_path).integer("hidden_size") == 8


def test_things_that_are_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo.json")
    (tmp_path / "empty").mkdir()
    (tmp_path / "dir" / "config.json").mkdir(parents=True)
    huge = tmp_path / "huge.json"
    with huge.open("wb") as file:
        file.truncate(10**9)
    for name, message in (
        ("absent.json", "no such file"),
        ("fifo.json", "not a regular file"),
        ("empty", "without a config.json"),
        ("dir", "without a config.json"),
        ("huge.json", "1,000,000,000 bytes"),
        ("a\0b", "no such file|cannot be read"),
        ("x" * 300, "cannot be read"),
    ):
        with pytest.raises(UserError, match=message) as caught:
            Configuration.load(tmp_path / name)
        assert len(str(caught.value)) < 400


def test_the_last_of_two_equal_names_is_not_taken_silently() -> None:
    """JSON leaves it open which one counts; both are in the text, so a person has to decide."""
    with pytest.raises(UserError, match="field 'hidden_size' stands twice"):
        Configuration.parse(json.dumps({"a": 1})[:-1] + ', "hidden_size": 1, "hidden_size": 2}', "c.json")


def test_a_missing_field_is_not_said_to_be_one_that_is_known() -> None:
    """Key/value heads are never meant by the number of query heads."""
    heads = "num_attention_heads"
    config = Configuration({heads: 32, "num_key_value_head": 8}, "c.json")
    assert config.integer(heads) == 32
    with pytest.raises(UserError) as caught:
        config.integer("num_key_value_heads")
    assert str(caught.value) == "c.json: field 'num_key_value_heads' is missing; is 'num_key_value_head' meant?"
    config = Configuration({heads: 32}, "c.json")
    config.integer(heads)
    with pytest.raises(UserError) as caught:
        config.integer("num_key_value_heads")
    assert str(caught.value) == "c.json: field 'num_key_value_heads' is missing"
