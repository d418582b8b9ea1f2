"""What every test shares: a cache and a user folder of its own, and the reference measurements where they lie."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def reference() -> Path:
    """The folder of published measurements: ``SLIPSTICK_REFERENCE``, or ``shared/reference`` beside the repository."""
    named = os.environ.get("SLIPSTICK_REFERENCE")
    folder = Path(named) if named else ROOT.parent / "shared" / "reference"
    if not folder.is_dir():
        pytest.skip(f"no reference measurements in {folder}; SLIPSTICK_REFERENCE names another folder")
    return folder


@pytest.fixture(autouse=True, scope="session")
def _own_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or writes a person's own cache, hardware folder or plugin settings."""
    folder = tmp_path_factory.mktemp("slipstick")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLIPSTICK_CACHE_DIR", str(folder / "cache"))
        patch.setenv("SLIPSTICK_HARDWARE_DIR", str(folder / "hardware"))
        patch.delenv("SLIPSTICK_DISABLE_PLUGINS", raising=False)
        patch.delenv("SLIPSTICK_NO_CACHE", raising=False)
        yield


CHIP = """
schema = 1
kind = "accelerator"
name = "bench-chip"
title = "Bench chip"
vendor = "Acme"
kernels = "slotted"
[own_node]
devices = 8
source = "sheet"
[[own_node.tiers]]
name = "wire"
bandwidth = { value = "100 GB/s", source = "sheet" }
latency = { value = "1 us", source = "sheet" }
[sources.sheet]
title = "Acme data sheet"
url = "https://example.org/chip"
date = "2026-01"
kind = "datasheet"
[values]
memory_capacity = { value = "80 GB", source = "sheet" }
memory_bandwidth = { value = "1 TB/s", source = "sheet" }
[rates]
bf16 = { value = "100 TFLOP/s", source = "sheet" }
fp8 = { value = "200 TFLOP/s", source = "sheet" }
fp32 = { value = "10 TFLOP/s", source = "sheet" }
"""


@pytest.fixture(scope="session")
def slotted_file() -> Path:
    """A plugin file with a kernel family that has slots."""
    return Path(__file__).with_name("slotted_family.py")


@pytest.fixture(scope="session")
def chip_text() -> str:
    """The file of an accelerator with that family, as text."""
    return CHIP


@pytest.fixture
def chip(tmp_path: Path) -> Path:
    """The file of an accelerator with that family, in a folder of its own."""
    path = tmp_path / "chips" / "bench-chip.toml"
    path.parent.mkdir()
    path.write_text(CHIP, encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def fitted() -> Callable[..., Any]:
    """A fitted record of that family, with changes."""
    from slipstick.core.records.fitted import ErrorSummary, FittedRecord
    from slipstick.core.records.provenance import Source

    source = Source("table", "a table", "https://example.org/table", "2026-11-30", "measured")

    def record(slot: str = "gemm", parameters: Mapping[str, float] | None = None, **changes: Any) -> FittedRecord:
        known = {"compute_efficiency": 0.8, "memory_efficiency": 0.9, "launch": 2e-6}
        plain: dict[str, Any] = {
            "accelerator": "bench-chip", "slot": slot, "family": "slotted", "formula": "slotted-roof", "format": "bf16",
            "kernel_source": "lab", "engine": "lab", "engine_version": "1", "parameters": parameters or known,
            "rows": 500, "sigma": 0.06, "calibrated": True, "source": source,
            "errors": {"held_out": ErrorSummary(100, 0.06, 0.04, 0.12, 0.0)},
        }  # fmt: skip
        return FittedRecord(**{**plain, **changes})

    return record
