"""What every test shares: a cache and a user folder of its own, and the reference measurements where they lie."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

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
