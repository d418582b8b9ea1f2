"""Rates, memories and bandwidths against the figures that vendors print, restated here from their documents.

Where a document prints only the sparse rate of a GPU or a sum over several, the division is written out.
"""

from __future__ import annotations

import pytest

from slipstick.core.records.hardware import Accelerator
from slipstick.hwdb.schema import Base

BASE = Base()

# name, format, dense TFLOP/s (TOPS) of one device, document
RATES = [
    ("v100-sxm2-32gb", "fp16", 125, "V100 datasheet"),
    ("v100-sxm2-32gb", "fp32", 15.7, "V100 datasheet"),
    ("v100-pcie-32gb", "fp16", 112, "V100 datasheet"),
    ("a100-sxm-40gb", "bf16", 312, "A100 datasheet"),
    ("a100-sxm-80gb", "bf16", 312, "A100 datasheet: 312, 624 with sparsity"),
    ("a100-sxm-80gb", "tf32", 156, "A100 datasheet: 156, 312 with sparsity"),
    ("a100-sxm-80gb", "fp32", 19.5, "A100 datasheet"),
    ("a100-sxm-80gb", "int8", 624, "A100 datasheet: 624, 1248 with sparsity"),
    ("a100-pcie-80gb", "fp16", 312, "A100 datasheet"),
    ("a40", "bf16", 149.7, "A40 datasheet: 149.7, 299.4 with sparsity"),
    ("a40", "fp32", 37.4, "A40 datasheet"),
    ("a10g", "fp16", 70, "A10G datasheet: 70, 140 with sparsity"),
    ("l4", "fp16", 242 / 2, "L4 datasheet, sparse"),
    ("l4", "fp8", 485 / 2, "L4 datasheet, sparse"),
    ("l40s", "bf16", 362.05, "L40S datasheet: 362.05, 733 with sparsity"),
    ("l40s", "fp8", 733, "L40S datasheet: 733, 1466 with sparsity"),
    ("l40s", "fp32", 91.6, "L40S datasheet"),
    ("h20", "bf16", 148, "H20 specifications"),
    ("h20", "fp8", 296, "H20 specifications"),
    ("h800", "bf16", 1979 / 2, "H800 datasheet, sparse"),
    ("h800", "fp64", 1, "H800 datasheet"),
    ("h100-sxm", "bf16", 989.4, "H100 white paper: 989.4, 1978.9 with sparsity"),
    ("h100-sxm", "bf16", 1979 / 2, "H100 datasheet, sparse"),
    ("h100-sxm", "fp8", 3958 / 2, "H100 datasheet, sparse"),
    ("h100-sxm", "tf32", 989 / 2, "H100 datasheet, sparse"),
    ("h100-sxm", "fp32", 67, "H100 datasheet"),
    ("h100-sxm", "fp64", 34, "H100 datasheet"),
    ("h100-sxm", "int8", 3958 / 2, "H100 datasheet, sparse"),
    ("h100-pcie", "bf16", 756, "H100 white paper: 756, 1513 with sparsity"),
    ("h100-pcie", "fp32", 51.2, "H100 white paper"),
    ("h100-nvl", "bf16", 1671 / 2, "H100 datasheet, sparse"),
    ("h100-nvl", "fp8", 3341 / 2, "H100 datasheet, sparse"),
    ("h200-sxm", "bf16", 1979 / 2, "H200 datasheet, sparse"),
    ("h200-sxm", "fp8", 3958 / 2, "H200 datasheet, sparse"),
    ("b200", "fp4", 72_000 / 8, "DGX B200: 72 PFLOPS dense of 8 GPUs"),
    ("b200", "fp8", 72_000 / 2 / 8, "DGX B200: 72 PFLOPS of 8 GPUs, sparse"),
    ("b200", "bf16", 36_000 / 2 / 8, "HGX B200: 36 PFLOPS of 8 GPUs, sparse"),
    ("b300", "fp8", 72_000 / 2 / 8, "HGX B300: 72 PFLOPS of 8 GPUs, sparse"),
    ("b300", "bf16", 36_000 / 2 / 8, "HGX B300: 36 PFLOPS of 8 GPUs, sparse"),
    ("gb200", "fp4", 1_440_000 / 2 / 72, "GB200 NVL72: 1,440 PFLOPS of 72 GPUs, sparse"),
    ("gb200", "bf16", 360_000 / 2 / 72, "GB200 NVL72: 360 PFLOPS of 72 GPUs, sparse"),
    ("gb300", "fp4", 1_080_000 / 72, "GB300 NVL72: 1,080 PFLOPS of 72 GPUs, dense"),
    ("gb300", "fp8", 720_000 / 2 / 72, "GB300 NVL72: 720 PFLOPS of 72 GPUs, sparse"),
    ("rtx-4090", "fp16", 165.2, "Ada white paper, FP32 accumulation"),
    ("rtx-4090", "fp32", 82.6, "Ada white paper"),
    ("rtx-4090", "int8", 660.6, "Ada white paper"),
    ("rtx-pro-6000", "fp32", 120, "RTX PRO 6000 Server Edition datasheet"),
    ("mi250x", "fp16", 383, "MI250X product page"),
    ("mi250x", "fp32", 47.9, "MI250X product page"),
    ("mi300x", "bf16", 1307.4, "MI300X data sheet: 1307.4, 2614.9 with sparsity"),
    ("mi300x", "fp8", 2614.9, "MI300X data sheet: 2614.9, 5229.8 with sparsity"),
    ("mi300x", "fp32", 163.4, "MI300X data sheet"),
    ("mi325x", "fp16", 1307.4, "MI325X data sheet"),
    ("mi355x", "fp16", 256 * 4096 * 2.4e9 / 1e12, "CDNA 4: 256 units, 4096 FLOP a cycle, 2.4 GHz"),
    ("mi355x", "fp8", 256 * 8192 * 2.4e9 / 1e12, "CDNA 4, ISSCC 2026: 8192 FLOP a cycle and unit"),
    ("tpu-v4", "bf16", 275, "Cloud TPU documentation"),
    ("tpu-v5e", "bf16", 197, "Cloud TPU documentation"),
    ("tpu-v5e", "int8", 393, "Cloud TPU documentation"),
    ("tpu-v5p", "bf16", 459, "Cloud TPU documentation"),
    ("tpu-v6e", "bf16", 918, "Cloud TPU documentation"),
    ("tpu-v6e", "int8", 1836, "Cloud TPU documentation"),
    ("gaudi2", "bf16", 432, "Intel, Hot Chips 2024"),
    ("gaudi3", "bf16", 1835, "Intel, Hot Chips 2024"),
    ("gaudi3", "fp8", 1835, "Intel, Hot Chips 2024"),
    ("trainium1", "bf16", 190, "AWS Neuron documentation"),
    ("trainium1", "fp32", 47.5, "AWS Neuron documentation"),
    ("trainium2", "bf16", 667, "AWS Neuron documentation: 667, 2563 with sparsity"),
    ("trainium2", "fp8", 1299, "AWS Neuron documentation"),
]

