"""The laws that every plugin has to keep, as functions that say in words what was broken.

Floor: testkit. Each takes scenes (see ``scene``) or plain objects and raises AssertionError with one line for the
author of the plugin: what was tried, what came out, and why that can't be. The contract classes call these; so may any
test.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isclose, prod
from typing import Any

from ..algebra.cost import Leaf, Pipelined, Repeat, walk
from ..algebra.dimension import DimensionError, check
from ..errors import PluginError, UserError
from ..model.counting import training_matmul_flops
from ..model.interfaces.strategy import Constraint, Schedule, Strategy
from ..model.layout import Rules
from ..study.case import is_broken
from .derivation import derive, training_phase
from .scene import Scene

SLACK = 1e-9
"""Relative difference that rounding may leave."""


def settings_of(strategy: Strategy) -> list[dict[str, Any]]:
    """The option values to try: the defaults, and every other choice of one option at a time."""
    default = {option.name: option.default for option in strategy.options}
    found = [default]
    for option in strategy.options:
        choices = option.choices or ((True, False) if isinstance(option.default, bool) else ())
        found += [{**default, option.name: choice} for choice in choices if choice != option.default]
    return found


def states_known_layouts(strategy: Strategy) -> None:
    """Every split and store is along a known axis, over a dimension that the strategy declares."""
    own = {d.name for d in strategy.dimensions}
    for option in strategy.options:
        assert not option.choices or option.default in option.choices, (
            f"option {option.name!r}: the default {option.default!r} is not one of its choices {option.choices}"
        )
    for options in settings_of(strategy):
        try:
            rules = strategy.rules(options).checked()
        except PluginError as error:
            raise AssertionError(f"rules with {options}: {error}") from None
        stated = [(s.axis, s.over) for s in rules.splits] + [(s.axis, s.over) for s in rules.stores]
        for axis, over in stated:
            assert over in own, (
                f"rules with {options}: axis {axis!r} is spread over mesh dimension {over!r}, which the strategy "
                f"does not declare (it has {', '.join(sorted(own)) or 'none'}), so nothing would be split"
            )


def allows_degree_one(strategy: Strategy, known: Mapping[str, float]) -> None:
    """Every condition holds where all degrees are 1: the strategy can be left alone."""
    for options in settings_of(strategy):
        for constraint in strategy.constraints(options):
            values = {**known, **{d.name: 1 for d in strategy.dimensions}}
            assert holds(constraint, values), (
                f"the condition «{constraint.message}» forbids degree 1; "
                "a strategy that is not used must not be in the way"
            )


def holds(constraint: Constraint, values: Mapping[str, float]) -> bool:
    """Whether a condition holds; one that names a size which ``values`` lacks does not apply."""
    try:
        return not is_broken(constraint, values)
    except UserError as error:
        raise AssertionError(f"a {error}") from None


def degree_one_changes_nothing(without: Scene, present: Scene, **setting: Any) -> None:
    """A split over a dimension of degree 1 leaves time, memory and counts as they are."""
    before, after = without.at(**setting), present.at(**setting)
    pairs = {
        "the step time": (before["step_time"], after["step_time"]),
        "the model FLOPs": (before["model_flops"], after["model_flops"]),
    }
    old, new = without.rows(before), present.rows(after)
    pairs |= {f"the memory row {row!r}": (old[row], new[row]) for row in old}
    for what, (one, other) in pairs.items():
        assert isclose(one, other, rel_tol=SLACK), (
            f"at degree 1 {what} changed from {one:g} to {other:g} ({present.graph.name} model, {setting}): "
            "a split over a dimension of degree 1 must change nothing"
        )


def splitting_conserves_flops(scene: Scene, *, exact: bool = True, **degrees: float) -> None:
    """Matrix FLOPs of all devices together are those of one device, times the copies that the layout declares.

    An operation's copies are the devices over which none of its tensors is split. ``exact`` False allows more.
    """
    graph, mesh = scene.graph, scene.model.setting.mesh
    phase = training_phase()
    everything = prod(degrees.values())
    for block in (graph.embedding, *(block for run in graph.runs for block in run.cycle), graph.output):
        split = derive(block, scene.plan.rules, scene.plan.dimensions, phase)
        whole = derive(block, Rules(), scene.plan.dimensions, phase)
        seen = {u.op.name: frozenset(a for t in u.layouts.values() for a in t.atoms()) for u in split.placed.uses}
        for part, one in zip(split.works(), whole.works(), strict=True):
            if part.kind not in ("gemm", "grouped_gemm", "attention"):
                continue
            op = next(name for name in sorted(seen, key=len, reverse=True) if part.name.startswith(name))
            spread = scene.number(mesh.degree(seen[op]), **degrees)
            # With one device the batch of all data parallel ranks lies on it.
            found, wanted = scene.number(part.flops, **degrees) * spread, scene.number(one.flops, **degrees)
            ok = isclose(found, wanted, rel_tol=SLACK) or (not exact and found > wanted)
            assert ok, (
                f"{block.name}: {part.name} ({part.direction}) over {degrees} of {everything:g} devices takes "
                f"{found:g} FLOP on the {spread:g} that share it, and {wanted:g} on one: "
                "splitting must conserve the work"
            )


def splitting_conserves_weights(scene: Scene, **degrees: float) -> None:
    """Weights of all devices together are the model's, times the copies that the layout declares."""
    model, mesh = scene.model, scene.model.setting.mesh
    for cost in (model.embedding, model.output, *model.costs.values()):
        for share in cost.weights:
            whole = prod(scene.graph.sizes[a.size] for a in share.weight.axes)
            split = {s.over for s in scene.plan.rules.splits if s.axis in share.weight.roles}
            atoms = dict.fromkeys(a for over in split for a in mesh.view(over))
            found = scene.number(share.elements, **degrees) * scene.number(mesh.degree(atoms), **degrees)
            assert isclose(found, whole, rel_tol=SLACK), (
                f"{cost.block.name}: {share.weight.name} over {degrees} has {found:g} elements on the devices "
                f"that share it, and {whole} on one: splitting must conserve the weights"
            )


