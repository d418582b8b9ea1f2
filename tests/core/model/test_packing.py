"""Sequences packed from documents: attention takes each for a sequence of its own, and nothing else changes."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.algebra.compile import compile_expressions
from slipstick.core.algebra.symbols import symbol
from slipstick.core.host.host import default_host
from slipstick.core.model.counting import attention_pairs
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.strategy import Strategy
from slipstick.core.model.layout import Rules
from slipstick.core.model.phase import Phase
from slipstick.core.study.models import load_model
from slipstick.core.testkit.derivation import derive
from slipstick.core.testkit.scene import Scene
from slipstick.plugins.strategies.data import DataParallel
from slipstick.plugins.strategies.tensor import TensorParallel

FAMILIES = ("gpt2", "llama", "mixtral", "deepseek")
SAME = ("step_time", "model_flops", "hardware_flops", "memory.peak")


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_documents_cost_what_they_cost_one_by_one(
    graphs: dict[str, ModelGraph], context_parallel: Strategy, family: str
) -> None:
    strategies = (TensorParallel(), DataParallel(), context_parallel)
    packed = Scene.of(graphs[family], strategies, packed=True)
    plain = Scene.of(graphs[family], strategies)

    @settings(max_examples=15, deadline=None)
    @given(
        tokens=st.integers(1, 250).map(lambda n: 16 * n), documents=st.integers(1, 12), batch=st.integers(1, 3),
        split=st.fixed_dictionaries({name: st.sampled_from([1, 2, 4]) for name in ("tp", "dp", "cp")}),
    )  # fmt: skip
    def check(tokens: int, documents: int, batch: int, split: dict[str, int]) -> None:
        together = packed.at(sequence=documents * tokens, document_tokens=tokens, micro_batch=batch, **split)
        apart = plain.at(sequence=tokens, micro_batch=batch * documents, **split)
        for name in SAME:
            assert together[name] == pytest.approx(apart[name], rel=1e-12), name

    check()


def test_windows_count_from_the_start_of_a_document() -> None:
    """Sliding layers of gpt-oss: a document shorter than the window is seen whole, a longer one through it."""
    graph = load_model("gpt-oss-20b", default_host())
    packed, plain = Scene.of(graph, (), packed=True), Scene.of(graph, ())
    for tokens in (64, 1024):  # the window is 128
        together = packed.at(sequence=4096, document_tokens=tokens)
        apart = plain.at(sequence=tokens, micro_batch=4096 // tokens)
        for name in SAME:
            assert together[name] == pytest.approx(apart[name], rel=1e-12), name


@pytest.mark.parametrize("family", FAMILIES)
def test_one_document_a_sequence_is_no_packing(graphs: dict[str, ModelGraph], family: str) -> None:
    for fused in (True, False):
        packed = Scene.of(graphs[family], (), packed=True, fused_attention=fused)
        plain = Scene.of(graphs[family], (), fused_attention=fused)
        found, known = packed.at(sequence=768, document_tokens=768), plain.at(sequence=768)
        assert {n: found[n] for n in SAME} == pytest.approx({n: known[n] for n in SAME}, rel=1e-12)


def core_flops(graph: ModelGraph, fused: bool, packed: bool, **values: float) -> dict[str, float]:
    """Executed and counted FLOPs of one layer's attention core, forward, for one sequence."""
    extents = {"batch": symbol("micro_batch"), "query": symbol("sequence"), "context": symbol("sequence")}
    document = symbol("document_tokens") if packed else None
    phase = Phase("train", extents, training=True, fused_attention=fused, document=document)
    found = derive(graph.runs[0].cycle[0], Rules(), (), phase)
    (work,) = (w for w in found.works() if w.kind == "attention" and w.direction == "forward")
    program = compile_expressions({"executed": work.flops, "counted": work.model_flops})
    known: dict[str, Any] = {name: float(size) for name, size in graph.sizes.items()}
    done = program.evaluate({**known, "micro_batch": 1.0, "sequence": 4096.0, **values})
    return {name: float(value) for name, value in done.items()}


def test_the_causal_core_falls_by_the_number_of_documents_but_for_the_diagonal(graphs: dict[str, ModelGraph]) -> None:
    """Pairs of n tokens are n(n + 1)/2: those of s/N documents over those of one sequence are (N + 1)/(s + 1)."""
    sequence, document = 4096, 512
    plain = core_flops(graphs["llama"], True, False)
    packed = core_flops(graphs["llama"], True, True, document_tokens=float(document))
    assert packed["executed"] / plain["executed"] == pytest.approx((document + 1) / (sequence + 1), rel=1e-12)
    assert packed["counted"] / plain["counted"] == pytest.approx(document / sequence, rel=1e-12)


def test_a_core_that_is_not_fused_computes_what_it_masks(graphs: dict[str, ModelGraph]) -> None:
    plain = core_flops(graphs["llama"], False, False)
    packed = core_flops(graphs["llama"], False, True, document_tokens=512.0)
    assert packed["executed"] == pytest.approx(plain["executed"], rel=1e-12)
    assert packed["counted"] == pytest.approx(plain["counted"] / 8, rel=1e-12)


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=20))
def test_documents_of_varied_length_are_as_one_of_their_mean_weighed_by_length(
    graphs: dict[str, ModelGraph], lengths: list[int]
) -> None:
    """Counted document by document, against the formula at the mean of l² over the mean of l."""
    total = sum(lengths)
    document = Fraction(sum(n * n for n in lengths), total)
    found = core_flops(graphs["llama"], True, True, document_tokens=float(document), sequence=float(total))
    whole = core_flops(graphs["llama"], True, False, sequence=float(total))
    pairs = sum(attention_pairs(n, n) for n in lengths)
    assert found["executed"] / whole["executed"] == pytest.approx(pairs / attention_pairs(total, total), rel=1e-9)
