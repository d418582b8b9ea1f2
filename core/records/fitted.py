"""Calibrated parameters: what a fit found for one kernel on one accelerator, and how far it can be trusted.

Floor: records. Plain data; ``fitted_toml`` reads and writes the files.
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import field, frozen

from .provenance import Source


@frozen
class ErrorSummary:
    """Errors of predictions against measurements, |predicted/measured − 1| unless said: ``n`` rows, ``mean``,
    ``median`` and ``p90``; ``bias``: the mean of predicted/measured − 1."""

    n: int
    mean: float
    median: float
    p90: float
    bias: float


@frozen(kw_only=True)
class FittedRecord:
    """The parameters of one formula, fitted to the measurements of one kind of kernel.

    ``accelerator``: its name in slipstick; ``slot``: the kind of kernel as the kernel family calls it (gemm,
    attention.decode, all_reduce, ...); ``family``: that family; ``formula``: the formula's name; ``format``: number
    format of the operands (bf16, fp8, fp8_block, nvfp4, ...), with a cache's own after a stroke (bf16/fp8);
    ``kernel_source``: whose kernel was measured (cuBLAS, torch_flow, FlashAttention, NCCL); ``engine`` and
    ``engine_version``: the software it was measured in (trtllm 1.3.0rc20), "" where none.

    ``where``: range of a model's own sizes for which this record stands (head_dim 128 to 128, group 2 to 16); more
    than one record of a slot and format differ in it. ``parameters``: parameter of the formula → value in its unit;
    ``spread``: the standard deviation of ln(value) from the fit's covariance; ``unidentified``: parameters that the
    data do not determine. ``ranges``: input of the formula → least and largest value that was fitted.
    ``rows``: measurements fitted; ``errors``: name of a part (train, held_out, held_out.decode, unseen_shapes, ...)
    → its errors; ``sigma``: half of the range of ln(measured/predicted) on held-out rows that holds 80 % of them,
    divided by 1.2816 (the standard deviation of a normal law with the same range), which intervals are made of.
    ``calibrated``: whether the fit is good enough to be called so; ``reason``: why not.
    """

    accelerator: str
    slot: str
    family: str
    formula: str
    format: str
    kernel_source: str = ""
    engine: str = ""
    engine_version: str = ""
    where: Mapping[str, tuple[float, float]] = field(factory=dict)
    parameters: Mapping[str, float]
    spread: Mapping[str, float] = field(factory=dict)
    unidentified: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(factory=dict)
    rows: int
    errors: Mapping[str, ErrorSummary] = field(factory=dict)
    sigma: float
    calibrated: bool
    reason: str = ""
    source: Source
    command: str = ""
    note: str = ""
