"""Contracts of the kinds that state or read something small: offload policies, schedulers, transforms, readers, claims.

Floor: testkit. Used like the others; each class names the attributes that a subclass gives::

    class TestMine(SchedulerContract):
        scheduler = Mine()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import isclose, isfinite
from pathlib import Path
from typing import Any, ClassVar

from ..algebra.units import dimension_of_unit
from ..errors import UserError, shown
from ..model.interfaces.evidence import Claim
from ..model.interfaces.offload import DEVICE, Offload, OffloadPolicy
from ..model.interfaces.scheduler import Batch, Load, Request, Scheduler, State
from ..model.interfaces.strategy import Option
from ..model.interfaces.trace_reader import HEAD, TraceReader, TraceRow, Unread
from ..model.interfaces.transform import Transform
from ..records.scenario import Scenario


def option_values(options: Sequence[Option]) -> Iterator[dict[str, Any]]:
    """The defaults, and every other choice of one option at a time."""
    default = {option.name: option.default for option in options}
    yield default
    for option in options:
        for choice in option.choices or ((True, False) if isinstance(option.default, bool) else ()):
            if choice != option.default:
                yield {**default, option.name: choice}


class OffloadPolicyContract:
    """Laws of one offload ``policy``."""

    policy: ClassVar[OffloadPolicy]

    def test_every_choice_is_an_offload(self) -> None:
        for options in option_values(self.policy.options):
            found: object = self.policy.offload(options)
            assert isinstance(found, Offload), f"{self.policy.name} with {options} states a {type(found).__name__}"

    def test_it_keeps_something_off_the_device(self) -> None:
        found = self.policy.offload(next(option_values(self.policy.options)))
        stated = (*found.placements, *found.computes, *found.streams)
        assert stated, f"{self.policy.name} states nothing by default: it is no policy"
        placed = [p for p in found.placements if p.pool == DEVICE and p.share == 1.0]
        assert not placed, f"{self.policy.name} places all of {placed[0].row} on the device, where it is anyway"

    def test_streams_join_places_that_are_used(self) -> None:
        found = self.policy.offload(next(option_values(self.policy.options)))
        used = {DEVICE} | {p.pool for p in found.placements} | {c.pool for c in found.computes}
        for stream in found.streams:
            strange = {stream.source, stream.target} - used
            assert stream.copy or not strange, (
                f"{self.policy.name}: a stream of {stream.row} touches {', '.join(sorted(strange))}, "
                "where nothing is placed or computed"
            )

    def test_tasks_are_known(self) -> None:
        strange = set(self.policy.tasks) - {"train", "serve"}
        assert not strange, f"{self.policy.name} is for unknown tasks {sorted(strange)}"
        assert self.policy.tasks, f"{self.policy.name} is for no task"


class SchedulerContract:
    """Laws of one ``scheduler``: its decisions are possible, and its steady state does a request's work, no more."""

    scheduler: ClassVar[Scheduler]
    loads: ClassVar[tuple[Load, ...]] = tuple(
        Load(concurrency, prompt, output, capacity=1_000_000)
        for concurrency, prompt, output in product((1, 4, 32), (100, 2000), (2, 200))
    )

    def test_decisions_are_possible(self) -> None:
        for options in option_values(self.scheduler.options):
            for state in states():
                decision_is_possible(self.scheduler, state, self.scheduler.batch(state, options))

    def test_a_request_gets_its_tokens(self) -> None:
        """Little's law gives the steps of one request; their parts must compute its prompt and emit its output."""
        for options in option_values(self.scheduler.options):
            for load in self.loads:
                steady = self.scheduler.steady(load, options)
                steps = steady.steps_per_request(load)
                parts = [(steps[kind.name], part) for kind in steady.kinds for part in kind.parts]
                emitted = sum(count * part.sequences * part.emitted for count, part in parts)
                prefilled = sum(count * part.sequences * part.query for count, part in parts if part.phase == "prefill")
                wanted = load.output_tokens - 1
                assert isclose(emitted, wanted, rel_tol=1e-6), (
                    f"{self.scheduler.name} under {load}: the steps of a request emit {emitted:g} further tokens, "
                    f"not its {wanted:g}"
                )
                # A request that was thrown out computes its prompt again.
                again = (1 + float(steady.preemptions)) * (load.input_tokens + load.output_tokens)
                assert load.input_tokens * (1 - 1e-6) <= prefilled <= again, (
                    f"{self.scheduler.name} under {load}: the steps of a request compute {prefilled:g} tokens "
                    f"of a prompt of {load.input_tokens:g}"
                )
                assert 0 < steady.running <= load.concurrency, (
                    f"{self.scheduler.name} under {load}: {steady.running:g} requests run "
                    f"of {load.concurrency:g} that are there"
                )


