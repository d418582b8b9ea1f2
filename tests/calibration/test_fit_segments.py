"""Rows are sorted into what one fit may hold: by kernel, phase, head size and group, and put together where few."""

from __future__ import annotations

from types import ModuleType

import numpy as np
import pytest
from attrs import evolve

from slipstick.calibration.fit_segments import machine_values, segments_of, slot_formulas
from slipstick.calibration.readers.batch import from_rows
from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.model.device import kernel_rate
from slipstick.core.model.interfaces.trace_reader import TraceRow


@pytest.fixture(scope="module")
def host() -> Host:
    """A host of what is installed."""
    return Host.load()


def attention(query: float, heads: float, kv_heads: float, width: float, context: float, cache: str = "") -> TraceRow:
    """One row of an attention kernel."""
    shape = {"batch": 4.0, "query": query, "context": context, "heads": heads, "kv_heads": kv_heads,
             "head_dim": width, "window": 0.0, "causal": 1.0}  # fmt: skip
    facts = {"kv_format": cache} if cache else {}
    return TraceRow("attention", shape, "bf16", "h100-sxm", 1e-5 * context, "a test", source="lib", facts=facts)


def test_attention_is_split_by_phase_head_size_group_and_cache(toy: ModuleType, host: Host) -> None:
    machines = {"h100-sxm": host.machine("h100-sxm")}
    rows = [
        attention(query, heads, kv, width, context, cache)
        for context in range(100, 130)
        for query in (1.0, 64.0)
        for heads, kv in ((32.0, 32.0), (32.0, 8.0), (32.0, 1.0))
        for width in (64.0, 128.0)
        for cache in ("", "fp8")
    ]
    segments, unread = segments_of(from_rows(rows), toy.Toy(), machines)
    assert unread == []
    decode = {s.key for s in segments if s.key.slot == "attention.decode"}
    assert {(dict(key.where)["group"], dict(key.where)["head_dim"][0]) for key in decode} == {
        (group, width) for group in ((1, 1), (2, 16), (17, 32)) for width in (64, 128)
    }
    context = {s.key for s in segments if s.key.slot == "attention.context"}
    assert {tuple(dict(key.where)) for key in context} == {("head_dim",)}  # groups matter to decoding alone
    assert {key.format for key in decode | context} == {"bf16", "bf16/fp8"}
    assert sum(len(s.rows) for s in segments) == len(rows)


def test_small_classes_are_put_together(toy: ModuleType, host: Host) -> None:
    machines = {"h100-sxm": host.machine("h100-sxm")}
    rows = [
        attention(1.0, 32.0, kv, width, context)
        for context in (100, 200, 300, 400)
        for kv in (32.0, 8.0, 1.0)
        for width in (64.0, 128.0)
    ]
    (segment,), _ = segments_of(from_rows(rows), toy.Toy(), machines)
    assert segment.key.where == ()
    assert len(segment.rows) == 24
    several = [
        attention(1.0, 32.0, kv, w, c) for c in range(100, 110) for kv in (32.0, 8.0, 1.0) for w in (64.0, 128.0)
    ]
    segments, _ = segments_of(from_rows(several), toy.Toy(), machines)
    assert sorted(dict(s.key.where)["head_dim"] for s in segments) == [(64, 64), (128, 128)]
    assert all(len(s.rows) == 30 for s in segments)


def test_repeated_rows_are_one_and_other_loads_are_not(toy: ModuleType, host: Host) -> None:
    def experts(seconds: float, load: str) -> TraceRow:
        shape = {"tokens": 64.0, "hidden": 1024.0, "ffn": 512.0, "experts": 8.0, "top_k": 2.0, "tp": 1.0, "ep": 1.0,
                 "skew": 0.0, "matrices": 3.0}  # fmt: skip
        facts = {"distribution": load}
        return TraceRow("grouped_gemm", shape, "bf16", "h100-sxm", seconds, "a test", source="lib", facts=facts)

    rows = [experts(1e-4, "balanced"), experts(3e-4, "balanced"), experts(5e-4, "power_law_1.2")]
    (segment,), _ = segments_of(from_rows(rows), toy.Toy(), {"h100-sxm": host.machine("h100-sxm")})
    assert sorted(segment.rows.seconds.tolist()) == pytest.approx([2e-4, 5e-4])
    assert segment.rows.measurements == 3
    assert segment.others == {"pointwise"}


