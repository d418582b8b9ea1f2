"""The measured kernel family: it keeps the kit's laws, and with its stated values it behaves as kernels do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstick.core.algebra.symbols import info
from slipstick.core.model.interfaces.kernels import parameter_symbol
from slipstick.core.testkit.kernels import KernelFamilyContract
from slipstick.plugins.hardware.kernels import COLLECTIVES, Measured, formulas
from slipstick.plugins.hardware.kernels_values import DEFAULTS, stated

FAMILY = Measured()
MACHINE = {"rate": 989e12, "bandwidth": 3.35e12, "units": 132.0, "cache": 50e6, "hot": 0.0, "working_set": 0.0}


class TestMeasured(KernelFamilyContract):
    family = FAMILY


def seconds(slot: str, **inputs: float) -> float:
    """The price of one kernel with the slot's stated values."""
    value = formulas()[slot].tape().evaluate({**MACHINE, **stated(slot), **inputs}, ["value"])["value"]
    assert isinstance(value, float)
    return value


def product(m: float, n: float, k: float, **more: float) -> dict[str, float]:
    """The inputs of a BF16 product whose weights come from memory."""
    return {"m": m, "n": n, "k": k, "flops": 2 * m * n * k, "cold": 2 * n * k, "warm": 2 * m * (n + k), **more}


def core(batch: float, query: float, span: float, heads: float, kv_heads: float, **more: float) -> dict[str, float]:
    """The inputs of an attention core with heads of 128."""
    return {
        "batch": batch, "query": query, "span": span, "heads": heads, "kv_heads": kv_heads, "head_dim": 128,
        "flops": 4 * batch * heads * 128 * query * span,
        "bytes": 4 * batch * 128 * (query * heads + 2 * span * kv_heads), **more,
    }  # fmt: skip


@pytest.mark.parametrize("slot", list(formulas()))
def test_formulas_come_out_in_seconds(slot: str) -> None:
    formulas()[slot].check()


@pytest.mark.parametrize("slot", list(formulas()))
def test_stated_values_lie_within_the_bounds_of_parameters_and_symbols(slot: str) -> None:
    for parameter in formulas()[slot].parameters:
        symbol = info(parameter_symbol(parameter.name, slot))
        assert symbol.unit == parameter.unit
        assert symbol.lower <= parameter.lower <= parameter.default <= parameter.upper <= symbol.upper


def test_each_slot_has_a_formula_and_a_value_for_each_parameter() -> None:
    assert set(FAMILY.slots()) == set(DEFAULTS)
    wanted = {parameter_symbol(p.name, slot) for slot, f in FAMILY.slots().items() for p in f.parameters}
    assert wanted == set(FAMILY.defaults())
    assert all(quantity.source.kind == "default" for quantity in FAMILY.defaults().values())


def test_corrections_are_zero_until_somebody_measures() -> None:
    bends = {name: value for name, value in FAMILY.defaults().items() if name.startswith("bend_")}
    assert bends
    assert {float(value) for value in bends.values()} == {0.0}


@pytest.mark.parametrize("slot", ["gemm", "grouped_gemm"])
def test_huge_products_run_near_the_stated_share_of_the_rate(slot: str) -> None:
    # Dense BF16 on H100 SXM, 989 TFLOP/s: large cuBLAS products reach 600 to 800 TFLOP/s, so 0.6 to 0.85 of it.
    side = 16384.0
    found = 2 * side**3 / seconds(slot, **product(side, side, side, groups=8.0, uneven=0.0))
    low = 0.6 if slot == "gemm" else 0.5
    assert low * MACHINE["rate"] < found < 0.85 * MACHINE["rate"]


def test_a_product_of_one_row_runs_at_memory_speed() -> None:
    found = seconds("gemm", **product(1, 16384, 16384))
    least = 2 * 16384**2 / MACHINE["bandwidth"]
    assert 1 < found / least < 1.4


@given(
    st.floats(1, 1e5), st.floats(64, 65536), st.floats(64, 65536), st.sampled_from(["m", "n", "k"]), st.floats(1.01, 8)
)
def test_a_larger_product_never_takes_less(m: float, n: float, k: float, what: str, factor: float) -> None:
    sizes = {"m": m, "n": n, "k": k}
    before = seconds("gemm", **product(**sizes))
    after = seconds("gemm", **product(**{**sizes, what: sizes[what] * factor}))
    assert after >= before * (1 - 1e-9)


@given(
    st.sampled_from(["gemm", "grouped_gemm"]), st.floats(1, 1e5), st.floats(64, 65536), st.floats(64, 65536),
    st.sampled_from(["rate", "bandwidth"]), st.floats(1.01, 100),
)  # fmt: skip
def test_more_of_a_resource_never_slows_a_product(
    slot: str, m: float, n: float, k: float, what: str, factor: float
) -> None:
    inputs = product(m, n, k, groups=4.0, uneven=0.0)
    assert seconds(slot, **inputs, **{what: MACHINE[what] * factor}) <= seconds(slot, **inputs) * (1 + 1e-9)


