"""What the tests of the study floor share: one host, and a short way to ask."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask
from slipstick.core.study.prediction import Prediction


class Asker:
    """One question, one prediction."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def __call__(self, task: str, model: str, on: str, **settings: Any) -> Prediction:
        outcome = ask(task, (model,), (on,), settings, self.host)
        assert len(outcome.predictions) == 1
        return outcome.predictions[0]

    def rows(self, prediction: Prediction) -> dict[str, float]:
        return {row.name: row.bytes for row in prediction.answer.ledger}


@pytest.fixture(scope="session")
def host() -> Host:
    return Host.load()


@pytest.fixture(scope="session")
def one(host: Host) -> Asker:
    return Asker(host)