def states() -> Iterator[State]:
    """States that a scheduler can meet: nothing but waiting ones, a prompt half done, decoding, a full cache."""
    fresh = tuple(Request(f"w{i}", 64 * (i + 1)) for i in range(3))
    half = Request("half", 512, computed=256)
    decoding = tuple(Request(f"d{i}", 64, computed=70 + i, produced=7 + i) for i in range(3))
    yield State(fresh, (), 10_000, 10_000)
    yield State(fresh[:1], (half,), 10_000, 9_000)
    yield State((), decoding, 10_000, 9_000)
    yield State(fresh, decoding, 10_000, 9_000)
    yield State((), decoding, 10_000, 9_000, stages=2, busy=frozenset({"d0"}))


def decision_is_possible(scheduler: Scheduler, state: State, batch: Batch) -> None:
    """A batch has known, free requests, computes what there is to compute, and fits into the cache."""
    known = {request.name: request for request in (*state.waiting, *state.running)}
    running = {request.name for request in state.running}
    for name, count in batch.tokens.items():
        assert name in known, f"{scheduler.name} computes request {shown(name)}, which does not exist"
        assert name not in state.busy, f"{scheduler.name} computes request {name!r}, which another stage works on"
        request = known[name]
        left = max(request.input_tokens + request.produced - request.computed, 1)
        assert count <= left, f"{scheduler.name} computes {count} tokens of {name!r}, which has {left} to compute"
    for name in batch.preempted:
        assert name in running, f"{scheduler.name} throws out {name!r}, which does not run"
    freed = sum(known[name].computed for name in batch.preempted)
    assert sum(batch.tokens.values()) <= state.free + freed, (
        f"{scheduler.name} computes {sum(batch.tokens.values())} tokens "
        f"where the cache has room for {state.free + freed}"
    )
    assert batch.tokens or state.busy, (
        f"{scheduler.name} does nothing while requests wait and no stage is busy: {state}"
    )


class TransformContract:
    """Laws of one ``transform``, tried on ``scenarios``."""

    transform: ClassVar[Transform]
    scenarios: ClassVar[tuple[Scenario, ...]] = (
        Scenario("serve", "llama-3.1-8b", "h100-sxm", {"input_tokens": 1000, "output_tokens": 1000, "concurrency": 8}),
        Scenario("train", "llama-3.1-8b", "h100-sxm", {"sequence": 8192, "global_batch": 64}),
    )

    def test_it_has_a_place_in_the_order(self) -> None:
        assert isinstance(self.transform.order, int), f"{self.transform.name}: order is {self.transform.order!r}"

    def test_it_keeps_the_task_and_the_given_scenario(self) -> None:
        tried = [s for s in self.scenarios if s.task in self.transform.tasks]
        assert tried, f"{self.transform.name} is for {self.transform.tasks}; give a scenario of such a task"
        for scenario, options in product(tried, option_values(self.transform.options)):
            before = dict(scenario.settings)
            found: object = self.transform.apply(scenario, options)
            assert isinstance(found, Scenario), (
                f"{self.transform.name} returned a {type(found).__name__}, not a scenario"
            )
            assert found.task == scenario.task, (
                f"{self.transform.name} made a {found.task} scenario of a {scenario.task} one"
            )
            assert dict(scenario.settings) == before, f"{self.transform.name} changed the scenario that it was given"

    def test_the_same_twice_is_the_same(self) -> None:
        for scenario in self.scenarios:
            if scenario.task in self.transform.tasks:
                options = next(option_values(self.transform.options))
                once, twice = (self.transform.apply(scenario, options) for _ in range(2))
                assert once == twice, f"{self.transform.name} gives two answers to one question"


