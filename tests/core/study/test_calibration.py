"""Which fitted record stands behind each kind of kernel, and when it is only a stand-in."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.records.fitted import FittedRecord
from slipstick.core.records.fitted_toml import write_records
from slipstick.core.records.numerics import Numerics, serving_numerics, training_numerics
from slipstick.core.study.ask import ask
from slipstick.core.study.calibration import UNMEASURED, Calibration, Trust, calibration
from slipstick.core.study.tree import leaves

Record = Callable[..., FittedRecord]
SIZES = {"head_dim": 128.0, "heads": 32.0, "kv_heads": 8.0}
LINK = {"link_efficiency": 0.7}


@pytest.fixture(scope="module")
def slotted(slotted_file: Path) -> Host:
    return Host.load(files=[slotted_file])


@pytest.fixture(scope="module")
def choose(slotted: Host) -> Callable[..., Calibration]:
    """The calibration of the slotted family from records."""

    def call(
        *records: FittedRecord,
        groups: Sequence[Sequence[FittedRecord]] = (),
        numerics: Numerics | None = None,
        sources: Sequence[str] = (),
        **sizes: float,
    ) -> Calibration:
        family = slotted.kernel_families()["slotted"]
        wanted = numerics or training_numerics("bf16")
        return calibration(family, groups or (records,), wanted, sources, {**SIZES, **sizes})

    return call


def served(precision: str, cache: str = "auto") -> Numerics:
    return serving_numerics(precision, cache, {}, "bf16")


Choose = Callable[..., Calibration]


def test_without_records_nothing_is_changed(choose: Choose) -> None:
    found = choose()
    assert found.values == {}
    assert {slot for slot in found.slots if "." not in slot} >= {"gemm", "pointwise", "all_reduce"}
    assert all(t.record is None and not t.calibrated and t.sigma == UNMEASURED for t in found.slots.values())


def test_a_record_fills_the_parameters_of_its_slot_alone(choose: Choose, fitted: Record) -> None:
    found = choose(fitted())
    values = {name: q.value for name, q in found.values.items()}
    per_slot = {"compute_efficiency": 0.8, "memory_efficiency": 0.9, "launch": 2e-6}
    # gemm.high: products that quantisation leaves alone, here in the same format.
    assert values == {f"{p}@{slot}": v for slot in ("gemm", "gemm.high") for p, v in per_slot.items()}
    trust = found.slots["gemm"]
    assert (trust.record, trust.stands_in, trust.sigma, trust.calibrated) == (fitted(), "", 0.06, True)
    assert found.slots["attention.decode"].record is None
    assert found.values["launch@gemm"].source == fitted().source


def test_another_familys_record_is_not_taken(choose: Choose, fitted: Record) -> None:
    assert choose(fitted(family="toy")).values == {}


def test_the_right_format_comes_first_and_another_says_that_it_stands_in(choose: Choose, fitted: Record) -> None:
    exact, block = fitted(format="fp8"), fitted(format="fp8_block")
    numerics = served("fp8")
    assert choose(block, exact, numerics=numerics).slots["gemm"].record == exact
    other = choose(block, numerics=numerics).slots["gemm"]
    assert (other.record, other.stands_in) == (block, "fp8_block for fp8")
    assert other.sigma == pytest.approx(math.hypot(0.06, 0.1))
    assert choose(fitted(format="bf16"), numerics=numerics).slots["gemm"].record is None  # no format of that family


def test_sixteen_bits_are_sixteen_bits(choose: Choose, fitted: Record) -> None:
    """Tensor cores multiply BF16 and FP16 at one rate (NVIDIA's and AMD's data sheets give one figure for both)."""
    found = choose(fitted(format="fp16")).slots["gemm"]
    assert (found.record, found.stands_in, found.sigma) == (fitted(format="fp16"), "", 0.06)


def test_experts_and_what_stays_in_16_bits_have_formats_of_their_own(choose: Choose, fitted: Record) -> None:
    half, fp8, fp4 = fitted(), fitted(format="fp8"), fitted("grouped_gemm", format="nvfp4")
    numerics = serving_numerics("auto", "auto", {"weight": "fp8", "expert": "nvfp4"}, "bf16")
    found = choose(half, fp8, fp4, numerics=numerics)
    assert found.slots["gemm"].record == fp8
    assert found.slots["gemm.high"].record == half
    assert found.slots["grouped_gemm"].record == fp4


def test_a_cache_in_8_bits_asks_for_its_own_record(choose: Choose, fitted: Record) -> None:
    plain = fitted("attention.decode")
    packed = fitted("attention.decode", format="bf16/fp8")
    numerics = served("bf16", "fp8")
    assert choose(plain, packed, numerics=numerics).slots["attention.decode"].record == packed
    assert choose(plain, packed).slots["attention.decode"].record == plain
    other = choose(plain, numerics=numerics).slots["attention.decode"]
    assert (other.record, other.stands_in) == (plain, "bf16 cache for fp8")
    other = choose(packed).slots["attention.decode"]
    assert (other.record, other.stands_in) == (packed, "fp8 cache for bf16")


def test_the_stacks_own_kernels_are_preferred(choose: Choose, fitted: Record) -> None:
    ours, theirs = fitted(engine="vllm", rows=10), fitted(engine="trtllm", rows=9999)
    assert choose(theirs, ours, sources=("vllm",)).slots["gemm"].record == ours
    assert choose(theirs, ours, sources=("sglang", "trtllm")).slots["gemm"].record == theirs
    found = choose(theirs, sources=("vllm",)).slots["gemm"]
    assert found.stands_in == "trtllm kernels for vllm's"
    assert choose(theirs, sources=("vllm", "trtllm")).slots["gemm"].stands_in == ""
    by_library = fitted(engine="torch", kernel_source="cutlass")
    assert choose(theirs, by_library, sources=("cutlass",)).slots["gemm"].record == by_library


def test_the_models_own_sizes_decide_between_records(choose: Choose, fitted: Record) -> None:
    narrow = fitted("attention.decode", where={"head_dim": (64.0, 64.0)})
    wide = fitted("attention.decode", where={"head_dim": (128.0, 128.0), "group": (2.0, 8.0)})
    for records in ((narrow, wide), (wide, narrow)):
        assert choose(*records).slots["attention.decode"].record == wide
        assert choose(*records, head_dim=64.0).slots["attention.decode"].record == narrow
    assert choose(wide).slots["attention.decode"].stands_in == ""  # a group of 32 / 8 = 4 lies inside
    found = choose(wide, kv_heads=32.0).slots["attention.decode"]  # a group of 1 does not
    assert found.stands_in == "fitted at head_dim 128 to 128, group 2 to 8"
    assert choose(narrow).slots["attention.decode"].stands_in == "fitted at head_dim 64 to 64"


def test_a_persons_own_record_counts_more_than_what_is_brought(choose: Choose, fitted: Record) -> None:
    own, brought = fitted(note="own", rows=10, engine="trace"), fitted(note="brought", rows=9999, engine="vllm")
    for sources in ((), ("vllm",)):
        assert choose(groups=((own,), (brought,)), sources=sources).slots["gemm"].record == own
        assert choose(groups=((brought,), (own,)), sources=sources).slots["gemm"].record == brought


def test_of_one_engine_the_newest_version_counts(choose: Choose, fitted: Record) -> None:
    older, newer = (fitted(engine="trtllm", engine_version=version) for version in ("1.3.0rc5", "1.3.0rc20"))
    for records in ((older, newer), (newer, older)):
        assert choose(*records).slots["gemm"].record == newer


def test_a_fit_that_is_not_called_calibrated_is_the_last_choice(choose: Choose, fitted: Record) -> None:
    bad, good = fitted(calibrated=False, reason="8 rows", sigma=0.05), fitted(sigma=0.2)
    assert choose(bad, good).slots["gemm"].record == good
    alone = choose(bad).slots["gemm"]
    assert (alone.record, alone.calibrated, alone.sigma) == (bad, False, UNMEASURED)


def test_a_collective_has_no_format_to_match(choose: Choose, fitted: Record) -> None:
    record = fitted("all_reduce", LINK, formula="slotted-link", format="fp16")
    found = choose(record, numerics=served("fp8"))
    assert found.slots["all_reduce"].record == record
    assert found.values["link_efficiency@all_reduce"].value == 0.7
    assert found.slots["all_gather"].record is None


def test_how_far_a_kernel_lies_outside_is_the_logarithm_of_the_largest_ratio(fitted: Record) -> None:
    trust = Trust("gemm", fitted(ranges={"flops": (1e6, 1e12), "bytes": (1e3, 1e9)}))
    assert trust.beyond({"flops": 1e9, "bytes": 1e6, "rate": 1.0}) == 0
    assert trust.beyond({"flops": 1e6, "bytes": 1e9}) == 0
    assert trust.beyond({"flops": 1e15, "bytes": 1e10}) == pytest.approx(math.log(1e3))
    assert trust.beyond({"flops": 1e5}) == pytest.approx(math.log(10))
    assert trust.beyond({"bytes": 0.0}) == 0  # nothing is moved
    assert Trust("gemm").beyond({"flops": 1e99}) == 0


def test_a_record_beside_the_accelerator_prices_its_kernels(slotted: Host, chip: Path, fitted: Record) -> None:
    """With both efficiencies at 0.8 in place of 0.5 a product takes 0.5 / 0.8 as long, every other kernel the same."""

    def products() -> tuple[float, float]:
        tree = ask("train", ("llama-3.1-8b",), (str(chip),), {"global_batch": 1}, slotted).predictions[0].answer
        parts = leaves(tree.trees["step"])
        bound = [leaf for leaf in parts if leaf.slot in ("gemm", "gemm.high")]
        others = [leaf for leaf in parts if leaf.slot not in ("gemm", "gemm.high")]
        assert bound
        return sum(x.seconds * x.times for x in bound), sum(x.seconds * x.times for x in others)

    before = products()
    parameters = {"compute_efficiency": 0.8, "memory_efficiency": 0.8, "launch": 0.0}
    write_records(chip.parent / "fitted" / "bench-chip.lab.toml", [fitted(parameters=parameters)])
    after = products()
    assert after[0] == pytest.approx(before[0] * 0.5 / 0.8)
    assert after[1] == pytest.approx(before[1])


def test_an_accelerators_own_parameters_override_what_was_fitted(
    slotted: Host, chip: Path, fitted: Record, one: Any
) -> None:
    write_records(chip.parent / "fitted" / "bench-chip.lab.toml", [fitted()])
    text = chip.read_text(encoding="utf-8")
    given = {"launch@gemm": 7, "launch@attention.decode": 9}
    own = "\n".join(f'"{name}" = {{ value = "{value} us", source = "sheet" }}' for name, value in given.items())
    chip.write_text(f"{text}\n[parameters]\n{own}\n", encoding="utf-8")
    case = ask("train", ("llama-3.1-8b",), (str(chip),), {}, slotted).predictions[0].case
    assert case.fixed["launch@gemm"] == pytest.approx(7e-6)
    assert case.fixed["launch@attention.decode"] == pytest.approx(9e-6)
    assert case.fixed["launch@gemm.high"] == pytest.approx(2e-6)
    assert case.fixed["compute_efficiency@gemm"] == 0.8


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("lunch@gemm", "unknown parameter of bench-chip 'lunch@gemm'; did you mean launch@gemm"),
        ("launch@gemn", "unknown parameter of bench-chip 'launch@gemn'; did you mean launch@gemm"),
        ("launch@ge mm", "is no name of a parameter"),
        ("@", "is no name of a parameter"),
    ],
)
def test_a_parameter_that_nobody_knows_is_one_line(slotted: Host, chip: Path, key: str, told: str) -> None:
    text = chip.read_text(encoding="utf-8")
    chip.write_text(f'{text}\n[parameters]\n"{key}" = {{ value = "7 us", source = "sheet" }}\n', encoding="utf-8")
    with pytest.raises(UserError) as caught:
        ask("train", ("llama-3.1-8b",), (str(chip),), {}, slotted)
    assert told in str(caught.value)
