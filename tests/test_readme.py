"""README.md tells the truth: the outputs it shows are what its commands print, and its Python example runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from slipstick.core.face.cli.main import main

BLOCK = re.compile(r"<!-- output: slipstick (.+?) -->\n```\n(.*?)\n```", re.DOTALL)


def shown(root: Path) -> list[tuple[str, str]]:
    """Command and output of each block."""
    return BLOCK.findall((root / "README.md").read_text())


@pytest.mark.parametrize("number", [0, 1])
def test_the_output_shown_is_the_output(root: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    command, output = shown(root)[number]
    assert main(shlex.split(command)) == 0
    assert capsys.readouterr().out.rstrip() == output


def test_the_commands_of_the_grammar_run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # one of them writes a file
    text = (root / "README.md").read_text()
    section = text.split("## One grammar")[1].split("##")[0]
    commands = re.findall(r"^    slipstick (.+?)(?:\s+#.*)?$", section, re.MULTILINE)
    assert len(commands) == 7
    for command in commands:
        assert not re.search(r"(?<!')\?", command), "a shell takes a bare ? for the name of a file"
        assert main(shlex.split(command)) == 0, command
    assert [path.name for path in tmp_path.iterdir()] == ["step.json"]


def test_the_python_example_runs(root: Path) -> None:
    text = (root / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, object] = {}
    exec(compile(example, "README.md", "exec"), names)  # noqa: S102  # our own text, the point of this test
    assert names["step"].time == pytest.approx(  # type: ignore[attr-defined]
        float(names["step"].answer.figures["step_time_s"])  # type: ignore[attr-defined]
    )


def test_the_two_commands_are_on_the_first_screen(root: Path) -> None:
    first = "\n".join((root / "README.md").read_text().splitlines()[:24])
    assert "pip install . && .venv/bin/slipstick train" in first
    assert "pip install -e '.[test]' && .venv/bin/python -m pytest" in first
