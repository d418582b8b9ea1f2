"""Search by vectorised enumeration: every setting that is left open, all at once, and why the others fail.

Floor: study. numpy is imported when a search runs. The same compiled program answers a million settings as it answers
one; nothing is sampled, so the best setting of the enumerated ones is the best one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from attrs import field, frozen

from ..errors import UserError
from ..records.scenario import ASK
from .case import Case

if TYPE_CHECKING:
    from .prediction import Prediction

MOST_POINTS = 20_000_000
"""More settings than this in one question are refused."""

BLOCK = 2**18
"""Points looked at together: large enough for arrays to pay, small enough for a hundred megabytes to do."""

TOP = 10
FREE_DEGREES = tuple(2**i for i in range(11))
DEVICE_COUNTS = (1, 2, 4, *(8 * 2**i for i in range(12)))
BATCHES = tuple(2**i for i in range(13))
NO_MEMORY = "does not fit in device memory"


@frozen
class SearchReport:
    """What a search found.

    ``tried`` settings, ``feasible`` of them; ``reasons``: why the others are not, with how many; ``objective`` in
    words; ``best``: the best one as a full prediction (None where nothing is feasible); ``top``: the best few as plain
    rows (settings and figures); ``varied``: names of the settings that were enumerated; ``nearest``: where nothing is
    feasible, the setting that needs least memory of those that can be laid out (its obstacles say what would help).
    """

    tried: int
    feasible: int
    reasons: Mapping[str, int]
    objective: str
    best: Prediction | None
    top: list[dict[str, Any]]
    varied: tuple[str, ...]
    nearest: Prediction | None = None

    def to_json(self) -> dict[str, Any]:
        """As JSON-ready data."""
        return {
            "tried": self.tried, "feasible": self.feasible, "reasons": dict(self.reasons),
            "objective": self.objective, "varied": list(self.varied), "top": self.top,
        }  # fmt: skip


@frozen
class _Found:
    """The best points of one block of points, best first: settings as arrays, rank and figures; and how many fit.

    ``rank``: one tuple a point, the smaller the better; comparable among all cases of a question. ``miss``: where
    nothing fits, the least overflow (needed memory over capacity) and its settings.
    """

    case: Case
    feasible: int
    points: Mapping[str, Any] = field(factory=dict)
    rank: tuple[tuple[float, ...], ...] = ()
    figures: Mapping[str, Any] = field(factory=dict)
    miss: tuple[float, Mapping[str, Any]] | None = None


def candidates(name: str, case: Case, numeric: Mapping[str, Any]) -> tuple[int, ...]:
    """What "?" stands for: divisors where something has to divide, else powers of two."""
    dimensions = {d.name for d in case.plan.dimensions}
    if name == "devices":
        return DEVICE_COUNTS
    if name in dimensions:
        devices = numeric.get("devices")
        if isinstance(devices, int):
            return divisors(devices)
        if isinstance(devices, tuple):
            return tuple(sorted({d for count in devices for d in divisors(count)}))
        return FREE_DEGREES
    if name == "micro_batch":
        batch = numeric.get("global_batch")
        return tuple(d for d in divisors(batch) if d <= 512) if isinstance(batch, int) else BATCHES[:9]
    if name in ("sequence", "input_tokens", "output_tokens"):
        raise UserError(f"{name}: longer is always slower; give a value, a list or a range instead of ?")
    return BATCHES


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    low = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*low, *(number // d for d in low)}))


def grid(case: Case, numeric: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[Any, ...]], int]:
    """The settings with one value, those with several (what "?" stands for put in), and how many points they span."""
    axes = {
        name: candidates(name, case, numeric) if isinstance(value, str) and value == ASK else value
        for name, value in numeric.items()
    }
    several = {name: value for name, value in axes.items() if isinstance(value, tuple)}
    total = math.prod(len(value) for value in several.values())
    if total > MOST_POINTS:
        raise UserError(f"the question has {total:,} settings; at most {MOST_POINTS:,}: give some of them a value")
    return {name: value for name, value in axes.items() if name not in several}, several, total


def blocks(single: Mapping[str, Any], several: Mapping[str, tuple[Any, ...]], total: int) -> Iterator[dict[str, Any]]:
    """Every combination in blocks of at most ``BLOCK`` points, as flat float arrays; single values stay numbers.

    Memory does not grow with the number of combinations.
    """
    import numpy as np

    if not several:
        yield dict(single)
        return
    values = {name: np.asarray(value, dtype=float) for name, value in several.items()}
    sizes = tuple(len(value) for value in several.values())
    for start in range(0, total, BLOCK):
        places = np.unravel_index(np.arange(start, min(start + BLOCK, total)), sizes)
        chosen = {name: values[name][place] for name, place in zip(several, places, strict=True)}
        yield {**single, **chosen}


def search(task: str, found: list[tuple[Case, dict[str, Any]]], settings: Mapping[str, Any]) -> SearchReport:
    """Enumerate all open settings of all cases and report the best."""
    fewest = settings.get("devices") == ASK
    explored = []
    grids = [(case, *grid(case, numeric)) for case, numeric in found]
    tried = sum(total for *_, total in grids)
    if tried > MOST_POINTS:
        raise UserError(f"the question has {tried:,} settings; at most {MOST_POINTS:,}: give some of them a value")
    reasons: dict[str, int] = {}
    for case, single, several, total in grids:
        for points in blocks(single, several, total):
            explored.append(_explore(task, case, points, fewest, reasons))
    feasible = sum(f.feasible for f in explored)
    top = [(f, i) for f in explored for i in range(len(f.rank))]
    top.sort(key=lambda pair: pair[0].rank[pair[1]])  # stable: ties go to the earlier one
    del top[TOP:]
    varied = _varied(found)
    from .prediction import Prediction

    best = nearest = None
    if top:
        winner, index = top[0]
        best = Prediction(winner.case, _point(winner, index))
    else:
        misses = [f for f in explored if f.miss is not None]
        if misses:
            closest = min(misses, key=lambda f: f.miss[0] if f.miss else 0.0)
            assert closest.miss is not None
            nearest = Prediction(closest.case, closest.miss[1])
    rows = [_row(f, i, varied, fewest) for f, i in top]
    reasons = dict(sorted(reasons.items(), key=lambda pair: -pair[1]))
    return SearchReport(tried, feasible, reasons, _objective(task, fewest), best, rows, varied, nearest)


def _objective(task: str, fewest: bool) -> str:
    if fewest:
        return "fewest devices, then highest throughput"
    return "highest tokens/s per device" if task == "train" else "highest output tokens/s per device"


def _explore(task: str, case: Case, points: dict[str, Any], fewest: bool, reasons: dict[str, int]) -> _Found:
    """Evaluate one block of points; ``reasons`` counts why some of them are not feasible, the first reason of each."""
    import numpy as np

    from .answers import feasible_mask, serving_figures, training_figures

    total = max((len(v) for v in points.values() if isinstance(v, np.ndarray)), default=1)
    values = case.complete(points)
    open_, broken = feasible_mask(case, {n: v for n, v in values.items() if v is not None})
    for message, mask in broken.items():
        reasons[message] = reasons.get(message, 0) + int(np.broadcast_to(mask, (total,)).sum())
    chosen = np.flatnonzero(np.broadcast_to(open_, (total,)))
    if not len(chosen):
        return _Found(case, 0)
    kept = {n: v[chosen] if isinstance(v, np.ndarray) else v for n, v in points.items()}
    values = case.complete(kept)
    outputs = (
        ("step_time", "model_flops", "hardware_flops", "memory.peak")
        if task == "train"
        else ("tpot", "ttft", "output_tokens_per_s", "kv_capacity_tokens", "max_concurrency", "memory.peak")
    )
    with np.errstate(all="ignore"):
        out = case.program.evaluate(values, outputs)
        figures = training_figures(case, values, out) if task == "train" else serving_figures(case, values, out)
    figures["memory_peak_bytes"] = out["memory.peak"]
    figures["memory_headroom_bytes"] = case.machine.accelerator.memory - out["memory.peak"]
    shape = (len(chosen),)
    figures = {n: np.broadcast_to(np.asarray(v, dtype=float), shape) for n, v in figures.items()}
    fits = figures["memory_peak_bytes"] <= case.machine.accelerator.memory
    limits = [(NO_MEMORY, ~fits)]
    for figure, limit in (("tpot_s", "max_tpot"), ("ttft_s", "max_ttft")):
        if values.get(limit) is not None and figure in figures:
            limits.append((f"{figure[:-2]} above the limit", figures[figure] > values[limit]))
    fits = np.ones(shape, dtype=bool)
    for message, mask in limits:
        first = fits & mask
        if first.any():
            reasons[message] = reasons.get(message, 0) + int(first.sum())
            fits = fits & ~mask
    miss = None
    if not fits.any():
        least = int(np.argmin(figures["memory_peak_bytes"]))
        overflow = float(figures["memory_peak_bytes"][least]) / case.machine.accelerator.memory
        miss = (overflow, _plain_point(kept, least))
    places = np.flatnonzero(fits)
    throughput = figures["tokens_per_s_per_device" if task == "train" else "output_tokens_per_s_per_device"]
    # With the fewest devices asked for, one device fewer beats any throughput; among equals the faster wins.
    first_key = np.broadcast_to(np.asarray(values["devices"] if fewest else 0.0, dtype=float), shape)
    places = places[np.lexsort((-throughput[places], first_key[places]))[:TOP]]
    return _Found(
        case, int(fits.sum()),
        {n: v[places] if isinstance(v, np.ndarray) else v for n, v in kept.items()},
        tuple((float(first_key[i]), -float(throughput[i])) for i in places),
        {n: v[places] for n, v in figures.items()},
        miss,
    )  # fmt: skip


def _point(found: _Found, index: int) -> dict[str, Any]:
    """The settings of one of the best points as plain numbers."""
    return _plain_point(found.points, index)


def _plain_point(points: Mapping[str, Any], index: int) -> dict[str, Any]:
    """The settings of one point of a block as plain numbers."""
    import numpy as np

    point = {}
    for name, value in points.items():
        if isinstance(value, np.ndarray):
            number = float(value[index])
            value = int(number) if number == int(number) else number
        point[name] = value
    return point


def _varied(found: list[tuple[Case, dict[str, Any]]]) -> tuple[str, ...]:
    """Names of what differs among the points: open numeric settings, and choices, models and machines that vary."""
    names = dict.fromkeys(
        name for _, numeric in found for name, value in numeric.items() if isinstance(value, tuple) or value == ASK
    )
    if len({case.graph.name for case, _ in found}) > 1:
        names["model"] = None
    if len({case.machine.name for case, _ in found}) > 1:
        names["machine"] = None
    for name in found[0][0].structure:
        if len({repr(case.structure.get(name)) for case, _ in found}) > 1:
            names[name] = None
    return tuple(names)


def _row(found: _Found, index: int, varied: tuple[str, ...], fewest: bool) -> dict[str, Any]:
    point = _point(found, index)
    values = found.case.complete(point)
    row: dict[str, Any] = {}
    for name in (*varied, *(("devices",) if fewest and "devices" not in varied else ())):
        if name == "model":
            row[name] = found.case.graph.name
        elif name == "machine":
            row[name] = found.case.machine.name
        else:
            row[name] = found.case.structure[name] if name in found.case.structure else values[name]
    if "dp" in values and "dp" not in row:
        row["dp"] = values["dp"]
    row = {n: int(v) if isinstance(v, float) and v == int(v) else v for n, v in row.items()}
    row.update({name: float(array[index]) for name, array in found.figures.items()})
    return row
