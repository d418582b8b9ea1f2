"""A training step as events in time: who does what from when to when, stage by stage.

Floor: study. Plain numbers. The passes of a pipeline are played in the order that its schedule states, each as soon as
what it needs is there; what comes after them (gradients, update) follows in the order of the cost tree. The closed form
of the tree is exact for even stages whose transfers are hidden; elsewhere the events say what the schedule does with
stages as they are, and the two differ by what stages wait for one another.

Source of the format: Trace Event Format, the JSON that https://ui.perfetto.dev reads (complete events, "ph": "X").
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from ..errors import UserError, shown
from ..model.graph import Block
from ..model.interfaces.strategy import Pass, Place

if TYPE_CHECKING:
    from .prediction import Prediction

MOST = 200_000
"""Most passes of a step that are played one by one."""


@frozen
class Event:
    """``what`` on a ``stage`` from ``start`` [s] for ``seconds``; ``lane``: the resource (compute, links, host)."""

    stage: int
    lane: str
    what: str
    start: float
    seconds: float
    micro_batch: int = -1
    chunk: int = 0

    @property
    def end(self) -> float:
        """When it ends [s]."""
        return self.start + self.seconds


Times = Callable[[int, int], tuple[float, float, float]]
"""Stage and part of it → seconds of a forward pass, and of gradients of activations and of weights."""

Paths = Callable[[int], Sequence[Place]]
"""Micro-batch → where the parts of the model lie that it goes through, in order."""


def played(orders: Sequence[Sequence[Pass]], times: Times, path: Paths, hop: float = 0.0) -> list[Event]:
    """The passes of a pipeline, each as early as its stage is free and what it needs has come.

    ``orders``: what each stage does. A forward pass needs the part before it on the ``path`` of its micro-batch, a
    backward pass (or the gradients of activations, its first half) the one after it and its own forward pass, the
    gradients of weights those of activations. Passes that run beside one another start and end together. ``hop``:
    seconds from one stage to another. Errors: UserError for an order in which a pass waits for ever.
    """
    stages = len(orders)
    ended: dict[tuple[str, Place, int], float] = {}  # direction, place of the part, micro-batch → when
    free, done, events = [0.0] * stages, [0] * stages, []
    paths: dict[int, Sequence[Place]] = {}

    def ready(stage: int, one: Pass) -> float | None:
        micro_batch, own = one.micro_batch, (stage, one.chunk)
        if micro_batch not in paths:
            paths[micro_batch] = path(micro_batch)
        way = paths[micro_batch]
        at = way.index(own)
        needs: list[tuple[str, Place]] = []
        if one.direction == "weight":
            needs.append(("backward", own))
        elif one.direction == "forward":
            needs += [("forward", way[at - 1])] if at else []
        else:
            needs += [("forward", own), *([("backward", way[at + 1])] if at + 1 < len(way) else [])]
        came = [
            ended[(direction, place, micro_batch)] + (hop if place[0] != stage else 0.0)
            for direction, place in needs
            if (direction, place, micro_batch) in ended
        ]
        return max(came, default=0.0) if len(came) == len(needs) else None

    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                one = order[done[stage]]
                together = [one] if one.beside is None else [one, one.beside]
                when = [ready(stage, each) for each in together]
                if any(at is None for at in when):
                    break
                start = max(free[stage], *(at for at in when if at is not None))
                each = [_seconds(times(stage, part.chunk), part.direction) for part in together]
                for part in together:
                    event = Event(stage, "compute", part.direction, start, sum(each), part.micro_batch, part.chunk)
                    events.append(event)
                    done_as = "backward" if part.direction == "input" else part.direction
                    ended[(done_as, (stage, part.chunk), part.micro_batch)] = event.end
                free[stage] = start + sum(each)
                done[stage] += 1
                moved = True
    stuck = [stage for stage, order in enumerate(orders) if done[stage] < len(order)]
    if stuck:
        raise UserError(f"the schedule never ends: stage {stuck[0]} waits for a pass that nobody makes")
    return events


def _seconds(times: tuple[float, float, float], direction: str) -> float:
    forward, inputs, weights = times
    return {"forward": forward, "input": inputs, "weight": weights, "backward": inputs + weights}[direction]


def timeline(prediction: Prediction) -> list[Event]:
    """The events of a predicted training step.

    Errors: UserError for serving, for a schedule that states no order, and for more than ``MOST`` passes.
    """
    case = prediction.case
    if case.task != "train":
        raise UserError("a timeline is of a training step; serving has none yet")
    values = case.complete(prediction.settings)
    out = case.program.evaluate(values)
    schedule = case.plan.schedule
    stages = int(values[schedule.dimension]) if schedule is not None else 1
    micro_batches = int(values["micro_batches"])
    chunks = schedule.chunks if schedule is not None else 1
    if 2 * stages * chunks * micro_batches > MOST:
        told = f"{2 * stages * chunks * micro_batches:,} passes are too many to play one by one, at most {MOST:,}"
        raise UserError(f"--timeline: {told}; ask with a smaller --global-batch")
    if schedule is None:
        orders: list[tuple[Pass, ...]] = [
            tuple(Pass(d, m) for m in range(micro_batches) for d in ("forward", "backward"))
        ]
    else:
        orders = [schedule.order(stage, stages, micro_batches) for stage in range(stages)]
    if not all(orders):
        name = shown(schedule.name) if schedule is not None else ""
        raise UserError(f"--timeline: the schedule {name} does not state the order of its passes")

    def path(micro_batch: int) -> Sequence[Place]:
        return ((0, 0),) if schedule is None else schedule.path(micro_batch, stages)

    times = _stage_times(prediction, out, [path(micro_batch) for micro_batch in range(min(micro_batches, 2))])
    hop = _hop(case.program.nodes, out)
    events = played(orders, lambda stage, chunk: times[stage, chunk], path, hop)
    return [*events, *_after(prediction, events, out, stages)]


def _stage_times(
    prediction: Prediction, out: Mapping[str, Any], paths: Sequence[Sequence[Place]]
) -> dict[Place, tuple[float, float, float]]:
    """Seconds of the passes of every part of the model, by where it lies."""
    case = prediction.case
    seconds = _pass_seconds(case.program.nodes, out)
    # A path's places are the parts of the model in order, whichever direction it takes through the devices.
    parts = _parts(prediction, len(paths[0]))
    return {
        place: tuple(sum(seconds[block][way] for block in part) for way in (0, 1, 2))  # type: ignore[misc]
        for way_through in paths
        for place, part in zip(way_through, parts, strict=True)
    }


def _parts(prediction: Prediction, count: int) -> list[list[str]]:
    """Names of the blocks of each part of the model: layers dealt out, the first parts holding one more."""
    graph, schedule = prediction.case.graph, prediction.case.plan.schedule
    layers: list[Block] = [run.cycle[i % len(run.cycle)] for run in graph.runs for i in range(graph.sizes[run.layers])]
    first, last = schedule.ends if schedule is not None else (0, 0)
    if count == 1:
        first = last = 0
    elif count == 2 and first:
        last = len(layers) - first
    ends = [n for n in (first, last) if n]
    each, more = divmod(len(layers) - sum(ends), max(count - len(ends), 1))
    shares = [each + (part < more) for part in range(count - len(ends))]
    sizes = [*([first] if first else []), *shares, *([last] if last else [])]
    found, begin = [], 0
    for size in sizes:
        found.append([block.name for block in layers[begin : begin + size]])
        begin += size
    found[0].insert(0, graph.embedding.name)
    found[-1].append(graph.output.name)
    return found


_PASSES = {" forward": 0, " backward": 1, " backward, inputs": 1, " backward, weights": 2}


def _pass_seconds(nodes: Sequence[Mapping[str, Any]], out: Mapping[str, Any]) -> dict[str, tuple[float, float, float]]:
    """Block → seconds of its forward pass, and of its backward pass: whole, or in halves where it is made so."""
    found: dict[str, dict[str, float]] = {}
    for node in nodes:
        for direction in _PASSES:
            if node["kind"] == "sequence" and node["name"].endswith(direction):
                # The whole of a pass stands above its kernels, under the same name.
                found.setdefault(node["name"].removesuffix(direction), {})[direction] = float(out[f"t{node['id']}"])
    times = {}
    for block, passes in found.items():
        halves = {way: passes[way] for way in passes if passes.keys() & {" backward, inputs", " backward, weights"}}
        halves.pop(" backward", None)
        own = [0.0, 0.0, 0.0]
        for way, taken in (halves or passes).items():
            own[_PASSES[way]] = taken
        times[block] = (own[0], own[1], own[2])
    return times


def _hop(nodes: Sequence[Mapping[str, Any]], out: Mapping[str, Any]) -> float:
    """Seconds from one stage to the next, one way."""
    pair = next((n for n in nodes if n["name"] == "to and from the next stage"), None)
    return float(out[f"t{pair['id']}"]) / 2 if pair is not None else 0.0


def _after(prediction: Prediction, events: Sequence[Event], out: Mapping[str, Any], stages: int) -> list[Event]:
    """What follows the passes, on every stage alike: gradients, the update, gathered weights, the host."""
    nodes = prediction.case.program.nodes
    root = nodes[prediction.case.program.roots["step"]]
    start = max(event.end for event in events)
    found = []
    for number in root["children"]:
        node = nodes[number]
        seconds = float(out[f"t{number}"])
        if node["kind"] == "pipelined" or seconds <= 0:
            continue
        lane = {"exposed": "links"}.get(node["kind"], "host" if node["tags"].get("kind") == "host" else "compute")
        found += [Event(stage, lane, node["name"], start, seconds) for stage in range(stages)]
        start += seconds
    return found


LANES = ("compute", "links", "host")


def trace(events: Sequence[Event], title: str) -> dict[str, Any]:
    """The events as a trace that Perfetto opens: a process for each stage, a thread for each resource."""
    rows: list[dict[str, Any]] = []
    for stage in sorted({event.stage for event in events}):
        rows.append({"ph": "M", "pid": stage, "name": "process_name", "args": {"name": f"stage {stage}"}})
        rows += [
            {"ph": "M", "pid": stage, "tid": i, "name": "thread_name", "args": {"name": lane}}
            for i, lane in enumerate(LANES)
        ]
    for event in events:
        about = {"micro_batch": event.micro_batch, "chunk": event.chunk} if event.micro_batch >= 0 else {}
        name = f"{event.what} {event.micro_batch}" if about else event.what
        rows.append({
            "ph": "X", "pid": event.stage, "tid": LANES.index(event.lane), "name": name, "cat": event.what,
            "ts": event.start * 1e6, "dur": event.seconds * 1e6, "args": about,
        })  # fmt: skip
    return {"traceEvents": rows, "displayTimeUnit": "ms", "otherData": {"title": title}}
