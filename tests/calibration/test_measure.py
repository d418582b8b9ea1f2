"""Measuring here: the design without PyTorch, and short runs with it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.calibration import measure_design as design
from slipstick.calibration.measure_design import Case, Limits, plan
from slipstick.calibration.measure_timing import LEAST, Clock, Running, Timed, rounds, settled, summary, warm_up
from slipstick.core.errors import UserError
from slipstick.core.model.interfaces.trace_reader import SHAPES

CPU = Limits(flops=1e11, bandwidth=1e10, run=0.2, memory=2e9)
GPU = Limits(flops=5e14, bandwidth=3e12, run=0.2, memory=2e10)
KINDS = tuple(design.COUNTS)


# --- the design ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_the_shape_that_rows_of_it_have(kind: str) -> None:
    cases = plan([kind], ["bf16", "fp32"], GPU, ranks=[2])
    assert cases
    for case in cases:
        assert tuple(case.shape) == SHAPES[kind]
        assert all(value >= 0 and float(value).is_integer() for value in case.shape.values())


@pytest.mark.parametrize("limits", [CPU, GPU, None])
def test_the_plan_is_deterministic_and_no_case_comes_twice(limits: Limits | None) -> None:
    first, second = (plan(KINDS, ["bf16", "fp32"], limits, ranks=[2, 4]) for _ in range(2))
    assert first == second
    assert len({(case, *case.shape.values()) for case in first}) == len(first)


def test_another_seed_gives_other_shapes() -> None:
    one, other = ({tuple(c.shape.values()) for c in plan(["gemm"], ["bf16"], GPU, seed)} for seed in (0, 1))
    assert len(one & other) < len(one) / 2


def test_a_faster_device_gets_larger_shapes_and_no_shape_is_beyond_the_limits() -> None:
    largest = {}
    for name, limits in (("cpu", CPU), ("gpu", GPU)):
        work = [design.work_of(case) for case in plan(KINDS, ["fp32"], limits, ranks=[2])]
        assert all(flops / limits.flops + size / limits.bandwidth <= limits.run for flops, size in work)
        assert all(size <= limits.memory for _, size in work)
        largest[name] = max(flops for flops, _ in work)
    assert largest["gpu"] > 10 * largest["cpu"]


@pytest.mark.parametrize("length", [60, 120, 240])
def test_any_beginning_is_balanced_among_kinds(length: int) -> None:
    kinds = ("gemm", "attention", "attention_backward", "pointwise", "memory_copy", "optimizer", "lookup")
    cases = plan(kinds, ["fp32"], CPU)
    whole, part = Counter(c.kernel for c in cases), Counter(c.kernel for c in cases[:length])
    for kind in kinds:
        assert abs(part[kind] - whole[kind] * length / len(cases)) <= 2


@pytest.mark.parametrize("length", [16, 32, 64])
def test_any_beginning_of_the_products_covers_decode_to_prefill(length: int) -> None:
    rows = [case.shape["m"] for case in plan(["gemm"], ["bf16"], GPU)[:length] if case.variant == "forward"]
    for low, high in ((1, 16), (16, 256), (256, 2049), (2049, 16385)):
        assert sum(low <= m < high for m in rows) >= len(rows) // 10


@pytest.mark.parametrize("limits", [CPU, GPU])
def test_a_slow_device_gets_smaller_products_not_fewer_tokens(limits: Limits) -> None:
    """From 1 to 16,384 tokens in a step, a third each for up to 16, up to 512 and more, as far as a step reaches."""
    tokens = [case.shape["m"] for case in plan(("gemm",), ("fp32",), limits) if case.variant != "weight gradient"]
    parts = (sum(m <= 16 for m in tokens), sum(16 < m <= 512 for m in tokens), sum(m > 512 for m in tokens))
    assert min(parts) >= 0.2 * len(tokens), parts


def test_attention_is_half_decoding_with_and_without_grouped_queries() -> None:
    cases = [case.shape for case in plan(["attention"], ["fp32"], CPU)]
    decode = [shape for shape in cases if shape["query"] == 1]
    assert abs(len(decode) - len(cases) / 2) <= 1
    for head_dim in (64, 128):
        # a fit of its own for each head size, with and without grouped queries, asks for a dozen rows
        for grouped in (True, False):
            same = [s for s in decode if s["head_dim"] == head_dim and (s["heads"] > s["kv_heads"]) == grouped]
            assert len(same) >= 12
    assert all(shape["context"] >= shape["query"] for shape in cases)


def test_halton_points_are_more_even_than_chance() -> None:
    """Discrepancy of n points at random is about 1/√n; that of Halton's sequence about (log n)/n in one dimension."""
    for axis in range(len(design.BASES)):
        values = sorted(point[axis] for point in design.points(200))
        star = max(max((i + 1) / 200 - v, v - i / 200) for i, v in enumerate(values))
        assert star < 0.5 / math.sqrt(200)


