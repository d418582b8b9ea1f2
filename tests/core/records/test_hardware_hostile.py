"""Hostile files: whatever lies under the name of a record, it loads or is refused in one clear line, and fast."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.records.hardware import Accelerator, Host, Link, Node
from slipstick.core.records.hardware_toml import Record, load_file
from slipstick.hwdb import FOLDER
from slipstick.hwdb.schema import Base

BASE = Base()
FILES = [
    "accelerators/nvidia/l4.toml",
    "clusters/nvidia/h100-nvl-server.toml",
    "hosts/grace.toml",
    "links/nvlink4.toml",
]
TEXTS = [(FOLDER / file).read_text(encoding="utf-8") for file in FILES]


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def refused(path: Path, told: str) -> str:
    """The message of the error that reading ``path`` raises, within a second, and which holds ``told``."""
    start = time.perf_counter()
    with pytest.raises(UserError) as caught:
        load_file(path)
    assert time.perf_counter() - start < 1.0
    message = str(caught.value)
    assert told in message
    assert all(letter.isprintable() or letter == "\n" for letter in message)
    assert all(len(line) < 600 for line in message.splitlines())
    return message


def test_no_file(tmp_path: Path) -> None:
    refused(tmp_path / "none.toml", "none.toml: no such file")


def test_a_folder(tmp_path: Path) -> None:
    refused(tmp_path, "is a folder")


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    path = put(tmp_path, "chip.toml", "")
    os.truncate(path, 2**30)
    refused(path, "too large for a record")


def test_no_regular_file(tmp_path: Path) -> None:
    path = tmp_path / "pipe.toml"
    os.mkfifo(path)
    refused(path, "is not a regular file")


@pytest.mark.parametrize("path", [Path("a\0b.toml"), Path("x" * 5000 + ".toml")])
def test_no_path(path: Path) -> None:
    refused(path, "cannot be read")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"\x89PNG\r\n\x1a\n\xff\xfe", "not UTF-8"),
        (b"\xff" * 1000, "not UTF-8"),
        ("schema = 1\nschema = 2", "not TOML"),
        ("{", "not TOML"),
        ("x = " + "[" * 50_000, "not TOML: nested too deep"),
        ("x = " + "9" * 100_000, "not TOML"),
        ("x = 2026-99-99", "not TOML"),
        (".".join("a" * 20_000) + " = 1", "dots"),
        ("\n".join(f"k{n} = {n}" for n in range(15_000)), "kind: missing"),
        ("", "kind: missing"),
        ('kind = "accelerator"\n' + "\n".join(f"k{n} = {n}" for n in range(1000)), "more"),
        ('kind = "link"\nvalues = 3\nsources = []', "values: '3' is not a table"),
        ('kind = "host"\n[sources]\nx = 1\n[values.cores]\nvalue = 1', "sources.x: '1' is not a table"),
        ('kind = "node"\ntiers = [1, 2]', "tiers: '[1, 2]' is not a list of tables"),
        ('kind = "node"\n' + "[[tiers]]\n" * 20_000, "tiers: 20000 tiers; at most 16"),
        ("kind = \"accelerator\"\nname = \"__import__('os').system('true')\"", "is no name"),
    ],
)
def test_a_hostile_file(tmp_path: Path, content: str | bytes, told: str) -> None:
    refused(put(tmp_path, "chip.toml", content), told)


def test_no_more_than_twenty_problems_are_told(tmp_path: Path) -> None:
    text = 'kind = "accelerator"\n' + "\n".join(f"k{n} = {n}" for n in range(1000))
    assert len(refused(put(tmp_path, "chip.toml", text), "and 98").splitlines()) == 22


def loads_or_refuses(path: Path) -> None:
    record: Record | None = None
    message = ""
    start = time.perf_counter()
    try:
        record = load_file(path, BASE.load)
    except UserError as error:
        message = str(error)
    assert time.perf_counter() - start < 1.0
    assert isinstance(record, Accelerator | Host | Link | Node) != bool(message)
    assert all(letter.isprintable() or letter == "\n" for letter in message)
    assert len(message) < 20_000


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, content: bytes) -> None:
    loads_or_refuses(put(tmp_path, "fuzz.toml", content))


@FUZZ
@given(data=st.data(), whole=st.sampled_from(TEXTS))
def test_any_cut_or_splice(tmp_path: Path, data: st.DataObject, whole: str) -> None:
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, min(len(whole), start + 40)))
    splice = data.draw(st.sampled_from(["", "[", "]", '"', "=", "nan", "-1", "inf", "1e999", "\0", "µ", "[x]\n", "{}"]))
    loads_or_refuses(put(tmp_path, "fuzz.toml", whole[:start] + splice + whole[end:]))


SCALARS = st.one_of(
    st.sampled_from(
        ["1", "-1", "0", "nan", "inf", "1e308", "true", "2026-01-01", "[]", "{}", '""', '"80 GB"', '"../x"']
    ),
    st.integers(-(10**30), 10**30).map(str),
    st.text(st.characters(codec="ascii", categories=["L", "N", "P"], exclude_characters='"\\'), max_size=90).map(
        lambda text: f'"{text}"'
    ),
)


@FUZZ
@given(data=st.data(), whole=st.sampled_from(TEXTS))
def test_any_value_in_place_of_any_other(tmp_path: Path, data: st.DataObject, whole: str) -> None:
    lines = whole.splitlines()
    places = [index for index, line in enumerate(lines) if "=" in line]
    for index in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=4)):
        lines[index] = lines[index].split("=", 1)[0] + "= " + data.draw(SCALARS)
    loads_or_refuses(put(tmp_path, "fuzz.toml", "\n".join(lines)))
