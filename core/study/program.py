"""A compiled question: one tape for every figure and every node, with the descriptions that display needs.

Floor: study. No sympy: a cached program answers without it. What a program depends on is its structure (operations of
the model, rules of the strategies, formulas, tiers), never a value: every size, rate and degree is an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any

from attrs import frozen

from ..algebra import cache
from ..algebra.tape import Tape

FORMAT = 1


@frozen(eq=False)
class Program:
    """``tape`` with outputs by name; ``nodes``: the cost trees as plain data; ``roots``: name → node number;
    ``ledgers``: the memory ledger; ``formulas``: output → the text of its formula."""

    tape: Tape
    nodes: list[dict[str, Any]]
    roots: dict[str, int]
    ledger: dict[str, Any]
    facts: dict[str, Any]

    @cached_property
    def node_outputs(self) -> tuple[str, ...]:
        """The output that is each node's time [s], by node number."""
        return tuple(f"t{number}" for number in range(len(self.nodes)))

    def evaluate(self, values: Mapping[str, Any], outputs: Iterable[str] | None = None) -> dict[str, Any]:
        """The outputs (all, or the named ones) for numbers or arrays of every input."""
        return self.tape.evaluate(values, outputs)

    def to_payload(self) -> dict[str, Any]:
        """As JSON-ready data for the cache."""
        return {
            "format": FORMAT, "tape": self.tape.body(), "nodes": self.nodes, "roots": self.roots,
            "ledger": self.ledger, "facts": self.facts,
        }  # fmt: skip

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Program | None:
        """The program in a cache entry, None where it is of another format or damaged."""
        try:
            if payload["format"] != FORMAT:
                return None
            return cls(
                Tape.from_json(payload["tape"], sealed=True), list(payload["nodes"]), dict(payload["roots"]),
                dict(payload["ledger"]), dict(payload["facts"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            return None


_LOADED: dict[str, Program] = {}


def program(key_parts: tuple[object, ...], build: Callable[[], Program], files: Iterable[str] = ()) -> Program:
    """The program under a structural key: from memory, from the disk cache, else built and stored.

    The key holds a fingerprint of slipstick's own code and of the ``files`` of third-party plugins that took part.
    """
    name = cache.key(FORMAT, *key_parts, cache.code_fingerprint(files))
    found = _LOADED.get(name)
    if found is not None:
        return found
    store = cache.ProgramCache()
    payload = store.get(name)
    if payload is not None:
        found = Program.from_payload(payload)
    if found is None:
        found = build()
        store.put(name, found.to_payload())
    _LOADED[name] = found
    return found
