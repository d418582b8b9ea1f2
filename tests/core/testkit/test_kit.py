"""Test the tester: plugins that are broken on purpose have to fail the kit, and with words that say what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from attrs import evolve

from slipstick.core.algebra.formula import Formula
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.model.interfaces.kernels import Priced
from slipstick.core.model.interfaces.stack import COEFFICIENTS, Stack
from slipstick.core.model.interfaces.strategy import Constraint, Option, Schedule, Strategy, at_most
from slipstick.core.model.layout import Rules, Split, Store
from slipstick.core.model.mesh import Dimension
from slipstick.core.model.ops import Contraction
from slipstick.core.model.work import Work
from slipstick.core.records.configuration import Configuration
from slipstick.core.records.hardware import Accelerator
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.testkit import laws, models
from slipstick.core.testkit.architecture import ArchitectureContract
from slipstick.core.testkit.hardware import HardwareCatalogContract
from slipstick.core.testkit.kernels import KernelFamilyContract
from slipstick.core.testkit.scene import BareRoofline, Scene
from slipstick.core.testkit.stack import StackContract
from slipstick.core.testkit.strategy import StrategyContract

XP = Dimension("cp", "a test dimension", 20)
HERE = Source("test", "made up", "", "2026-01-01", "default")
TWO = Quantity(2e9, "B", HERE)


class Good(Strategy):
    """A sound strategy, which the broken ones below differ from in one thing."""

    name = "good"
    dimensions = (XP,)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("query", "cp"),))


class TestGood(StrategyContract):
    strategy = Good()


def contract(tried: Strategy) -> StrategyContract:
    return type("Contract", (StrategyContract,), {"strategy": tried})()


class UnknownAxis(Good):
    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("quarry", "cp"),))


class UnknownStore(Good):
    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((), (Store("weigths", "flat", "cp"),))  # type: ignore[arg-type]  # a typing error on purpose


class SplitTwice(Good):
    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("query", "cp"), Split("query", "cp")))


class Misspelt(Good):
    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("query", "cpp"),))


class BadDefault(Good):
    options = (Option("colour", "", default="blue", choices=("red", "green")),)


@pytest.mark.parametrize(
    ("tried", "told"),
    [
        (UnknownAxis(), "split of unknown axis 'quarry'"),
        (UnknownStore(), "store of unknown kind 'weigths'"),
        (SplitTwice(), "axis 'query' is split twice over mesh dimension 'cp'"),
        (Misspelt(), "spread over mesh dimension 'cpp', which the strategy does not declare"),
        (BadDefault(), "the default 'blue' is not one of its choices"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Strategy) else "",
)
def test_layouts_that_say_nothing(tried: Strategy, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        contract(tried).test_layouts_are_over_its_own_dimensions()


class Forbids(Good):
    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (Constraint("at_most", ("two",), ("cp",), "needs two ranks at least"), at_most("cp", "layers", "fine"))


class OddCondition(Good):
    def constraints(self, options: Mapping[str, Any]) -> tuple[Constraint, ...]:
        return (Constraint("is_prime", ("cp",), ("cp",), "cp must be prime"),)


def test_conditions_that_forbid_degree_one() -> None:
    with pytest.raises(AssertionError, match="«needs two ranks at least» forbids degree 1"):
        laws.allows_degree_one(Forbids(), {"two": 2})
    with pytest.raises(AssertionError, match="condition of unknown kind 'is_prime'"):
        contract(OddCondition()).test_conditions_allow_degree_one()


class Held(Schedule):
    """A schedule that holds a given number of micro-batches."""

    name = "held"
    dimension = "pp"

    def __init__(self, held: Any, idle: Any = lambda p, m: (p - 1) / m) -> None:
        self._held, self._idle = held, idle

    def in_flight(self, stage: Any, stages: Any, micro_batches: Any) -> Any:
        return self._held(stage, stages, micro_batches)

    def idle(self, stages: Any, micro_batches: Any) -> Any:
        return self._idle(stages, micro_batches)


class Scheduled(Strategy):
    """A pipeline under a schedule of the test."""

    name = "scheduled"
    dimensions = (Dimension("pp", "stages", 40),)

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("layers", "pp"),))

    def schedule(self, options: Mapping[str, Any]) -> Schedule:
        return self._schedule


@pytest.mark.parametrize(
    ("schedule", "told"),
    [
        (Held(lambda i, p, m: p - i), "in flight: there are not so many"),
        (Held(lambda i, p, m: min(m, i + 1)), "holds more on a later stage"),
        (Held(lambda i, p, m: 0), "a stage at work holds at least one"),
        (Held(lambda i, p, m: m), "at degree 1 a schedule must change nothing"),
        (Held(lambda i, p, m: 1, lambda p, m: p / m), "a single stage waits for nobody"),
        (Held(lambda i, p, m: 1, lambda p, m: 1 - p), "a fraction of time is not negative"),
    ],
)
def test_schedules_that_cannot_be(schedule: Schedule, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        contract(Scheduled(schedule)).test_schedules_are_sound()


class NotNothing(Good):
    """Splits nothing, but brings a schedule that holds two micro-batches on a single stage."""

    dimensions = (Dimension("pp", "stages", 40),)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules()

    def schedule(self, options: Mapping[str, Any]) -> Schedule:
        return Held(lambda i, p, m: 2)


def test_a_strategy_that_changes_something_at_degree_one() -> None:
    told = r"at degree 1 the memory row 'activations' changed from \S+ to \S+ .*must change nothing"
    with pytest.raises(AssertionError, match=told):
        contract(NotNothing()).test_degree_one_changes_nothing("dense")


class Grows(Good):
    """Claims to split the layers, and holds a micro-batch more for every stage."""

    dimensions = (Dimension("pp", "stages", 40),)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((), (Store("stream", "query", "pp"),))

    def schedule(self, options: Mapping[str, Any]) -> Schedule:
        return Held(lambda i, p, m: p * p * p)


def test_memory_that_grows_with_the_degree_that_shards_it() -> None:
    with pytest.raises(AssertionError, match=r"the memory row 'activations' grew from .* when pp went from 1 to 2"):
        contract(Grows()).test_sharded_memory_never_grows("dense")


def test_work_and_weights_that_get_lost() -> None:
    """A layout where heads and their keys part company: each rank attends with too few."""
    scene = Scene.of(models.dense(), (Good(),))
    laws.splitting_conserves_flops(scene, cp=4)
    laws.splitting_conserves_weights(scene, cp=4)
    odd = evolve(scene.graph, sizes={**scene.graph.sizes, "heads": 6, "kv_heads": 6})
    with pytest.raises(AssertionError, match="splitting must conserve"):
        laws.splitting_conserves_flops(Scene.of(odd, (Heads(),)), tp=4)
    with pytest.raises(AssertionError, match="splitting must conserve the weights"):
        laws.splitting_conserves_weights(Scene.of(odd, (Heads(),)), tp=4)


class Heads(Good):
    """Heads over tp; six heads over four ranks are padded to eight."""

    dimensions = (Dimension("tp", "heads", 10),)

    def rules(self, options: Mapping[str, Any]) -> Rules:
        return Rules((Split("heads", "tp"), Split("kv_heads", "tp")))


# --- kernel families ----------------------------------------------------------------------------------------------


def formula(build: Any, **inputs: str) -> Formula:
    return Formula("broken", inputs=inputs, parameters=(), build=build, unit="s", source="nobody1999")


class Wrong(BareRoofline):
    """Prices everything with one formula of the test."""

    def __init__(self, made: Formula, swap: Mapping[str, str] | None = None) -> None:
        self._made, self._swap = made, dict(swap or {})

    def price(self, work: Work) -> Priced:
        inputs = super().price(work).inputs
        return Priced(self._made, {n: inputs[self._swap.get(n, n)] for n in self._made.inputs})

    def formulas(self) -> tuple[Formula, ...]:
        return (self._made,)


def family(tried: Wrong) -> KernelFamilyContract:
    return type("Contract", (KernelFamilyContract,), {"family": tried, "_scenes": {}})()


COMPUTE = {"flops": "FLOP", "rate": "FLOP/s"}
MEMORY = {"bytes": "B", "bandwidth": "B/s"}


def test_a_family_that_is_faster_than_its_machine() -> None:
    made = formula(lambda n: (n.flops / n.rate / 5, {"compute": n.flops / n.rate / 5}), **COMPUTE)
    with pytest.raises(AssertionError, match=r"the step takes \S+ s, but .* alone take"):
        family(Wrong(made)).test_more_is_never_slower_and_nothing_beats_the_floor("dense")


def test_a_family_that_slows_down_with_more_bandwidth() -> None:
    def build(n: Any) -> Any:
        seconds = n.bytes / n.bandwidth + n.flops / n.rate
        return seconds + 1e-12 * n.bandwidth * n.second**2 / n.byte, {"memory": seconds}

    made = formula(build, **COMPUTE, **MEMORY)
    with pytest.raises(AssertionError, match="more of a resource must never make a time worse"):
        family(Wrong(made)).test_more_is_never_slower_and_nothing_beats_the_floor("dense")


def test_a_family_that_confuses_units() -> None:
    made = formula(lambda n: (n.flops / n.rate, {"compute": n.flops / n.rate}), **COMPUTE)
    with pytest.raises(AssertionError, match="input 'flops'"):
        family(Wrong(made, {"flops": "bytes"})).test_every_kind_of_work_has_a_price("dense")


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (formula(lambda n: n.flops / n.rate, **COMPUTE), "has no terms"),
        (formula(lambda n: (n.flops / n.rate, {"magic": n.flops / n.rate}), **COMPUTE), "has terms .'magic'."),
    ],
)
def test_a_family_that_does_not_say_what_binds(made: Formula, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        family(Wrong(made)).test_formulas_are_sound()


# --- architectures, stacks, catalogs ------------------------------------------------------------------------------


class Small(Architecture):
    """The kit's dense model as an architecture; ``change`` breaks it."""

    name = "small"
    model_types = ("small",)

    def __init__(self, change: Any = lambda graph: graph) -> None:
        self._change = change

    def graph(self, config: Configuration) -> ModelGraph:
        config.text("model_type")
        hidden = config.integer("hidden_size", minimum=1)
        config.finish()
        found: ModelGraph = self._change(evolve(models.dense(), sizes={**models.dense().sizes, "hidden": hidden}))
        return found


