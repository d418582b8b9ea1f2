"""docs/hardware.md keeps to the code: its example loads, and it names every field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstick.core.records.hardware import RATE_FORMATS
from slipstick.core.records.hardware_toml import (
    ACCELERATOR_VALUES,
    HOST_VALUES,
    KIND_FOLDERS,
    LINK_VALUES,
    read_machine,
)
from slipstick.hwdb.schema import Base

TEXT = (Path(__file__).parents[2] / "docs" / "hardware.md").read_text(encoding="utf-8")


def test_the_example_loads_as_it_stands(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", TEXT, re.DOTALL)
    path = tmp_path / "mychip.toml"
    path.write_text(example, encoding="utf-8")
    machine = read_machine(path, Base().load)
    assert machine.name == path.stem
    assert machine.accelerator.rates["fp8"].value == 1.6e15
    assert machine.accelerator.memory_bandwidth.value == 4e12
    assert [(tier.name, tier.span, tier.bandwidth.value) for tier in machine.node.tiers] == [
        ("mesh", 8, 350e9),
        ("network", None, 50e9),
    ]
    assert machine.node.tiers[0].latency.source.kind == "measured"
    assert machine.host is not None


@pytest.mark.parametrize("key", [*ACCELERATOR_VALUES, *HOST_VALUES, *LINK_VALUES])
def test_every_value_is_described(key: str) -> None:
    assert f"`values.{key}`" in TEXT


@pytest.mark.parametrize("word", [*RATE_FORMATS, *KIND_FOLDERS.values()])
def test_every_format_and_folder_is_named(word: str) -> None:
    assert f"`{word}`" in TEXT


def test_the_latency_it_quotes_is_the_one_in_the_data_base() -> None:
    link = Base().load("link", "nvlink4")
    assert re.search(r"with 1\.8 µs on NVLink", TEXT)
    assert link.latency.value == pytest.approx(1.8e-6)  # type: ignore[union-attr]
