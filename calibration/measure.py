"""Measuring here: a bounded set of microbenchmarks through PyTorch on the machine at hand, as rows of a trace.

Stands on the core and the readers; torch only inside functions. ``measure_design`` says what is measured,
``measure_kernels`` what one execution is, ``measure_timing`` how long it takes; here it is put in order, written as it
comes and resumed.
"""

from __future__ import annotations

import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen

from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import TraceRow
from slipstick.core.model.work import COLLECTIVES

from .measure_collectives import measure_collectives
from .measure_design import CUDA_ONLY, Case, Limits, check, kinds_for, plan
from .measure_kernels import Bench, Place, bench, optimizer_variants
from .measure_timing import LEAST, Clock, CpuClock, CudaClock, Running, Timed, rounds, warm_up
from .readers.plain import append_rows, read_done

if TYPE_CHECKING:
    from types import ModuleType

BATCH = 12
"""Cases that are timed in turn."""
SLOWEST = 2.0
"""The longest one execution may take [s], however large the budget."""


@frozen
class Progress:
    """``done`` of ``planned`` cases are measured (``kept``: of them in the file before); ``now``: what comes next."""

    done: int
    planned: int
    kept: int
    now: str = ""


@frozen
class Report:
    """What a run did: cases ``planned``, ``measured`` now and ``kept`` from before; ``skipped``: case → why not.

    ``stopped``: complete, budget or interrupted; ``seconds`` [s] that it took; ``warnings`` for a person.
    """

    output: Path
    device: str
    planned: int
    measured: int
    kept: int
    skipped: tuple[tuple[str, str], ...]
    stopped: str
    seconds: float
    warnings: tuple[str, ...] = ()


