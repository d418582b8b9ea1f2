"""What the tests of architectures share: every bundled architecture, and the counts of the real model classes."""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration
from slipstick.plugins import architectures as bundled


@pytest.fixture(scope="session")
def architectures() -> dict[str, Architecture]:
    """Name → every bundled architecture, straight from its file (a test elsewhere covers the entry points)."""
    found: dict[str, Architecture] = {}
    for module in pkgutil.iter_modules(bundled.__path__):
        if not module.name.startswith("_"):
            for item in importlib.import_module(f"{bundled.__name__}.{module.name}").slipstick_architectures():
                assert item.name not in found, f"two architectures are called {item.name}"
                found[item.name] = item
    return found


@pytest.fixture(scope="session")
def by_type(architectures: dict[str, Architecture]) -> dict[str, Architecture]:
    """``model_type`` → architecture; no type has two."""
    pairs = [(kind, item) for item in architectures.values() for kind in item.model_types]
    assert len(pairs) == len(dict(pairs))
    return dict(pairs)


@pytest.fixture(scope="session")
def graph_of(by_type: dict[str, Architecture]) -> Callable[[dict[str, Any]], ModelGraph]:
    """A function: the fields of a configuration → its graph."""

    def build(fields: dict[str, Any]) -> ModelGraph:
        return by_type[fields["model_type"]].graph(Configuration(fields, "test.json"))

    return build


@pytest.fixture(scope="session")
def golden(root: Path) -> dict[str, Any]:
    """Counts of the real model classes, as ``tests/golden/remake_architectures.py`` wrote them."""
    counted: dict[str, Any] = json.loads((root / "tests/golden/architectures.json").read_text(encoding="utf-8"))
    return counted


@pytest.fixture(scope="session")
def remake(root: Path) -> ModuleType:
    """The script that counts on real model classes, as a module."""
    spec = importlib.util.spec_from_file_location("remake", root / "tests/golden/remake_architectures.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
