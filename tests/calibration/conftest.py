"""Shared by the tests of calibration: the toy family, and traces made by a formula with known parameters."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from slipstick.core.host.host import Host

TOY = Path(__file__).with_name("toy_family.py")


@pytest.fixture(scope="session")
def toy_file() -> Path:
    """The toy family as a plugin file."""
    return TOY


@pytest.fixture(scope="session")
def toy() -> ModuleType:
    """The toy family as a module."""
    spec = importlib.util.spec_from_file_location("slipstick_test_toy", TOY)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def host() -> Host:
    """Every bundled plugin."""
    return Host.load()
