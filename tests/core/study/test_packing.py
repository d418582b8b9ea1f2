"""Packed sequences, asked as a person asks."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.study.ask import ask

SETTING = {"devices": 8, "tp": 2, "sequence": 8192}


def test_packed_documents_take_the_time_of_as_many_sequences(one: Any) -> None:
    packed = one("train", "llama-3.1-8b", "h100-sxm", document_tokens=1024, micro_batch=1, **SETTING).answer
    apart = one("train", "llama-3.1-8b", "h100-sxm", **{**SETTING, "sequence": 1024}, micro_batch=8).answer
    for name in ("step_time_s", "tokens_per_s", "mfu"):
        assert packed.figures[name] == pytest.approx(apart.figures[name], rel=1e-12)
    assert packed.peak == pytest.approx(apart.peak, rel=1e-12)
    assert any("each document of 1024 tokens" in line for line in packed.assumptions)


def test_longer_documents_take_longer(one: Any, host: Any) -> None:
    outcome = ask("train", ("llama-3.1-8b",), ("h100-sxm",), {**SETTING, "document_tokens": (512, 4096, 8192)}, host)
    times = [made.answer.figures["step_time_s"] for made in outcome.predictions]
    assert times == sorted(times)
    assert times[0] < times[1] < times[2]
    assert times[2] == pytest.approx(
        one("train", "llama-3.1-8b", "h100-sxm", **SETTING).answer.figures["step_time_s"], rel=1e-12
    )


def test_a_document_fits_into_its_sequence(one: Any) -> None:
    made = one("train", "llama-3.1-8b", "h100-sxm", document_tokens=8193, **SETTING).answer
    assert not made.feasible
    assert [o.reason for o in made.obstacles] == [
        "a document can't be longer than the sequence it is packed into (document_tokens 8193, sequence 8192)"
    ]
    with pytest.raises(UserError, match="--document-tokens: between 1 and"):
        one("train", "llama-3.1-8b", "h100-sxm", document_tokens=0, **SETTING)


def test_positions_begin_anew_with_each_document(one: Any) -> None:
    """A model of 4,096 positions takes sequences that are longer, if its documents are not."""

    def beyond(**more: Any) -> bool:
        made = one("train", "llama-2-7b", "h100-sxm", **{**SETTING, **more}).answer
        return any("exceed the model's 4,096 positions" in line for line in made.assumptions)

    assert beyond()
    assert beyond(document_tokens=4097)
    assert not beyond(document_tokens=4096)
