"""The command line's entrance: help that starts fast, one-line errors, and the exit statuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest

from slipstick import __version__
from slipstick.core.errors import NotFeasible, UserError
from slipstick.core.face.cli import main as face
from slipstick.core.face.cli.main import BUILT_IN, main

COMMAND = (
    "import click\nfrom slipstick.core.host.hookspecs import hookimpl\n"
    "@click.command('acme-hello', short_help='Greet.')\ndef hello():\n    click.echo('good day')\n"
    "@hookimpl\ndef slipstick_commands():\n    return [hello]\n"
)


@pytest.fixture
def acme(tmp_path: Path) -> str:
    """The path of a single-file plugin with the command ``acme-hello``."""
    path = tmp_path / "acme.py"
    path.write_text(COMMAND)
    return str(path)


def process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run slipstick in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "slipstick", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environ},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", BUILT_IN)
def test_the_line_of_help_is_the_commands_own(name: str) -> None:
    module, _, attribute = BUILT_IN[name][0].partition(":")
    command = getattr(import_module(module), attribute)
    assert isinstance(command, click.Command)
    assert command.get_short_help_str(limit=200) == BUILT_IN[name][1]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from slipstick.core.face.cli.main import main; main(['--help']);"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr);"
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    # The first run may have to write the manifest; the second finds it.
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    packages, modules = done.stderr.splitlines()
    for heavy in ("sympy", "numpy", "scipy", "rich", "cattrs", "pluggy", "attr"):
        assert f"'{heavy}'" not in packages, f"--help imports {heavy}"
    assert "'importlib.metadata'" not in modules, "--help scans the installed distributions"
    assert "Commands:" in done.stdout


def test_help_shows_a_plugins_commands(acme: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plugin", acme, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "Commands of plugins" in shown
    assert "acme-hello" in shown
    assert "Greet." in shown


def test_help_is_shown_without_a_command_and_is_never_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([]) == 0
    bare = capsys.readouterr().out
    assert main(["-h"]) == 0
    assert capsys.readouterr().out == bare
    assert main(["--plugin", str(tmp_path / "none.py"), "--help"]) == 0


def test_a_plugins_command_runs(acme: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--plugin", acme, "acme-hello"]) == 0
    assert capsys.readouterr().out == "good day\n"


def test_a_broken_plugin_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "faulty.py"
    path.write_text("1 / 0\n")
    assert main(["--plugin", str(path), "plugins", "--json"]) == 0
    told = capsys.readouterr()
    assert "warning" in told.err
    assert "ZeroDivisionError" in told.err
    (row,) = [row for row in json.loads(told.out)["plugins"] if row["name"] == "faulty"]
    assert row["state"] == "broken"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["a\nb" * 500], "unknown command"),
        ([""], "unknown command ''"),
        (["--nonsense"], "--nonsense"),
        (["--plugin", "none.py", "acme-hello"], "plugin file 'none.py' is not there"),
        (["plugins", "--jsno"], "slipstick plugins --help"),
        (["completion", "cmd.exe"], "bash"),
        (["completion"], "SHELL"),
    ],
)
def test_a_persons_mistake_is_one_line(arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("error: ")
    assert shown.err.count("\n") == 1
    assert told in shown.err
    assert len(shown.err) < 400


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (UserError("--tp: 3 does not divide 64"), 2),
        (NotFeasible("weights need 140 GB, 80 GB fit"), 1),
        (click.ClickException("no such thing"), 2),
        (KeyError("x"), 70),
        (RecursionError("deep"), 70),
        (KeyboardInterrupt(), 130),
        (SystemExit(5), 5),
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_each_way_to_fail_has_its_status(
    error: BaseException,
    status: int,
    debug: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command("plugins")
    def failing() -> None:
        raise error

    monkeypatch.setattr(face, "import_module", lambda name: type("Module", (), {"command": failing}))
    assert main(["--debug", "plugins"] if debug else ["plugins"]) == status
    told = capsys.readouterr().err
    if not debug:
        assert "Traceback" not in told
        assert status == 5 or told.strip().splitlines()[-1].startswith("error: ")
    elif isinstance(error, UserError | KeyError):
        assert "Traceback" in told
    if status == 70:
        assert "bug" in told
        assert type(error).__name__ in told


def test_the_status_is_the_process_exit_status() -> None:
    done = process("trian")
    assert done.returncode == 2
    assert done.stderr.startswith("error: unknown command")
    assert process("--version").stdout == f"slipstick {__version__}\n"


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("arguments", [["--help"], ["plugins"], ["plugins", "--json"]])
def test_a_reader_that_leaves_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "slipstick", *arguments], stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writing)
    assert done.returncode == 141
    assert done.stderr == b""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_calls_slipstick(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    assert "_SLIPSTICK_COMPLETE" in capsys.readouterr().out


def test_a_shell_is_told_the_commands() -> None:
    done = process(_SLIPSTICK_COMPLETE="bash_complete", COMP_WORDS="slipstick plug", COMP_CWORD="1")
    assert "plain,plugins" in done.stdout


def test_plugins_lists_what_is_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plugins", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert listed["schema"] == 1
    rows = {row["name"]: row for row in listed["plugins"]}
    assert rows["nvidia"]["state"] == "active"
    assert rows["nvidia"]["version"] == __version__
    assert rows["nvidia"]["hooks"] == ["slipstick_hardware"]
    assert set(rows["nvidia"]) == {"name", "version", "hooks", "state", "reason", "origin", "where"}
    assert main(["plugins"]) == 0
    table = capsys.readouterr().out
    assert "nvidia" in table
    assert "hardware" in table


def test_a_plugin_is_switched_off_by_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("SLIPSTICK_DISABLE_PLUGINS", "nvidia")
    assert main(["plugins", "--json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["plugins"]}
    assert rows["nvidia"]["state"] == "disabled"