FIELDS = {"model_type": "small", "hidden_size": 256}


class TestSmall(ArchitectureContract):
    architecture = Small()
    configurations = {"small": FIELDS}  # noqa: RUF012  # the base class declares it
    parameters = {  # noqa: RUF012  # the same
        "small": 2 * 4096 * 256 + 256 + 8 * (4 * 256 * 256 + 2 * 256 * 1024 + 3 * 256)
    }


def read(change: Any, **more: Any) -> ArchitectureContract:
    made = {"architecture": Small(change), "configurations": {"small": FIELDS}, **more}
    return type("Contract", (ArchitectureContract,), made)()


def without_size(graph: ModelGraph) -> ModelGraph:
    return evolve(graph, sizes={k: v for k, v in graph.sizes.items() if k != "ffn"})


def without_an_operation(graph: ModelGraph) -> ModelGraph:
    (run,) = graph.runs
    block = run.cycle[0]
    kept = tuple(op for op in block.ops if op.name != "mlp.norm")
    return evolve(graph, runs=(evolve(run, cycle=(evolve(block, ops=kept),)),))


def with_wrong_output(graph: ModelGraph) -> ModelGraph:
    (run,) = graph.runs
    block = run.cycle[0]

    def wrong(op: Any) -> Any:
        if not isinstance(op, Contraction) or op.name != "mlp.up":
            return op
        return evolve(op, weight=evolve(op.weight, axes=op.weight.axes[::-1][:1]))

    return evolve(graph, runs=(evolve(run, cycle=(evolve(block, ops=tuple(map(wrong, block.ops))),)),))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (without_size, "uses the unknown size 'ffn'"),
        (without_an_operation, "mlp.up reads mlp.norm before it is written"),
        (with_wrong_output, "mlp.up writes other axes than x and weight leave"),
        (lambda g: evolve(g, output=evolve(g.output, ops=g.output.ops[:-1])), "not in Loss and Sampling"),
    ],
)
def test_graphs_that_are_not_whole(change: Any, told: str) -> None:
    with pytest.raises(AssertionError, match=told):
        read(change).test_blocks_are_whole()


