"""What measured files call things → slipstick's names: the table ``names.toml``, read once.

Floor: study. Standard library. Patterns and names are data; no accelerator or model is named in code.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from typing import Any

from attrs import frozen


class Skipped(Exception):
    """Why a row can't be predicted; the text is its reason in the report."""


@frozen
class Entry:
    """One pattern of a table with everything that stands beside it."""

    pattern: re.Pattern[str]
    data: Mapping[str, Any]

    @property
    def note(self) -> str:
        """What makes a row that it matches an approximation; empty for none."""
        return str(self.data.get("note", ""))


@cache
def table(name: str) -> tuple[Entry, ...]:
    """The entries of one table of ``names.toml``, in its order.

    >>> table("machine")[0].data["unclear"]
    'the accelerator is not named'
    """
    return tuple(Entry(re.compile(row["pattern"], re.IGNORECASE), row) for row in _document()[name])


@cache
def pattern(name: str, flags: int = 0) -> re.Pattern[str]:
    """A single pattern of ``names.toml``."""
    return re.compile(_document()[name]["pattern"], flags)


@cache
def _document() -> Mapping[str, Any]:
    text = resources.files(__package__).joinpath("names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def found(name: str, text: str, **also: str) -> Entry | None:
    """The first entry of a table whose pattern occurs in ``text``; ``also``: further keys that must match, as patterns.

    Errors: Skipped with the entry's reason where the table says that no one thing is meant.

    >>> found("machine", "A100-40GB-SXM (1600Gbps RoCE/node)").data["accelerator"]
    'a100-sxm-40gb'
    >>> found("machine", "Ascend 910") is None
    True
    """
    for entry in table(name):
        if entry.pattern.search(text) and all(_fits(entry, key, value) for key, value in also.items()):
            if "unclear" in entry.data:
                raise Skipped(str(entry.data["unclear"]))
            return entry
    return None


def _fits(entry: Entry, key: str, value: str) -> bool:
    wanted = entry.data.get(key)
    return wanted is None or re.search(str(wanted), value, re.IGNORECASE) is not None


def rules(task: str, row: Mapping[str, str]) -> dict[str, Any]:
    """What the rules of ``names.toml`` say of a row beside its columns: named groups of a pattern count as said.

    >>> rules("serve", {"engine": "vllm", "notes": "util 0.95, max_model_len 4096"})
    {'memory_utilisation': '0.95'}
    """
    said: dict[str, Any] = {}
    for entry in table("rule"):
        if entry.data["task"] != task:
            continue
        match = entry.pattern.search(" | ".join(row.get(column, "") for column in entry.data["over"]))
        if match is not None:
            said.update(entry.data.get("set", {}))
            said.update({name: text for name, text in match.groupdict().items() if text is not None})
    return said


def first_of(wanted: Iterable[str], offered: Iterable[str]) -> str | None:
    """The first of ``wanted`` that is offered."""
    known = set(offered)
    return next((name for name in wanted if name in known), None)


def squeezed(name: str) -> str:
    """A model's name without owner, ending words and punctuation: what different spellings have in common.

    >>> squeezed("meta-llama/Llama-3.1-8B-Instruct") == squeezed("LLAMA3.1_8B")
    True
    """
    name = name.strip().rpartition("/")[2].casefold().removeprefix("meta-")
    ending = pattern("endings", re.IGNORECASE)
    while (shorter := ending.sub("", name)) != name:
        name = shorter
    return re.sub(r"[^a-z0-9]", "", name)


def wires(text: str) -> tuple[float, bool] | None:
    """Bandwidth [B/s, one direction] that an accelerator's text gives of the wires between nodes, and whether a node's.

    >>> wires("A100 (Jean Zay, NVLink, 4x Omni-Path 100Gb/node)"), wires("H100 (400Gb RDMA/GPU)")
    ((50000000000.0, True), (50000000000.0, False))
    >>> wires("A100-80GB-SXM") is None
    True
    """
    match = pattern("network").search(text)
    if match is None:
        return None
    bits = float(match["gbit"]) * 1e9 * int(match["count"] or 1)
    return bits / 8, match["per"] == "node"