@frozen(eq=False)
class Setup:
    """The device and how it is used: what ``prepare`` finds out."""

    torch: Any
    place: Place
    clock: Clock
    name: str
    limits: Limits
    devices: int
    facts: dict[str, str] = field(factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether it is a CUDA device."""
        return self.place.cuda


def measure(
    output: Path,
    *,
    kinds: Sequence[str] | None = None,
    budget_s: float = 120.0,
    device: str | None = None,
    device_name: str | None = None,
    formats: Sequence[str] | None = None,
    threads: int | None = None,
    seed: int = 0,
    progress: Callable[[Progress], None] = lambda progress: None,
) -> Report:
    """Measure kernels of ``kinds`` (default: all that make sense) for ``budget_s`` seconds and append to ``output``.

    ``device``: cuda, cuda:1 or cpu; default: cuda where there is one. ``device_name``: how rows call it. ``formats``:
    number formats; default: bf16 and what the device multiplies faster, on a CPU fp32. ``threads`` of a CPU.
    Rows that the file has already are not measured again. An interrupt (Ctrl-C) leaves a valid file and a report.

    Errors: UserError where torch is missing, for an unknown kind, format or device, and for an output that is no trace
    of this program or holds rows of the same device with another number of threads.
    """
    if not math.isfinite(budget_s) or budget_s <= 0:
        raise UserError(f"a budget of {budget_s:g} s is no time; write seconds above 0")
    check(kinds or (), formats or ())
    setup = prepare(device, device_name, budget_s, threads, seed)
    start = time.monotonic()
    cases = planned(setup, kinds, formats, seed)
    done = _done(output, setup)
    todo = [case for case in cases if _key(case, setup.name) not in done]
    run = _Run(setup, output, len(cases), len(cases) - len(todo), start + budget_s, progress)
    # An even share for each; a fifth goes to making tensors and warming up.
    run.allowed = min(max(0.8 * budget_s / max(len(todo), 1), 0.02), 4 * SLOWEST)
    stopped = "complete"
    try:
        with setup.torch.no_grad():
            finished = run.all(todo)
        stopped = "complete" if finished else "budget"
    except KeyboardInterrupt:
        stopped = "interrupted"
    return Report(
        output, setup.name, len(cases), run.measured, run.kept, tuple(run.skipped), stopped,
        time.monotonic() - start, _warnings(setup),
    )  # fmt: skip


def prepare(
    device: str | None, device_name: str | None, budget_s: float, threads: int | None = None, seed: int = 0
) -> Setup:
    """Find the device, its caches and memory, and by a probe of half a second what it is up to."""
    torch = load_torch()
    if threads is not None:
        if threads < 1:
            raise UserError(f"--threads {threads}: at least one thread is needed")
        torch.set_num_threads(threads)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        where = torch.device(chosen)
    except RuntimeError:
        raise UserError(f"unknown device {chosen!r}; write cpu, cuda or cuda:1") from None
    if where.type not in ("cpu", "cuda"):
        raise UserError(f"device {chosen!r} can't be measured; write cpu, cuda or cuda:1")
    facts = {"engine": "pytorch", "engine_version": torch.__version__}
    if where.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (where.index or 0) >= count:
            raise UserError(f"device {chosen!r} is not there; PyTorch sees {count} CUDA devices")
        torch.cuda.set_device(where)
        properties = torch.cuda.get_device_properties(where)
        free, _ = torch.cuda.mem_get_info(where)
        place = Place(torch, where, float(getattr(properties, "L2_cache_size", 0) or 64e6), 0.25 * free, seed)
        clock: Clock = CudaClock(torch, where)
        name, devices = device_name or torch.cuda.get_device_name(where), count
        facts["cuda"] = str(torch.version.cuda or torch.version.hip)
    else:
        place = Place(torch, where, _cache(), 0.15 * _free_memory(), seed)
        clock, name, devices = CpuClock(), device_name or cpu_name(), 1
        facts["threads"] = str(torch.get_num_threads())
    with torch.no_grad():
        flops, bandwidth = _probe(place, clock)
    limits = Limits(flops, bandwidth, min(SLOWEST, budget_s / 600), place.memory)
    return Setup(torch, place, clock, name, limits, devices, facts)


def planned(setup: Setup, kinds: Sequence[str] | None, formats: Sequence[str] | None, seed: int = 0) -> list[Case]:
    """The cases for a device, in their order. Errors: UserError for unknown or impossible kinds and formats."""
    chosen = kinds_for(setup.cuda, setup.devices, kinds)
    for kind in chosen:
        if kind in CUDA_ONLY and not setup.cuda:
            raise UserError(f"--kind {kind}: only a CUDA device has memory of its own")
        if kind in COLLECTIVES and setup.cuda and setup.devices < 2:
            raise UserError(f"--kind {kind}: one CUDA device alone can't communicate")
    sizes = [2**power for power in range(1, setup.devices.bit_length())] if setup.cuda else [2]
    cases: list[Case] = []
    for case in plan(chosen, tuple(formats or default_formats(setup)), setup.limits, seed, sizes):
        if case.kernel == "optimizer":
            cases += [evolve(case, variant=variant) for variant in optimizer_variants(setup.cuda)]
        else:
            cases.append(case)
    if not cases:
        raise UserError("nothing to measure: none of these kinds has any of these formats")
    return cases


def default_formats(setup: Setup) -> tuple[str, ...]:
    """bf16 on a GPU, fp8 too where it multiplies it; fp32 on a CPU, bf16 too where it multiplies that."""
    torch = setup.torch
    if setup.cuda:
        return ("bf16", "fp8") if torch.cuda.get_device_capability(setup.place.device) >= (8, 9) else ("bf16",)
    matrix_units = getattr(torch.cpu, "_is_amx_tile_supported", lambda: False)()
    return ("fp32", "bf16") if matrix_units else ("fp32",)


def load_torch() -> ModuleType:
    """The torch package. Errors: UserError that names the extra where it is missing."""
    try:
        import torch
    except ImportError:
        raise UserError("measuring needs PyTorch: pip install 'slipstick[torch]'") from None
    return torch


class _Run:
    """One run: what was measured, and what could not be."""

    def __init__(
        self, setup: Setup, output: Path, planned: int, kept: int, deadline: float, progress: Callable[[Progress], None]
    ) -> None:
        self.setup, self.output, self.planned, self.kept = setup, output, planned, kept
        self.deadline, self.progress = deadline, progress
        self.measured = 0
        self.skipped: list[tuple[str, str]] = []
        self.allowed = 1.0

    def all(self, todo: Sequence[Case]) -> bool:
        """Measure the cases in their order; whether all of them could be before the deadline."""
        apart = [case for case in todo if case.kernel in COLLECTIVES]
        deadline = self.deadline
        if apart:  # processes of their own, at the end, for the share of the time that is theirs
            self.deadline -= (deadline - time.monotonic()) * len(apart) / len(todo)
        queue = [case for case in todo if case.kernel not in COLLECTIVES]
        finished = True
        while queue and time.monotonic() < self.deadline:
            handled, complete = self.batch(queue[:BATCH])
            finished &= complete
            queue = queue[handled:]
        self.deadline = deadline
        return self.collectives(apart) and finished and not queue

    def batch(self, cases: Sequence[Case]) -> tuple[int, bool]:
        """Measure several cases in turn and write those that got enough samples, after an interrupt too.

        How many were begun, and whether all of them are written or can't be.
        """
        held: list[tuple[Case, Bench, Running]] = []
        ready: list[tuple[Case, Bench, Timed]] = []
        begun = 0
        half = (time.monotonic() + self.deadline) / 2  # what is left is for samples
        try:
            for case in cases:
                if begun and time.monotonic() >= half:
                    break
                self.tell(case.text)
                begun += 1
                self.start(case, held)
            rounds([running for *_, running in held], self.setup.clock, self.allowed, self.deadline)
        finally:
            ready = [(case, made, running.timed) for case, made, running in held if len(running.samples) >= LEAST]
            self.write([self.row(case, made, timed) for case, made, timed in ready])
        complete = len(ready) == len(held)
        held.clear()
        if self.setup.cuda:
            self.setup.torch.cuda.empty_cache()
        return begun, complete

    def start(self, case: Case, held: list[tuple[Case, Bench, Running]]) -> None:
        """Tensors and warm-up; a case that the device refuses is named and left out."""
        try:
            made = bench(case, self.setup.place)
            held.append((case, made, warm_up(made.run, self.setup.clock, self.allowed)))
        except (RuntimeError, NotImplementedError, MemoryError, ValueError, TypeError, AttributeError) as error:
            self.skipped.append((case.text, _first_line(error)))

    def collectives(self, cases: Sequence[Case]) -> bool:
        """Measure collectives, those of one group size in one set of processes."""
        complete = True
        for ranks in dict.fromkeys(case.ranks for case in cases):
            group = [case for case in cases if case.ranks == ranks]
            share = (self.deadline - time.monotonic()) * len(group) / len(cases)
            if share <= 0:
                return False
            self.tell(f"collectives of {ranks} ranks")
            found, problems = measure_collectives(group, self.setup.cuda, share, self.allowed)
            library = "NCCL" if self.setup.cuda else "Gloo"
            made = Bench(lambda call: None, library)
            self.write([self.row(case, made, timed) for case, timed in found])
            self.skipped += [(case.text, why) for case, why in problems]
            complete &= len(found) + len(problems) == len(group)
        return complete

    def row(self, case: Case, made: Bench, timed: Timed) -> TraceRow:
        """The row of a measured case."""
        facts = {**self.setup.facts, **made.facts, "calls": str(timed.calls)}
        if case.variant:
            facts["variant"] = case.variant
        return TraceRow(
            case.kernel, dict(case.shape), case.format, self.setup.name, timed.seconds / made.repeats,
            self.setup.clock.how, ranks=case.ranks, source=made.source, samples=timed.samples,
            spread=timed.spread / made.repeats, facts=facts,
        )  # fmt: skip

    def write(self, rows: list[TraceRow]) -> None:
        """Append rows, whole or not at all."""
        if rows:
            append_rows(self.output, rows)
            self.measured += len(rows)
            self.tell("")

    def tell(self, now: str) -> None:
        """Report progress."""
        self.progress(Progress(self.kept + self.measured, self.planned, self.kept, now))


def _done(output: Path, setup: Setup) -> set[tuple[object, ...]]:
    """What the file has of this device. Errors: UserError where it was measured with another number of threads."""
    if not output.exists():
        return set()
    rows: Iterable[TraceRow] = [row for row in read_done(output) if row.device == setup.name]
    threads = setup.facts.get("threads")
    for row in rows:
        other = row.facts.get("threads")
        if threads and other and other != threads:
            raise UserError(
                f"{output} has rows of {setup.name} measured with {other} threads, now there are {threads}: "
                "use another --output or --device-name"
            )
    return {
        _key(Case(row.kernel, row.shape, row.format, row.facts.get("variant", ""), row.ranks), row.device)
        for row in rows
    }


def _key(case: Case, device: str) -> tuple[object, ...]:
    # A shape that is 0 may be an empty cell of the file.
    shape = tuple(sorted((name, float(value)) for name, value in case.shape.items() if value))
    return (case.kernel, case.format, case.variant, case.ranks, device, shape)


def _probe(place: Place, clock: Clock) -> tuple[float, float]:
    """FLOP/s of a product and B/s of a copy, to a power of two, so that the plan is the same the next time."""
    size = 8192 if place.cuda else 768
    number_format, length = ("bf16", 2**30) if place.cuda else ("fp32", 2**27)
    moved = min(length, place.memory / 2)
    product = bench(Case("gemm", {"m": size, "n": size, "k": size}, number_format, "forward"), place)
    copy = bench(Case("memory_copy", {"bytes": moved}, ""), place)
    flops, bandwidth = 2 * size**3 / min(_samples(product, clock)), moved / min(_samples(copy, clock))
    return 2.0 ** round(math.log2(flops)), 2.0 ** round(math.log2(bandwidth))


def _samples(made: Bench, clock: Clock) -> list[float]:
    clock.sample(made.run, 0, 2)
    return [clock.sample(made.run, call, 1) for call in range(4)]


def cpu_name() -> str:
    """What the processor calls itself, as a name: cpu-amd-epyc-7763-64-core-processor."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            model = next((line.partition(":")[2] for line in lines if line.startswith("model name")), model)
    except OSError:
        pass
    return "cpu-" + (re.sub(r"[^a-z0-9]+", "-", re.sub(r"\((r|tm)\)", "", model.casefold())).strip("-") or "unknown")


def _cache() -> float:
    """Bytes of the last-level cache; 32 MiB where the system does not say."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text(encoding="ascii").strip()
        if re.fullmatch(r"\d+[KMG]?", text):
            sizes.append(int(text.rstrip("KMG")) * units.get(text[-1], 1))
    return float(max(sizes, default=2**25))


def _free_memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"))
    except (ValueError, OSError, AttributeError):
        return 4e9


def _warnings(setup: Setup) -> tuple[str, ...]:
    """What may have spoilt the times."""
    if setup.cuda or not hasattr(os, "getloadavg"):
        return ()
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    own = setup.torch.get_num_threads()
    if load > own + 0.5 * cores:
        return (f"the machine was busy with other work (load {load:.1f} on {cores} cores): times are too long",)
    return ()


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:160]
