"""What is asked: a task, a model, a machine and settings. A scenario can be saved and asked again.

Floor: records. Plain data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

ASK = "?"
"""A setting whose best value is asked for."""


@frozen
class Scenario:
    """One question. ``task``: "train" or "serve"; ``model``: preset or path; ``machine``: accelerator or path.

    ``settings``: name → value; what is not named takes its stated default. Values are numbers, texts, flags, tuples
    (side by side) or "?" (the best one is asked for).
    """

    task: str
    model: str
    machine: str
    settings: Mapping[str, Any] = field(factory=dict)