SHARDS = {
    "weight": ("weights",), "gradient": ("gradients",), "optimizer": ("optimizer",), "stream": ("activations",),
    "cache": (),
}  # fmt: skip
"""Ledger rows that a store of each kind shards."""


def sharded_rows(rules: Rules, dimension: str) -> set[str]:
    """The ledger rows that splits and stores over a dimension make smaller."""
    rows: set[str] = set()
    for split in rules.splits:
        if split.over == dimension:
            rows |= {"weights", "gradients", "optimizer"}
            if split.axis != "layers":  # stages hold more micro-batches where there are more of them
                rows.add("activations")
    for store in rules.stores:
        if store.over == dimension:
            rows |= set(SHARDS[store.kind])
    return rows


def sharded_rows_never_grow(scene: Scene, dimension: str, degrees: Iterable[int], **setting: Any) -> None:
    """What a dimension shards takes no more memory at a higher degree."""
    rows = sharded_rows(scene.plan.rules, dimension)
    last: tuple[int, dict[str, Any]] | None = None
    for degree in degrees:
        now = scene.rows(scene.at(**{**setting, dimension: degree}))
        if last is not None:
            for row in rows:
                assert now[row] <= last[1][row] * (1 + SLACK), (
                    f"the memory row {row!r} grew from {last[1][row]:g} to {now[row]:g} B when {dimension} went from "
                    f"{last[0]} to {degree} ({scene.graph.name} model): "
                    "a dimension that shards it must not make it larger"
                )
        last = degree, now


def resources(scene: Scene) -> list[str]:
    """The inputs of a scene of which more is better: rates and bandwidths."""
    return [name for name in scene.program.tape.inputs if "_rate" in name or "bandwidth" in name]


def more_is_never_slower(scene: Scene, factor: float, **setting: Any) -> None:
    """More bandwidth or more FLOP/s never makes a step longer."""
    values = scene.values(**setting)
    before = scene.at(**setting)["step_time"]
    for name in resources(scene):
        after = scene.at(**{**setting, name: values[name] * factor})["step_time"]
        assert after <= before * (1 + SLACK), (
            f"the step became longer, {before:g} s to {after:g} s, when {name} was multiplied by {factor:g} "
            f"({scene.graph.name} model, {setting}): more of a resource must never make a time worse"
        )


