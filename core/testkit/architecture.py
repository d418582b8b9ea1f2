"""The contract of an architecture: graphs that are whole, that the law can place, and that count as the model does.

Floor: testkit. Subclass it, give the architecture and configurations it must read, inherit the laws::

    class TestMine(ArchitectureContract):
        architecture = Mine()
        configurations = {"small": {"model_type": "mine", "hidden_size": 64, ...}}
        parameters = {"small": 123456}      # what the real model class reports
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isclose
from pathlib import Path
from typing import Any, ClassVar

from ..algebra.compile import compile_expressions
from ..errors import UserError
from ..model.axes import EXPERTS, Tensor
from ..model.counting import block_flops
from ..model.graph import Block, ModelGraph
from ..model.interfaces.architecture import Architecture
from ..model.layout import Rules, Split, Store
from ..model.mesh import Dimension
from ..model.ops import Attention, Contraction, GroupedContraction, Loss, Sampling
from ..model.work import Work, fused
from ..records.configuration import Configuration
from ..records.numerics import training_numerics
from .derivation import Derived, derive

RUNTIME = {"batch", "query", "context", "routed"}
"""Sizes that a scenario gives, not the model."""

DIMENSIONS = (
    Dimension("tp", "tensor", 10), Dimension("cp", "context", 20), Dimension("ep", "expert", 25, ("dp", "tp")),
    Dimension("dp", "data", 30),
)  # fmt: skip
EVERYTHING = Rules(
    (
        *(Split(role, "tp") for role in ("heads", "kv_heads", "ffn", "vocab")),
        Split("query", "cp"), Split("batch", "dp"), Split("experts", "ep"),
    ),
    (Store("stream", "query", "tp"),),
)  # fmt: skip
"""Every split of the field at once: what the law derives for it must still be sound."""

HOSTILE: tuple[Any, ...] = (None, "x", -1, 0, 1.5, float("nan"), 10**30, [], {}, True)


class ArchitectureContract:
    """Laws of one ``architecture`` on ``configurations`` (name → fields of a ``config.json``).

    ``parameters``: name → the number of trained elements that somebody else counted.
    """

    architecture: ClassVar[Architecture]
    configurations: ClassVar[Mapping[str, Mapping[str, Any]]]
    parameters: ClassVar[Mapping[str, int]] = {}

    def graph(self, name: str) -> ModelGraph:
        """The graph of a configuration."""
        return self.architecture.graph(Configuration(dict(self.configurations[name]), name))

    def graphs(self) -> Iterator[tuple[str, ModelGraph]]:
        """Name and graph of every configuration."""
        for name in self.configurations:
            yield name, self.graph(name)

    def test_it_says_what_it_reads(self) -> None:
        assert self.architecture.name, "an architecture needs a name"
        assert self.architecture.model_types, f"{self.architecture.name} answers for no model_type"
        assert self.configurations, "give at least one configuration"
        for name, fields in self.configurations.items():
            kind = fields.get("model_type")
            assert kind in self.architecture.model_types, (
                f"{name}: model_type {kind!r} is not one of the architecture's"
            )

    def test_reading_twice_gives_one_graph(self) -> None:
        for name, graph in self.graphs():
            assert graph == self.graph(name), f"{name}: two readings of one configuration differ"

    def test_blocks_are_whole(self) -> None:
        for name, graph in self.graphs():
            names = [block.name for block in dict.fromkeys(block for block, _ in graph.parts())]
            assert len(set(names)) == len(names), f"{name}: two kinds of block share a name: {names}"
            for block, _ in graph.parts():
                block_is_whole(f"{name}, {block.name}", block, graph)
            ends = [type(op) for op in graph.output.ops[-2:]]
            assert ends == [Loss, Sampling], f"{name}: the output block ends in {ends}, not in Loss and Sampling"
            layers = sum(graph.sizes[run.layers] for run in graph.runs)
            assert graph.layers == layers > 0, f"{name}: no layers"

    def test_parameters_are_those_of_the_model(self) -> None:
        for name, wanted in self.parameters.items():
            found = self.graph(name).parameters
            assert found == wanted, f"{name}: the graph has {found} parameters, the model {wanted}"

    def test_the_law_counts_the_multiplications_of_the_graph(self) -> None:
        """Placed on one device, forward model FLOPs are those counted operation by operation in whole numbers."""
        for name, graph in self.graphs():
            for block, _ in graph.parts():
                found = derive(block, Rules(), ())
                law = total(found, graph, "model_flops", forward=True)
                wanted = block_flops(graph, block, 3, 32, 32)
                assert isclose(law, wanted, rel_tol=1e-12) or windowed(block, graph), (
                    f"{name}, {block.name}: the law counts {law:g} FLOP, the graph {wanted:g}"
                )

    def test_every_weight_has_a_gradient(self) -> None:
        for name, graph in self.graphs():
            for block, _ in graph.parts():
                for rules in (Rules(), EVERYTHING):
                    missing = {w.name for w in block.weights()} - set(derive(block, rules, DIMENSIONS).gradients())
                    assert not missing, f"{name}, {block.name}: no gradient for {', '.join(sorted(missing))}"

    def test_degree_one_changes_nothing(self) -> None:
        """Split every way over dimensions of degree 1, the same kernels do the same work on the same bytes."""
        for name, graph in self.graphs():
            for block, _ in graph.parts():
                one, split = (derive(block, rules, DIMENSIONS) for rules in (Rules(), EVERYTHING))
                before, after = ([w.name for w in fused(d.steps()) if isinstance(w, Work)] for d in (one, split))
                assert before == after, f"{name}, {block.name}: at degree 1 the kernels changed: {before} → {after}"
                for what in ("flops", "bytes"):
                    old, new = total(one, graph, what), total(split, graph, what)
                    assert isclose(old, new, rel_tol=1e-9), (
                        f"{name}, {block.name}: at degree 1 the {what} changed from {old:g} to {new:g}: "
                        "a split over a dimension of degree 1 must change nothing"
                    )

    def test_bad_values_are_a_users_mistake(self) -> None:
        """Any field missing, or of any wrong value: a graph, or one line that says what is wrong; never a traceback."""
        for name, fields in self.configurations.items():
            trials = [{k: v for k, v in fields.items() if k != left_out} for left_out in fields]
            trials += [{**fields, key: value} for key in fields for value in HOSTILE]
            for trial in trials:
                try:
                    self.architecture.graph(Configuration(dict(trial), name))
                except UserError as error:
                    told = str(error)
                    assert "\n" not in told, f"{name}: an error of several lines: {told}"
                except Exception as error:
                    changed = {k: trial.get(k, "(missing)") for k in fields if trial.get(k) is not fields[k]}
                    raise AssertionError(
                        f"{name} with {changed}: {type(error).__name__} instead of a UserError"
                    ) from error

    def test_presets_are_files_that_it_reads(self) -> None:
        for name, path in self.architecture.presets().items():
            assert Configuration.load(Path(path)), f"preset {name!r} has no readable configuration at {path}"


def block_is_whole(where: str, block: Block, graph: ModelGraph) -> None:
    """Every tensor is written once and before it is read; contractions sum what they share; sizes are known."""
    known: dict[str, Tensor] = {}
    names = [op.name for op in block.ops]
    assert len(set(names)) == len(names), f"{where}: two operations share a name"
    for op in block.ops:
        for tensor in op.reads:
            if tensor.name == block.input:
                known.setdefault(tensor.name, tensor)
            assert known.get(tensor.name) == tensor, f"{where}: {op.name} reads {tensor.name} before it is written"
        for tensor in op.writes:
            assert tensor.name not in known, f"{where}: {op.name} writes {tensor.name} a second time"
            known[tensor.name] = tensor
        for part in [a for t in (*op.reads, *op.writes, *op.weights) for a in t.axes]:
            assert part.size in graph.sizes or part.size in RUNTIME, (
                f"{where}: {op.name} uses the unknown size {part.size!r}"
            )
        if isinstance(op, Contraction):
            x, w, out = set(op.x.axes), set(op.weight.axes), set(op.out.axes)
            kept = {a for a in x & w if a.role == EXPERTS} if isinstance(op, GroupedContraction) else set()
            assert out == (x | w) - ((x & w) - kept), f"{where}: {op.name} writes other axes than x and weight leave"
    assert block.output in known, f"{where}: nothing writes its output {block.output!r}"


def windowed(block: Block, graph: ModelGraph) -> bool:
    """Whether a window limits what the operation-by-operation count (every pair) does not."""
    return any(isinstance(op, Attention) and op.window and graph.sizes[op.window] < 32 for op in block.ops)


def total(found: Derived, graph: ModelGraph, what: str, *, forward: bool = False) -> float:
    """The sum of one amount over all kernels of a block, in numbers, every degree 1: 3 sequences of 32 tokens."""
    works = [w for w in fused(found.steps()) if isinstance(w, Work)]
    if forward:
        works = [w for w in found.works() if w.direction == "forward"]
    elif what == "flops":
        works = found.works()
    values: dict[str, Any] = {name: float(size) for name, size in graph.sizes.items()}
    values |= {f"{role}_width": width for role, width in training_numerics("bf16").widths.items()}
    values |= {"tp": 1, "cp": 1, "dp": 1, "ep": 1, "load_skew": 1, "micro_batch": 3, "sequence": 32}
    tape = compile_expressions({str(i): getattr(work, what) for i, work in enumerate(works)})
    return sum(float(value) for value in tape.evaluate(values).values())