# name, GB as printed, GB/s
MEMORIES = [
    ("v100-sxm2-32gb", 32, 900),
    ("a100-sxm-40gb", 40, 1555),
    ("a100-sxm-80gb", 80, 2039),
    ("a100-pcie-80gb", 80, 1935),
    ("a40", 48, 696),
    ("a10g", 24, 600),
    ("l4", 24, 300),
    ("l40s", 48, 864),
    ("h20", 96, 4000),
    ("h800", 80, 3350),
    ("h100-sxm", 80, 3350),
    ("h100-nvl", 94, 3900),
    ("h200-sxm", 141, 4800),
    ("b200", 1440 / 8, 64_000 / 8),
    ("gb200", 13_400 / 72, 576_000 / 72),
    ("gb300", 20_000 / 72, 576_000 / 72),
    ("rtx-4090", 24, 1008),
    ("rtx-pro-6000", 96, 1597),
    ("mi250x", 128, 3276.8),
    ("mi300x", 192, 5300),
    ("mi325x", 256, 6000),
    ("mi355x", 288, 8000),
    ("tpu-v4", 32 * 1.073741824, 1200),
    ("tpu-v5e", 16, 819),
    ("tpu-v5p", 95 * 1.073741824, 2765),
    ("tpu-v6e", 32, 1640),
    ("gaudi2", 96, 2460),
    ("gaudi3", 128, 3670),
    ("trainium1", 32 * 1.073741824, 820),
    ("trainium2", 96 * 1.073741824, 2900),
]

# name, nvidia-smi MiB: modal-labs/modal-client pull request 2797, NVIDIA/TensorRT-LLM issue 10278
REPORTED = [
    ("h100-sxm", 81559),
    ("a100-sxm-80gb", 81920),
    ("a100-sxm-40gb", 40960),
    ("l40s", 46068),
    ("l4", 23034),
    ("b200", 183359),
]


def accelerator(name: str) -> Accelerator:
    record = BASE.load("accelerator", name)
    assert isinstance(record, Accelerator)
    return record


@pytest.mark.parametrize(("name", "form", "tera", "document"), RATES)
def test_a_rate_is_the_dense_one_in_print(name: str, form: str, tera: float, document: str) -> None:
    assert accelerator(name).rates[form].value == pytest.approx(tera * 1e12, rel=0.02 if form == "fp64" else 0.004), (
        document
    )


@pytest.mark.parametrize(("name", "gigabytes", "rate"), MEMORIES)
def test_a_memory_is_the_one_in_print(name: str, gigabytes: float, rate: float) -> None:
    chip = accelerator(name)
    assert chip.memory_capacity.value == pytest.approx(gigabytes * 1e9, rel=0.006)
    assert chip.memory_bandwidth.value == pytest.approx(rate * 1e9, rel=1e-6)


@pytest.mark.parametrize(("name", "mebibytes"), REPORTED)
def test_the_driver_reports_it(name: str, mebibytes: int) -> None:
    assert accelerator(name).memory == mebibytes * 2**20


def test_the_table_covers_the_data_base() -> None:
    assert len({name for name, *_ in RATES}) >= 30
    assert {name for name, *_ in RATES} <= set(BASE.names("accelerator"))