def test_work_of_a_product_and_of_causal_attention() -> None:
    # 2·m·n·k, and 4·b·h·s²·d halved by the mask (Megatron-LM's count)
    assert design.work_of(Case("gemm", {"m": 8, "n": 16, "k": 32}, "bf16"))[0] == 2 * 8 * 16 * 32
    shape = {"batch": 2, "query": 64, "context": 64, "heads": 4, "kv_heads": 2, "head_dim": 16, "window": 0,
             "causal": 1}  # fmt: skip
    assert design.work_of(Case("attention", shape, "bf16"))[0] == 4 * 2 * 4 * 64 * 64 * 16 / 2


@pytest.mark.parametrize(("kinds", "formats", "named"), [(["gem"], ["bf16"], "gemm"), (["gemm"], ["bf61"], "bf16")])
def test_unknown_names_are_refused_with_the_nearest(kinds: list[str], formats: list[str], named: str) -> None:
    with pytest.raises(UserError, match=named):
        plan(kinds, formats)


# --- timing -------------------------------------------------------------------------------------------------------


class Simulated(Clock):
    """A device on which each execution takes what a list says."""

    how = "simulated"

    def __init__(self, seconds: float, late: float = 0.0) -> None:
        self.seconds, self.late, self.calls = seconds, late, 0

    def sample(self, run: object, first: int, calls: int) -> float:
        slow = self.late if self.calls == 0 else 0.0
        self.calls += calls
        return self.seconds * calls + slow


def test_the_first_execution_counts_for_nothing() -> None:
    clock = Simulated(1e-3, late=5.0)
    running = warm_up(lambda call: None, clock, allowed=1.0)
    rounds([running], clock, 1.0, math.inf)
    assert running.timed.seconds == pytest.approx(1e-3)
    assert running.timed.spread == pytest.approx(0, abs=1e-9)


def test_short_kernels_are_sampled_many_at_once_and_long_ones_singly() -> None:
    assert warm_up(lambda call: None, Simulated(1e-5), 1.0).calls == 200
    assert warm_up(lambda call: None, Simulated(0.5), 1.0).calls == 1


@settings(max_examples=30)
@given(st.lists(st.floats(1e-6, 1e3), min_size=5, max_size=40), st.floats(1e6, 1e9))
def test_one_outlier_moves_the_median_to_a_neighbour_at_most(samples: list[float], outlier: float) -> None:
    ordered = sorted(samples)
    middle = len(ordered) // 2
    assert ordered[middle - 1] <= summary([*samples, outlier], 1).seconds <= ordered[min(middle + 1, len(ordered) - 1)]


def test_spread_estimates_the_deviation_of_a_normal_law() -> None:
    samples = [NormalDist(10, 2).inv_cdf((i + 0.5) / 999) for i in range(999)]
    found = summary(samples, 1)
    assert found.seconds == pytest.approx(10, rel=1e-3)
    assert found.spread == pytest.approx(2, rel=1e-2)


def test_more_spread_asks_for_more_samples() -> None:
    assert settled(Timed(1.0, 0.01, 10, 1))
    assert not settled(Timed(1.0, 0.05, 10, 1))
    assert settled(Timed(1.0, 0.05, 45, 1))


