"""Scenarios as plain data."""

from __future__ import annotations

import attrs
import pytest

from slipstick.core.records.scenario import ASK, Scenario


def test_a_scenario_holds_what_is_asked_and_stays_as_it_is() -> None:
    asked = Scenario("train", "llama-3.1-8b", "h100-sxm", {"tp": ASK})
    assert asked == Scenario("train", "llama-3.1-8b", "h100-sxm", {"tp": "?"})
    assert Scenario("train", "a", "b").settings == {}
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        asked.model = "other"  # type: ignore[misc]
