"""The minimal plugin that each docstring opens with, loaded by the host as a single file."""

from __future__ import annotations

import importlib
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.host.host import Host

# module of the contract → what the host calls the objects
MINIMAL = {
    "offload": "offload policy",
    "scheduler": "scheduler",
    "transform": "transform",
    "trace_reader": "trace reader",
    "evidence": "claim",
}


def snippet(module: str) -> str:
    """The code of the first block of a contract's docstring."""
    text = importlib.import_module(f"slipstick.core.model.interfaces.{module}").__doc__ or ""
    _, found, rest = text.partition("::\n\n")
    assert found, f"the docstring of {module} has no block of code"
    lines = []
    for line in rest.splitlines():
        if line and not line.startswith("    "):
            break
        lines.append(line)
    return textwrap.dedent("\n".join(lines)).strip() + "\n"


@pytest.fixture
def minimal(tmp_path: Path) -> Callable[[str], Any]:
    """The one object that the minimal plugin of a contract's docstring brings."""

    def load(module: str) -> Any:
        path = tmp_path / f"acme_{module}.py"
        path.write_text(snippet(module), encoding="utf-8")
        host = Host.load(
            files=[path], environ={"SLIPSTICK_CACHE_DIR": str(tmp_path / "cache")}, disable=["[!a]*", "a[!c]*"]
        )
        (info,) = [info for info in host.plugins() if info.where == str(path)]
        assert info.state == "active", info.reason
        ((_, found),) = _of_kind(host, MINIMAL[module]).items()
        return found

    return load


def _of_kind(host: Host, kind: str) -> Mapping[str, Any]:
    methods: dict[str, Callable[[], Mapping[str, Any]]] = {
        "offload policy": host.offload_policies,
        "scheduler": host.schedulers,
        "transform": host.transforms,
        "trace reader": host.trace_readers,
        "claim": host.evidence,
    }
    return methods[kind]()
