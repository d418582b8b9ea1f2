"""Answers as the documented JSON."""

from __future__ import annotations

import json

from slipstick.core.records.prediction import SCHEMA, Answer, LedgerRow, Obstacle, TreeNode

LEAF = TreeNode(
    "attention.q",
    "leaf",
    0.5,
    2.0,
    1.0,
    "memory",
    "roofline",
    "launch + ...",
    {"flops": ("2*m*n*k", 8.0)},
    {"launch": 1e-6},
    {"compute": 0.1, "memory": 0.5},
    tags={"phase": "decode"},
)
ROOT = TreeNode("step", "choice", 1.0, 1.0, 1.0, "memory", chosen="ring", children=(LEAF,))


def answer(**changes: object) -> Answer:
    fields: dict[str, object] = {
        "task": "train",
        "model": "m",
        "machine": "x",
        "setting": {"tp": 8},
        "figures": {"step_time_s": 1.0},
        "ledger": (LedgerRow("weights", 16.0, "n*w", ("compute",)), LedgerRow("reserve", 4.0, "r", ())),
        "stage": "first stage",
        "peak": 20.0,
        "capacity": 80.0,
        "trees": {"step": ROOT},
        "bound_by": "memory",
        "feasible": True,
    }
    return Answer(**{**fields, **changes})  # type: ignore[arg-type]


def test_the_schema() -> None:
    data = answer().to_json()
    assert json.loads(json.dumps(data)) == data
    assert data["schema"] == SCHEMA == 1
    assert data["step_time_s"] == 1.0
    assert data["memory_bytes"] == {
        "peak": 20.0,
        "capacity": 80.0,
        "stage": "first stage",
        "weights": 16.0,
        "reserve": 4.0,
    }
    assert (data["feasible"], data["calibrated"], data["obstacles"], data["bound_by"]) == (True, False, [], "memory")


def test_a_tree_with_what_its_nodes_have_and_nothing_empty() -> None:
    root = answer().to_json()["tree"]["step"]
    assert set(root) == {"name", "kind", "seconds", "times", "share", "bound_by", "chosen", "children"}
    (leaf,) = root["children"]
    assert leaf["inputs"] == {"flops": {"expression": "2*m*n*k", "value": 8.0}}
    assert leaf["terms"]["memory"] == leaf["seconds"]
    assert leaf["tags"] == {"phase": "decode"}
    assert "children" not in leaf
    assert "tree" not in answer().to_json(tree=False)


def test_obstacles_say_what_they_know() -> None:
    found = answer(
        feasible=False, obstacles=(Obstacle("too big", "weights", "--tp 2 would fit"), Obstacle("no"))
    ).to_json()
    assert found["obstacles"] == [
        {"reason": "too big", "row": "weights", "remedy": "--tp 2 would fit"},
        {"reason": "no"},
    ]
