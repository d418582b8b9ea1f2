"""docs/cli.md is what ``--help`` prints, and every command is in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstick.core.face.cli.help_pages import helps, page
from slipstick.core.face.cli.main import BUILT_IN


def test_the_page_is_what_help_prints(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    assert text == page(), "make it again: python -m slipstick.core.face.cli.help_pages docs/cli.md"


def test_every_command_has_a_heading(root: Path) -> None:
    text = (root / "docs" / "cli.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## `(slipstick.*)`$", text, flags=re.MULTILINE)
    for name in BUILT_IN:
        assert f"slipstick {name}" in headings
    for inner in ("explain serve", "derive train", "hardware show", "hardware validate", "models list"):
        assert f"slipstick {inner}" in headings


def test_help_is_narrow_and_says_something_of_each_option() -> None:
    for path, text in helps():
        assert max(map(len, text.splitlines())) <= 80, path
        assert f"Usage: {path}" in text
        for line in text.splitlines():
            assert "None" not in line, f"{path}: {line}"
