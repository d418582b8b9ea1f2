"""Recomputation by layers, by groups and by operation, and an output layer in chunks: what is kept, what it costs."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask

ASKED = {"devices": 4, "tp": 4, "global_batch": 8, "sequence": 2048, "zero": 0}


def answer(host: Host, model: str = "llama-3.1-8b", **more: Any) -> Any:
    return ask("train", (model,), ("h100-sxm",), {**ASKED, **more}, host).predictions[0].answer


def kept(found: Any) -> float:
    return next(row.bytes for row in found.ledger if row.name == "activations")


def test_so_many_layers_of_a_stage_are_computed_again(host: Host) -> None:
    """Memory and time lie on the line between none and all of a stage's 32 layers. Source: Megatron-LM,
    --recompute-method block --recompute-num-layers."""
    none, whole = answer(host), answer(host, recompute="full")
    for layers in (8, 20, 32, 40):
        part = answer(host, recompute="full", recompute_layers=layers)
        share = min(layers / 32, 1)
        assert kept(part) == pytest.approx((1 - share) * kept(none) + share * kept(whole))
        times = [one.figures["step_time_s"] for one in (none, part, whole)]
        assert times[1] == pytest.approx(times[0] + share * (times[2] - times[0]), rel=2e-3)
    flops = [one.figures["hfu"] * one.figures["step_time_s"] for one in (none, part, whole)]
    assert flops[1] == pytest.approx(flops[2])
    assert flops[2] / flops[0] == pytest.approx(4 / 3, rel=0.06)  # a forward pass more, not of the output layer


def test_inputs_are_kept_once_for_a_group_of_layers(host: Host) -> None:
    """Bytes 2 s b h L/g at full recomputation. Source: Korthikanti et al., arXiv:2205.05198, table 2 (2 s b h L);
    Megatron-LM, --recompute-method uniform --recompute-num-layers g."""
    stream = 2 * 2048 * 4096 / 4  # sequence parallel over 4
    rows = {group: kept(answer(host, recompute="full", recompute_group=group)) for group in (1, 2, 8)}
    assert rows[1] - rows[2] == pytest.approx(stream * (32 - 16))
    assert rows[1] - rows[8] == pytest.approx(stream * (32 - 4))
    space = {group: next(r.bytes for r in answer(host, recompute="full", recompute_group=group).ledger
                         if r.name == "workspace") for group in (2, 8)}  # fmt: skip
    assert space[8] > space[2]


def test_a_group_ends_where_the_layers_do(host: Host) -> None:
    whole, more = (answer(host, recompute="full", recompute_group=group) for group in (32, 1000))
    assert more.peak == pytest.approx(whole.peak)
    some = answer(host, recompute="full", recompute_layers=4, recompute_group=1000)
    assert some.peak < answer(host).peak


def test_a_named_operation_is_computed_again_and_its_output_not_kept(host: Host) -> None:
    """A norm's output, 2 s b h bytes a layer. Source: Megatron-Core, --recompute-modules layernorm."""
    none = answer(host)
    again = answer(host, recompute_ops="mlp.norm")
    assert kept(none) - kept(again) == pytest.approx(32 * 2 * 2048 * 4096 / 4)
    assert again.figures["step_time_s"] > none.figures["step_time_s"]
    both = answer(host, recompute_ops="mlp.norm+attention.norm")
    assert kept(none) - kept(both) == pytest.approx(2 * (kept(none) - kept(again)))


def test_logits_are_there_one_chunk_at_a_time(host: Host) -> None:
    """Of the tokens' logits only a part; nothing else changes. Source: Liger Kernel, arXiv:2410.10989, 3.2."""
    asked = {"devices": 1, "tp": 1, "global_batch": 1, "recompute": "full"}
    found = {n: answer(host, "llama-3.2-1b", loss_chunks=n, **asked) for n in (1, 2, 8)}
    wide = 2048 * 128256
    assert kept(found[1]) - kept(found[2]) == pytest.approx((kept(found[1]) - kept(found[8])) * (1 / 2) / (7 / 8))
    assert kept(found[1]) - kept(found[2]) >= 4 * wide / 2 * 0.99
    times = [one.figures["step_time_s"] for one in found.values()]
    assert max(times) == pytest.approx(min(times))


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"recompute_layers": 3}, "--recompute-layers is of layers that are computed again: add --recompute full"),
        ({"recompute_group": 3, "recompute": "selective"}, "add --recompute full"),
        ({"recompute_ops": "mlp.nrm"}, "did you mean mlp.norm"),
        ({"recompute_layers": 3, "recompute": "full", "pp": 4, "first_layers": 9}, "leave --first-layers and"),
        ({"recompute_ops": "mlp.norm", "recompute": "full"}, "every operation is computed again already"),
    ],
)
def test_what_is_no_choice_is_one_line(host: Host, asked: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError) as error:
        answer(host, **asked)
    assert told in str(error.value)
    assert "\n" not in str(error.value)


def test_two_output_layers_are_not_cut(host: Host) -> None:
    asked = {"devices": 64, "ep": 8, "global_batch": 512, "mtp": True, "loss_chunks": 8}
    with pytest.raises(UserError, match="with --mtp there are two"):
        ask("train", ("deepseek-v3",), ("h200-sxm",), asked, host)
