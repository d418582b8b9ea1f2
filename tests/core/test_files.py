"""Files replaced as a whole: the old content or the new one, and nothing beside it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slipstick.core.errors import UserError
from slipstick.core.files import put, reason_of, replace_file


def test_text_is_utf_8_and_folders_on_the_way_are_made(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "µ.toml"
    replace_file(path, "2 µs\n")
    assert path.read_bytes() == b"2 \xc2\xb5s\n"
    replace_file(path, b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [entry.name for entry in path.parent.iterdir()] == ["µ.toml"]


@pytest.mark.parametrize("broken", ["replace", "fsync"])
@pytest.mark.parametrize("old", ["old", None])
def test_a_failure_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, old: str | None
) -> None:
    path = tmp_path / "x.toml"
    if old is not None:
        path.write_text(old, encoding="utf-8")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, broken, full)
        with pytest.raises(UserError, match=r"x\.toml'? can't be written: No space left on device$"):
            replace_file(path, "new")
    assert {entry.name: entry.read_text(encoding="utf-8") for entry in tmp_path.iterdir()} == (
        {} if old is None else {"x.toml": old}
    )


def test_an_interrupt_leaves_no_draft_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "x.toml", "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["file/x.toml", "x" * 300, "a\0b", "."])
def test_places_that_are_none_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="can't be written") as caught:
        replace_file(Path(name), "new")
    assert "\n" not in str(caught.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_text_that_is_none_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="can't be written"):
        replace_file(tmp_path / "x.toml", "a\udc80")
    assert list(tmp_path.iterdir()) == []


def test_a_name_as_long_as_the_system_takes_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 250)  # a draft with the whole name in its own would be longer than 255
    put(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_that_is_not_there_is_the_callers_matter(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        put(tmp_path / "nowhere" / "x", b"new")
    assert reason_of(caught.value) == "No such file or directory"
    assert reason_of(ValueError("embedded null byte")) == "embedded null byte"
