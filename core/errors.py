"""The two ways to stop: a person's mistake (one clear line) and an answer of «not feasible».

Ground floor: this file imports nothing of the project. Anything that is not one of these is a bug and may
show a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class SlipstickError(Exception):
    """Base of every error that slipstick raises on purpose; ``exit_status`` is what the CLI leaves with."""

    exit_status = 2


class UserError(SlipstickError):
    """A bad input: what is wrong, where, and what would be right, in one line. Exit status 2."""


class NotFeasible(SlipstickError):
    """The question is well put and has no answer (nothing fits, no setting found). Exit status 1."""

    exit_status = 1


class PluginError(SlipstickError):
    """A plugin broke a rule of the host (a clash of names, a broken contract). Exit status 2."""


def nearest(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Up to ``limit`` of the ``known`` names that look most like ``name``, best first.

    >>> nearest("h100-sxn", ["h100-sxm", "h200-sxm", "mi300x"])
    ['h100-sxm', 'h200-sxm']
    """
    folded: dict[str, str] = {}
    for candidate in known:
        folded.setdefault(candidate.casefold(), candidate)
    matches = difflib.get_close_matches(name.casefold(), folded, n=limit, cutoff=0.6)
    if not matches:
        matches = [key for key in folded if name and (name.casefold() in key)][:limit]
    return [folded[match] for match in matches]


def unknown(kind: str, name: str, known: Iterable[str], hint: str = "") -> UserError:
    """The one wording for «no such name»: names the kind, the nearest names, and how to see all.

    >>> print(unknown("accelerator", "h10", ["h100-sxm", "a100-80gb-sxm"], "see `slipstick hardware list`"))
    unknown accelerator 'h10'; did you mean h100-sxm? see `slipstick hardware list`
    """
    known = list(known)
    near = nearest(name, known)
    if near:
        told = f"did you mean {' or '.join(near)}?"
    elif known and len(known) <= 12:
        told = f"known: {', '.join(sorted(known))};"
    else:
        told = f"{len(known)} are known;"
    line = f"unknown {kind} {shown(name)}; {told} {hint}".rstrip(" ;")
    return UserError(line)


def shown(text: object, limit: int = 60) -> str:
    """``text`` as it may stand in an error line: quoted, on one line, cut at ``limit`` characters.

    >>> shown("a" * 100, limit=10)
    "'aaaaaaaaaa…'"
    """
    try:
        plain = str(text)
    except ValueError:  # Python writes no whole number of more than 4,300 digits
        plain = "a number of thousands of digits"
    if len(plain) > limit:
        plain = plain[:limit] + "…"
    return repr(plain)