def test_what_has_no_formula_no_rate_or_no_link_is_counted_and_named(toy: ModuleType, host: Host) -> None:
    def row(kernel: str, number_format: str, device: str, ranks: int = 1, **shape: float) -> TraceRow:
        return TraceRow(kernel, shape, number_format, device, 1e-6, "a test", ranks=ranks)

    h100 = host.machine("h100-sxm")
    machines = {"h100-sxm": h100, "alone": evolve(h100, node=evolve(h100.node, tiers=()))}
    rows = [
        row("gemm", "int3", "h100-sxm", m=1, n=1, k=1),
        row("gemm", "bf16", "h100-sxm", m=1, n=1),
        row("my_kernel", "bf16", "h100-sxm"),
        row("all_gather", "bf16", "h100-sxm", 2, bytes=1),
        row("gemm", "bf16", "elsewhere", m=1, n=1, k=1),
        row("all_reduce", "bf16", "alone", 2, bytes=1),
        row("pointwise", "", "h100-sxm", bytes=10),
    ]
    segments, unread = segments_of(from_rows(rows), toy.Toy(), machines)
    assert [s.key.slot for s in segments] == ["pointwise"]  # it multiplies nothing, so its format needs no rate
    told = {one.what: one.why for one in unread}
    assert sum(one.count for one in unread) == 6
    assert "another kind" in told["my_kernel"]
    assert "no formula" in told["all_gather"]
    whys = " ".join(one.why for one in unread)
    for part in ("int3", "its shape has no k", "elsewhere", "no link to other devices"):
        assert part in whys


def test_rates_are_those_of_the_datasheet(host: Host) -> None:
    h100, a100 = (host.machine(name).accelerator for name in ("h100-sxm", "a100-sxm-80gb"))
    # NVIDIA's dense figures: H100 989.4 BF16, 1978.9 FP8; A100 312 BF16, 624 INT8 [TFLOP/s]
    assert kernel_rate(h100, "bf16") == 989.4e12
    assert kernel_rate(h100, "fp8_block") == 1978.9e12
    assert kernel_rate(h100, "int4_wo") == 989.4e12  # expanded on chip
    assert kernel_rate(h100, "bf16/fp8") == 989.4e12
    assert kernel_rate(a100, "int8") == 624e12
    with pytest.raises(UserError, match="int3"):
        kernel_rate(h100, "int3")


def test_a_collective_is_given_the_innermost_tier_that_reaches_all(host: Host) -> None:
    machine = host.machine("h100-sxm")
    inner, outer = machine.node.tiers[0], machine.node.tiers[-1]
    assert inner.span == 8
    values = machine_values(machine, "bf16", np.array([2.0, 8.0, 16.0]))
    assert values["link_bandwidth"].tolist() == [inner.bandwidth.value, inner.bandwidth.value, outer.bandwidth.value]


def test_defaults_of_a_slot_stand_in_its_formula(toy: ModuleType) -> None:
    formulas = slot_formulas(toy.Toy())
    assert formulas["gemm"] is toy.ROOF

    class Other(toy.Toy):
        def defaults(self):
            stated = toy.Toy.defaults(self)
            launch = stated["launch@gemm"]
            return {**stated, "launch@gemm": type(launch)(9e-6, "s", launch.source)}

    formula = slot_formulas(Other())["gemm"]
    assert {p.name: p.default for p in formula.parameters}["launch"] == 9e-6
    assert formula.name == "toy-roof"


def test_a_family_without_slots_is_refused(host: Host) -> None:
    family = host.kernel_families()["roofline"]
    with pytest.raises(UserError, match="no slots"):
        segments_of([], family, {})


def test_a_prefill_kernel_with_one_new_token_is_neither(toy: ModuleType, host: Host) -> None:
    # a table of prefill times holds rows of one new token; another kernel ran them than decoding does
    rows = [evolve(attention(1.0, 32.0, 8.0, 128.0, 100.0), facts={"table": "context_attention"})]
    segments, unread = segments_of(from_rows(rows), toy.Toy(), {"h100-sxm": host.machine("h100-sxm")})
    assert segments == []
    assert [one.count for one in unread] == [1]


def test_encoders_stand_apart(toy: ModuleType, host: Host) -> None:
    rows = [attention(64.0, 8.0, 8.0, 64.0, context) for context in range(100, 130)]
    rows += [evolve(row, shape={**row.shape, "causal": 0.0}) for row in rows]
    segments, _ = segments_of(from_rows(rows), toy.Toy(), {"h100-sxm": host.machine("h100-sxm")})
    assert {tuple(sorted(dict(s.key.where))) for s in segments} == {("head_dim",), ("causal", "head_dim")}
