"""What a measured row asks of slipstick: a case with its settings, and what was taken for granted on the way.

Floor: study. A row whose setting slipstick can't express raises ``Skipped`` with the reason, and so does one that can't
be laid out. Nothing is guessed in silence: every assumption is a note of the row.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from attrs import define, evolve, field, frozen

from ...algebra.units import parse
from ...errors import SlipstickError, UserError
from ...host.host import Host
from ...model.graph import ModelGraph
from ...records.hardware import Machine
from ...records.measured import MeasuredPoint
from ...records.provenance import Quantity, Source
from ..ask import checked_settings, is_structural, relevant
from ..case import Case, make_case
from ..settings import SettingInfo, settings_for
from .names import Skipped, first_of, found, rules, wires
from .shapes import Shapes
from .workloads import serving, training, whole

DEGREES = ("tp", "pp", "dp", "ep")
IDEAL = "ideal"
"""The stack of a row that names none, or one that is not installed."""

ROW = Source("row", "what a measured row says of its machine", "", "", "measured")


@frozen(eq=False)
class Question:
    """One row as a question.

    ``load``: "closed" (so many requests in flight), "static" (a batch, once), "max" (as many as fit), "rate" (so many
    requests a second, with ``rate``); ``said``: what the rules read from the row's text; ``missing_stack``: what
    software the row names that nobody brings; ``key``: equal for rows that one answer serves.
    """

    point: MeasuredPoint
    case: Case
    settings: Mapping[str, Any]
    load: str
    rate: float
    said: Mapping[str, Any]
    notes: tuple[str, ...]
    missing_stack: str = ""

    @property
    def key(self) -> tuple[Any, ...]:
        """What an answer depends on."""
        return (id(self.case), self.load, self.rate, *sorted(self.settings.items()))


@define(eq=False)
class Scenarios:
    """Rows → questions; models, machines and cases are made once. ``stack``: in place of the one a row names."""

    host: Host
    stack: str | None = None
    _shapes: Shapes = field(init=False)
    _infos: dict[str, dict[str, SettingInfo]] = field(factory=dict, init=False)
    _machines: dict[str, tuple[Machine, tuple[str, ...]]] = field(factory=dict, init=False)
    _cases: dict[tuple[Any, ...], Case] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._shapes = Shapes(self.host)
        if self.stack is not None:
            self.host.stack(self.stack)

    def question(self, point: MeasuredPoint) -> Question:
        """The question of one point. Raises Skipped."""
        task = str(point.setting.get("task", "train"))
        if task not in self._infos:
            self._infos[task] = settings_for(task, self.host)
        infos = self._infos[task]
        said = rules(task, _text_of(point))
        _refuse_unmodelled(point, said, infos)
        shape = self._shapes.shape(point, said)
        machine, machine_notes = self._machine(point.device)
        notes = [*shape.notes, *machine_notes]
        wanted: dict[str, Any] = {**_layout(point, shape.graph, said)}
        load, rate = "closed", 0.0
        if task == "train":
            wanted |= training(point, shape.graph, said, infos, notes, int(wanted.get("pp", 1)))
        else:
            asked, load, rate = serving(point, said, infos, notes)
            if said.get("each") == "device":
                asked["concurrency"] = asked["concurrency"] * wanted["devices"]
            wanted |= asked
        stack, missing = self._stack(point)
        wanted["stack"] = stack
        try:
            checked = checked_settings(task, wanted, infos)
            structure = {name: value for name, value in checked.items() if is_structural(infos[name])}
            numeric = {name: value for name, value in checked.items() if name not in structure}
            for info in infos.values():
                if info.owner == "core" and not is_structural(info) and info.default is not None:
                    numeric.setdefault(info.name, info.default)
            case = self._case(task, shape.graph, point.device, machine, structure, infos)
            told = tuple(dict.fromkeys(notes))
            return Question(point, case, relevant(case, numeric, infos), load, rate, said, told, missing)
        except SlipstickError as error:
            raise Skipped(str(error)) from None

    def _case(
        self, task: str, graph: ModelGraph, device: str, machine: Machine, structure: dict[str, Any],
        infos: Mapping[str, SettingInfo],
    ) -> Case:  # fmt: skip
        key = (task, id(graph), device, *sorted(structure.items()))
        if key not in self._cases:
            self._cases[key] = make_case(task, graph, machine, structure, self.host, infos)
        return self._cases[key]

    def _machine(self, device: str) -> tuple[Machine, tuple[str, ...]]:
        if device not in self._machines:
            self._machines[device] = self._read_machine(device)
        return self._machines[device]

    def _read_machine(self, device: str) -> tuple[Machine, tuple[str, ...]]:
        if not device:
            raise Skipped("the accelerator is not named")
        entry = found("machine", device.replace("_", "-"))
        name = str(entry.data["accelerator"]) if entry is not None else device
        try:
            machine = self.host.machine(name)
        except UserError:
            raise Skipped(f"no accelerator is known as {device!r}") from None
        notes = [entry.note] if entry is not None and entry.note else []
        if entry is not None:
            machine = evolve(machine, accelerator=evolve(machine.accelerator, **_memory(entry.data)))
        wire = wires(device)
        if wire is not None and machine.node.tiers and machine.node.tiers[-1].span is None:
            each = wire[0] / machine.node.devices if wire[1] else wire[0]
            *inner, outer = machine.node.tiers
            outer = evolve(outer, bandwidth=Quantity(each, "B/s", ROW, device))
            machine = evolve(machine, node=evolve(machine.node, tiers=(*inner, outer)))
        return machine, tuple(notes)

    def _stack(self, point: MeasuredPoint) -> tuple[str, str]:
        """The stack to predict with, and the one that the row names where it is not installed."""
        if self.stack is not None:
            return self.stack, ""
        named = str(point.setting.get("stack", ""))
        text = named or point.facts.get("engine", "") or f"{point.facts.get('source', '')} {point.note}"
        entry = found("stack", text)
        wanted = [named] if named else []
        wanted += map(str, entry.data["stacks"]) if entry is not None else []
        known = first_of(wanted, self.host.stacks())
        return known or IDEAL, "" if known or not wanted else wanted[0]


def _text_of(point: MeasuredPoint) -> dict[str, str]:
    return {"model": point.model, "source": point.source, "notes": point.note, **point.facts}


def _memory(data: Mapping[str, Any]) -> dict[str, Any]:
    """The memory that a machine's entry gives in place of the accelerator's."""
    changed: dict[str, Any] = {}
    if "memory" in data:
        changed["memory_capacity"] = Quantity(parse(data["memory"])[0], "B", ROW, data["memory"])
        changed["memory_reported"] = None
    if "memory_bandwidth" in data:
        changed["memory_bandwidth"] = Quantity(parse(data["memory_bandwidth"])[0], "B/s", ROW, data["memory_bandwidth"])
    return changed


def _refuse_unmodelled(point: MeasuredPoint, said: Mapping[str, Any], infos: Mapping[str, SettingInfo]) -> None:
    setting = point.setting
    if "unmodelled" in said:
        raise Skipped(str(said["unmodelled"]))
    if "disagg" in str(setting.get("mode", "")):
        raise Skipped("disaggregated serving is not modelled yet")
    if "cpu_ratio" in setting or "offload" in str(setting.get("zero", "")):
        raise Skipped("optimizer state on the host (CPU offload) is not modelled yet")
    if "cp" not in infos and setting.get("cp", 1) not in (1, ""):
        raise Skipped("context parallelism is not modelled yet")


def _layout(point: MeasuredPoint, graph: ModelGraph, said: Mapping[str, Any]) -> dict[str, Any]:
    """The degrees that a row gives. What is blank follows from the others, as everywhere in slipstick."""
    setting = point.setting
    given = {name: whole(setting[name], name) for name in (*DEGREES, "devices", "cp") if name in setting}
    degrees = {name: int(said[name]) for name in DEGREES if name in said}
    degrees |= {name: given[name] for name in DEGREES if given.get(name, 0) and name not in degrees}
    if "devices" in said:
        given["devices"] = int(said["devices"])
    devices = given.get("devices", math.prod(degrees.get(name, 1) for name in ("tp", "pp", "dp")))
    layout = str(said.get("layout", ""))
    if layout in _IN_WORDS and "tp" not in given:
        degrees |= {name: devices for name in _IN_WORDS[layout] if name not in said}
    if devices > 1 and not degrees:
        raise Skipped("how the model is laid out on the devices is not stated")
    if "experts" not in graph.sizes:
        degrees.pop("ep", None)
    elif layout == "attention data parallel" and degrees.get("dp", 1) == 1:
        degrees |= {"dp": degrees.get("tp", 1), "ep": degrees.get("tp", 1), "tp": 1}
    if given.get("cp", 1) != 1:
        degrees["cp"] = given["cp"]
    return {"devices": devices, **degrees}


_IN_WORDS = {"TP": ("tp",), "PP": ("pp",), "EP": ("tp", "ep")}
"""A layout in words → the degrees that take all devices; experts are spread inside the tensor parallel group."""
