"""A question in numbers: a model under some strategies, compiled once, evaluated at any degrees and rates.

Floor: testkit. Uses study. The kernel family is the kit's own (a bare roofline, every efficiency one), so a law that
fails here fails because of the strategy or the model, not because of a price.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..algebra.formula import Formula
from ..algebra.symbols import symbol
from ..model.graph import ModelGraph
from ..model.interfaces.kernels import KernelFamily, Priced, stated_parameters
from ..model.interfaces.stack import NEUTRAL
from ..model.interfaces.strategy import Strategy
from ..model.layout import Rules, Split
from ..model.mesh import Dimension
from ..model.work import Work
from ..records.numerics import training_numerics
from ..records.provenance import Quantity
from ..study.build_training import TrainingModel, build_training, training_model
from ..study.plan import Plan, all_options, applicable
from ..study.program import Program

if TYPE_CHECKING:
    from sympy import Expr

TIERS = ((8.0, 450e9, 1e-6), (64.0, 50e9, 5e-6), (1e9, 25e9, 1e-5))
"""Span, bandwidth [B/s] and latency [s] of the link tiers of the kit's machine."""

RATES = {"gemm_rate": 1e15, "expert_rate": 1e15, "high_rate": 1e15, "attention_rate": 1e15, "vector_rate": 6e13}

_KERNEL = Formula(
    "bare roofline",
    inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
    parameters=(),
    build=lambda n: (
        1e-6 * n.second + n.fmax(n.flops / n.rate, n.bytes / n.bandwidth),
        {"compute": n.flops / n.rate, "memory": n.bytes / n.bandwidth, "latency": 1e-6 * n.second},
    ),
    unit="s",
    source="williams2009",
)
_TRANSFER = Formula(
    "bare transfer",
    inputs={"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s"},
    parameters=(),
    build=lambda n: (
        n.volume / n.bandwidth + n.hops * n.latency,
        {"link": n.volume / n.bandwidth, "latency": n.hops * n.latency},
    ),
    unit="s",
    source="hockney1994",
)


class BareRoofline(KernelFamily):
    """One microsecond and the larger of FLOPs over rate and bytes over bandwidth."""

    name = "bare"

    def price(self, work: Work) -> Priced:
        return Priced(
            _KERNEL,
            {
                "flops": work.flops,
                "bytes": work.bytes,
                "rate": symbol(f"{work.engine}_rate"),
                "bandwidth": symbol("hbm_bandwidth"),
            },
        )

    def transfer(self) -> Formula:
        return _TRANSFER

    def transfer_parameters(self) -> Mapping[str, str]:
        return {}

    def defaults(self) -> Mapping[str, Quantity]:
        return {}

    def formulas(self) -> tuple[Formula, ...]:
        return (_KERNEL, _TRANSFER)


class Companion(Strategy):
    """A dimension that another strategy borrows from, with the plainest split over it."""

    def __init__(self, dimension: str, axes: Sequence[str], order: int) -> None:
        self.name = f"kit-{dimension}"  # type: ignore[misc]  # one class stands for several strategies
        self.dimensions = (Dimension(dimension, "of the kit", order),)  # type: ignore[misc]  # the same
        self._axes = tuple(axes)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules(tuple(Split(a, self.dimensions[0].name) for a in self._axes))


COMPANIONS = (Companion("tp", ("heads", "kv_heads", "ffn", "vocab"), 10), Companion("dp", ("batch",), 30))


def companions(strategy: Strategy) -> tuple[Strategy, ...]:
    """What stands beside a strategy: batches over dp and heads and widths over tp, unless those are its own."""
    own = {d.name for d in strategy.dimensions}
    return tuple(c for c in COMPANIONS if c.dimensions[0].name not in own)


@frozen(eq=False)
class Scene:
    """A compiled training step of a ``graph`` under ``strategies`` with their ``options``.

    ``values`` turns degrees and settings into every input of the program; ``at`` evaluates it.
    """

    graph: ModelGraph
    strategies: tuple[Strategy, ...]
    options: Mapping[str, Any]
    family: KernelFamily
    fused_attention: bool = True
    recompute: str = "none"
    packed: bool = False
    _made: dict[str, Any] = field(factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        graph: ModelGraph,
        strategies: Iterable[Strategy],
        options: Mapping[str, Any] | None = None,
        family: KernelFamily | None = None,
        **more: Any,
    ) -> Scene:
        """The scene of the strategies that apply to ``graph``; options not given take their defaults."""
        chosen = applicable(strategies, graph.sizes)
        known = {name: option.default for name, option in all_options(chosen, "train").items()}
        return cls(graph, chosen, {**known, **(options or {})}, family or BareRoofline(), **more)

    @property
    def plan(self) -> Plan:
        """The structure of the question."""
        if "plan" not in self._made:
            self._made["plan"] = Plan(
                "train", self.graph, self.strategies, self.options, self.family, len(TIERS), self.recompute,
                self.fused_attention, packed=self.packed,
            )  # fmt: skip
        plan: Plan = self._made["plan"]
        return plan

    @property
    def model(self) -> TrainingModel:
        """The parts of the step, symbolic."""
        if "model" not in self._made:
            self._made["model"] = training_model(self.plan)
        model: TrainingModel = self._made["model"]
        return model

    @property
    def program(self) -> Program:
        """The step, compiled."""
        if "program" not in self._made:
            self._made["program"] = build_training(self.plan)
        program: Program = self._made["program"]
        return program

    @property
    def degrees(self) -> tuple[str, ...]:
        """The mesh dimensions, inner first."""
        return tuple(d.name for d in self.plan.dimensions)

    def values(self, **given: Any) -> dict[str, Any]:
        """A value for every symbol: degrees 1, one micro-batch of one sequence of 512 tokens, the kit's machine."""
        numerics = training_numerics("bf16")
        values: dict[str, Any] = {name: float(size) for name, size in self.graph.sizes.items()}
        values |= {f"{role}_width": width for role, width in numerics.widths.items()}
        values |= {**RATES, **NEUTRAL, "hbm_bandwidth": 3e12, "reserve": 1e9, "load_skew": 1.0}
        values |= {"device_units": 128.0, "device_cache": 5e7}
        values |= {name: float(quantity) for name, quantity in stated_parameters(self.family).items()}
        for i, (span, bandwidth, latency) in enumerate(TIERS):
            values |= {f"tier_span_{i}": span, f"tier_bandwidth_{i}": bandwidth, f"tier_latency_{i}": latency}
        values |= {"dp": 1, "micro_batch": 1, "micro_batches": 1, "sequence": 512}
        values |= dict.fromkeys(self.degrees, 1)
        return values | given

    def at(self, **given: Any) -> dict[str, Any]:
        """Every output of the program at the given degrees and settings."""
        return self.program.evaluate(self.values(**given))

    def number(self, expr: Expr, **given: float) -> float:
        """One expression of the model at the given degrees and settings."""
        from ..algebra.compile import compile_expressions

        return float(compile_expressions({"value": expr}).evaluate(self.values(**given))["value"])

    def rows(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        """Ledger row → its bytes on the stage that has most of it."""
        found: dict[str, Any] = {}
        stages = self.program.ledger["stages"]
        for number, stage in enumerate(stages):
            for row in stage["rows"]:
                value = outputs[f"memory.{number}.{row['name']}"]
                found[row["name"]] = value if row["name"] not in found else _larger(found[row["name"]], value)
        found["peak"] = outputs["memory.peak"]
        return found


def _larger(a: Any, b: Any) -> Any:
    import numpy as np

    return np.maximum(a, b)
