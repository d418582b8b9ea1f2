"""What the tests of the faces share: the command line run in this process."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from slipstick.core.face.cli.main import main


class Done(NamedTuple):
    """What a run of the command line left."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The document on standard output."""
        return json.loads(self.out)


def slipstick_(*words: str) -> Done:
    """Run the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(list(words))
    return Done(status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="session")
def slipstick() -> Callable[..., Done]:
    """The command line as a function of its words."""
    return slipstick_
