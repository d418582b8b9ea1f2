"""What the readers of log files share: which kind of log a file is, its lines, and the amounts in them.

Calibration. Stands on the core alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path

from slipstick.core.errors import UserError, shown

SERVING = re.compile(
    rb"vLLM API server version|Initializing an? (?:V1 )?LLM engine|Automatically detected platform|vllm[./]engine"
    rb"|\(EngineCore|kv_cache_utils\.py|GPU KV cache size|Available KV cache memory|# (?:GPU|CUDA|cuda) blocks:"
    rb"|Maximum concurrency for [\d,]+ tokens|server_args=ServerArgs\(|KV Cache is allocated|max_total_num_tokens="
    rb"|\[TensorRT-LLM\]\[|\[TRT-LLM\]|tokens in paged KV cache|INFO \d\d-\d\d \d\d:\d\d:\d\d \S*\.py:\d+\]"
    rb"|INFO \d\d-\d\d \d\d:\d\d:\d\d \[\S+\.py:\d+\]"
)
TRAINING = re.compile(
    rb"elapsed time per iteration \(ms\)|using world size: ?\d+|-{6,} arguments -{6,}|building GPTModel"
    rb"|> initializ(?:ing|ed) (?:torch distributed|tensor model parallel)|\[launch\.py:\d+|\[timer\.py:\d+|DeepSpeed"
    rb"|deepspeed|CurrSamplesPerSec=|\[titan\]|torchtitan|Trainer is initialized with local batch size"
    rb"|step: +\d+ +\S*loss: |time \(ms\) \|"
)
"""What lines near the beginning of a log of a serving engine, and of a training run, are recognised by."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
LONGEST = 1 << 20
"""Characters of a line that are looked at; what a log prints for an engine or an iteration is far shorter."""


def kind(head: bytes) -> str:
    """``serving``, ``training``, or "" for a file that is neither, judged by which of the marks it has more of.

    >>> kind(b"INFO 02-19 23:56:55 kv_cache_utils.py:524] GPU KV cache size: 2,042,016 tokens")
    'serving'
    """
    if b"\0" in head or head.lstrip()[:1] == b"{" or re.match(rb"\s*\[\s*[\[{]", head):
        return ""  # binary, or JSON
    serving, training = len(SERVING.findall(head)), len(TRAINING.findall(head))
    if serving == training:
        return ""
    return "serving" if serving > training else "training"


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a log with their numbers, without colours; a carriage return ends a line as well.

    Errors: UserError for a file that holds nothing.
    """
    number = 0
    with path.open(encoding="utf-8", errors="replace", newline=None) as file:
        for number, line in enumerate(file, start=1):
            text = line[:LONGEST]
            yield number, _COLOUR.sub("", text) if "\x1b" in text else text
    if not number:
        raise UserError(f"{path} is empty; a log is expected")


def amount(path: Path, line: int, name: str, text: str, zero: bool = False) -> float:
    """The number that ``text`` stands for, with commas between thousands or without.

    Errors: UserError for what is no finite number above 0 (or not below 0, with ``zero``).
    """
    try:
        number = float(text.replace(",", ""))
    except ValueError:
        number = math.nan
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise UserError(f"{path}, line {line}: {name} is {shown(text)}; a positive number is expected")
    return number
