"""The cost tree: what each node means, compiled and written out alike."""

from __future__ import annotations

from typing import Any

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import Builder
from slipstick.core.algebra.cost import (
    Choice,
    Exposed,
    Leaf,
    Node,
    Overlap,
    Pipelined,
    Repeat,
    Sequence,
    TreeCompiler,
    walk,
)
from slipstick.core.algebra.formula import Formula, Parameter
from slipstick.core.algebra.symbols import symbol, unit_symbol
from slipstick.core.errors import PluginError
from slipstick.core.model import symbols as _registered  # noqa: F401  # registers what software adds to a kernel

TIME = Formula("time", {"seconds": "s"}, (), lambda n: (n.seconds, {"compute": n.seconds}), "s", "test")
SYMBOLS = ("launch", "tier_latency_0", "tier_latency_1", "tier_latency_2")


def leaf(name: str, seconds: Any, term: str = "compute") -> Leaf:
    """A leaf that takes ``seconds`` on the resource ``term``."""
    formula = Formula("time", {"seconds": "s"}, (), lambda n: (n.seconds, {term: n.seconds}), "s", "test")
    amount = sympy.sympify(seconds)
    return Leaf(name, formula, {"seconds": amount * unit_symbol("second") if amount.is_Number else amount})


def evaluated(node: Node, **values: float) -> float:
    """The node compiled, and as one expression: the same number."""
    builder = Builder()
    compiler = TreeCompiler(builder)
    number = compiler.add(node)
    compiled = builder.finish().evaluate(values)[f"t{number}"]
    written = node.expression()
    known = {"second": 1.0, **values}
    symbolic = float(written.xreplace({s: sympy.Float(known[s.name]) for s in written.free_symbols}))
    assert compiled == pytest.approx(symbolic, rel=1e-12, abs=1e-15)
    return float(compiled)


def test_a_sequence_adds_up() -> None:
    assert evaluated(Sequence("s", (leaf("a", 2), leaf("b", 3)))) == 5
    assert evaluated(Sequence("nothing", ())) == 0


def test_a_repeat_multiplies() -> None:
    assert evaluated(Repeat("r", sympy.Integer(4), leaf("a", 2.5))) == 10
    assert evaluated(Repeat("r", sympy.Integer(0), leaf("a", 2.5))) == 0


def test_a_choice_takes_the_cheapest() -> None:
    assert evaluated(Choice("c", {"a": leaf("a", 2), "b": leaf("b", 1)})) == 1


def test_an_overlap_takes_the_longest_where_nothing_is_shared() -> None:
    assert evaluated(Overlap("o", (leaf("a", 2, "compute"), leaf("b", 3, "link")))) == 3


def test_an_overlap_is_bound_by_what_is_shared() -> None:
    """Two transfers on one link take as long as both together."""
    assert evaluated(Overlap("o", (leaf("a", 2, "link"), leaf("b", 3, "link")))) == 5


def test_latency_occupies_nothing() -> None:
    assert evaluated(Overlap("o", (leaf("a", 2, "latency"), leaf("b", 3, "latency")))) == 3


def test_a_pipeline_fills_and_then_runs_at_its_slowest_stage() -> None:
    """Four iterations over stages of 1, 3 and 2 s: written out on a clock, 6 s to fill and 3 s for each further one."""
    stages = (1.0, 3.0, 2.0)
    ends = [0.0] * 3
    for _ in range(4):
        before = 0.0
        for i, seconds in enumerate(stages):
            before = ends[i] = max(before, ends[i]) + seconds
    fill = Sequence("fill", tuple(leaf(f"{i}", seconds) for i, seconds in enumerate(stages)))
    node = Pipelined("p", sympy.Integer(4), fill, tuple(leaf(f"{i}", seconds) for i, seconds in enumerate(stages)))
    assert evaluated(node) == ends[-1] == 15


def test_a_steady_pipeline_has_filled_long_ago() -> None:
    stages = (leaf("a", 1), leaf("b", 3))
    assert evaluated(Pipelined("p", sympy.Integer(4), Sequence("fill", stages), stages, steady=True)) == 12


