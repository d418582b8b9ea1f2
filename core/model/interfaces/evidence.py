"""What a claim is: a published or measured value, how a prediction must stand to it, and who stands behind it.

A minimal plugin::

    from slipstick.core.host.hookspecs import hookimpl
    from slipstick.core.model.interfaces.evidence import Claim
    from slipstick.core.records.provenance import Source
    from slipstick.core.records.scenario import Scenario

    LOGS = Source("acme-logs", "Logs of the ACME cluster", "https://example.org/logs", "2025-03-01", "measured")

    @hookimpl
    def slipstick_evidence():
        return [
            Claim(
                name="acme-8b-step",
                scenario=Scenario("train", "llama-3.1-8b", "h100-sxm", {"devices": 8, "global_batch": 32}),
                figure="step_time_s",
                value=2950,
                unit="ms",
                relation="equal within",
                tolerance=0.1,
                source=LOGS,
                trust="DATA",
            )
        ]

A claim about more than one prediction (a speed-up, a fit whose held-out error counts, an order of layouts) has an
``expectation`` in place of ``scenario`` and ``figure``: a function that asks for what it needs and returns the number
or numbers to compare with ``value``::

    def speed_up(ask):
        return ask(SLOW)["step_time_s"] / ask(FAST)["step_time_s"]

Floor: model, interfaces. Uses records and units. Pure: nothing here makes a prediction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal, get_args

from attrs import field, frozen

from ...algebra.units import dimension_of_unit, format_si, parse
from ...errors import PluginError, UserError, shown, unknown
from ...records.provenance import Source

if TYPE_CHECKING:
    from typing import TypeAlias

    from ...records.scenario import Scenario

    Ask: TypeAlias = Callable[[Scenario], Mapping[str, Any]]
    Expectation: TypeAlias = Callable[[Ask], float | Sequence[float]]

Relation = Literal["equal within", "at most", "at least", "ordering"]
"""How a prediction must stand to the published value.

