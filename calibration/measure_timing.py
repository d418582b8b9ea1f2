"""How long one execution takes: clocks, and repetition until the median is known well enough.

Stands on the core; torch only as the object a caller hands over. Several cases are timed in rounds, one sample of each
a round, so that a machine that gets slower or busier for a while does so for all of them.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from attrs import define, field, frozen

MOST = 60
"""Samples of one case."""
LEAST = 3
"""Samples below which nothing is written."""
ENOUGH = 7
"""Samples from which on the error of the median is believed."""
ERROR = 0.01
"""Relative standard error of the median that is good enough."""
SAMPLE = 2e-3
"""One sample takes at least so long [s], or it is several executions."""
CALLS = 512
"""Executions of one sample at most."""


class Clock(ABC):
    """Times executions on a device; ``how``: in words, for the trace."""

    how: str

    @abstractmethod
    def sample(self, run: Callable[[int], object], first: int, calls: int) -> float:
        """Seconds of ``calls`` executions, numbered from ``first`` on, one after the other."""

    def ready(self) -> None:
        """Wait until the device has nothing left to do."""
        return None


class CpuClock(Clock):
    """The host's own clock, around work that the host does."""

    how = "perf_counter, median"

    def sample(self, run: Callable[[int], object], first: int, calls: int) -> float:
        start = time.perf_counter()
        for call in range(first, first + calls):
            run(call)
        return time.perf_counter() - start


class CudaClock(Clock):
    """CUDA events on the device. A short wait goes first, so that the host has queued all kernels before they start:
    what is measured is the device, not the host's time to launch."""

    how = "CUDA events, median"
    LAUNCH = 20e-6  # the host takes less for one call of PyTorch
    LONGEST = 20e-3

    def __init__(self, torch: Any, device: Any) -> None:
        self.torch, self.device = torch, device
        # _sleep counts cycles; where the rate isn't told (in kHz) a GPU's usual one does.
        self.cycles = getattr(torch.cuda.get_device_properties(device), "clock_rate", 1_500_000) * 1e3

    def sample(self, run: Callable[[int], object], first: int, calls: int) -> float:
        cuda = self.torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda._sleep(int(min(self.LAUNCH * calls, self.LONGEST) * self.cycles))
        start.record()
        for call in range(first, first + calls):
            run(call)
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def ready(self) -> None:
        self.torch.cuda.synchronize(self.device)


@frozen
class Timed:
    """``seconds``: the median [s] of ``samples`` samples; ``spread`` [s]: their standard deviation, from the median
    absolute deviation; ``calls``: executions of one sample, which is their mean."""

    seconds: float
    spread: float
    samples: int
    calls: int


def summary(samples: Sequence[float], calls: int) -> Timed:
    """The median of samples and their spread, 1.4826 × the median absolute deviation, which outliers do not move.

    >>> summary([1.0, 2.0, 2.0, 3.0, 90.0], 1)
    Timed(seconds=2.0, spread=1.4826, samples=5, calls=1)
    """
    middle = median(samples)
    return Timed(middle, 1.4826 * median(abs(value - middle) for value in samples), len(samples), calls)


def settled(timed: Timed) -> bool:
    """Whether the median's standard error, √(π/2)·spread/√n for a normal law, is small enough.

    >>> settled(Timed(1.0, 0.02, 9, 1)), settled(Timed(1.0, 0.2, 9, 1)), settled(Timed(1.0, 0.0, 2, 1))
    (True, False, False)
    """
    error = math.sqrt(math.pi / 2) * timed.spread / math.sqrt(timed.samples)
    return timed.samples >= ENOUGH and error <= ERROR * timed.seconds


@define(eq=False)
class Running:
    """One case while it is measured."""

    run: Callable[[int], object]
    calls: int = 1
    next: int = 0
    spent: float = 0.0
    samples: list[float] = field(factory=list)

    def take(self, clock: Clock) -> None:
        """One more sample."""
        seconds = clock.sample(self.run, self.next, self.calls)
        self.next += self.calls
        self.spent += seconds
        self.samples.append(seconds / self.calls)

    @property
    def timed(self) -> Timed:
        """What is known so far."""
        return summary(self.samples, self.calls)

    def finished(self, allowed: float) -> bool:
        """Whether another sample would be a waste."""
        count = len(self.samples)
        return count >= LEAST and (self.spent >= allowed or count >= MOST or settled(self.timed))


def warm_up(run: Callable[[int], object], clock: Clock, allowed: float) -> Running:
    """Execute until caches, allocators and kernel choices have settled, and find how many calls make a sample."""
    clock.sample(run, 0, 1)  # the first one compiles, loads and allocates
    spent, calls, done = 0.0, 1, 1
    while True:
        seconds = max(clock.sample(run, done, calls), 1e-9)
        spent, done = spent + seconds, done + calls
        if seconds >= SAMPLE or calls >= CALLS or spent >= allowed / 4:
            break
        calls = min(CALLS, max(2 * calls, math.ceil(1.2 * SAMPLE * calls / seconds)))
    clock.ready()
    return Running(run, min(CALLS, max(1, math.ceil(SAMPLE * calls / seconds))), done)


def rounds(running: Sequence[Running], clock: Clock, allowed: float, deadline: float) -> None:
    """Samples of all, one each a round, until each is known well enough or has had ``allowed`` seconds.

    Stops at ``deadline`` (of ``time.monotonic``) between two samples.
    """
    open_ = list(running)
    while open_:
        for one in open_:
            if time.monotonic() >= deadline:
                return
            one.take(clock)
        open_ = [one for one in open_ if not one.finished(allowed)]
