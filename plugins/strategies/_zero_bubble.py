"""Pipeline schedules that make the gradients of weights in passes of their own, which fill what would be idle.

Each states the order of its passes; its bubble is what playing that order takes on even stages whose transfers are
hidden (tests/core/study/test_timeline.py holds it to that, for whatever the three passes take). With F, B and W the
seconds of a device's forward passes, gradients of activations and of weights, all of a micro-batch:

    zb-h1        (p - 1) (F + B - min(F, B, W))          the papers' (p - 1)(F + B - W) where W is the shortest
    dualpipe     (p/2 - 1) (F + B' + B - 3 W) of the papers, with B' = B + W, where all three take the same
    zb-v         nothing but the stagger (p - 1) F/2, where all three take the same

Source: Qi et al., Zero Bubble Pipeline Parallelism, arXiv:2401.10241, section 2.3 and table 3 (H1) and section 6 (V);
DeepSeek-V3, arXiv:2412.19437, section 3.2.1 and table 2 (DualPipe); the folded form of the latter, of one copy of the
model, is Sea AI Lab's and DeepSeek's DualPipeV (github.com/deepseek-ai/DualPipe).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from slipstick.core.algebra.formula import Formula
from slipstick.core.algebra.functions import functions
from slipstick.core.model.interfaces.strategy import Pass, Place, Schedule

if TYPE_CHECKING:
    from sympy import Expr

HALVES = {"forward": "s", "input": "s", "weight": "s", "stages": "1"}


class ZeroBubble(Schedule):
    """Base: what the schedules with weight gradients apart have in common."""

    dimension = "pp"

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        return functions().fmin(micro_batches, stages)

    def idle(self, stages: Expr, micro_batches: Expr) -> Expr:
        """Where forward passes and both halves of the backward passes take the same."""
        import sympy

        assert self.bubble is not None
        third = sympy.Rational(1, 3)
        waits = self.bubble.bind(forward=third, input=third, weight=third, stages=sympy.sympify(stages)).expr
        return waits / micro_batches


class H1(ZeroBubble):
    """ZB-H1: as 1F1B; stage i makes weight gradients i micro-batches late, so that no stage holds more than the first.

    Valid when: there are at least as many micro-batches as stages.
    """

    name = "zb-h1"
    bubble = Formula(
        "bubble of ZB-H1", HALVES, (),
        lambda n: (n.stages - 1) * (n.forward + n.input - n.fmin(n.forward, n.input, n.weight)),
        "s", "qi2024", "even stages, transfers hidden, at least as many micro-batches as stages",
    )  # fmt: skip

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        warm = min(stages - stage - 1, micro_batches)
        made = [Pass("forward", m) for m in range(warm)]
        for m in range(micro_batches):
            if m + warm < micro_batches:
                made.append(Pass("forward", m + warm))
            made.append(Pass("input", m))
            if m >= stage:
                made.append(Pass("weight", m - stage))
        return (*made, *(Pass("weight", m) for m in range(max(micro_batches - stage, 0), micro_batches)))


def _bubble_v(n: Any) -> Any:
    """The longest chain of passes of ZB-V, beyond a device's own work; f, b, w of one of its two parts."""
    f, b, w, p = n.forward / 2, n.input / 2, n.weight / 2, n.stages
    chains = (
        (2 * p - 3) * f - (p - 2) * b, (p - 1) * b, b + (p - 2) * w, f + (p - 2) * w, 2 * (p - 1) * (b - w),
        2 * (p - 1) * f - (p - 1) * b - w, (2 * p - 3) * f + b - 2 * (p - 1) * w, 2 * (p - 1) * f - (2 * p - 1) * w,
    )  # fmt: skip
    return n.where(p - 1, n.fmax(*chains), 0 * f)


class _Folded(ZeroBubble):
    """Two parts a device: a micro-batch goes down through the devices and returns."""

    chunks = 2
    returns = True

    def path(self, micro_batch: int, stages: int) -> tuple[Place, ...]:
        return (*((device, 0) for device in range(stages)), *((device, 1) for device in reversed(range(stages))))