def units_agree(scene: Scene) -> None:
    """Every leaf is given inputs in the units its formula asks for; ledger rows are bytes, counts plain numbers."""
    model = scene.model
    parts: list[tuple[str, Any, str]] = [("the model FLOPs", model.model_flops, "FLOP")]
    for node in walk(model.step):
        if isinstance(node, Leaf):
            wanted = node.formula.inputs
            parts += [(f"input {n!r} of {node.name}", e, wanted[n]) for n, e in node.inputs.items() if n in wanted]
            missing = set(wanted) - set(node.inputs)
            assert not missing, f"{node.name}: formula {node.formula.name!r} is given no {', '.join(sorted(missing))}"
        elif isinstance(node, (Repeat, Pipelined)):
            parts.append((f"the count of {node.name}", node.count, "1"))
    parts += [(f"memory row {row.name!r}", row.bytes, "B") for ledger in model.ledgers for row in ledger.rows]
    for what, expr, unit in parts:
        try:
            check(expr, unit)
        except DimensionError as error:
            raise AssertionError(f"{what} should be in {unit}: {error}") from None


def evaluations_agree(scene: Scene, **setting: Any) -> None:
    """The step as one expression, compiled for a number, and compiled for arrays, has one value."""
    import numpy as np
    import sympy

    values = scene.values(**setting)
    expr = scene.model.step.expression()
    missing = [s.name for s in expr.free_symbols if s.name not in values and s.name not in _UNITS]
    assert not missing, f"the step depends on {', '.join(sorted(missing))}, for which the scene has no value"
    symbolic = float(expr.xreplace({s: sympy.Float(values.get(s.name, 1.0)) for s in expr.free_symbols}))
    scalar = scene.at(**setting)["step_time"]
    arrays = {name: np.asarray([value, value, 2 * value]) for name, value in values.items() if name == "sequence"}
    vector = scene.program.evaluate({**values, **arrays}, ["step_time"])["step_time"]
    assert isclose(symbolic, scalar, rel_tol=1e-8), f"symbolic {symbolic:g} s, compiled {scalar:g} s for {setting}"
    assert isclose(float(vector[0]), scalar, rel_tol=1e-12), f"array {vector[0]:g} s, number {scalar:g} s for {setting}"


_UNITS = ("FLOP", "byte", "second", "joule", "dollar")


def never_beats_the_floor(scene: Scene, **setting: Any) -> None:
    """No step is shorter than its matrix FLOPs over the fastest rate, or its compulsory traffic over bandwidth.

    Counted apart from the law: integer FLOPs of the graph (causal), each layer's dense weights read twice a
    micro-batch, the optimizer's state read and written.
    """
    values = scene.values(**setting)
    out = scene.at(**setting)
    devices = prod(values[d.name] for d in scene.plan.dimensions if not d.lenders)
    batch = int(values["micro_batch"] * values["dp"])
    flops = values["micro_batches"] * training_matmul_flops(scene.graph, batch, int(values["sequence"]), causal=True)
    fastest = max(value for name, value in values.items() if name.endswith("_rate"))
    state = 2 * scene.rows(out)["optimizer"]
    dense = sum(
        count * scene.graph.elements(w)
        for block, count in list(scene.graph.parts())[1:-1]
        for w in block.weights()
        if w.format == "weight"
    )
    weights = 2 * values["micro_batches"] * dense * values["weight_width"] / devices
    floors = {
        f"{flops:g} FLOP on {devices:g} devices": flops / devices / fastest,
        f"{state + weights:g} B of compulsory traffic": (state + weights) / values["hbm_bandwidth"],
    }
    for what, seconds in floors.items():
        assert out["step_time"] >= seconds * (1 - SLACK), (
            f"the step takes {out['step_time']:g} s, but {what} alone take {seconds:g} s "
            f"({scene.graph.name} model, {setting})"
        )


def schedule_is_sound(schedule: Schedule, most: int = 8) -> None:
    """In flight: at least one micro-batch, at most all, fewer towards the end; one stage idles never and holds one."""
    for stages in range(1, most + 1):
        for micro_batches in range(1, 2 * most + 1):
            held = [float(schedule.in_flight(i, stages, micro_batches)) for i in range(stages)]
            idle = float(schedule.idle(stages, micro_batches))
            where = f"schedule {schedule.name!r} with {stages} stages and {micro_batches} micro-batches"
            assert max(held) <= micro_batches, f"{where} holds {max(held):g} in flight: there are not so many"
            assert min(held) >= 1, f"{where} holds {min(held):g} on some stage: a stage at work holds at least one"
            assert held == sorted(held, reverse=True), f"{where} holds more on a later stage: {held}"
            assert idle >= 0, f"{where} idles {idle:g}: a fraction of time is not negative"
            if stages == 1:
                assert idle == 0, f"{where} idles {idle:g}: a single stage waits for nobody"
                assert held == [1], f"{where} holds {held[0]:g}: at degree 1 a schedule must change nothing"
