"""Evidence of plugins held against predictions: each claim with what is predicted, what was published, and whether it
holds.

Floor: study. A claim that can't be asked is told with its reason, like every row of a measured file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from attrs import define, field, frozen

from ...errors import SlipstickError, UserError, unknown
from ...host.host import Host
from ...model.interfaces.evidence import Claim, Verdict
from ...records.scenario import Scenario
from ..ask import ask


@frozen(eq=False)
class Checked:
    """One claim: its ``verdict``, or why there is none; ``plugin`` brings it."""

    claim: Claim
    plugin: str
    verdict: Verdict | None
    reason: str = ""

    def to_json(self) -> dict[str, Any]:
        """As ``--json`` prints it."""
        claim, verdict = self.claim, self.verdict
        found: dict[str, Any] = {
            "name": claim.name, "plugin": self.plugin, "figure": claim.figure, "relation": claim.relation,
            "tolerance": claim.tolerance, "published": list(claim.published), "trust": claim.trust,
            "source": {"key": claim.source.key, "title": claim.source.title, "url": claim.source.url,
                       "date": claim.source.date},
        }  # fmt: skip
        if claim.note:
            found["note"] = claim.note
        if verdict is None:
            return {**found, "held": None, "reason": self.reason}
        error = verdict.error if math.isfinite(verdict.error) else None
        return {**found, "held": verdict.held, "predicted": list(verdict.predicted), "error": error}


@define(eq=False)
class Asker:
    """Scenarios → answers as ``--json`` prints them, each asked once."""

    host: Host
    _answers: dict[str, Mapping[str, Any]] = field(factory=dict, init=False)

    def __call__(self, scenario: Scenario) -> Mapping[str, Any]:
        """The answer to a scenario; of a search, its best setting. Raises SlipstickError."""
        key = repr((scenario.task, scenario.model, scenario.machine, sorted(scenario.settings.items())))
        if key not in self._answers:
            outcome = ask(scenario.task, (scenario.model,), (scenario.machine,), scenario.settings, self.host)
            if not outcome.predictions:
                raise UserError("no setting of its scenario is feasible")
            self._answers[key] = outcome.predictions[0].to_json()
        return self._answers[key]


def owned_claims(host: Host, plugin: str | None = None) -> list[tuple[str, Claim]]:
    """Every claim with the plugin that brings it, in their order; ``plugin``: only that one's.

    Errors: UserError for a plugin that is not installed.
    """
    claims = host.evidence()
    owners = host.owners("claim")
    if plugin is not None:
        known = [info.name for info in host.plugins()]
        if plugin not in known:
            raise unknown("plugin", plugin, known, "see `slipstick plugins`")
    found = [(owners.get(name, ""), claim) for name, claim in claims.items()]
    return [(owner, claim) for owner, claim in found if plugin is None or owner == plugin]


def check(claims: Iterable[tuple[str, Claim]], host: Host) -> list[Checked]:
    """Each claim asked and compared; one that fails is told with its reason."""
    asker = Asker(host)
    found = []
    for owner, claim in claims:
        try:
            found.append(Checked(claim, owner, claim.holds(claim.predicted(asker))))
        except SlipstickError as error:
            found.append(Checked(claim, owner, None, str(error)))
        except Exception as error:  # an expectation is a plugin's code
            found.append(Checked(claim, owner, None, f"{type(error).__name__}: {error}"))
    return found


def summary(checked: Iterable[Checked]) -> dict[str, int]:
    """How many claims held, how many did not, how many could not be asked."""
    checked = list(checked)
    return {
        "claims": len(checked),
        "held": sum(c.verdict is not None and c.verdict.held for c in checked),
        "failed": sum(c.verdict is not None and not c.verdict.held for c in checked),
        "not_asked": sum(c.verdict is None for c in checked),
    }


def claims_json(checked: Iterable[Checked]) -> dict[str, Any]:
    """Everything as ``--json`` prints it: each claim, the counts, and errors under the keys of a report of points.

    Errors are those of the claims that published a value to be met ("equal within").
    """
    checked = list(checked)
    met = [c for c in checked if c.verdict is not None and c.claim.relation == "equal within"]
    return {
        "claims": [item.to_json() for item in checked],
        "summary": summary(checked),
        "overall": _errors(met),
        "by_metric": _parts(met, lambda item: item.claim.figure or item.claim.name),
        "by_source": _parts(met, lambda item: item.claim.source.key),
        "by_group": _parts(met, lambda item: item.plugin),
        "skipped": [{"id": c.claim.name, "reason": c.reason} for c in checked if c.verdict is None],
    }


def _parts(checked: Sequence[Checked], name: Callable[[Checked], str]) -> dict[str, dict[str, Any]]:
    grouped: dict[str, list[Checked]] = {}
    for item in checked:
        grouped.setdefault(name(item), []).append(item)
    return {key: _errors(several) for key, several in sorted(grouped.items())}


def _errors(checked: Sequence[Checked]) -> dict[str, Any]:
    from .scores import described

    found = [item.verdict.error for item in checked if item.verdict is not None]
    return {**described([error for error in found if math.isfinite(error)]), "coverage": None}