def test_a_wrong_parameter_count() -> None:
    with pytest.raises(AssertionError, match=r"the graph has \d+ parameters, the model 7"):
        read(lambda g: g, parameters={"small": 7}).test_parameters_are_those_of_the_model()


def test_an_architecture_that_shows_a_traceback() -> None:
    class Careless(Small):
        def graph(self, config: Configuration) -> ModelGraph:
            return evolve(models.dense(), sizes={"hidden": config.raw("hidden_size") + 1})

    with pytest.raises(AssertionError, match="TypeError instead of a UserError"):
        read(None, architecture=Careless()).test_bad_values_are_a_users_mistake()


class Given(Stack):
    """A stack with the coefficients of the test."""

    name = "given"

    def __init__(self, **changed: Quantity) -> None:
        self._values = {name: Quantity(1.0, unit, HERE) for name, (unit, _) in COEFFICIENTS.items()} | changed

    def coefficients(self, task: str, accelerator: str) -> Mapping[str, Quantity]:
        return self._values


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"magic": Quantity(1.0, "1", HERE)}, "magic is neither a coefficient"),
        ({"step_overhead": Quantity(1.0, "B", HERE)}, "step_overhead is in B, the coefficient in s"),
        ({"step_overhead": Quantity(-1.0, "s", HERE)}, "software never gives time or memory back"),
    ],
)
def test_stacks_that_are_unsound(changed: dict[str, Quantity], told: str) -> None:
    tried = type("Contract", (StackContract,), {"stack": Given(**changed)})()
    with pytest.raises(AssertionError, match=told):
        tried.test_coefficients_are_known_and_sound("train")