class V(_Folded):
    """ZB-V: a device holds two parts, the model goes down and returns; as much in flight as 1F1B's first stage.

    Valid when: there are at least 2p - 1 micro-batches on p stages.
    """

    name = "zb-v"
    bubble = Formula(
        "bubble of ZB-V", HALVES, (), _bubble_v, "s", "qi2024",
        "even stages, transfers hidden, at least 2p - 1 micro-batches on p stages",
    )  # fmt: skip

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        made = _Made()
        for _ in range(2 * (stages - stage) - 1):
            made.forward(0)
        for _ in range(stage):
            made.forward(1)
            made.forward(0)
        for _ in range(stages - stage):
            made.forward(1)
            made.apart(1)
        total = max(2 * stages - 1, micro_batches)
        while made.forwards[1] < made.forwards[0] or made.forwards[0] < total:
            if made.forwards[0] < total:
                made.forward(0)
            made.apart(0)
            made.forward(1)
            made.apart(1)
        for _ in range(stage):
            made.inputs(0)
            made.inputs(1)
        for _ in range(stages - stage):
            made.inputs(0)
            made.weights(0)
        for chunk in (1, 0):
            while made.owed(chunk):
                made.weights(chunk)
        return tuple(one for one in made.passes if one.micro_batch < micro_batches)


class _Made:
    """Passes on the two parts of a device, each kind counting its micro-batches."""

    def __init__(self) -> None:
        self.passes: list[Pass] = []
        self.forwards, self.backwards, self.finished = [0, 0], [0, 0], [0, 0]
        self.late: list[Pass] = []

    def _next(self, counted: list[int], chunk: int) -> int:
        counted[chunk] += 1
        return counted[chunk] - 1

    def forward(self, chunk: int) -> None:
        self.passes.append(Pass("forward", self._next(self.forwards, chunk), chunk))

    def inputs(self, chunk: int) -> None:
        self.passes.append(Pass("input", self._next(self.backwards, chunk), chunk))

    def weights(self, chunk: int) -> None:
        self.passes.append(Pass("weight", self._next(self.finished, chunk), chunk))

    def apart(self, chunk: int) -> None:
        """Both halves of a backward pass, one after the other."""
        self.inputs(chunk)
        self.weights(chunk)

    def owed(self, chunk: int) -> bool:
        """Whether weight gradients of a part are still to be made."""
        return self.finished[chunk] < self.backwards[chunk]

    # DualPipe keeps one queue of weight gradients that are to be made, whatever their part.

    def whole(self, chunk: int) -> None:
        self.passes.append(Pass("backward", self._next(self.backwards, chunk), chunk))

    def early(self, chunk: int) -> None:
        """The first half of a backward pass, the other one left for later."""
        self.inputs(chunk)
        self.late.append(Pass("weight", self.backwards[chunk] - 1, chunk))

    def settle(self) -> None:
        self.passes.append(self.late.pop(0))

    def both(self, ahead: int, back: int) -> None:
        """A forward pass beside a backward pass of another micro-batch."""
        beside = Pass("backward", self._next(self.backwards, back), back)
        self.passes.append(Pass("forward", self._next(self.forwards, ahead), ahead, beside))


