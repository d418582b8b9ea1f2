"""What the names that software gives to kernels and number types say: whose kernel it is, which numbers it works on.

Calibration; used by the readers of profiler traces. Pure text.
"""

from __future__ import annotations

import re
from functools import lru_cache

FORMATS: dict[str, tuple[str, float]] = {
    "double": ("fp64", 8),
    "float": ("fp32", 4),
    "half": ("fp16", 2),
    "float16": ("fp16", 2),
    "bfloat16": ("bf16", 2),
    "float32": ("fp32", 4),
    "float64": ("fp64", 8),
    "float8_e4m3fn": ("fp8", 1),
    "float8_e5m2": ("fp8", 1),
    "float8_e4m3fnuz": ("fp8", 1),
    "float8_e5m2fnuz": ("fp8", 1),
    "fp8_e4m3": ("fp8", 1),
    "fp8_e5m2": ("fp8", 1),
    "f8e4m3": ("fp8", 1),
    "f8e5m2": ("fp8", 1),
    "float8_e8m0fnu": ("e8m0", 1),
    "float4_e2m1fn_x2": ("nvfp4", 1),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "char": ("int8", 1),
    "byte": ("uint8", 1),
    "int8": ("int8", 1),
    "uint8": ("uint8", 1),
    "short int": ("int16", 2),
    "short": ("int16", 2),
    "int": ("int32", 4),
    "int32": ("int32", 4),
    "uint32": ("uint32", 4),
    "unsigned int": ("uint32", 4),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "int64": ("int64", 8),
    "uint64": ("uint64", 8),
    "unsigned long int": ("uint64", 8),
    "bool": ("bool", 1),
}
"""Type as PyTorch, its profiler and NCCL write it (lower case, without ``c10::`` and ``torch.``) → name of the number
format in slipstick and the bytes of one element as stored."""

WHOLE = frozenset({"int8", "uint8", "int16", "int32", "uint32", "int64", "uint64", "bool"})
"""Formats that hold whole numbers: indices and masks, mostly."""

# The first that is found names the library; the order matters where one library builds on another.
_LIBRARIES = tuple(
    (re.compile(pattern, re.IGNORECASE), library)
    for pattern, library in (
        (r"nccl|rccl", "NCCL"),
        (r"deep_?gemm", "DeepGEMM"),
        (r"flashinfer|BatchPrefill|BatchDecode|SinglePrefill", "FlashInfer"),
        (r"flash::|flash_(fwd|bwd)|FlashAttn|flash_attn|pytorch_flash", "FlashAttention"),
        (r"fmhaSm|trtllm|tensorrt_llm|xqa", "TensorRT-LLM"),
        (r"cudnn|_sdpa_sm\d|sdpa_sm\d", "cuDNN"),
        (r"marlin", "Marlin"),
        (r"fmha_cutlass|PyTorchMemEff|AttentionKernel<|AttentionBackwardKernel", "CUTLASS"),
        (
            r"cublas|nvjet|_xmma_|splitKreduce|gemv2|gemvN|gemmSN|\b(ampere|volta|turing|maxwell|sm\d+)_\w*gemm",
            "cuBLAS",
        ),
        (r"cutlass_\d+_(tensorop|wmma|simt)", "cuBLAS"),  # cuBLAS ships these under CUTLASS's name
        (r"cutlass|cute::", "CUTLASS"),
        (r"\bCijk_|Tensile|hipblaslt|rocblas", "hipBLASLt"),
        (r"ck_tile|\bck::|kernel_gemm_xdl", "Composable Kernel"),
        (r"aiter", "AITER"),
        (r"triton", "Triton"),
        (r"transformer_engine", "Transformer Engine"),
        (r"vllm::|vllm_", "vLLM"),
        (r"sglang|sgl_kernel", "SGLang"),
        (r"at::native|at_cuda|c10::|multi_tensor", "ATen"),
        (r"mkldnn|onednn", "oneDNN"),
    )
)
_ELEMENT = re.compile(r"Functor\w*<\s*(float|double|c10::BFloat16|c10::Half|at::BFloat16|at::Half)\b")


@lru_cache(maxsize=4096)
def library(kernel: str) -> str:
    """Whose kernel it is by its name, "" where that isn't known.

    >>> library("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_cublas"), library("nvjet_hsh_256x128")
    ('cuBLAS', 'cuBLAS')
    >>> library("void pytorch_flash::flash_fwd_kernel<...>"), library("a_kernel_of_my_own")
    ('FlashAttention', '')
    """
    for pattern, name in _LIBRARIES:
        if pattern.search(kernel):
            return name
    return ""


@lru_cache(maxsize=4096)
def number_format(type_name: str) -> tuple[str, float] | None:
    """Name of the number format and bytes of one element [B], None for what is no type of an array's elements.

    >>> number_format("c10::BFloat16"), number_format("Float"), number_format("Scalar")
    (('bf16', 2), ('fp32', 4), None)
    """
    plain = type_name.strip().lower().removeprefix("c10::").removeprefix("torch.").removeprefix("nccl")
    return FORMATS.get(plain)


def works_in_tf32(kernel: str) -> bool:
    """Whether a product of fp32 matrices is done by the TF32 engine, by the name of its kernel.

    Source: names of cuBLAS's kernels (tf32f32, s1688gemm).
    """
    return "tf32" in kernel or "s1688gemm" in kernel or "s1688tf32" in kernel


def format_by_name(kernel: str) -> str:
    """The number format of a matrix product as its kernel's name tells it, "" where it does not.

    >>> format_by_name("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"), format_by_name("ampere_sgemm_128x64_nn")
    ('bf16', 'fp32')
    """
    name = kernel.lower()
    if works_in_tf32(name):
        return "tf32"
    for pattern, found in (
        (r"e4m3|e5m2|fp8|f8f8|qmma", "fp8"),
        (r"bf16|bfloat16|nvjet_t", "bf16"),
        (
            r"f16f16|fp16|hgemm|h884|h1688|h16816|s16816gemm_f16|s884gemm_f16|s1688gemm_f16|__half|c10::half|nvjet_h",
            "fp16",
        ),
        (r"sgemm|f32f32|ffma|nvjet_s", "fp32"),
        (r"dgemm|f64f64", "fp64"),
        (r"int8|s8s8|imma", "int8"),
    ):
        if re.search(pattern, name):
            return found
    return ""


def element_format(kernel: str) -> tuple[str, float] | None:
    """Number format and bytes of an element [B] that an elementwise kernel's template arguments tell, None for none.

    >>> element_format("multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4, 0, false>>")
    ('fp32', 4)
    """
    found = _ELEMENT.search(kernel)
    return number_format(found[1].replace("at::", "c10::")) if found else None