class Catalog:
    """One accelerator, with one thing wrong."""

    name = "one"

    def __init__(self, record: Accelerator, aliases: Mapping[str, str] | None = None) -> None:
        self._record, self._aliases = record, dict(aliases or {})

    def names(self, kind: str) -> tuple[str, ...]:
        return ("chip",) if kind == "accelerator" else ()

    def load(self, kind: str, name: str, resolve: Any) -> Accelerator:
        return self._record

    def aliases(self, kind: str) -> dict[str, str]:
        return self._aliases if kind == "accelerator" else {}


def chip(**changed: Any) -> Accelerator:
    fields: dict[str, Any] = {
        "name": "chip", "title": "Chip", "vendor": "acme", "memory_capacity": Quantity(1e9, "B", HERE),
        "memory_bandwidth": Quantity(1e12, "B/s", HERE), "rates": {"bf16": Quantity(1e14, "FLOP/s", HERE)},
    }  # fmt: skip
    return Accelerator(**{**fields, **changed})


@pytest.mark.parametrize(
    ("record", "law", "told"),
    [
        (chip(name="chop"), "test_every_record_loads_under_its_name", "the accelerator 'chip' calls itself 'chop'"),
        (chip(memory_reported=TWO), "test_accelerators_can_be_priced", "more than it is sold with"),
        (chip(rates={}), "test_accelerators_can_be_priced", "no arithmetic rate"),
        (chip(rates={"bf17": TWO}), "test_accelerators_can_be_priced", "unknown formats .'bf17'."),
        (chip(memory_bandwidth=Quantity(float("nan"), "B/s", HERE)), "test_every_value_is_finite_and_has_a_source",
         "memory_bandwidth is nan"),
        (chip(power=Quantity(1.0, "W", Source("", "", "", ""))), "test_every_value_is_finite_and_has_a_source",
         "power has no source"),
    ],
)  # fmt: skip
def test_catalogs_that_are_unsound(record: Accelerator, law: str, told: str) -> None:
    tried = type("Contract", (HardwareCatalogContract,), {"catalog": Catalog(record)})()
    with pytest.raises(AssertionError, match=told):
        getattr(tried, law)()


def test_an_alias_that_leads_nowhere() -> None:
    tried = type("Contract", (HardwareCatalogContract,), {"catalog": Catalog(chip(), {"chap": "chup"})})()
    with pytest.raises(AssertionError, match="the alias 'chap' leads to no accelerator 'chup'"):
        tried.test_aliases_lead_to_records()