def test_rounds_take_one_sample_of_each_and_stop_at_the_deadline() -> None:
    order: list[int] = []

    class Noting(Simulated):
        def sample(self, run: object, first: int, calls: int) -> float:
            run(first)  # type: ignore[operator]
            return 1.0

    several = [Running(lambda call, n=n: order.append(n)) for n in range(3)]  # type: ignore[misc]
    rounds(several, Noting(1.0), allowed=3.0, deadline=math.inf)
    assert order == [0, 1, 2] * LEAST
    order.clear()
    rounds(several, Noting(1.0), allowed=3.0, deadline=-math.inf)
    assert order == []


# --- runs on this machine -----------------------------------------------------------------------------------------


@pytest.mark.torch
class TestHere:
    @pytest.fixture(autouse=True)
    def _torch(self) -> object:
        torch = pytest.importorskip("torch", reason="measuring needs the torch extra")
        threads = torch.get_num_threads()
        yield
        torch.set_num_threads(threads)

    def test_a_short_run_writes_a_trace_and_the_next_goes_on(self, tmp_path: Path) -> None:
        from slipstick.calibration.measure import measure
        from slipstick.calibration.readers.plain import Plain

        output = tmp_path / "trace.csv"
        options = {"kinds": ["memory_copy"], "device": "cpu", "device_name": "here", "threads": 1}
        first = measure(output, budget_s=1.5, **options)  # type: ignore[arg-type]
        rows = list(Plain().rows(output))
        assert first.measured == len(rows) > 0
        assert {(row.kernel, row.device, row.facts["threads"]) for row in rows} == {("memory_copy", "here", "1")}  # type: ignore[union-attr]
        second = measure(output, budget_s=1.5, **options)  # type: ignore[arg-type]
        again = list(Plain().rows(output))
        assert again[: len(rows)] == rows
        assert second.kept > 0
        shapes = [row.shape["bytes"] for row in again]  # type: ignore[union-attr]
        assert len(set(shapes)) == len(shapes) == first.measured + second.measured

    def test_every_kind_runs_on_a_cpu(self) -> None:
        """The smallest case of every kind and variant, so that none is left out without a word."""
        import torch

        from slipstick.calibration.measure import prepare
        from slipstick.calibration.measure_kernels import bench

        setup = prepare("cpu", "here", 1.0, threads=1)
        kinds = [kind for kind in KINDS if kind not in (*design.CUDA_ONLY, *design.COLLECTIVES)]
        small = Limits(1e11, 1e10, 2e-2, 1e8)
        found: dict[tuple[str, str], Case] = {}
        for case in sorted(plan(kinds, ["fp32"], small), key=lambda case: design.work_of(case)[1]):
            decode = "decode" if case.shape.get("query") == 1 else ""
            found.setdefault((case.kernel, case.variant.partition(" of ")[0] or decode), case)
        assert {kernel for kernel, _ in found} == set(kinds)
        assert {variant for kernel, variant in found if kernel == "pointwise"} == set(design.PASSES)
        with torch.no_grad():
            for case in found.values():
                made = bench(case, setup.place)
                assert setup.clock.sample(made.run, 0, 2) > 0, case.text

    def test_a_product_is_the_product_that_its_row_says(self) -> None:
        import torch

        from slipstick.calibration.measure import prepare
        from slipstick.calibration.measure_kernels import bench

        place = prepare("cpu", "here", 1.0, threads=1).place
        for variant in ("forward", "input gradient", "weight gradient"):
            made = bench(Case("gemm", {"m": 64, "n": 32, "k": 48}, "fp32", variant), place)
            y = made.run(0)
            assert isinstance(y, torch.Tensor)
            assert tuple(y.shape) == (64, 32)

    def test_weights_are_rotated_until_they_exceed_the_cache(self) -> None:
        from attrs import evolve

        from slipstick.calibration.measure import prepare
        from slipstick.calibration.measure_kernels import bench

        place = evolve(prepare("cpu", "here", 1.0, threads=1).place, cache=2**20)
        made = bench(Case("gemm", {"m": 1, "n": 256, "k": 256}, "fp32", "forward"), place)
        assert int(made.facts["copies"]) * 256 * 256 * 4 >= 2 * 2**20
        assert place.copies(2**22) == 1

    def test_an_interrupt_keeps_what_was_measured(self, tmp_path: Path) -> None:
        from slipstick.calibration.measure import Progress, measure
        from slipstick.calibration.readers.plain import Plain

        output = tmp_path / "trace.csv"

        def stop(now: Progress) -> None:
            if now.done >= 6:
                raise KeyboardInterrupt

        # Far more time than a busy machine needs for what is measured before the interrupt.
        report = measure(output, kinds=["lookup", "memory_copy"], budget_s=60, device="cpu", threads=1, progress=stop)
        assert report.stopped == "interrupted"
        assert report.measured == len(list(Plain().rows(output))) >= 6
        assert report.measured < report.planned

    def test_an_interrupt_in_the_first_batch_leaves_no_file(self, tmp_path: Path) -> None:
        from slipstick.calibration.measure import Progress, measure

        def stop(now: Progress) -> None:
            raise KeyboardInterrupt

        output = tmp_path / "trace.csv"
        report = measure(output, kinds=["memory_copy"], budget_s=5, device="cpu", threads=1, progress=stop)
        assert (report.stopped, report.measured, output.exists()) == ("interrupted", 0, False)

    def test_what_a_device_refuses_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from slipstick.calibration import measure as module

        def refuse(case: Case, place: object) -> object:
            if case.kernel == "lookup":
                raise RuntimeError("not implemented for 'Half'\nmore")
            return real(case, place)  # type: ignore[arg-type]

        real = module.bench
        monkeypatch.setattr(module, "bench", refuse)
        report = module.measure(tmp_path / "t.csv", kinds=["lookup"], budget_s=2, device="cpu", threads=1)
        assert len(report.skipped) == report.planned
        assert {why for _, why in report.skipped} == {"not implemented for 'Half'"}
        assert not (tmp_path / "t.csv").exists()

    @pytest.mark.parametrize(
        ("options", "line"),
        [
            ({"device": "cuda:99"}, "is not there"),
            ({"device": "tpu"}, "write cpu"),
            ({"kinds": ["host_to_device"], "device": "cpu"}, "CUDA"),
            ({"budget_s": 0.0}, "budget"),
            ({"budget_s": math.nan}, "budget"),
            ({"threads": 0, "device": "cpu"}, "thread"),
            ({"kinds": ["gemm"], "formats": ["fp9"]}, "fp8"),
        ],
    )
    def test_mistakes_are_one_line(self, options: dict[str, object], line: str, tmp_path: Path) -> None:
        from slipstick.calibration.measure import measure

        with pytest.raises(UserError, match=line) as caught:
            measure(tmp_path / "t.csv", **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)

    def test_another_number_of_threads_does_not_go_into_the_same_file(self, tmp_path: Path) -> None:
        from slipstick.calibration.measure import measure
        from slipstick.calibration.readers.plain import append_rows
        from slipstick.core.model.interfaces.trace_reader import TraceRow

        output = tmp_path / "t.csv"
        append_rows(output, [TraceRow("memory_copy", {"bytes": 8.0}, "", "here", 1.0, "x", facts={"threads": "7"})])
        with pytest.raises(UserError, match="7 threads"):
            measure(output, kinds=["memory_copy"], device="cpu", device_name="here", threads=1)

    def test_the_command_lists_and_measures(self, tmp_path: Path) -> None:
        from click.testing import CliRunner

        from slipstick.calibration.measure_cli import measure_command

        output = tmp_path / "t.csv"
        words = ["--kind", "optimizer", "--device", "cpu", "--threads", "1", "--budget", "3", "--output", str(output)]
        listed = CliRunner().invoke(measure_command, [*words, "--list"])
        assert listed.exit_code == 0
        assert not output.exists()
        assert all(line.startswith("optimizer fp32 elements=") for line in listed.stdout.splitlines())
        done = CliRunner().invoke(measure_command, words)
        assert done.exit_code == 0, done.output
        assert str(output) in done.stdout
        assert output.exists()


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sys

    from slipstick.calibration.measure import measure

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"slipstick\[torch\]"):
        measure(tmp_path / "t.csv")
