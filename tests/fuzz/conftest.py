"""What the fuzz tests share: a run of the command line in this process, and a file that must never appear."""

from __future__ import annotations

import contextlib
import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from slipstick.core.face.cli.main import main

SECONDS = 2.0
"""Processor time that a refusal may take."""


@frozen
class Ran:
    """One run of the command line."""

    status: int
    out: str
    err: str
    seconds: float

    def is_clear(self) -> None:
        """Either a sane answer (status 0 or 1), or one error line of reasonable length (status 2); never a bug."""
        assert self.status in (0, 1, 2), self.err
        assert "Traceback" not in self.err
        assert self.seconds < SECONDS or self.status != 2
        if self.status == 2:
            assert self.out == ""
            assert self.err.startswith("error: ")
            assert self.err.count("\n") == 1
            assert len(self.err) <= 1000
            assert all(letter.isprintable() for letter in self.err[:-1]), repr(self.err)
        else:
            assert self.err == ""
            assert self.out


def sane(value: Any) -> None:
    """No NaN, infinity or negative amount anywhere in an answer."""
    if isinstance(value, dict):
        for key, item in value.items():
            # Inputs of a formula may be differences, and its corrections go either way.
            if key == "memory_headroom_bytes":  # what is missing is negative
                sane(abs(item))
            elif key not in ("inputs", "tags", "parameters"):
                sane(item)
    elif isinstance(value, list):
        for item in value:
            sane(item)
    elif isinstance(value, float):
        assert 0 <= value < float("inf")


class Line:
    """Runs the command line in this process, which is a hundred times faster than a new one."""

    def __call__(self, *words: str) -> Ran:
        out, err = io.StringIO(), io.StringIO()
        start = time.process_time()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = main(words)
        return Ran(status, out.getvalue(), err.getvalue(), time.process_time() - start)

    def answer(self, *words: str) -> Ran:
        """The same with ``--json``; what is answered has to be sane."""
        ran = self(*words, "--json")
        ran.is_clear()
        if ran.status != 2:
            sane(json.loads(ran.out, parse_constant=lambda text: pytest.fail(f"{text} in JSON")))
        return ran


@pytest.fixture(scope="session")
def line() -> Line:
    return Line()


@pytest.fixture(scope="session")
def canary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file that only code taken from an input could make."""
    path = tmp_path_factory.mktemp("canary") / "executed"
    yield path
    assert not path.exists()


@pytest.fixture(scope="session")
def code(canary: Path) -> list[str]:
    """Texts that make the canary, each in the tongue of something that might run it."""
    name = str(canary)
    return [
        f"__import__('pathlib').Path({name!r}).touch()",
        f"lambda: open({name!r}, 'w')",
        f"!!python/object/apply:os.system ['touch {name}']",
        f"$(touch {name})",
        f"`touch {name}`",
        f"; touch {name}",
        f"{{{{ open({name!r}, 'w') }}}}",
        f"%s%n {name}",
        f"cos\nsystem\n(S'touch {name}'\ntR.",
        f"Integer(open({name!r}, 'w'))",
    ]
