"""docs/plugins.md holds to the code: each hook's heading is its exact signature, and its example runs."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from slipstick.core.face.cli.main import main
from slipstick.core.host import hookspecs
from slipstick.core.host.plugin import HOOK_NAMES


@pytest.fixture(scope="module")
def page(root: Path) -> str:
    """The text of the page."""
    return (root / "docs" / "plugins.md").read_text()


def specified() -> list[str]:
    """The hooks of the specification, in its order."""
    marked = [name for name, value in vars(hookspecs).items() if hasattr(value, f"{hookspecs.PROJECT}_spec")]
    assert len(marked) == 10
    return marked


def test_every_hook_of_the_specification_is_known_to_the_host() -> None:
    assert tuple(specified()) == HOOK_NAMES


def test_each_hook_has_a_heading_with_its_exact_signature(page: str) -> None:
    signatures = [f"{name}{inspect.signature(getattr(hookspecs, name))}".replace("'", "") for name in specified()]
    assert re.findall(r"^### `(.*)`$", page, flags=re.MULTILINE) == signatures


@pytest.mark.parametrize("hook", HOOK_NAMES)
def test_each_docstring_has_the_same_parts(hook: str, page: str) -> None:
    text = inspect.getdoc(getattr(hookspecs, hook)) or ""
    parts = text.partition("\n\n")[2]
    assert re.findall(r"^(\w[\w ]*):", parts, flags=re.MULTILINE) == ["When called", "Returns", "Example", "Errors"]
    section = page.split(f"### `{hook}(")[1].split("\n### ")[0]
    assert text.splitlines()[0].replace("``", "`") in section
    for part in ("When called", "Returns", "Example", "Errors"):
        assert f"* **{part}**: " in section


@pytest.mark.parametrize("hook", HOOK_NAMES)
def test_each_hook_is_named_by_a_test(hook: str, root: Path) -> None:
    files = [file for file in (root / "tests").rglob("test_*.py") if file != Path(__file__)]
    assert any(f'"{hook}"' in file.read_text() for file in files)


def test_the_api_number_is_told(page: str) -> None:
    assert f"now **{hookspecs.API}**" in page


def test_the_complete_plugin_is_complete(page: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    path = tmp_path / "acme.py"
    path.write_text(blocks[0])
    assert main(["--plugin", str(path), "acme-hello"]) == 0
    assert capsys.readouterr().out == "good day\n"
