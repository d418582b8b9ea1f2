"""Every bundled architecture keeps the laws of the conformance kit, on small configurations of its model types.

Parameter counts are those of the real model classes (tests/golden/architectures.json).
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.testkit.architecture import ArchitectureContract
from slipstick.plugins import architectures as bundled

CASES: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).resolve().parents[2] / "golden" / "architectures.json").read_text(encoding="utf-8")
)["cases"]
INTERNLM = {
    "model_type": "internlm2", "num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 48, "vocab_size": 64, "max_position_embeddings": 64, "bias": False,
}  # fmt: skip
# Its class is not part of the library that the golden counts come from; the sum is that of a Llama of these sizes.
CASES["internlm2"] = {"fields": INTERNLM, "parameters": 2 * 64 * 32 + 32 + 2 * (32 * 32 * 3 + 3 * 32 * 48 + 2 * 32)}
ARCHITECTURES: list[Architecture] = [
    item
    for module in pkgutil.iter_modules(bundled.__path__)
    if not module.name.startswith("_")
    for item in importlib.import_module(f"{bundled.__name__}.{module.name}").slipstick_architectures()
]


def contract(architecture: Architecture) -> type[ArchitectureContract]:
    """The contract of one architecture on the golden cases of its model types."""
    mine = {name: row for name, row in CASES.items() if row["fields"]["model_type"] in architecture.model_types}
    return type(
        "Test" + "".join(part.capitalize() for part in architecture.name.replace("_", "-").split("-")),
        (ArchitectureContract,),
        {
            "architecture": architecture,
            "configurations": {name: row["fields"] for name, row in mine.items()},
            "parameters": {name: row["parameters"] for name, row in mine.items()},
        },
    )


CONTRACTS = {
    made.__name__: made
    for made in map(contract, ARCHITECTURES)
    if made.configurations  # presets bring configurations of other architectures' types
}
globals().update(CONTRACTS)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda item: item.name)
def test_every_architecture_is_tried(architecture: Architecture) -> None:
    assert contract(architecture).configurations or not architecture.model_types
