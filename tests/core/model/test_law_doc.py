"""The page about the law says what the law does: its tables are derived anew, its strategy is run."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from slipstick.core.model.interfaces import strategy
from slipstick.core.testkit import tables


@pytest.fixture(scope="module")
def page(root: Path) -> Path:
    return root / "docs" / "law.md"


@pytest.mark.parametrize("name", ["dense_table", "expert_table"])
def test_the_tables_are_what_the_law_derives(page: Path, name: str) -> None:
    found = re.search(rf"<!-- derived: {name} -->\n(.*?)<!-- end -->", page.read_text(encoding="utf-8"), re.DOTALL)
    assert found, f"docs/law.md has no table {name}"
    assert found[1] == getattr(tables, name)()


def test_the_strategy_of_the_page_runs(page: Path) -> None:
    result = doctest.testfile(str(page), module_relative=False, encoding="utf-8")
    assert result.attempted >= 8
    assert result.failed == 0


def test_the_strategy_of_the_page_is_that_of_the_interface(page: Path) -> None:
    """One example: the interface's docstring opens with it, the page shows it."""
    lines = [line[4:] for line in page.read_text(encoding="utf-8").splitlines() if line.startswith((">>> ", "... "))]
    blank = [line for line in lines if line.strip()]
    start = next(i for i, line in enumerate(blank) if line.startswith("class ContextParallel"))
    shown = blank[start : start + 5]
    documented = [line.removeprefix("    ") for line in (strategy.__doc__ or "").splitlines() if line.strip()]
    start = documented.index(shown[0])
    assert documented[start : start + 5] == shown
    assert len(shown) <= 10


def test_the_ten_lines_are_ten_lines() -> None:
    code = (strategy.__doc__ or "").split("::", 1)[1].split("That is a whole")[0]
    lines = [line for line in code.splitlines() if line.strip() and "import" not in line]
    assert len(lines) <= 10
