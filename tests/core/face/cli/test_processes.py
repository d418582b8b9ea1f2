"""The commands as processes: statuses, a pure standard output, readers that leave, what is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SERVE = ("serve", "llama-3.1-8b", "--on", "h100-sxm", "--tp", "1")


def process(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run slipstick in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "slipstick", *arguments],
        capture_output=True, text=True, env={**os.environ, **environ}, timeout=60, check=False, encoding="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (SERVE, 0),
        (("serve", "llama-3.1-70b", "--on", "l4"), 1),
        (("serve", "llama-3.1-70b", "--on", "l4", "--tp", "banana"), 2),
    ],
)
def test_the_status_says_whether_it_is_feasible(arguments: tuple[str, ...], status: int) -> None:
    done = process(*arguments, "--json")
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    if status == 2:
        assert done.stdout == ""
    else:
        assert done.stderr == ""
        assert json.loads(done.stdout)["feasible"] is (status == 0)


def imported(*arguments: str) -> set[str]:
    """The packages that a run of the command line leaves imported."""
    code = (
        "import sys; from slipstick.core.face.cli.main import main; main(sys.argv[1:]);"
        "print(' '.join(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_repeated_answer_imports_neither_sympy_nor_rich(form: tuple[str, ...]) -> None:
    process(*SERVE)  # fills the cache of formulas
    assert imported(*SERVE, *form) & {"sympy", "rich", "cattrs", "scipy"} == set()


@pytest.mark.parametrize(
    "arguments", [("hardware", "list"), ("hardware", "show", "h100-sxm"), ("models", "show", "gpt2", "--json")]
)
def test_lists_import_nothing_heavy(arguments: tuple[str, ...]) -> None:
    assert imported(*arguments) & {"sympy", "rich", "numpy", "scipy", "cattrs"} == set()


@pytest.mark.skipif(os.name == "nt", reason="pipes of POSIX")
@pytest.mark.parametrize("arguments", [SERVE, (*SERVE, "--json"), ("explain", *SERVE), ("hardware", "list")])
def test_a_reader_that_leaves_is_no_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "slipstick", *arguments], stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_an_output_that_knows_no_greek_is_no_bug() -> None:
    done = process("hardware", "show", "h100-sxm", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "?s" in done.stdout


def test_nothing_is_coloured_in_a_pipe() -> None:
    done = process("explain", *SERVE, FORCE_COLOR="1")
    assert "\x1b" not in done.stdout


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize("arguments", [SERVE, ("explain", *SERVE), (*SERVE, "--concurrency", "1,2")])
def test_a_terminal_gets_colour(arguments: tuple[str, ...]) -> None:
    import pty

    leader, follower = pty.openpty()
    running = subprocess.Popen(
        [sys.executable, "-m", "slipstick", *arguments], stdout=follower, stderr=follower,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"},
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:  # the other end has closed
            break
        if not part:
            break
        shown += part
    os.close(leader)
    assert running.wait(timeout=60) == 0
    assert b"\x1b[" in shown
    assert b"llama-3.1-8b" in shown


def test_a_shell_is_told_models_machines_and_choices() -> None:
    def completed(words: str) -> str:
        return process(
            _SLIPSTICK_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
        ).stdout

    assert "llama-3.1-8b" in completed("slipstick train llama-3.1-8")
    assert "h100-sxm" in completed("slipstick train gpt2 --on h100-s")
    assert "selective" in completed("slipstick train gpt2 --recompute sel")
    assert "--global-batch" in completed("slipstick train --global")