def trees() -> st.SearchStrategy[Node]:
    """Trees of every kind of node over four symbols."""
    leaves = st.builds(
        lambda name, factor, term: leaf(name, factor * symbol(name), term),
        st.sampled_from(SYMBOLS), st.integers(1, 5), st.sampled_from(["compute", "memory", "link", "latency"]),
    )  # fmt: skip

    def grow(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
        several = st.lists(children, min_size=1, max_size=3).map(tuple)
        count = st.integers(1, 6).map(sympy.Integer)
        return st.one_of(
            st.builds(Sequence, st.just("sequence"), several),
            st.builds(Overlap, st.just("overlap"), several),
            st.builds(Repeat, st.just("repeat"), count, children),
            st.builds(Pipelined, st.just("pipelined"), count, children, several, steady=st.booleans()),
            st.builds(lambda parts: Choice("choice", {str(i): p for i, p in enumerate(parts)}), several),
        )

    return st.recursive(leaves, grow, max_leaves=8)


VALUES = st.fixed_dictionaries({name: st.floats(1e-6, 10.0) for name in SYMBOLS})


@settings(max_examples=60, deadline=None)
@given(trees(), VALUES)
def test_compiled_and_written_out_agree_on_every_node(root: Node, values: dict[str, float]) -> None:
    builder = Builder()
    compiler = TreeCompiler(builder)
    compiler.add(root)
    found = builder.finish().evaluate(values)
    for number, node in enumerate(walk(root)):
        written = node.expression()
        symbolic = float(written.xreplace({s: sympy.Float(values[s.name]) for s in written.free_symbols}))
        assert found[f"t{number}"] == pytest.approx(symbolic, rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(trees(), VALUES, st.sampled_from(SYMBOLS), st.floats(1.0, 100.0))
def test_nothing_gets_faster_when_a_part_gets_slower(
    root: Node, values: dict[str, float], name: str, factor: float
) -> None:
    slower = {**values, name: values[name] * factor}
    assert evaluated(root, **slower) >= evaluated(root, **values) * (1 - 1e-9)


def test_a_shared_node_is_compiled_once() -> None:
    shared = leaf("a", symbol("launch"))
    builder = Builder()
    compiler = TreeCompiler(builder)
    compiler.add(Sequence("s", (shared, Repeat("r", sympy.Integer(3), shared))))
    assert [node["name"] for node in compiler.nodes] == ["a", "r", "s"]
    assert compiler.nodes[2]["children"] == [0, 1]
    assert builder.finish().evaluate({"launch": 2.0})["t2"] == 8


def test_a_parameter_without_a_symbol_takes_its_default() -> None:
    """In the compiled form as in the expression: a family need not name a symbol for every parameter."""
    formula = Formula(
        "scaled", {"seconds": "s"}, (Parameter("launch", "s", "at the start", 0.5),),
        lambda n: n.seconds + n.launch, "s", "test",
    )  # fmt: skip
    plain = Leaf("plain", formula, {"seconds": symbol("tier_latency_0")})
    assert evaluated(plain, tier_latency_0=2.0) == 2.5
    named = Leaf("named", formula, {"seconds": symbol("tier_latency_0")}, {"launch": "launch@x"})
    assert evaluated(named, **{"tier_latency_0": 2.0, "launch@x": 7.0}) == 9


def test_a_leaf_tells_its_inputs_and_terms() -> None:
    builder = Builder()
    compiler = TreeCompiler(builder)
    compiler.add(Leaf("a", TIME, {"seconds": 3 * symbol("launch")}, tags={"phase": "train"}))
    found = builder.finish().evaluate({"launch": 2.0})
    assert found == {"t0": 6.0, "t0.seconds": 6.0, "t0:compute": 6.0}
    about = compiler.nodes[0]
    assert (about["formula"], about["inputs"], about["terms"]) == ("time", {"seconds": "3*launch"}, ["compute"])
    assert about["tags"] == {"phase": "train"}


def test_resources_of_a_repeat_count_every_time() -> None:
    body = leaf("a", symbol("launch"), "link")
    assert Repeat("r", sympy.Integer(3), body).busy() == {"link": 3 * symbol("launch")}
    assert Leaf("l", TIME, {"seconds": symbol("launch")}, resources={"compute": "tensor cores"}).busy() == {
        "tensor cores": symbol("launch")
    }


def test_a_leaf_whose_input_has_the_wrong_dimension_is_not_compiled() -> None:
    formula = Formula(
        "move", inputs={"bytes": "B", "bandwidth": "B/s"}, parameters=(), unit="s", source="hockney1994",
        build=lambda n: (n.bytes / n.bandwidth, {"memory": n.bytes / n.bandwidth}),
    )  # fmt: skip
    wrong = Leaf("copy", formula, {"bytes": symbol("hidden"), "bandwidth": symbol("hbm_bandwidth")})
    with pytest.raises(PluginError, match="copy: input 'bytes' of formula 'move'"):
        TreeCompiler(Builder()).add(wrong)
    inputs = {"bytes": symbol("weight_width"), "bandwidth": symbol("hbm_bandwidth"), "x": symbol("tp")}
    extra = Leaf("copy", formula, inputs)
    with pytest.raises(PluginError, match="declares no such input"):
        TreeCompiler(Builder()).add(extra)


# --- what the software makes of a leaf ----------------------------------------------------------------------------

TWO_TERMS = Formula(
    "two terms", {"seconds": "s"}, (Parameter("launch", "s", "launch", 2.0, 0.0, 10.0),),
    lambda n: (n.launch + n.seconds, {"compute": n.seconds, "latency": n.launch}), "s", "test",
)  # fmt: skip


def kernel(seconds: Any, **software: str) -> Leaf:
    return Leaf("kernel", TWO_TERMS, {"seconds": seconds * unit_symbol("second")}, {"launch": "launch"}, **software)


@pytest.mark.parametrize(
    ("software", "expected"),
    [
        ({}, 5.0),
        ({"factors": ("time_factor",)}, 7.5),
        ({"extra": "kernel_overhead"}, 5.25),
        ({"factors": ("time_factor",), "extra": "kernel_overhead"}, 7.75),
        ({"factors": ("time_factor", "attention_factor")}, 15.0),
    ],
)
def test_software_stretches_a_kernel_and_adds_a_gap(software: dict[str, Any], expected: float) -> None:
    """(2 + 3) s, one and a half times that, and 0.25 s beside it that nothing stretches."""
    given_ = {"launch": 2.0, "time_factor": 1.5, "attention_factor": 2.0, "kernel_overhead": 0.25}
    assert evaluated(kernel(3, **software), **given_) == expected


def test_the_terms_of_a_leaf_are_stretched_and_the_gap_is_none_of_them() -> None:
    builder = Builder()
    compiler = TreeCompiler(builder)
    number = compiler.add(kernel(3, factors=("time_factor",), extra="kernel_overhead"))
    out = builder.finish().evaluate({"launch": 2.0, "time_factor": 1.5, "kernel_overhead": 0.25})
    assert (out[f"t{number}:compute"], out[f"t{number}:latency"], out[f"t{number}"]) == (4.5, 3.0, 7.75)
    assert compiler.nodes[number]["software"] == ["time_factor", "kernel_overhead"]


def test_a_stretched_kernel_keeps_its_resource_longer() -> None:
    """Two kernels of 3 s on one resource, each stretched to 4.5 s: 9 s together. The gap occupies nothing."""
    both = Overlap("o", (kernel(3, factors=("time_factor",)), kernel(3, factors=("time_factor",))))
    assert evaluated(both, launch=0.0, time_factor=1.5) == 9
    gaps = Overlap("o", (kernel(3, extra="kernel_overhead"), kernel(1, extra="kernel_overhead")))
    assert evaluated(gaps, launch=0.0, kernel_overhead=2.0) == 5  # 3 and a gap, against 4 on the resource


@pytest.mark.parametrize(
    ("share", "part", "behind", "shown"),
    [(0.0, 3, 5, 0.0), (0.0, 5, 3, 2.0), (0.25, 4, 8, 1.0), (0.25, 8, 4, 5.0), (1.0, 3, 5, 3.0), (1.0, 5, 3, 5.0)],
)
def test_what_runs_beside_other_work_shows_as_far_as_it_is_longer_or_not_hidden(
    share: float, part: int, behind: int, shown: float
) -> None:
    node = Exposed("e", leaf("a", part, "link"), leaf("b", behind, "compute"), "exposed_share")
    assert evaluated(node, exposed_share=share) == shown
    # Beside what it hides behind: from the longer of the two to their sum.
    assert evaluated(Sequence("s", (node.behind, node)), exposed_share=share) == behind + shown
    assert max(part, behind) <= behind + shown <= part + behind


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 9),
    st.fixed_dictionaries({n: st.floats(0.0, 10.0) for n in ("launch", "time_factor", "kernel_overhead")}),
)
def test_compiled_and_written_out_agree_on_what_software_adds(count: int, values: dict[str, float]) -> None:
    both = kernel(3, factors=("time_factor",), extra="kernel_overhead")
    seconds = values["time_factor"] * (values["launch"] + 3) + values["kernel_overhead"]
    assert evaluated(Repeat("r", sympy.Integer(count), both), **values) == pytest.approx(count * seconds)
