"""What shows of a tree, and its description, which is made only when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from slipstick.core.records.prediction import TreeNode
from slipstick.core.study import remedies
from slipstick.core.study.intervals import weighed
from slipstick.core.study.program import Program
from slipstick.core.study.tree import Shown, Trees, leaves, shown_tree

SETTINGS = [
    ("train", "mixtral-8x7b", "h100-sxm", {"devices": 32, "tp": 2, "pp": 4, "ep": 4, "global_batch": 64}),
    ("train", "llama-3.1-70b", "h100-sxm", {"devices": 64, "tp": 8, "pp": 1, "zero": 3, "stack": "megatron-lm"}),
    ("serve", "deepseek-v3", "h200-sxm", {"devices": 16, "tp": 8, "concurrency": 64}),
]


def same(shown: Shown, described: TreeNode) -> None:
    for name in ("name", "slot", "seconds", "times", "share", "bound_by", "chosen", "tags", "inputs", "terms"):
        assert getattr(shown, name) == getattr(described, name), (described.name, name)
    assert len(shown.children) == len(described.children)
    for below, told in zip(shown.children, described.children, strict=True):
        same(below, told)


@pytest.mark.parametrize(("task", "model", "machine", "given"), SETTINGS)
def test_a_description_says_what_is_shown(
    one: Any, task: str, model: str, machine: str, given: Mapping[str, Any]
) -> None:
    """Intervals come from what is shown; whoever reads the tree must find the same in it, to the last digit."""
    made = one(task, model, machine, **given)
    program = made.case.program
    out = program.evaluate(made.case.complete(made.settings))
    for name, root in program.roots.items():
        shown, described = shown_tree(program, root, out), made.answer.trees[name]
        same(shown, described)
        assert [leaf.name for leaf in leaves(shown)] == [leaf.name for leaf in leaves(described)]
        assert weighed(shown, made.case.trust) == weighed(described, made.case.trust)
    assert made.answer.bound_by == made.tree.bound_by


def program(*nodes: Mapping[str, Any]) -> Program:
    made = [{"tags": {}, "children": [], **node} for node in nodes]
    return Program(None, made, {"step": len(made) - 1}, {}, {})  # type: ignore[arg-type]


def test_only_what_decides_counts_and_what_is_hidden_shows() -> None:
    """By hand: of 2 s beside 5 s nothing counts; of 4 s half hidden 2 s do; nothing shows of what takes no time."""
    made = program(
        {"name": "a", "kind": "leaf", "terms": ["memory", "compute"]},
        {"name": "b", "kind": "leaf", "terms": ["link"]},
        {"name": "beside", "kind": "overlap", "children": [0, 1]},
        {"name": "c", "kind": "leaf"},
        {"name": "behind", "kind": "exposed", "children": [3]},
        {"name": "nothing", "kind": "leaf"},
        {"name": "no transfer", "kind": "exposed", "children": [5]},
        {"name": "all", "kind": "sequence", "children": [2, 4, 5, 6]},
    )
    seconds = {"t0": 2.0, "t1": 5.0, "t2": 5.0, "t3": 4.0, "t4": 2.0, "t5": 0.0, "t6": 0.0, "t7": 7.0}
    values = {**seconds, "t0:memory": 1.0, "t0:compute": 2.0, "t1:link": 5.0}
    root = shown_tree(made, 7, values)
    assert [(n.name, n.times) for n in leaves(root)] == [("a", 0.0), ("b", 1.0), ("c", 0.5)]
    assert [child.name for child in root.children] == ["beside", "behind"]
    assert [child.bound_by for child in root.children[0].children] == ["compute", "link"]
    assert root.bound_by == "link"  # what is beside takes no time, and nobody says what binds c
    assert sum(leaf.share for leaf in leaves(root)) == pytest.approx(1.0)
    trees = Trees({"step": root}, {})
    assert list(trees) == ["step"]
    assert len(trees) == 1
    assert trees["step"] is trees["step"]
    assert trees == {"step": root.described({})}


def test_nothing_is_searched_or_described_before_it_is_read(one: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(remedies, "remedy", lambda *words: asked.append(words) or "--tp 8 would fit")
    described = Shown.described
    monkeypatch.setattr(Shown, "described", lambda *words: asked.append(words) or described(*words))
    answer = one("train", "llama-3.1-70b", "h100-sxm", devices=8, tp=1, global_batch=8).answer
    assert not answer.feasible
    assert answer.intervals
    assert not asked
    (obstacle,) = answer.obstacles
    assert [obstacle.remedy, obstacle.remedy] == ["--tp 8 would fit"] * 2
    assert len(asked) == 1
    assert answer.trees["step"].seconds == answer.figures["step_time_s"]
    assert len(asked) > 1
