"""The golden derivation: which collectives follow from a layout, row by row, for each of two layouts.

Sources: Shoeybi et al., arXiv:1909.08053, section 3 (tensor parallelism: one all-reduce after each row-parallel layer,
one in the backward pass before each column-parallel one); Korthikanti et al., arXiv:2205.05198, section 4.2.2 (sequence
parallelism: those become pairs of all-gather and reduce-scatter, and the input is gathered again for the weight
gradient). Local sizes: b sequences of q tokens, hidden h.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import sympy

from slipstick.core.algebra.symbols import symbol
from slipstick.core.model.graph import Block, ModelGraph
from slipstick.core.model.layout import Rules
from slipstick.core.records.configuration import Configuration
from slipstick.core.testkit.derivation import Derived, derive, exact
from slipstick.plugins.architectures import presets
from slipstick.plugins.architectures.qwen import Qwen3
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.tensor import TensorParallel

LayerOf = Callable[[str], Block]
RulesOf = Callable[[bool], Rules]
Row = tuple[str, str, tuple[str, ...], sympy.Expr]

s, h, tp, cp = symbol("sequence"), symbol("hidden"), symbol("tp"), symbol("cp")
BQH = symbol("micro_batch") * (s / cp) * h
"""The stream of a tensor parallel group, in elements."""
WEIGHT = {
    "attention.q": h * symbol("heads") * symbol("head_dim") / tp,
    "attention.k": h * symbol("kv_heads") * symbol("head_dim") / tp,
    "attention.v": h * symbol("kv_heads") * symbol("head_dim") / tp,
    "attention.o": h * symbol("heads") * symbol("head_dim") / tp,
    "mlp.up": h * symbol("ffn") / tp,
    "mlp.down": h * symbol("ffn") / tp,
}
KV = symbol("micro_batch") * s * symbol("kv_heads") / tp * symbol("head_dim")
"""Keys (or values) of the whole context and the local heads."""
COLUMN_PARALLEL, ROW_PARALLEL = ("attention.norm", "mlp.norm"), ("attention.o", "mlp.down")


def rows(found: Derived, *, direction: str, tensors: tuple[str, ...]) -> list[Row]:
    """The collectives on some tensors in one direction."""
    return [(f.kind, f.tensor, f.over, f.elements) for f in found.collectives(directions=(direction,), tensors=tensors)]


def each(kind: str, tensors: tuple[str, ...], size: sympy.Expr, over: str = "tp") -> list[Row]:
    return [(kind, tensor, (over,), size) for tensor in tensors]


def same(found: list[Row], wanted: list[Row]) -> None:
    """Equal as sets of rows (the order within a pass is not the law's)."""
    assert sorted((k, t, o) for k, t, o, _ in found) == sorted((k, t, o) for k, t, o, _ in wanted)
    sizes = {(k, t, o): e for k, t, o, e in wanted}
    for kind, tensor, over, size in found:
        assert sympy.simplify(size - sizes[kind, tensor, over]) == 0, f"{kind} {tensor}: {size}"


def gradients_of(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"d({name})" for name in names)


PLAIN = {
    "qkv, up (forward)": ("forward", COLUMN_PARALLEL, []),
    "attention core (forward)": ("forward", ("attention.k", "attention.v"),
                                 each("all_gather", ("attention.k", "attention.v"), KV, "cp")),
    "attention core (backward)": ("input gradient", ("attention.k", "attention.v"),
                                  each("reduce_scatter", ("attention.k", "attention.v"), KV, "cp")),
    "attention output, down (forward)": ("forward", ROW_PARALLEL, each("all_reduce", ROW_PARALLEL, BQH)),
    "qkv, up (gradient of input)": ("input gradient", COLUMN_PARALLEL, each("all_reduce", COLUMN_PARALLEL, BQH)),
    "attention output, down (gradient of input)": ("input gradient", gradients_of(ROW_PARALLEL), []),
    "weight gradients": ("weight gradient", (*COLUMN_PARALLEL, *ROW_PARALLEL), []),
}  # fmt: skip
SEQUENCE_PARALLEL = {
    **PLAIN,
    "qkv, up (forward)": ("forward", COLUMN_PARALLEL, each("all_gather", COLUMN_PARALLEL, BQH)),
    "attention output, down (forward)": ("forward", ROW_PARALLEL, each("reduce_scatter", ROW_PARALLEL, BQH)),
    "qkv, up (gradient of input)": ("input gradient", COLUMN_PARALLEL, each("reduce_scatter", COLUMN_PARALLEL, BQH)),
    "attention output, down (gradient of input)": ("input gradient", gradients_of(ROW_PARALLEL),
                                                   each("all_gather", gradients_of(ROW_PARALLEL), BQH)),
    "weight gradients": ("weight gradient", (*COLUMN_PARALLEL, *ROW_PARALLEL),
                         each("all_gather", COLUMN_PARALLEL, BQH)),
}  # fmt: skip
COLUMNS = {"plain": (False, PLAIN), "sequence parallel": (True, SEQUENCE_PARALLEL)}


@pytest.fixture(scope="module", params=list(COLUMNS))
def column(request: pytest.FixtureRequest, layer: LayerOf, rules: RulesOf) -> tuple[str, Derived]:
    """A layer of GPT-2 under one column of the table."""
    name: str = request.param
    return name, derive(layer("gpt2"), rules(COLUMNS[name][0]))


def test_every_row_of_the_table(column: tuple[str, Derived]) -> None:
    name, found = column
    for row, (direction, tensors, wanted) in COLUMNS[name][1].items():
        try:
            same(rows(found, direction=direction, tensors=tensors), wanted)
        except AssertionError as error:
            raise AssertionError(f"{name}, row «{row}»: {error}") from None


def test_nothing_but_the_rows_of_the_table(column: tuple[str, Derived]) -> None:
    name, found = column
    named = {(direction, wanted[1]) for direction, _, row in COLUMNS[name][1].values() for wanted in row}
    # Keys and values are kept as they are stored, so the backward pass of the attention core gathers them again.
    named |= {("weight gradient", "attention.k"), ("weight gradient", "attention.v")}
    assert {(f.direction, f.tensor) for f in found.collectives()} == named


def test_weight_gradients_are_sums_over_what_splits_the_tokens(column: tuple[str, Derived]) -> None:
    gradients = column[1].gradients()
    for op, elements in WEIGHT.items():
        size, partial = gradients[f"{op}.weight"]
        assert sympy.simplify(size - elements) == 0, op
        assert partial == {"cp", "dp"}, op


def test_norm_gains_and_row_parallel_biases_see_only_a_shard_of_the_tokens(column: tuple[str, Derived]) -> None:
    name, found = column
    wanted = {"cp", "dp"} | ({"tp"} if name == "sequence parallel" else set())
    gradients = found.gradients()
    gains = [f"{norm}.{kind}" for norm in COLUMN_PARALLEL for kind in ("weight", "bias")]
    for weight in (*gains, "attention.o.bias", "mlp.down.bias"):
        assert gradients[weight] == (h, wanted), weight


def test_column_parallel_biases_are_split_and_see_every_token(column: tuple[str, Derived]) -> None:
    gradients = column[1].gradients()
    assert gradients["mlp.up.bias"] == (symbol("ffn") / tp, {"cp", "dp"})
    assert gradients["attention.q.bias"] == (symbol("heads") * symbol("head_dim") / tp, {"cp", "dp"})


@pytest.mark.parametrize(("sequence_parallel", "partial"), [(False, {"cp", "dp"}), (True, {"tp", "cp", "dp"})])
def test_the_router_is_read_on_the_tokens_that_are_stored(
    layer: LayerOf, rules: RulesOf, sequence_parallel: bool, partial: set[str]
) -> None:
    gradients = derive(layer("mixtral"), rules(sequence_parallel)).gradients()
    assert gradients["moe.router.weight"] == (h * symbol("experts"), partial)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_gated_layers_gather_their_input_once(layer: LayerOf, rules: RulesOf, sequence_parallel: bool) -> None:
    """Gate and up read one tensor: one collective each way, as for q, k and v."""
    found = derive(layer("llama"), rules(sequence_parallel))
    forward = rows(found, direction="forward", tensors=COLUMN_PARALLEL)
    back = rows(found, direction="input gradient", tensors=COLUMN_PARALLEL)
    assert len(forward) == (2 if sequence_parallel else 0)
    same(back, each("reduce_scatter" if sequence_parallel else "all_reduce", COLUMN_PARALLEL, BQH))


@pytest.mark.parametrize(("sequence_parallel", "kind"), [(False, "all_reduce"), (True, "reduce_scatter")])
def test_partial_sums_that_are_added_meet_in_one_collective(
    layer: LayerOf, rules: RulesOf, sequence_parallel: bool, kind: str
) -> None:
    """Attention and feed-forward side by side (GPT-J, Falcon): one reduction forward; one gather of dy for both."""
    found = derive(layer("falcon"), rules(sequence_parallel))
    forward = list(found.collectives(directions=("forward",), tensors=ROW_PARALLEL))
    assert [(f.kind, f.over) for f in forward] == [(kind, ("tp",))]
    assert sympy.simplify(forward[0].elements - BQH) == 0
    gathered = found.collectives(directions=("input gradient",), tensors=gradients_of(ROW_PARALLEL))
    assert len(gathered) == (1 if sequence_parallel else 0)


@pytest.mark.parametrize(("sequence_parallel", "kind"), [(False, "all_reduce"), (True, "reduce_scatter")])
def test_vocabulary_parallel_embedding_and_loss(
    graphs: dict[str, ModelGraph], rules: RulesOf, sequence_parallel: bool, kind: str
) -> None:
    """Rows are split: looked-up rows are partial sums; the loss reduces three numbers a token (maximum, sum, target).

    Source: Shoeybi et al., arXiv:1909.08053, section 3 (parallel embedding, cross entropy without gathered logits).
    """
    embedding = derive(graphs["gpt2"].embedding, rules(sequence_parallel))
    same(rows(embedding, direction="forward", tensors=("embedding",)), each(kind, ("embedding",), BQH))
    output = derive(graphs["gpt2"].output, rules(sequence_parallel))
    loss = [f for f in output.collectives() if f.tensor == "loss terms"]
    assert [(f.kind, f.over, f.elements) for f in loss] == [("all_reduce", ("tp",), exact(BQH / h))]
    # Whole logits never travel.
    assert not output.collectives(tensors=("output",))


@pytest.mark.parametrize(("sequence_parallel", "partial"), [(False, {"cp", "dp"}), (True, {"tp", "cp", "dp"})])
def test_position_table_is_read_on_the_tokens_that_are_stored(
    graphs: dict[str, ModelGraph], rules: RulesOf, sequence_parallel: bool, partial: set[str]
) -> None:
    gradients = derive(graphs["gpt2"].embedding, rules(sequence_parallel)).gradients()
    assert gradients["embedding.position.table"][1] == partial
    assert gradients["embedding.table"] == (symbol("vocab") * h / tp, {"cp", "dp"})


def test_a_strategy_that_splits_nothing_derives_nothing(layer: LayerOf) -> None:
    for name in ("gpt2", "llama", "mixtral", "deepseek"):
        found = derive(layer(name), Rules())
        assert not found.collectives()
        assert all(not partial for _, partial in found.gradients().values())


def test_a_norm_over_split_heads_reduces_its_statistics(layer: LayerOf, rules: RulesOf) -> None:
    """OLMo 2 normalises queries, and keys, over all heads at once: two numbers a token over tp, forward and backward.

    Source: the layer of the real class, Olmo2Attention: q_norm over num_attention_heads · head_dim.
    """
    found = derive(layer("olmo2"), rules(False))
    for direction in ("forward", "input gradient"):
        reduced = [f for f in found.collectives(directions=(direction,)) if "statistics" in f.tensor]
        assert {f.op for f in reduced} == {"attention.q_norm", "attention.k_norm"}
        for each in reduced:
            assert (each.kind, each.over) == ("all_reduce", ("tp",))
            assert sympy.simplify(each.elements - 2 * BQH / h) == 0


def test_a_norm_inside_a_head_needs_no_one_else(layer: LayerOf, rules: RulesOf) -> None:
    """The stream's own norms run over hidden, which nothing splits."""
    for name in ("gpt2", "llama", "olmo2"):
        over = [f.op for f in derive(layer(name), rules(True)).collectives() if "statistics" in f.tensor]
        assert not [op for op in over if op not in ("attention.q_norm", "attention.k_norm")]


def test_a_gain_shared_by_heads_is_summed_over_the_ranks_that_split_them() -> None:
    """Qwen3 normalises each head with one gain for all of them: every tensor parallel rank has the sum of its own."""
    folder = Path(presets.__file__).parent / "presets"
    graph = Qwen3().graph(Configuration.load(folder / "qwen3-8b.json"))
    rules = TensorParallel().rules({"sequence_parallel": False}) + DataParallel().rules({"zero": 0})
    found = derive(graph.runs[0].cycle[0], rules).gradients()
    assert found["attention.q_norm.weight"][1] == found["attention.k_norm.weight"][1] == {"tp", "dp"}
    assert found["attention.norm.weight"][1] == {"dp"}
