"""A measured row becomes the inputs that the same kernel of a model gets."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.algebra.compile import compile_expressions
from slipstick.core.model.interfaces.trace_reader import TraceRow
from slipstick.core.model.work import Work
from slipstick.core.testkit import models
from slipstick.core.testkit.derivation import derive
from slipstick.core.testkit.kernels import KINDS
from slipstick.core.testkit.scene import COMPANIONS, Scene
from slipstick.plugins.hardware.kernels import COLLECTIVES, Measured, formulas
from slipstick.plugins.hardware.kernels_measured import widths
from slipstick.plugins.hardware.kernels_routing import busiest, exponent

FAMILY = Measured()
MACHINE: dict[str, Any] = {
    "rate": 989e12, "vector_rate": 67e12, "bandwidth": 3.35e12, "units": 132.0, "cache": 50e6,
    "link_bandwidth": 450e9, "link_latency": 1.8e-6,
}  # fmt: skip


def row(kernel: str, shape: dict[str, Any], number_format: str = "bf16", **more: Any) -> TraceRow:
    return TraceRow(kernel, shape, number_format, "h100-sxm", 1e-4, "by hand", **more)


def parts(kernel: str, shape: dict[str, Any], number_format: str = "bf16", **more: Any) -> tuple[Any, ...]:
    return FAMILY.measured(row(kernel, shape, number_format, **more), MACHINE)


ATTENTION = {
    "batch": 2.0, "query": 512.0, "context": 512.0, "heads": 32.0, "kv_heads": 8.0, "head_dim": 128.0, "window": 0.0,
    "causal": 1.0,
}  # fmt: skip
ROUTED = {"tokens": 1024.0, "hidden": 4096.0, "ffn": 1536.0, "experts": 128.0, "top_k": 8.0, "tp": 1.0, "ep": 1.0,
          "matrices": 3.0}  # fmt: skip
SHAPED: dict[str, dict[str, Any]] = {
    "gemm": {"m": 16.0, "n": 4096.0, "k": 4096.0},
    "grouped_gemm": ROUTED,
    "attention": ATTENTION,
    "attention_backward": ATTENTION,
    "latent_attention": {"batch": 2.0, "query": 512.0, "context": 512.0, "heads": 16.0, "latent": 512.0, "rope": 64.0},
    "pointwise": {"bytes": 1e8, "elements": 1e7},
    "memory_copy": {"bytes": 1e8},
    "lookup": {"bytes": 1e8, "elements": 1e7},
    "optimizer": {"elements": 1e8},
    **{kind: {"bytes": 1e8} for kind in COLLECTIVES},
}


@pytest.mark.parametrize("kernel", list(SHAPED))
def test_every_kernel_gets_all_inputs_of_its_formula(kernel: str) -> None:
    found = parts(kernel, SHAPED[kernel], ranks=8 if kernel in COLLECTIVES else 1)
    assert found
    for part in found:
        assert set(part.inputs) == set(formulas()[part.slot].inputs)


@pytest.mark.parametrize("kernel", list(SHAPED))
def test_columns_are_priced_as_their_rows(kernel: str) -> None:
    np = pytest.importorskip("numpy")
    ranks = 8 if kernel in COLLECTIVES else 1
    shapes = [SHAPED[kernel], {n: v * 2 if n in ("m", "batch", "bytes", "elements", "tokens") else v
                               for n, v in SHAPED[kernel].items()}]  # fmt: skip

    class Columns:
        def __init__(self) -> None:
            self.kernel, self.format, self.facts = kernel, "bf16", {}
            self.shape = {name: np.array([s[name] for s in shapes]) for name in shapes[0]}
            self.ranks = np.array([float(ranks)] * 2)

    together = FAMILY.measured(Columns(), MACHINE)  # type: ignore[arg-type]  # as the fitter gives them
    for place, shape in enumerate(shapes):
        for part, one in zip(together, parts(kernel, shape, ranks=ranks), strict=True):
            assert part.slot == one.slot
            for name, value in part.inputs.items():
                assert np.broadcast_to(value, (2,))[place] == pytest.approx(one.inputs[name]), (part.slot, name)


def test_a_kernel_of_another_kind_has_no_parts() -> None:
    assert parts("fft", {"n": 8.0}) == ()


def test_a_collective_of_one_device_has_no_parts() -> None:
    assert parts("all_reduce", {"bytes": 1e6}, ranks=1) == ()


def test_a_product_has_its_flops_and_bytes() -> None:
    (part,) = parts("gemm", {"m": 16.0, "n": 64.0, "k": 32.0}, "fp8")
    assert part.slot == "gemm"
    assert part.inputs["flops"] == 2 * 16 * 64 * 32
    assert part.inputs["cold"] == 64 * 32  # one byte an element
    assert part.inputs["warm"] == 16 * 32 + 2 * 16 * 64  # written in 16 bits
    assert part.inputs["hot"] == 0  # a trace of a running model reads its weights once a step


def test_a_collectors_copies_of_the_weights_are_known() -> None:
    facts = {"table": "gemm", "engine": "vllm"}
    (part,) = parts("gemm", {"m": 16.0, "n": 64.0, "k": 32.0}, facts=facts)
    assert part.inputs["hot"] == 1
    assert part.inputs["working_set"] == 6 * 2 * 64 * 32


@pytest.mark.parametrize(
    ("query", "context", "window", "pairs"),
    [(4, 4, 0, 10), (1, 9, 0, 9), (2, 5, 0, 9), (6, 6, 2, 11), (2, 9, 3, 6), (3, 3, 8, 6)],
)
def test_pairs_of_causal_and_windowed_attention_are_counted(query: int, context: int, window: int, pairs: int) -> None:
    # by hand: each query sees itself and those before it, at most `window` of them
    assert pairs == sum(min(context - query + i + 1, window or context) for i in range(query))
    shape = ATTENTION | {"query": float(query), "context": float(context), "window": float(window)}
    (part,) = parts("attention", shape)
    assert part.inputs["span"] == pytest.approx(pairs / query)
    if query > 1:
        assert part.inputs["flops"] == pytest.approx(4 * 2 * 32 * 128 * pairs)


def test_attention_that_is_not_causal_sees_everything() -> None:
    (part,) = parts("attention", ATTENTION | {"causal": 0.0})
    assert part.inputs["span"] == 512


def test_one_new_token_decodes_and_its_cache_has_a_format_of_its_own() -> None:
    shape = ATTENTION | {"query": 1.0, "context": 1000.0}
    (wide,) = parts("attention", shape)
    (narrow,) = parts("attention", shape, facts={"kv_format": "fp8"})
    assert wide.slot == narrow.slot == "attention.decode"
    assert wide.inputs["bytes"] - narrow.inputs["bytes"] == 2 * 1000 * 2 * 8 * 128  # a byte less for K and V each


@pytest.mark.parametrize(
    ("kind", "share", "hops"),
    [("all_reduce", 1.75, 14), ("all_gather", 0.875, 7), ("reduce_scatter", 0.875, 7), ("all_to_all", 0.875, 1),
     ("send", 1.0, 1)],
)  # fmt: skip
def test_collectives_have_the_volumes_of_their_rings(kind: str, share: float, hops: int) -> None:
    # Thakur, Rabenseifner, Gropp 2005: 2 (n - 1)/n and (n - 1)/n of the data for 8 ranks
    (part,) = parts(kind, {"bytes": 1e6}, ranks=8)
    assert part.slot == kind
    assert part.inputs["volume"] == pytest.approx(share * 1e6)
    assert part.inputs["hops"] == hops


def test_routed_experts_are_two_products_and_the_work_around_them() -> None:
    found = parts("grouped_gemm", ROUTED, facts={"distribution": "balanced"})
    assert [part.slot for part in found] == ["grouped_gemm", "grouped_gemm", "permute", "pointwise"]
    up, down = found[:2]
    assert up.inputs["m"] == down.inputs["m"] == 1024 * 8
    assert up.inputs["groups"] == 128
    assert (up.inputs["n"], up.inputs["k"]) == (2 * 1536, 4096)
    assert (down.inputs["n"], down.inputs["k"]) == (4096, 1536)
    assert up.inputs["flops"] + down.inputs["flops"] == 2 * 1024 * 8 * 3 * 4096 * 1536


def test_a_distribution_nobody_knows_is_not_fitted() -> None:
    assert parts("grouped_gemm", ROUTED, facts={"distribution": "zipf"}) == ()
    assert exponent("power_law_1.01") == 1.01


def test_busiest_rank_of_an_even_load() -> None:
    assert busiest(64, 2, 8, 4, 0.0) == (2, 32)  # 128 choices over 4 ranks, all experts in use
    assert busiest(1, 8, 256, 8, 0.0) == (1, 1)  # eight choices, one on each rank


@pytest.mark.parametrize("alpha", [1.01, 1.2])
def test_a_power_law_loads_the_busiest_rank_more_and_fewer_experts(alpha: float) -> None:
    active, rows = busiest(256, 8, 128, 8, alpha)
    assert 1 < active <= 16
    assert 256 * 8 / 8 < rows < 256 * 8
    everyone, all_rows = busiest(256, 8, 128, 1, alpha)
    assert all_rows == pytest.approx(256 * 8, rel=0.02)  # one rank has them all
    assert everyone < 128
    assert busiest(256, 8, 128, 8, alpha) == (active, rows)  # the same whenever it is asked


def test_formats_have_widths() -> None:
    assert widths("bf16") == (2, 2)
    assert widths("nvfp4") == (0.5625, 0.5625)
    assert widths("w4a16_mxfp4") == (0.53125, 2)
    assert widths("bf16/fp8") == (2, 2)


# --- the inverse of price ---------------------------------------------------------------------------------------------


def numbers(work: Work, values: dict[str, Any]) -> tuple[str, dict[str, float]]:
    """The slot of a kernel of a model and its inputs as numbers."""
    priced = FAMILY.price(work)
    tape = compile_expressions(dict(priced.inputs))
    return priced.slot, {name: float(value) for name, value in tape.evaluate(values).items()}


def kernels(model: str, kind: str) -> list[tuple[Work, dict[str, Any], dict[str, float]]]:
    """Forward kernels of one kind of a model of the kit, its values, and their shapes as numbers."""
    scene = Scene.of(models.all_models()[model], COMPANIONS, family=FAMILY)
    values = scene.values(sequence=512, batch=2, micro_batch=2)
    values |= {"query": 512, "context": 512}
    found = []
    for work in derive(scene.graph.runs[0].cycle[0], scene.plan.rules).works():
        if work.kind == kind and work.direction == "forward":
            shape = compile_expressions(dict(work.shape)).evaluate(values)
            found.append((work, values, {name: float(value) for name, value in shape.items()}))
    return found


def machine_of(values: dict[str, Any], engine: str) -> dict[str, Any]:
    return MACHINE | {
        "rate": values[f"{engine}_rate"], "bandwidth": values["hbm_bandwidth"], "units": values["device_units"],
        "cache": values["device_cache"],
    }  # fmt: skip


def test_a_products_measured_row_has_the_inputs_of_its_price() -> None:
    found = kernels("dense", "gemm")
    assert found
    for work, values, shape in found:
        slot, priced = numbers(work, values)
        (part,) = FAMILY.measured(row("gemm", shape), machine_of(values, work.engine))
        assert part.slot == slot == "gemm"
        for name, value in priced.items():
            assert part.inputs[name] == pytest.approx(value), (work.name, name)


def test_an_attention_cores_measured_row_has_the_inputs_of_its_price() -> None:
    found = kernels("dense", "attention")
    assert found
    for work, values, shape in found:
        slot, priced = numbers(work, values)
        (part,) = FAMILY.measured(row("attention", {**shape, "causal": 1.0}), machine_of(values, work.engine))
        assert part.slot == slot == "attention.context"
        for name, value in priced.items():
            assert part.inputs[name] == pytest.approx(value), (work.name, name)


def test_every_kind_of_work_has_a_slot_of_its_own() -> None:
    slots = set()
    for model in models.all_models():
        for kind in KINDS:
            slots |= {numbers(work, values)[0] for work, values, _ in kernels(model, kind)}
    assert {"gemm", "grouped_gemm", "attention.context", "latent.context", "pointwise", "permute"} <= slots
