"""Answers and trees as pages, from records made by hand."""

from __future__ import annotations

from attrs import evolve

from slipstick.core.face.answers import answer_page, headline, memory_table, side_by_side, time_groups
from slipstick.core.face.text import plain
from slipstick.core.face.trees import formulas, matching, pruned, tree_text
from slipstick.core.records.prediction import Answer, LedgerRow, Obstacle, TreeNode


def leaf(name: str, seconds: float, times: float, kind: str, **tags: str) -> TreeNode:
    """A leaf of a step of 10 s."""
    return TreeNode(
        name, "leaf", seconds, times, seconds * times / 10, "compute", "roofline", "roofline = flops/rate",
        {"flops": ("2*hidden", 8.0), "rate": ("4", 4.0)}, {"launch": 0.0}, {"compute": seconds}, "",
        {"kind": kind, **tags},
    )  # fmt: skip


def node(name: str, *children: TreeNode, kind: str = "sequence", chosen: str = "") -> TreeNode:
    """A node over ``children``."""
    seconds = sum(child.seconds * child.times for child in children)
    return TreeNode(name, kind, seconds, 1, seconds / 10, "compute", chosen=chosen, children=children)


TREE = node(
    "step",
    node("layers", leaf("mlp.up", 0.5, 8, "gemm"), leaf("hidden send", 3.0, 0, "send", over="pp")),
    leaf("mlp.down", 4.0, 1, "gemm", direction="input gradient"),
    leaf("ring", 1.0, 2, "all_reduce", over="tp.rest×tp.ep"),
)
ANSWER = Answer(
    "train", "tiny", "chip",
    {"devices": 8, "tp": 4, "dp": 2, "global_batch": 16, "micro_batch": 1, "micro_batches": 8, "sequence": 8192,
     "numerics": "BF16", "node": "box", "recompute": "none"},
    {"step_time_s": 10.0, "mfu": 0.4},
    (LedgerRow("weights", 60e9, "w", ()), LedgerRow("kv_cache", 30e9, "k", ())),
    "first stage", 90e9, 80e9, {"step": TREE}, "compute", False,
    (Obstacle("does not fit", "weights", "--tp 8 would fit"),), assumptions=("uncalibrated: stated rates",),
)  # fmt: skip


def test_groups_add_up_to_the_whole_and_hidden_time_counts_nothing() -> None:
    groups = time_groups(TREE)
    assert groups == {"matrix products": 8.0, "all-reduce over tp": 2.0, "send and receive over pp": 0.0}
    assert sum(groups.values()) == TREE.seconds


def test_an_answer_says_what_was_asked_what_overflows_and_what_would_fit() -> None:
    page = plain(answer_page(ANSWER, {}, "slipstick explain train tiny"))
    assert page.splitlines()[0] == headline(ANSWER) == "train tiny on 8 × chip (box)"
    for told in (
        "16 sequences of 8,192 tokens",
        "NOT FEASIBLE: does not fit",
        "--tp 8 would fit",
        "112.5%",  # 90 GB of 80 GB
        "75.0%",  # 60 GB of 80 GB
        "short of  10 GB        12.5%",
        "uncalibrated: stated rates",
        "formula: slipstick explain train tiny",
        "40.0%",
    ):
        assert told in page
    assert max(map(len, page.splitlines())) <= 80


def test_a_feasible_answer_has_no_warning() -> None:
    page = plain(answer_page(evolve(ANSWER, feasible=True, obstacles=()), {}))
    assert "FEASIBLE" not in page
    assert "formula:" not in page


def test_what_stays_free_is_a_row_of_the_memory_table() -> None:
    rows = memory_table(evolve(ANSWER, peak=60e9)).rows
    assert rows[-2:] == (("peak", "60 GB", "75.0%"), ("free", "20 GB", "25.0%"))
    assert evolve(ANSWER, peak=60e9).to_json()["memory_headroom_bytes"] == 20e9
    assert ANSWER.to_json()["memory_headroom_bytes"] == -10e9


def test_side_by_side_shows_what_differs_and_each_assumption_once() -> None:
    other = evolve(ANSWER, setting={**ANSWER.setting, "tp": 8, "dp": 1}, feasible=True, obstacles=(), peak=40e9)
    page = plain(side_by_side([ANSWER, other], {}))
    rows = {line.split("  ")[0]: line.split() for line in page.splitlines()}
    assert rows["tp"][1:] == ["4", "8"]
    assert rows["dp"][1:] == ["2", "1"]
    assert "sequence" not in rows
    assert rows["feasible"][1:] == ["NO", "yes"]
    assert rows["of capacity"][-2:] == ["112%", "50%"]
    assert page.count("uncalibrated: stated rates") == 1
    assert "[1] NOT FEASIBLE" in page


def test_a_tree_prints_time_share_and_inputs() -> None:
    text = tree_text(TREE, 100)
    assert "8 × mlp.up" in text
    assert "40.0%" in text
    assert "flops = 2*hidden = 8" in text
    assert "rate = 4" in text
    assert "mlp.down, input gradient" in text
    assert "hidden send (hidden)" in text
    assert formulas([TREE]) == {"roofline": "flops/rate"}


def test_depth_counts_what_is_left_out_and_shares_sum_what_is_small() -> None:
    assert "layers" in tree_text(TREE, 1)
    assert "(+2 below)" in tree_text(TREE, 1)
    assert "mlp.up" not in tree_text(TREE, 1)
    small = tree_text(TREE, 100, least=0.45)
    assert "(3 smaller parts)" in small
    assert "10 s" in small.splitlines()[-1]
    assert pruned(TREE, 0).children == ()
    assert pruned(TREE, 1).children[0].children == ()
    assert pruned(TREE, 9) == TREE


def test_a_match_keeps_the_way_to_it_and_what_lies_below() -> None:
    found = matching(TREE, "MLP.UP")
    assert found is not None
    assert [child.name for child in found.children] == ["layers"]
    assert [leaf.name for leaf in found.children[0].children] == ["mlp.up"]
    whole = matching(TREE, "layers")
    assert whole is not None
    assert whole.children == (TREE.children[0],)
    assert matching(TREE, "all-reduce over tp") is not None
    assert matching(TREE, "nothing of the kind") is None
    long = evolve(TREE.children[1], inputs={"flops": ("a*" * 200, 1.0)})
    assert "…" in tree_text(long, 1, clip=100)
    assert "…" not in tree_text(long, 1)
