"""Widths and recipes, against the publications that define the formats, and docs/precision.md against the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import default_host
from slipstick.core.records.numerics import (
    GRADIENTS,
    MOMENTS,
    TRAINING,
    WIDTHS,
    expanded,
    rate_of,
    serving_numerics,
    training_numerics,
)

PAGE = (Path(__file__).parents[3] / "docs" / "precision.md").read_text(encoding="utf-8")
# OCP Microscaling Formats 1.0, section 5.2: 32 elements share one 8-bit scale. NVFP4: 16 share an E4M3 scale (NVIDIA,
# «Introducing NVFP4», 2025). GPTQ's usual group: 128 weights share one 16-bit scale. QLoRA (arXiv:2305.14314, section
# 3): double quantisation of blocks of 64 costs 0.127 bits a parameter.
BITS = {
    "fp32": 32,
    "tf32": 32,
    "bf16": 16,
    "fp16": 16,
    "fp8": 8,
    "fp8_block": 8 + 32 / 128**2,  # DeepSeek-V3, arXiv:2412.19437, section 3.3
    "int8": 8,
    "fp4": 4,
    "mxfp8": 8 + 8 / 32,
    "mxfp4": 4 + 8 / 32,
    "nvfp4": 4 + 8 / 16,
    "int4": 4 + 16 / 128,
    "nf4": 4.127,
}


def test_widths_are_bits_with_their_scales() -> None:
    assert set(WIDTHS) == set(BITS)
    for name, bits in BITS.items():
        assert WIDTHS[name] * 8 == pytest.approx(bits, rel=0.02 if name == "nf4" else 1e-12), name


def test_mixed_precision_training_keeps_sixteen_bytes_and_the_gradients_sum() -> None:
    """ZeRO (arXiv:1910.02054, section 3.1): FP32 master, momentum and variance are 12 bytes a parameter; Megatron-LM
    accumulates gradients in FP32: 18 bytes with an FP16 parameter (its page on the distributed optimizer)."""
    for name in ("bf16", "fp16"):
        widths = TRAINING[name].widths
        assert widths["master"] + widths["moment"] == 12
        assert widths["weight"] + widths["gradient"] + widths["master"] + widths["moment"] == 18
    full = TRAINING["fp32"].widths
    assert full["weight"] + full["gradient"] + full["master"] + full["moment"] == 16  # the weights are the master


def test_every_recipe_has_every_role() -> None:
    recipes = [*TRAINING.values(), serving_numerics("auto", "auto", {}, "bf16")]
    for recipe in recipes:
        assert set(recipe.widths) == set(recipes[0].widths)
        assert set(recipe.engines) == {"gemm", "expert", "high", "attention", "vector"}
        assert all(width >= 0 for width in recipe.widths.values())


@pytest.mark.parametrize(
    ("precision", "cache", "quantization", "dtype", "expected"),
    [
        ("auto", "auto", {}, "bf16", (2.0, 2.0, 2.0, 2.0)),
        ("auto", "auto", {}, "fp16", (2.0, 2.0, 2.0, 2.0)),
        ("auto", "auto", {"weight": "fp8"}, "bf16", (1.0, 1.0, 2.0, 2.0)),
        ("auto", "auto", {"weight": "bf16", "expert": "mxfp4"}, "bf16", (2.0, 0.53125, 2.0, 2.0)),
        ("auto", "fp8", {}, "bf16", (2.0, 2.0, 1.0, 2.0)),
        ("auto", "auto", {"weight": "fp8", "cache": "fp8"}, "bf16", (1.0, 1.0, 1.0, 2.0)),
        ("nvfp4", "fp8", {"weight": "fp8"}, "bf16", (0.5625, 0.5625, 1.0, 2.0)),
    ],
)
def test_how_a_served_model_is_kept(
    precision: str, cache: str, quantization: dict[str, str], dtype: str, expected: tuple[float, ...]
) -> None:
    made = serving_numerics(precision, cache, quantization, dtype)
    assert tuple(made.widths[role] for role in ("weight", "expert", "cache", "high")) == expected
    assert made.engines["attention"] in ("bf16", "fp16")  # attention and what quantisation leaves alone stay in 16 bits


def test_a_rate_is_the_format_s_own_or_that_of_sixteen_bits() -> None:
    """NVIDIA's datasheets: H100 SXM 1,979 dense FP8 and 989 dense BF16 TFLOP/s, no FP4; A100 312 BF16, no FP8."""
    host = default_host()
    h100, a100 = host.machine("h100-sxm").accelerator, host.machine("a100-80gb").accelerator
    assert rate_of(h100, "fp8") == (pytest.approx(1979e12, rel=1e-3), "fp8")
    assert rate_of(h100, "mxfp4") == (pytest.approx(989e12, rel=1e-3), "bf16")
    assert rate_of(h100, "int4") == rate_of(h100, "bf16")
    assert rate_of(a100, "fp8") == (pytest.approx(312e12, rel=1e-3), "bf16")
    with pytest.raises(UserError, match=r"has no bf16 rate; it has .*fp16"):
        rate_of(host.machine("v100-sxm2").accelerator, "bf16")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: training_numerics("fp9"), "unknown training precision 'fp9'"),
        (lambda: training_numerics("bf16", "fp9"), "unknown format of gradients 'fp9'"),
        (lambda: training_numerics("bf16", "fp32", "fp9"), "unknown format of optimizer states 'fp9'"),
        (lambda: serving_numerics("fp9", "auto", {}, "bf16"), "unknown serving precision 'fp9'"),
        (lambda: serving_numerics("auto", "fp9", {}, "bf16"), "unknown serving precision 'fp9'"),
        (lambda: serving_numerics("auto", "auto", {"weight": "awq"}, "bf16"), "unknown serving precision 'awq'"),
    ],
)
def test_unknown_formats(make: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()  # type: ignore[operator]


def table(heading: str) -> list[list[str]]:
    """The rows of the first table below a heading of the page."""
    part = PAGE.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line for line in part.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_the_page_has_every_width() -> None:
    listed = {row[0].strip("`"): float(row[1]) for row in table("Formats")}
    assert listed == {name: pytest.approx(width, rel=1e-9) for name, width in WIDTHS.items()}


def test_the_page_has_every_recipe() -> None:
    rows = {row[0].strip("`"): row[1:] for row in table("Training recipes")}
    assert set(rows) == set(TRAINING)
    for name, cells in rows.items():
        recipe = TRAINING[name]
        roles = ("weight", "gradient", "master", "moment", "activation")
        assert [float(cell) for cell in cells[:5]] == [recipe.widths[role] for role in roles], name
        assert re.findall(r"[a-z0-9_]+", cells[5]) == [recipe.engines["gemm"], recipe.engines["attention"]], name


@pytest.mark.parametrize("wanted", ["fp8", "fp8_block", "mxfp8", "nvfp4", "mxfp4", "fp4", "int8"])
def test_a_format_without_its_rate_runs_in_sixteen_bits_and_is_said_to(wanted: str) -> None:
    """docs/precision.md: its products run in 16 bits, and the answer says so; a V100 has neither FP8, FP4 nor INT8."""
    assert expanded(wanted, rate_of(default_host().machine("v100-sxm2-32gb").accelerator, wanted)[1])


@pytest.mark.parametrize("plain", ["bf16", "fp16", "int4", "nf4"])
def test_what_runs_in_sixteen_bits_anyway_is_not(plain: str) -> None:
    assert not expanded(plain, rate_of(default_host().machine("h100-sxm").accelerator, plain)[1])


def test_gradients_and_moments_have_formats_of_their_own() -> None:
    """Bytes of a weight, its gradient, master copy and moments: 18 with all in FP32, 10 with DeepSpeed's and 8 bits."""
    for gradients, moments, expected in (
        ("fp32", "fp32", 18.0),
        ("16bit", "fp32", 16.0),
        ("16bit", "8bit", 10.0),
        ("both", "fp32", 20.0),
    ):
        recipe = training_numerics("bf16", gradients, moments)
        total = sum(recipe.widths[role] for role in ("weight", "gradient", "gradient_copy", "master", "moment"))
        assert total == pytest.approx(expected, abs=0.01)
    assert training_numerics("fp16", "16bit").title == "FP16 with FP32 master weights, gradients in 16 bits"
    assert "moments in BF16" in training_numerics("bf16", "fp32", "bf16").title
    assert training_numerics("bf16") == TRAINING["bf16"]
    for name, (width, *_) in {**GRADIENTS, **MOMENTS}.items():
        if name != "fp32":
            assert f"`{name}`" in PAGE or f"--gradients {name}" in PAGE or f"--optimizer-states` `{name}`" in PAGE
            assert f"{width:.10g} bytes" in PAGE or f"in {width:.10g}" in PAGE
