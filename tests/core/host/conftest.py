"""Plugins made on the spot: single files, and packages with an entry point in a folder of ``sys.path``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """An environment without a person's own settings, with a cache of its own."""
    return {"SLIPSTICK_CACHE_DIR": str(tmp_path / "cache"), "SLIPSTICK_HARDWARE_DIR": str(tmp_path / "none")}


@pytest.fixture
def plugin_file(tmp_path: Path) -> Callable[[str, str], Path]:
    """Write a single-file plugin ``name`` with ``text``; its path."""

    def make(name: str, text: str) -> Path:
        path = tmp_path / f"{name}.py"
        path.write_text(text)
        return path

    return make


@pytest.fixture
def distribution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Install a distribution with one module and one entry point into a folder of ``sys.path``; the folder."""
    folder = tmp_path / "site"

    def make(name: str, text: str, version: str = "1.0", point: str = "") -> Path:
        if not folder.exists():
            # As site-packages has it: made by the first import, it would be a change of the folder.
            (folder / "__pycache__").mkdir(parents=True)
            monkeypatch.syspath_prepend(str(folder))
        module = f"{name.replace('-', '_')}_module"
        (folder / f"{module}.py").write_text(text)
        info = folder / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[slipstick.plugins]\n{point or name} = {module}\n")
        importlib.invalidate_caches()
        monkeypatch.delitem(sys.modules, module, raising=False)
        return folder

    return make