``equal within``: it differs by at most the tolerance; ``at most`` and ``at least``: it does not pass the value by more
than the tolerance; ``ordering``: of the published values, any two that are further apart than the tolerance are
predicted in the same order (ranks 1, 2, 3 do where only the order is published).
"""

Trust = Literal["DATA", "FIG", "CODE", "ABS", "2ND", "DERIVED", "MEM"]
"""How far the value can be trusted: recomputed from published raw data; read off a figure; read in the authors' source;
stated in an abstract; told by a third party; a formula or fit of our own; recalled and not verified."""


@frozen
class Verdict:
    """Whether a claim ``held``, and by how much.

    ``error`` [1]: of the value that fits worst, predicted over published minus 1; for an ordering, the fraction of
    pairs that are predicted in the wrong order. ``predicted`` and ``published`` are in SI; ``text`` is for people.
    """

    held: bool
    error: float
    predicted: tuple[float, ...]
    published: tuple[float, ...]
    text: str

    def __bool__(self) -> bool:
        return self.held


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


@frozen(kw_only=True)
class Claim:
    """One thing that somebody published and that slipstick can be held against.

    ``value`` in ``unit``, a number or several (a row of a table, an order); ``tolerance`` [1] is relative to the
    published value. ``figure``: the key of the answer's JSON, with dots for what lies deeper
    ("memory_bytes.peak"). ``note``: what a reader has to know (nominal sizes, a definition of the authors' own).

    Errors: PluginError, which names the claim and what is wrong with it.

    >>> from slipstick.core.records.provenance import Source
    >>> paper = Source("paper", "A paper", "https://example.org", "2024-01-01")
    >>> claim = Claim(
    ...     name="gain", expectation=lambda ask: 2.3, value=2.5, unit="1", relation="at most", source=paper, trust="ABS"
    ... )
    >>> claim.holds(2.3).held, claim.holds(2.6).held
    (True, False)
    >>> print(claim.holds(2.6).text)
    predicted 2.6, published at most 2.5 (+4 %)
    """

    name: str
    scenario: Scenario | None = None
    figure: str = ""
    expectation: Expectation | None = None
    value: tuple[float, ...] = field(converter=_tuple)
    unit: str
    relation: Relation
    tolerance: float = 0.0
    source: Source
    trust: Trust
    note: str = ""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise PluginError(f"a claim's name is {shown(self.name)}; give it one that says what is claimed")
        if (self.scenario is None) == (self.expectation is None):
            raise self._fault("give either a scenario, with the figure that is meant, or an expectation")
        if (self.scenario is None) != (not self.figure):
            raise self._fault("a figure belongs to a scenario, and a scenario needs one")
        if self.expectation is not None and not callable(self.expectation):
            raise self._fault("its expectation can't be called")
        for what, given, known in (
            ("relation", self.relation, get_args(Relation)),
            ("trust tag", self.trust, get_args(Trust)),
        ):
            if given not in known:
                raise self._fault(f"unknown {what} {shown(given)}; there are {', '.join(known)}")
        if not isinstance(self.source, Source):
            raise self._fault(f"its source is {shown(self.source)}; a Source is expected")
        if not _is_number(self.tolerance) or self.tolerance < 0:
            raise self._fault(f"its tolerance is {shown(self.tolerance)}; a fraction of the value is expected")
        self._check_values()

    def _check_values(self) -> None:
        try:
            dimension_of_unit(self.unit)
        except (UserError, AttributeError) as error:
            raise self._fault(str(error)) from None
        if not self.value or not all(map(_is_number, self.value)):
            raise self._fault(f"its value is {shown(self.value)}; finite numbers are expected")
        if self.relation == "ordering" and not any(self._apart(*pair) for pair in combinations(self.value, 2)):
            raise self._fault("an ordering needs two values that differ by more than the tolerance")
        if self.tolerance and self.relation != "ordering" and 0 in self.value:
            raise self._fault("a tolerance relative to 0 allows nothing; claim a bound, or a tolerance of 0")

    def _apart(self, theirs: float, others: float) -> bool:
        """Whether two published values are far enough from one another for their order to mean something."""
        return abs(theirs - others) > self.tolerance * max(abs(theirs), abs(others))

    def _fault(self, what: str) -> PluginError:
        return PluginError(f"claim {shown(self.name)}: {what}")

    @property
    def published(self) -> tuple[float, ...]:
        """The published values in SI."""
        return tuple(parse(f"{float(value)!r} {self.unit}")[0] for value in self.value)

    def predicted(self, ask: Ask) -> tuple[float, ...]:
        """What slipstick says, in SI; ``ask``: scenario → the answer as ``--json`` prints it. A flag is 1 or 0.

        Errors: UserError where the answer lacks the figure, or where ``ask`` raises it (a setting that is not known);
        PluginError where the expectation returns something else than numbers.
        """
        if self.expectation is not None:
            result: Any = self.expectation(ask)
        else:
            assert self.scenario is not None
            result = ask(self.scenario)
            for part in self.figure.split("."):
                if not isinstance(result, Mapping) or part not in result:
                    known = result if isinstance(result, Mapping) else ()
                    raise unknown("figure", self.figure, known, f"asked by claim {self.name!r}")
                result = result[part]
        numbers = _numbers(result)
        if numbers is None:
            raise self._fault(f"the prediction is {shown(result)}; a number or several are expected")
        return numbers

    def holds(self, predicted: float | Sequence[float]) -> Verdict:
        """Whether ``predicted`` [SI], as many numbers as were published, stands to them as is claimed.

        A prediction that is not finite never holds. Errors: PluginError for another count of numbers.
        """
        numbers = _numbers(predicted)
        published = self.published
        if numbers is None or len(numbers) != len(published):
            count = "no numbers" if numbers is None else f"{len(numbers)}"
            raise self._fault(f"{len(published)} values are published, and {count} predicted")
        held, error = self._ordered(numbers) if self.relation == "ordering" else self._compared(numbers)
        return Verdict(held, error, numbers, published, self._text(numbers, published, error))

    def _compared(self, predicted: tuple[float, ...]) -> tuple[bool, float]:
        held, worst, excess = True, 0.0, -math.inf
        for own, theirs in zip(predicted, self.published, strict=True):
            # A few units in the last place beyond what is claimed: 1.1 is to be within 10 % of 1.
            slack = self.tolerance * abs(theirs) * (1 + 1e-12) + abs(theirs) * 1e-15
            over = {"equal within": abs(own - theirs), "at most": own - theirs, "at least": theirs - own}[self.relation]
            held = held and math.isfinite(own) and over <= slack
            deviation = own / theirs - 1 if theirs else (math.copysign(math.inf, own) if own else 0.0)
            # The worst is the one that passes its bound by most; one that is not finite is worse than any.
            passed = math.inf if not math.isfinite(own) else over / abs(theirs) if theirs else over
            if passed > excess:
                worst, excess = deviation, passed
        return held, worst

    def _ordered(self, predicted: tuple[float, ...]) -> tuple[bool, float]:
        compared = wrong = 0
        for (own, theirs), (other, others) in combinations(zip(predicted, self.published, strict=True), 2):
            if not self._apart(theirs, others):
                continue
            compared += 1
            # Written so that a tie, or what is no number, is wrong.
            wrong += not (own < other if theirs < others else own > other)
        held = wrong == 0 and all(map(math.isfinite, predicted))
        return held, wrong / compared

    def _text(self, predicted: tuple[float, ...], published: tuple[float, ...], error: float) -> str:
        unit = str(dimension_of_unit(self.unit))
        own, theirs = (", ".join(format_si(value, unit) for value in values) for values in (predicted, published))
        if self.relation == "ordering":
            return f"predicted {own}, published in the order {theirs} ({error:.0%} of the pairs turned round)"
        told = "" if self.relation == "equal within" else f"{self.relation} "
        return f"predicted {own}, published {told}{theirs} ({error * 100:+.3g} %)"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _numbers(value: Any) -> tuple[float, ...] | None:
    """``value`` as numbers, also those of numpy; None where it is something else."""
    parts = (value,) if isinstance(value, int | float) or not hasattr(value, "__iter__") else tuple(value)
    if not parts or any(isinstance(part, str | bytes) for part in parts):
        return None
    try:
        return tuple(float(part) for part in parts)
    except (TypeError, ValueError, OverflowError):
        return None
