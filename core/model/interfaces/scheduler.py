"""What a serving scheduler is: which requests a step works on, one step at a time and in the steady state.

A minimal plugin, which serves one request after the other::

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.scheduler import Batch, Part, Scheduler, Steady, StepKind

    class OneAtATime(Scheduler):
        name = "one-at-a-time"

        def batch(self, state, options):
            request = (state.running or state.waiting)[0]
            if request.name in state.busy:
                return Batch({})
            return Batch({request.name: 1 if request.produced else request.input_tokens})

        def steady(self, load, options):
            prompt, more = load.input_tokens, load.output_tokens - 1
            return Steady(
                running=1,
                kinds=(
                    StepKind("prefill", (Part("prefill", sequences=1, query=prompt, context=prompt),)),
                    StepKind("decode", (Part("decode", 1, query=1, context=prompt + (more + 1) / 2, emitted=1),)),
                ),
                first={"prefill": load.concurrency, "decode": (load.concurrency - 1) * more},
                between={"decode": 1},
            )

    @hookimpl
    def slipstick_schedulers():
        return [OneAtATime()]

A scheduler knows nothing of time. It counts: which kinds of step there are, what is in them, and how many of each pass
before a request's first token and between two of its tokens. The kernels price a step; times and rates follow.
``batch`` is the decision itself, which a simulation asks step by step; ``steady`` is its closed form, which that
simulation checks.

Floor: model. Pure data and abstract classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from ...errors import PluginError, shown
from .strategy import Option

if TYPE_CHECKING:
    from typing import TypeAlias

    from sympy import Expr

    Amount: TypeAlias = "Expr | float"


# --- the decision, on numbers -------------------------------------------------------------------------------------


@frozen
class Request:
    """A request as a scheduler sees it, all counts in tokens.

    ``input_tokens``: of its prompt; ``computed``: of prompt and output whose keys and values are in the cache;
    ``produced``: output tokens so far. How many it will produce is not known to a scheduler.
    """

    name: str
    input_tokens: int
    computed: int = 0
    produced: int = 0


@frozen
class State:
    """What a scheduler may look at before a step. Requests stand in the order of their arrival.

    ``waiting``: not admitted, or thrown out again; ``running``: in the cache; ``capacity`` and ``free`` [tokens] of
    the cache, of one replica; ``stages`` [1]: pipeline stages, each of which works on a batch of its own, and
    ``busy``: the requests that other stages work on, which no new batch may have.
    """

    waiting: tuple[Request, ...]
    running: tuple[Request, ...]
    capacity: int
    free: int
    stages: int = 1
    busy: frozenset[str] = frozenset()


@frozen
class Batch:
    """What the next step works on: ``tokens``: request → tokens computed now (1 in decoding, a chunk of a prompt).

    A waiting request that is named is admitted. ``preempted``: running requests thrown out, whose keys and values are
    lost and computed again (``swapped`` False) or moved to the host and back (True).
    """

    tokens: Mapping[str, int]
    preempted: tuple[str, ...] = ()
    swapped: bool = False

    def __attrs_post_init__(self) -> None:
        for name, count in self.tokens.items():
            if count < 1:
                raise PluginError(f"a batch has {count} tokens of request {shown(name)}; leave it out, or give it 1")
            if name in self.preempted:
                raise PluginError(f"a batch both computes and preempts request {shown(name)}")


# --- the steady state, in symbols ---------------------------------------------------------------------------------


@frozen
class Load:
    """What comes in at one replica: a closed loop, in which each request that leaves makes room for the next.

    ``concurrency`` [requests]: sent and not finished, waiting ones included; ``input_tokens`` and ``output_tokens``
    [tokens]: of one request, mean; ``capacity`` [tokens]: what the cache holds; ``stages`` [1]: pipeline stages.
    An open loop with a given rate is the closed loop in which requests leave as fast as they come.
    """

    concurrency: Amount
    input_tokens: Amount
    output_tokens: Amount
    capacity: Amount
    stages: Amount = 1


@frozen
class Part:
    """The part of a step that is in one ``phase`` (prefill, decode, verify, encode, a model of an ensemble).

    ``sequences`` [1]: how many sequences; ``query`` [tokens]: computed now, each; ``context`` [tokens]: attended to by
    a sequence's last token, itself included, mean; ``emitted`` [tokens]: output tokens that each sequence gains
    beyond its first, which is the prefill's.
    """

    phase: str
    sequences: Amount
    query: Amount
    context: Amount
    emitted: Amount = 0


@frozen
class StepKind:
    """A kind of step: its ``name`` and its parts. A step of several parts is a mixed one."""

    name: str
    parts: tuple[Part, ...]

    def __attrs_post_init__(self) -> None:
        if not self.parts:
            raise PluginError(f"step kind {shown(self.name)} has no part; a step does something")


@frozen
class Steady:
    """The steady state, in counts of steps.

    ``running`` [requests]: admitted at once, mean; ``kinds``: the kinds of step; ``first``: kind → steps [1] of it
    between the arrival of a request and its first token, both its wait and its prefill; ``between``: kind → steps [1]
    from one of its tokens to the next; ``preemptions`` [1]: times that a request is thrown out (what is computed
    again stands in ``first`` and ``between``).

    The methods take ``times``: kind → seconds of one such step [s], numbers or expressions.

    >>> decode = StepKind("decode", (Part("decode", 8, query=1, context=1024, emitted=1),))
    >>> prefill = StepKind("prefill", (Part("prefill", 1, query=1000, context=1000),))
    >>> steady = Steady(8, (prefill, decode), first={"prefill": 1}, between={"decode": 1, "prefill": 0.5})
    >>> times = {"prefill": 0.04, "decode": 0.01}
    >>> steady.time_to_first_token(times), steady.time_per_output_token(times)
    (0.04, 0.03)
    """

    running: Amount
    kinds: tuple[StepKind, ...]
    first: Mapping[str, Amount]
    between: Mapping[str, Amount]
    preemptions: Amount = 0

    def __attrs_post_init__(self) -> None:
        names = [kind.name for kind in self.kinds]
        for name in names:
            if names.count(name) > 1:
                raise PluginError(f"two kinds of step are called {shown(name)}")
        for name in (*self.first, *self.between):
            if name not in names:
                raise PluginError(f"steps of kind {shown(name)} are counted; the kinds are {', '.join(names)}")

    def time_to_first_token(self, times: Mapping[str, Amount]) -> Amount:
        """From the arrival of a request to its first token [s], mean."""
        return _total(self.first, times)

    def time_per_output_token(self, times: Mapping[str, Amount]) -> Amount:
        """From one token of a request to the next [s], mean."""
        return _total(self.between, times)

    def steps_per_request(self, load: Load) -> dict[str, Amount]:
        """Kind → steps [1] of it for each request that finishes.

        Source: Little's law (Operations Research 9(3), 1961): of the steps that pass while a request is in the
        system, a fraction 1/concurrency is its own.
        Valid when: the system works without a pause, as it does in a closed loop. Conservation then asks that these
        steps compute the prompt's tokens, and emit the further output tokens, of one request.
        """
        more = load.output_tokens - 1
        return {
            kind.name: (self.first.get(kind.name, 0) + more * self.between.get(kind.name, 0)) / load.concurrency
            for kind in self.kinds
        }

    def request_rate(self, load: Load, times: Mapping[str, Amount]) -> Amount:
        """Requests that finish in a second [1/s]."""
        return 1 / _total(self.steps_per_request(load), times)


def _total(steps: Mapping[str, Amount], times: Mapping[str, Amount]) -> Amount:
    total: Amount = sum(count * times[kind] for kind, count in steps.items())
    return total


class Scheduler(ABC):
    """A policy of admission, batching, chunking and preemption; apart from any stack's coefficients."""

    name: ClassVar[str]
    options: ClassVar[tuple[Option, ...]] = ()

    @abstractmethod
    def batch(self, state: State, options: Mapping[str, Any]) -> Batch:
        """What the next step works on; asked only while a request waits or runs and is not ``busy``.

        All token counts are of one replica. An empty batch means that the next step has to wait for another stage.
        Errors: UserError for option values that are no choice together.
        """

    @abstractmethod
    def steady(self, load: Load, options: Mapping[str, Any]) -> Steady:
        """The closed form of what ``batch`` comes to under ``load``, whose amounts may be numbers or expressions.

        Where no closed form is exact, the docstring of the implementation says which hypothesis makes this one so.
        Errors: UserError for option values that are no choice together.
        """
