"""Which kernels are joined, and that joining loses no FLOP; rules that are refused; layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sympy

from slipstick.core.algebra.symbols import symbol
from slipstick.core.errors import PluginError
from slipstick.core.model.axes import axis
from slipstick.core.model.graph import Block
from slipstick.core.model.layout import Layout, Rules, Split, Store, local_extent
from slipstick.core.model.mesh import Dimension, Mesh
from slipstick.core.model.work import Collective, Work, fused
from slipstick.core.testkit.derivation import derive, exact

LayerOf = Callable[[str], Block]
one = sympy.Integer(1)


def names(block: Block, rules: Rules) -> list[str]:
    return [step.name for step in fused(derive(block, rules).steps()) if isinstance(step, Work)]


def test_projections_of_one_tensor_are_one_product(layer: LayerOf, rules: Callable[[bool], Rules]) -> None:
    """Query, key and value, and gate and up, as Megatron and vLLM fuse them; also with collectives between."""
    for chosen in (Rules(), rules(False), rules(True)):
        found = names(layer("llama"), chosen)
        assert found.count("attention.q + attention.k + attention.v") == 1
        assert found.count("mlp.gate + mlp.up") == 1
        # Backward: one product for the gradient of their input, one for the gradients of their weights.
        assert found.count("attention.v + attention.k + attention.q") == 2


def test_joined_products_keep_their_work(layer: LayerOf) -> None:
    steps = derive(layer("llama"), Rules()).steps()
    for what in ("flops", "model_flops"):
        before = sympy.Add(*(getattr(s, what) for s in steps if isinstance(s, Work)))
        after = sympy.Add(*(getattr(s, what) for s in fused(steps) if isinstance(s, Work)))
        assert sympy.expand(before - after) == 0


def test_joined_shapes_multiply_to_the_work(layer: LayerOf) -> None:
    """2·m·n·k is what a joined product executes, whichever axis it was joined along."""
    for step in fused(derive(layer("llama"), Rules()).steps()):
        if isinstance(step, Work) and step.kind == "gemm":
            size = 2 * step.shape["m"] * step.shape["n"] * step.shape["k"] * symbol("FLOP")
            assert sympy.expand(exact(size - step.flops)) == 0, step.name


def pointwise(name: str, reads: str, writes: str, kind: str = "pointwise") -> Work:
    return Work(name, "forward", kind, one, one, {reads: one}, {writes: one})


def test_a_chain_of_passes_reads_memory_once() -> None:
    a, b = pointwise("a", "x", "y"), pointwise("b", "y", "z")
    (joined,) = fused([a, b])
    assert isinstance(joined, Work)
    assert set(joined.reads) == {"x"}
    assert set(joined.writes) == {"y", "z"}


def test_passes_that_share_nothing_stay_apart() -> None:
    assert len(fused([pointwise("a", "x", "y"), pointwise("b", "u", "v")])) == 2
    assert len(fused([pointwise("a", "x", "y", "permute"), pointwise("b", "y", "z", "permute")])) == 2


def test_collectives_do_not_decide_what_is_joined() -> None:
    between = Collective("all_reduce", "y", "b", "forward", ("tp",), one)
    steps = fused([pointwise("a", "x", "y"), between, pointwise("b", "y", "z")])
    assert [step.name for step in steps] == ["a + b", "all-reduce y"]


@pytest.mark.parametrize(
    ("rules", "told"),
    [
        (Rules((Split("rows", "tp"),)), "split of unknown axis 'rows'; known: batch"),
        (Rules((Split("ffn", "tp"), Split("ffn", "tp"))), "axis 'ffn' is split twice over mesh dimension 'tp'"),
        (Rules((), (Store("state", "flat", "dp"),)), "store of unknown kind 'state'; known: stream"),  # type: ignore[arg-type]
        (Rules((), (Store("weight", "flatt", "dp"),)), "store along unknown axis 'flatt'"),
    ],
)
def test_rules_that_are_refused(rules: Rules, told: str) -> None:
    with pytest.raises(PluginError, match=told):
        rules.checked()


def test_an_axis_may_be_split_over_two_dimensions() -> None:
    mesh = Mesh.of([Dimension("tp", "t", 10), Dimension("cp", "c", 20)])
    rules = Rules((Split("query", "cp"), Split("query", "tp"))).checked()
    assert rules.split_atoms("query", mesh) == ("cp", "tp")


def test_blocks_with_a_remainder_count_as_the_largest() -> None:
    mesh = Mesh.of([Dimension("tp", "t", 10)])
    assert local_extent(sympy.Integer(7), (), mesh) == 7
    assert local_extent(symbol("heads"), ("tp",), mesh).subs({symbol("heads"): 7, symbol("tp"): 4}) == 2
    # A product that has the degree as a factor divides for every value: nothing is rounded.
    assert local_extent(symbol("micro_batch") * symbol("tp"), ("tp",), mesh) == symbol("micro_batch")


def test_layouts_restrict_and_drop() -> None:
    layout = Layout({"query": ("cp", "tp"), "heads": ("tp",)})
    assert layout.without(("tp",)) == Layout({"query": ("cp",)})
    assert layout.only(("heads",)) == Layout({"heads": ("tp",)})
    assert layout.atoms() == {"cp", "tp"}
    assert layout["ffn"] == ()


def test_axes_of_one_role_are_told_apart_by_their_size() -> None:
    assert axis("ffn", "shared").role == axis("ffn").role
    with pytest.raises(ValueError, match="unknown axis role 'fnn'"):
        axis("fnn")
