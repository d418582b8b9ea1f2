"""An answer: figures with units, the tree that explains them, the ledger, and how far they can be trusted.

Floor: records. Plain data (no sympy, no numpy); ``to_json`` is the documented schema that ``--json`` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from attrs import field, frozen

SCHEMA = 1
"""Version of the JSON schema; keys are only ever added within a version (docs/json.md)."""


@frozen
class TreeNode:
    """One node of the cost tree with its value.

    ``seconds``: one execution; ``times``: how often it runs in the whole answer; ``share``: of the root's time;
    ``bound_by``: compute, memory, link, latency or host; ``formula``, ``inputs`` and ``parameters`` for a leaf;
    ``chosen``: the winning variant of a choice; ``slot``: the kind of kernel whose measurements calibrate a leaf.
    """

    name: str
    kind: str
    seconds: float
    times: float
    share: float
    bound_by: str
    formula: str = ""
    text: str = ""
    inputs: Mapping[str, tuple[str, float]] = field(factory=dict)
    parameters: Mapping[str, float] = field(factory=dict)
    terms: Mapping[str, float] = field(factory=dict)
    chosen: str = ""
    tags: Mapping[str, str] = field(factory=dict)
    children: tuple[TreeNode, ...] = ()
    slot: str = ""

    def to_json(self) -> dict[str, Any]:
        """The node and everything below it."""
        found: dict[str, Any] = {
            "name": self.name, "kind": self.kind, "seconds": self.seconds, "times": self.times, "share": self.share,
            "bound_by": self.bound_by,
        }  # fmt: skip
        if self.formula:
            found["formula"] = self.formula
            found["text"] = self.text
            found["inputs"] = {name: {"expression": e, "value": v} for name, (e, v) in self.inputs.items()}
            found["parameters"] = dict(self.parameters)
            found["terms"] = dict(self.terms)
        if self.slot:
            found["slot"] = self.slot
        if self.chosen:
            found["chosen"] = self.chosen
        if self.tags:
            found["tags"] = dict(self.tags)
        if self.children:
            found["children"] = [child.to_json() for child in self.children]
        return found


@frozen
class LedgerRow:
    """One row of the memory ledger of the fullest stage: ``bytes`` and the expression behind them."""

    name: str
    bytes: float
    text: str
    moments: tuple[str, ...]


@frozen
class Obstacle:
    """Why a setting is not feasible: ``reason`` in words, ``row`` of the ledger that overflows, what would fit.

    ``remedy``: in words, or a function that finds them, called when they are first read: the search for what would
    fit takes longer than the answer. ``layout``: the setting cannot be laid out on the devices at all, so its figures
    mean little.
    """

    reason: str
    row: str = ""
    # equal reasons have equal remedies: comparing two obstacles need not search for either
    _remedy: str | Callable[[], str] = field(default="", repr=False, eq=False)
    layout: bool = False

    @cached_property
    def remedy(self) -> str:
        """What would fit, as a person would type it; empty where nothing near does."""
        return self._remedy if isinstance(self._remedy, str) else self._remedy()


@frozen
class Answer:
    """All plain figures of one prediction.

    ``figures``: name → value in SI units (the keys of the schema); ``ledger`` and ``stage``: the fullest stage;
    ``capacity``: bytes of one device; ``trees``: name → tree; ``setting``: every value that went in, defaults
    included; ``assumptions``: lines to print with the answer. ``intervals``: figure → (low, high) that holds 80 % of
    measurements; ``extrapolated``: what lies outside the measured ranges; ``kernels``: slot → the measurements behind
    it and its share of the time.
    """

    task: str
    model: str
    machine: str
    setting: Mapping[str, Any]
    figures: Mapping[str, Any]
    ledger: tuple[LedgerRow, ...]
    stage: str
    peak: float
    capacity: float
    trees: Mapping[str, TreeNode]
    bound_by: str
    feasible: bool
    obstacles: tuple[Obstacle, ...] = ()
    calibrated: bool = False
    assumptions: tuple[str, ...] = ()
    intervals: Mapping[str, tuple[float, float]] = field(factory=dict)
    extrapolated: tuple[str, ...] = ()
    kernels: Mapping[str, Mapping[str, Any]] = field(factory=dict)

    @property
    def headroom(self) -> float:
        """Bytes of the fullest device that stay free at the peak; negative: so many are missing."""
        return self.capacity - self.peak

    def to_json(self, *, tree: bool = True) -> dict[str, Any]:
        """The answer under the documented schema."""
        found: dict[str, Any] = {
            "schema": SCHEMA, "task": self.task, "model": self.model, "machine": self.machine,
            "setting": dict(self.setting), **self.figures,
            "memory_bytes": {"peak": self.peak, "capacity": self.capacity, "stage": self.stage,
                             **{row.name: row.bytes for row in self.ledger}},
            "memory_headroom_bytes": self.headroom,
            "feasible": self.feasible,
            "obstacles": [
                {"reason": o.reason, **({"row": o.row} if o.row else {}), **({"remedy": o.remedy} if o.remedy else {})}
                for o in self.obstacles
            ],
            "intervals": {
                name: {"low": low, "high": high, "level": 0.8} for name, (low, high) in self.intervals.items()
            },
            "calibrated": self.calibrated, "extrapolated": list(self.extrapolated),
            "calibration": {slot: dict(known) for slot, known in self.kernels.items()},
            "bound_by": self.bound_by, "assumptions": list(self.assumptions),
        }  # fmt: skip
        if tree:
            found["tree"] = {name: node.to_json() for name, node in self.trees.items()}
        return found
