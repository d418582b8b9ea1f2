"""One case: a model, a machine and a choice of structure, with its compiled program and its fixed values.

Floor: study. No sympy on the way of numbers; symbols may be passed through ``complete`` all the same, since it only
multiplies and divides. A case answers any number of numeric settings: one, or arrays of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from attrs import define, field

from ..errors import UserError, unknown
from ..model import symbols as _registered  # noqa: F401  # registers the law's symbols
from ..model.device import device_values
from ..model.graph import ModelGraph
from ..model.interfaces.kernels import stated_parameters
from ..model.interfaces.stack import Stack, no_cost
from ..model.interfaces.strategy import Constraint, at_most, divides
from ..records.hardware import Machine
from ..records.numerics import Numerics, expanded, rate_of, serving_numerics, training_numerics
from ..records.provenance import Quantity
from .calibration import Trust, calibration
from .plan import Plan, all_options, applicable
from .program import Program, program
from .settings import SettingInfo, settings_for
from .tuning import fine_tuned

if TYPE_CHECKING:
    from ..host.host import Host

SEQUENCE = 8192
"""Default training sequence [tokens], where the model's maximum is not lower (DESIGN: stated in every output)."""


@define(eq=False)
class Case:
    """See the file's docstring. ``fixed``: symbol → value of everything that no numeric setting changes."""

    task: str
    graph: ModelGraph
    machine: Machine
    plan: Plan
    numerics: Numerics
    structure: dict[str, Any]
    fixed: dict[str, float]
    coefficients: dict[str, Quantity]
    assumptions: list[str]
    calibrated: bool = False
    trust: Mapping[str, Trust] = field(factory=dict)
    stack: Stack | None = None
    _program: Program | None = field(default=None, init=False, repr=False)

    @property
    def program(self) -> Program:
        """The compiled formula, from the cache where it is there."""
        if self._program is None:
            self._program = program(self.plan.key(), self._build, self.plan.files())
        return self._program

    def _build(self) -> Program:
        if self.task == "train":
            from .build_training import build_training

            return build_training(self.plan)
        from .build_serving import build_serving

        return build_serving(self.plan)

    # Numbers.

    def complete(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Every symbol's value for numeric settings: fixed values, given ones, defaults, and what follows from them.

        Values may be numbers, arrays that broadcast together, or symbols.
        """
        values: dict[str, Any] = dict(self.fixed)
        given = {name: value for name, value in settings.items() if value is not None}
        values.update(given)
        own = [d for d in self.plan.dimensions if not d.lenders]
        for dimension in self.plan.dimensions:
            if not dimension.fills:
                values.setdefault(dimension.name, dimension.size or 1)
        rest: Any = 1
        for dimension in own:
            if not dimension.fills:
                rest = rest * values[dimension.name]
        filler = next((d.name for d in own if d.fills), None)
        if filler is not None and filler not in given:
            values[filler] = given["devices"] / rest if "devices" in given else 1
        if filler is not None:
            rest = rest * values[filler]
        values.setdefault("devices", rest)
        values.setdefault("dp", 1)
        values["mesh_devices"] = rest
        values["layers_total"] = self.graph.layers
        if self.task == "train":
            values.setdefault("micro_batch", 1)
            values.setdefault("sequence", self.default_sequence())
            if "global_batch" not in values:
                stages = values.get("pp", 1)
                # An even number where micro-batches enter a pipeline from both ends.
                both = self.plan.schedule is not None and self.plan.schedule.opposite
                count = 4 * stages if both else 1 + 4 * (stages - 1)
                values["global_batch"] = values["dp"] * values["micro_batch"] * count
            values["micro_batches"] = values["global_batch"] / (values["micro_batch"] * values["dp"])
            # A synchronous step waits for its slowest device; links are no slower for it.
            values.setdefault("straggler", 1.0)
            values["time_factor"] = values["time_factor"] * values["straggler"]
            if "capacity_factor" in given:
                values["load_skew"] = _smaller(values["load_skew"], values["capacity_factor"])
        return values

    def default_sequence(self) -> int:
        """8,192 tokens, or the model's maximum where that is lower."""
        return min(SEQUENCE, self.graph.max_positions) if self.graph.max_positions else SEQUENCE

    def constraints(self) -> tuple[Constraint, ...]:
        """Conditions of the strategies, of the mesh, and of the machine's network."""
        own = tuple(d.name for d in self.plan.dimensions if not d.lenders and not d.fills)
        found = []
        if own:
            found.append(divides(own, "devices", f"{' times '.join(own)} must divide the number of devices"))
        found.append(
            Constraint("equal", ("mesh_devices",), ("devices",), "the degrees must multiply to the number of devices")
        )
        span = reachable(self.machine)
        if span is not None:
            reach = f"{self.machine.node.name} connects at most {span} devices"
            if not self.machine.node.tiers:
                reach = (
                    f"{self.machine.name} has no link to other devices: give it a node form "
                    "([own_node] in its file, or --node)"
                )
            found.append(at_most("devices", "reachable_devices", reach))
        if self.plan.packed:
            told = "a document can't be longer than the sequence it is packed into"
            found.append(at_most("document_tokens", "sequence", told))
        return (*found, *self.plan.constraints)

    def violations(self, values: Mapping[str, Any]) -> list[tuple[Constraint, Any]]:
        """Each condition with where it is broken: a boolean, or an array of them."""
        return [(c, broken) for c in self.constraints() if (broken := is_broken(c, values)) is not None]

    def evaluate(self, settings: Mapping[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
        """The program's outputs for numeric settings."""
        return self.program.evaluate(self.complete(settings), outputs)


def _smaller(left: Any, right: Any) -> Any:
    """The smaller of two numbers, arrays or symbols."""
    if hasattr(left, "free_symbols") or hasattr(right, "free_symbols"):
        from ..algebra.functions import functions

        return functions().fmin(left, right)
    if hasattr(left, "shape") or hasattr(right, "shape"):
        import numpy as np

        return np.minimum(left, right)
    return min(left, right)


def is_broken(constraint: Constraint, values: Mapping[str, Any]) -> Any:
    """Whether a condition fails, for numbers or arrays; None where it names something the model lacks."""
    sides = constraint.sides(values)
    degree = values.get(constraint.split, 2)
    if sides is None or any(hasattr(v, "free_symbols") for v in (*sides, degree)):
        return None
    if constraint.kind not in _BROKEN:
        raise UserError(f"condition of unknown kind {constraint.kind!r}; known: {', '.join(_BROKEN)}")
    return _BROKEN[constraint.kind](*sides) & (degree > 1)


_BROKEN: dict[str, Callable[[Any, Any], Any]] = {
    "divides": lambda left, right: (right % left) != 0,
    "at_most": lambda left, right: left > right,
    "equal": lambda left, right: left != right,
    "either_divides": lambda left, right: ((right % left) != 0) & ((left % right) != 0),
}
"""Kind of a condition → whether its two sides, numbers or arrays, break it."""


def reachable(machine: Machine) -> int | None:
    """Most devices that the machine's network connects; None where there is no such limit."""
    if not machine.node.tiers:
        return 1
    return machine.node.tiers[-1].span


def make_case(
    task: str, graph: ModelGraph, machine: Machine, structure: Mapping[str, Any], host: Host,
    infos: Mapping[str, SettingInfo] | None = None,
) -> Case:  # fmt: skip
    """The case for structural settings (those that are not numbers: precision, recompute, options, stack, ...).

    Its graph is the one that is computed: with adapters, where those are asked for.

    Errors: UserError for an unknown stack, precision or kernel family, or a format that the accelerator lacks.
    """
    infos = settings_for(task, host) if infos is None else infos
    chosen = {n: i.default for n, i in infos.items() if (i.structural or i.kind == "choice") and i.default is not None}
    chosen.update({name: value for name, value in structure.items() if value is not None})
    accelerator = machine.accelerator
    assumptions: list[str] = []
    if task == "train":
        kept = (str(chosen.get(name, "fp32")) for name in ("gradients", "optimizer_states"))
        numerics = training_numerics(str(chosen["precision"]), *kept)
        graph, numerics, assumptions = fine_tuned(graph, numerics, chosen)
    else:
        dtype = graph.dtype
        if dtype != "fp16" and "bf16" not in accelerator.rates and "fp16" in accelerator.rates:
            dtype = "fp16"
            assumptions.append(f"{accelerator.name} has no bf16 rate: what the model keeps in 16 bits is fp16")
        numerics = serving_numerics(str(chosen["precision"]), str(chosen["kv_precision"]), graph.quantization, dtype)
    family = host.get("kernel family", str(chosen.get("kernels") or accelerator.kernels))
    stack = host.stack(str(chosen.get("stack", "ideal")))
    strategies = applicable(host.strategies().values(), graph.sizes, task)
    extras = ("mtp",) if chosen.get("mtp") else ()
    if extras and "mtp" not in graph.extras:
        raise UserError(f"--mtp: {graph.name} has no multi-token-prediction layer")
    plan = Plan(
        task, graph, strategies, {n: chosen.get(n, o.default) for n, o in all_options(strategies, task).items()},
        family, len(machine.node.tiers), str(chosen.get("recompute", "none")),
        chosen.get("attention", "fused") == "fused", extras, chosen.get("document_tokens") is not None,
        **_passes(graph, chosen),
    )  # fmt: skip
    fixed: dict[str, float] = {name: float(value) for name, value in graph.sizes.items()}
    fixed.update({f"{role}_width": value for role, value in numerics.widths.items()})
    if plan.packed:
        fixed["document_tokens"] = chosen["document_tokens"]
    for engine, wanted in numerics.engines.items():
        rate, used = rate_of(accelerator, wanted)
        fixed[f"{engine}_rate"] = rate
        if expanded(wanted, used):
            line = f"{accelerator.name} has no {wanted} rate: {wanted} products run at its {used} rate"
            if line not in assumptions:
                assumptions.append(line)
    fixed["hbm_bandwidth"] = accelerator.memory_bandwidth.value
    fixed["hbm_capacity"] = accelerator.memory
    for i, tier in enumerate(machine.node.tiers):
        fixed[f"tier_bandwidth_{i}"] = tier.bandwidth.value
        fixed[f"tier_latency_{i}"] = tier.latency.value
        fixed[f"tier_span_{i}"] = float(tier.span or 1e9)
    span = reachable(machine)
    if span is not None:
        fixed["reachable_devices"] = float(span)
    device = device_values(accelerator)
    fixed["device_units"], fixed["device_cache"] = device["units"], device["cache"]
    found = calibration(
        family, host.fitted_groups(accelerator.name, machine.folder), numerics, stack.kernel_sources(task), fixed
    )
    coefficients = stated_parameters(family)
    coefficients.update(found.values)
    coefficients.update(no_cost())
    coefficients.update(stack.coefficients(task, accelerator.name))
    for name, quantity in accelerator.parameters.items():
        if name not in coefficients:
            raise unknown(f"parameter of {accelerator.name}", name, coefficients)
        coefficients[name] = quantity
    fixed.update({name: quantity.value for name, quantity in coefficients.items()})
    fixed["load_skew"] = 1.0
    return Case(
        task, graph, machine, plan, numerics, chosen, fixed, coefficients, assumptions,
        stack.calibrated_for(task, accelerator.name), found.slots, stack,
    )  # fmt: skip


def _passes(graph: ModelGraph, chosen: Mapping[str, Any]) -> dict[str, Any]:
    """What is computed again, how the output layer is cut, whether gradients are clipped and passes are graphs.

    Errors: UserError where that is no choice.
    """
    ops = tuple(name.strip() for name in str(chosen.get("recompute_ops") or "").split("+") if name.strip())
    known = dict.fromkeys(op.name for run in graph.runs for block in run.cycle for op in block.ops)
    for name in ops:
        if name not in known:
            raise unknown(f"operation of {graph.name} (--recompute-ops)", name, known)
    layers, group = int(chosen.get("recompute_layers") or 0), int(chosen.get("recompute_group") or 1)
    if (layers or group > 1) and chosen.get("recompute") != "full":
        which = "--recompute-layers" if layers else "--recompute-group"
        raise UserError(f"{which} is of layers that are computed again: add --recompute full")
    if ops and chosen.get("recompute") == "full":
        raise UserError("--recompute-ops: with --recompute full every operation is computed again already")
    if layers and (chosen.get("first_layers") or chosen.get("last_layers")):
        raise UserError("--recompute-layers is of stages that share the layers evenly: leave --first-layers and "
                        "--last-layers out")  # fmt: skip
    chunks = int(chosen.get("loss_chunks") or 1)
    if chunks > 1 and chosen.get("mtp"):
        raise UserError("--loss-chunks cuts one output layer; with --mtp there are two: leave one of them out")
    return {
        "recompute_ops": ops, "recompute_layers": layers, "recompute_group": group, "loss_chunks": chunks,
        "clip": bool(chosen.get("clip")), "graphs": chosen.get("cuda_graph") == "full",
    }  # fmt: skip


__all__ = ["SEQUENCE", "Case", "is_broken", "make_case", "reachable"]