SLOTS = ("attention.context", "attention.decode", "attention.backward", "latent.context", "latent.decode")


@given(
    st.sampled_from(SLOTS), st.integers(1, 256), st.integers(2, 16384), st.integers(0, 5), st.integers(0, 3),
    st.sampled_from(["batch", "heads", "span", "rate", "bandwidth"]), st.sampled_from([2, 3, 7]),
)  # fmt: skip
def test_attention_grows_with_its_sizes_and_shrinks_with_resources(
    slot: str, batch: int, span: int, head_octaves: int, group_octaves: int, what: str, factor: int
) -> None:
    query = 1 if slot.endswith("decode") else 2 * span
    heads = 2.0 ** (head_octaves + group_octaves)
    sizes: dict[str, Any] = {
        "batch": batch, "query": query, "span": span, "heads": heads, "kv_heads": 2.0**head_octaves,
    }  # fmt: skip
    before = seconds(slot, **core(**sizes))
    if what in ("rate", "bandwidth"):
        assert seconds(slot, **core(**sizes), **{what: MACHINE[what] * factor}) <= before * (1 + 1e-9)
        return
    grown = {**sizes, what: sizes[what] * factor}
    if what == "heads":
        grown["kv_heads"] = sizes["kv_heads"] * factor
    assert seconds(slot, **core(**grown)) >= before * (1 - 1e-9)


@pytest.mark.parametrize("slot", COLLECTIVES)
def test_a_transfer_to_nobody_costs_nothing(slot: str) -> None:
    link = {"bandwidth": 450e9, "latency": 1.8e-6}
    assert seconds(slot, **link, volume=0, hops=0, ranks=1) == 0


@given(
    st.sampled_from(COLLECTIVES), st.floats(1, 1e11), st.integers(1, 14), st.integers(2, 1024),
    st.sampled_from(["volume", "bandwidth", "hops", "latency"]), st.floats(1.01, 100),
)  # fmt: skip
def test_transfers_grow_with_volume_and_hops_and_shrink_with_bandwidth(
    slot: str, volume: float, hops: int, ranks: int, what: str, factor: float
) -> None:
    inputs = {"volume": volume, "hops": hops, "ranks": ranks, "bandwidth": 450e9, "latency": 1.8e-6}
    before, after = seconds(slot, **inputs), seconds(slot, **{**inputs, what: inputs[what] * factor})
    assert after <= before * (1 + 1e-9) if what == "bandwidth" else after >= before * (1 - 1e-9)


@given(st.sampled_from(COLLECTIVES), st.floats(1, 1e13), st.integers(2, 100000))
def test_no_transfer_beats_its_link(slot: str, volume: float, ranks: int) -> None:
    found = seconds(slot, volume=volume, hops=ranks - 1, ranks=ranks, bandwidth=450e9, latency=1.8e-6)
    assert found > volume / 450e9 * 0.999


@pytest.mark.parametrize("slot", [slot for slot in formulas() if slot not in COLLECTIVES])
def test_nothing_to_do_costs_no_more_than_starting(slot: str) -> None:
    nothing = dict.fromkeys(formulas()[slot].inputs, 0.0) | MACHINE
    sizes = {name: 1.0 for name in ("n", "k", "heads", "kv_heads", "head_dim") if name in formulas()[slot].inputs}
    found = seconds(slot, **{**nothing, **sizes})
    assert 0 < found < 5e-5  # a number, and about a kernel's launch


@pytest.mark.parametrize("slot", ["gemm", "attention.context", "attention.decode", "grouped_gemm", "all_reduce"])
def test_corrections_never_exceed_a_factor_of_two(slot: str) -> None:
    if slot in COLLECTIVES:
        inputs = {"volume": 1e9, "hops": 14.0, "ranks": 8.0, "bandwidth": 450e9, "latency": 1.8e-6}
    elif slot.endswith("gemm"):
        inputs = product(8192, 8192, 8192, groups=8.0, uneven=1.0)
    else:
        inputs = core(64, 1 if slot.endswith("decode") else 4096, 2048, 32, 8)
    plain = seconds(slot, **inputs)
    largest = {name: 1.0 for name in stated(slot) if name.startswith("bend_")}
    bent = formulas()[slot].tape().evaluate({**MACHINE, **stated(slot), **inputs, **largest}, ["value"])["value"]
    assert bent == pytest.approx(plain * 2.0138, rel=1e-3)  # exp(0.7)


def test_weights_in_the_cache_are_faster_only_where_a_benchmark_reads_them_again() -> None:
    inputs = product(1, 1024, 1024)
    cold = seconds("gemm", **inputs)
    assert seconds("gemm", **inputs, working_set=2e6) == cold
    assert seconds("gemm", **inputs, working_set=2e6, hot=1.0) < cold
    assert seconds("gemm", **inputs, working_set=2e9, hot=1.0) == pytest.approx(cold)