class TraceReaderContract:
    """Laws of one ``reader``; ``files``: name → the bytes of a file that it reads, with the number of its rows."""

    reader: ClassVar[TraceReader]
    files: ClassVar[Mapping[str, tuple[bytes, int]]]

    def test_it_knows_its_own_files_and_no_others(self) -> None:
        for name, (content, _) in self.files.items():
            assert self.reader.sniff(Path(name), content[:HEAD]), f"{self.reader.name} does not know its own {name}"
        for name, head in (("x.bin", b"\0" * 64), ("x.txt", b"a line of text\n"), ("x.json", b"{}"), ("x", b"")):
            assert not self.reader.sniff(Path(name), head), f"{self.reader.name} takes {name}, {head!r}, for its own"

    def test_every_row_is_read(self, tmp_path: Path) -> None:
        for name, (content, count) in self.files.items():
            path = tmp_path / name
            path.write_bytes(content)
            rows = [row for row in self.reader.rows(path) if not isinstance(row, Unread)]
            assert len(rows) == count, f"{self.reader.name} reads {len(rows)} rows of the {count} in {name}"
            times = [row.seconds for row in rows if isinstance(row, TraceRow)]
            assert all(isfinite(seconds) and seconds > 0 for seconds in times), f"{name}: a row without a time"

    def test_a_damaged_file_is_a_users_mistake(self, tmp_path: Path) -> None:
        """Cut at any of ten places, or with a byte turned round: rows, or one line that says where it is wrong."""
        for name, (content, _) in self.files.items():
            cuts = [content[: len(content) * i // 10] for i in range(10)]
            turned = [content[:i] + bytes([content[i] ^ 255]) + content[i + 1 :] for i in range(0, len(content), 7)]
            for number, damaged in enumerate([*cuts, *turned]):
                path = tmp_path / f"{number}-{name}"
                path.write_bytes(damaged)
                try:
                    list(self.reader.rows(path))
                except UserError as error:
                    told = str(error)
                    assert "\n" not in told, f"{self.reader.name}: an error of several lines: {told}"
                except Exception as error:
                    raise AssertionError(
                        f"{self.reader.name} on a damaged {name}: {type(error).__name__} instead of a UserError"
                    ) from error


class ClaimsContract:
    """Laws of a plugin's ``claims``: told apart by name, each with a source that can be looked up."""

    claims: ClassVar[Sequence[Claim]]

    def test_names_are_unique(self) -> None:
        names = [claim.name for claim in self.claims]
        twice = sorted({name for name in names if names.count(name) > 1})
        assert not twice, f"two claims share the name {', '.join(twice)}"

    def test_sources_can_be_looked_up(self) -> None:
        for claim in self.claims:
            assert claim.source.url, f"claim {claim.name!r}: its source has no address"
            assert claim.source.date, f"claim {claim.name!r}: its source has no date"
            dimension_of_unit(claim.unit)

    def test_the_published_value_itself_holds(self) -> None:
        """A prediction of exactly what was published satisfies the claim; one far off on the wrong side does not."""
        for claim in self.claims:
            assert claim.holds(claim.published).held, f"claim {claim.name!r} refuses its own value"
            if claim.relation == "ordering":
                wrong = tuple(-value for value in claim.published)
            else:
                sign = -1 if claim.relation == "at least" else 1
                wrong = tuple(value + sign * (abs(value) + 1) * (claim.tolerance + 10) for value in claim.published)
            assert not claim.holds(wrong).held, f"claim {claim.name!r} is satisfied by {wrong}: it says nothing"