def two_ways(place: int, half: int, chain: int, micro_batches: int) -> list[Pass]:
    """DualPipe's eight steps on the device ``place`` of ``half``, in a chain of so many stages.

    Part 0 is the one nearer to its end of the chain. Source: DeepSeek-V3, arXiv:2412.19437, figure 5.
    """
    made = _Made()
    outer = half - place - 1
    for _ in range(2 * outer):
        made.forward(0)
    for _ in range(place + 1):
        made.forward(0)
        made.forward(1)
    for _ in range(outer):
        made.early(1)
        made.settle()
        made.forward(1)
    for i in range(micro_batches - chain + place + 1):
        if i == 0 and outer == 0:  # the middle of the chain waits less if it does not join these two
            made.forward(0)
            made.whole(1)
        else:
            made.both(0, 1)
        made.both(1, 0)
    for _ in range(outer):
        made.whole(1)
        made.both(1, 0)
    for i in range(2 * (place + 1)):  # in the second half of these, weight gradients are put off
        put_off = i >= 2 * ((place + 1) // 2) + 1 - place % 2
        (made.early if put_off else made.whole)(1 - i % 2)
    for _ in range(outer):
        made.settle()
        made.early(0)
    while made.late:
        made.settle()
    return made.passes


def _bubble_two_ways(n: Any, part: int, half: Any) -> Any:
    f, b, w = n.forward / part, n.input / part, n.weight / part
    waits = (half - 2) * f + n.fmax(half * f, (half - 1) * b) + (half - 1) * n.fmax(0 * b, b - w)
    return n.where(n.stages - 1, waits, 0 * f)


class DualPipe(ZeroBubble):
    """DualPipe: micro-batches enter at both ends; a device holds two opposite stages, so every weight stands twice.

    Valid when: stages are even in number, micro-batches too and at least twice as many as stages.
    """

    name = "dualpipe"
    opposite = True
    bubble = Formula(
        "bubble of DualPipe", HALVES, (), lambda n: _bubble_two_ways(n, 1, n.stages / 2), "s", "deepseek2024v3",
        "even stages in even number, transfers hidden, at least two micro-batches a stage",
    )  # fmt: skip

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        f = functions()
        return f.where(stages - 1, f.fmin(micro_batches, stages + 1), 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        if stages == 1:
            return tuple(Pass(way, m, m % 2) for m in range(micro_batches) for way in ("forward", "backward"))
        far = stage >= stages // 2
        place = min(stage, stages - 1 - stage)

        def own(one: Pass | None) -> Pass | None:
            """Micro-batches of the two directions are counted in turn."""
            if one is None:
                return None
            chunk = 1 - one.chunk if far else one.chunk
            return Pass(one.direction, 2 * one.micro_batch + chunk, chunk, own(one.beside))

        made = two_ways(place, stages // 2, stages, micro_batches // 2)
        return tuple(found for one in made if (found := own(one)) is not None)

    def path(self, micro_batch: int, stages: int) -> tuple[Place, ...]:
        if micro_batch % 2:
            return tuple((device, 1) for device in reversed(range(stages)))
        return tuple((device, 0) for device in range(stages))


class DualPipeV(_Folded):
    """DualPipe folded in the middle: one copy of the model, two parts a device, as ZB-V has them.

    Valid when: there are at least two micro-batches a stage.
    """

    name = "dualpipe-v"
    bubble = Formula(
        "bubble of DualPipeV", HALVES, (), lambda n: _bubble_two_ways(n, 2, n.stages), "s", "deepseek2024v3",
        "even stages, transfers hidden, at least two micro-batches a stage",
    )  # fmt: skip

    def in_flight(self, stage: Expr, stages: Expr, micro_batches: Expr) -> Expr:
        f = functions()
        return f.where(stages - 1, f.fmin(micro_batches, (2 * stages + 1) / 2), 1)

    def order(self, stage: int, stages: int, micro_batches: int) -> tuple[Pass, ...]:
        if stages == 1:
            forward = [Pass("forward", m, part) for m in range(micro_batches) for part in (0, 1)]
            backward = [Pass("backward", m, part) for m in range(micro_batches) for part in (1, 0)]
            return tuple(one for i in range(0, len(forward), 2) for one in (*forward[i : i + 2], *backward[i : i + 2]))
        return tuple(two_ways(stage, stages, 2 * stages, micro_batches))


SPLIT: dict[str, Schedule] = {s.name: s for s in (H1(), V(), DualPipe(), DualPipeV())}
"""The schedules by the name that asks for them."""
