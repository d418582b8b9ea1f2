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
from ..model.interfaces.strategy import Pass

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


Times = Callable[[int, int], tuple[float, float]]
"""Stage and part of it → seconds of a forward and of a backward pass."""


def played(orders: Sequence[Sequence[Pass]], times: Times, hop: float = 0.0) -> list[Event]:
    """The passes of a pipeline, each as early as its stage is free and what it needs has come.

    ``orders``: what each stage does; part c of the model's v·p lies on stage c mod p as its part c div p. A forward
    pass needs the part before it, a backward pass the one after it and its own forward pass; ``hop``: seconds from one
    stage to the next. Errors: UserError for an order in which a pass waits for ever.
    """
    stages = len(orders)
    chunks = 1 + max((one.chunk for order in orders for one in order), default=0)
    last = stages * chunks - 1
    ended: dict[tuple[str, int, int], float] = {}  # direction, part of the model, micro-batch → when
    free, done, events = [0.0] * stages, [0] * stages, []

    def ready(stage: int, one: Pass) -> float | None:
        part = one.chunk * stages + stage
        needs = [("forward", part, one.micro_batch, 0.0)] if one.direction == "backward" else []
        before = part - 1 if one.direction == "forward" else part + 1
        if 0 <= before <= last:
            needs.append((one.direction, before, one.micro_batch, hop if stages > 1 else 0.0))
        came = [ended[(d, p, m)] + wait for d, p, m, wait in needs if (d, p, m) in ended]
        return max(came, default=0.0) if len(came) == len(needs) else None

    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while done[stage] < len(order):
                one = order[done[stage]]
                when = ready(stage, one)
                if when is None:
                    break
                seconds = times(stage, one.chunk)[one.direction == "backward"]
                event = Event(
                    stage, "compute", one.direction, max(when, free[stage]), seconds, one.micro_batch, one.chunk
                )
                events.append(event)
                free[stage] = ended[(one.direction, one.chunk * stages + stage, one.micro_batch)] = event.end
                done[stage] += 1
                moved = True
    stuck = [stage for stage, order in enumerate(orders) if done[stage] < len(order)]
    if stuck:
        raise UserError(f"the schedule never ends: stage {stuck[0]} waits for a pass that nobody makes")
    return events


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
    parts = _parts(prediction, stages * chunks)
    seconds = _pass_seconds(case.program.nodes, out)
    sums = [tuple(sum(seconds[block][way] for block in part) for way in (0, 1)) for part in parts]
    hop = _hop(case.program.nodes, out)
    events = played(
        orders, lambda stage, chunk: (sums[chunk * stages + stage][0], sums[chunk * stages + stage][1]), hop
    )
    return [*events, *_after(prediction, events, out, stages)]


def _parts(prediction: Prediction, count: int) -> list[list[str]]:
    """Names of the blocks of each part of the model: layers dealt out, the first parts holding one more."""
    graph = prediction.case.graph
    layers: list[Block] = [run.cycle[i % len(run.cycle)] for run in graph.runs for i in range(graph.sizes[run.layers])]
    each, more = divmod(len(layers), count)
    found, begin = [], 0
    for part in range(count):
        end = begin + each + (part < more)
        found.append([block.name for block in layers[begin:end]])
        begin = end
    found[0].insert(0, graph.embedding.name)
    found[-1].append(graph.output.name)
    return found


def _pass_seconds(nodes: Sequence[Mapping[str, Any]], out: Mapping[str, Any]) -> dict[str, tuple[float, float]]:
    """Block → seconds of its forward and backward pass."""
    found: dict[str, list[float]] = {}
    for node in nodes:
        for way, direction in enumerate((" forward", " backward")):
            if node["kind"] == "sequence" and node["name"].endswith(direction):
                block = node["name"].removesuffix(direction)
                # The whole of a pass stands above its kernels, under the same name.
                found.setdefault(block, [0.0, 0.0])[way] = float(out[f"t{node['id']}"])
    return {block: (times[0], times[1]) for block, times in found.items()}


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
