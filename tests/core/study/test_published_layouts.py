"""What layouts cost in memory and communication, redone by hand from published sizes of models."""

from __future__ import annotations

from typing import Any

import pytest

from slipstick.core.study.tree import leaves

# DeepSeek-V3, arXiv:2412.19437, section 4.2: layers, heads, head widths (content, rotary, value), vocabulary, hidden.
V3_LAYERS, V3_HEADS, V3_NOPE, V3_ROPE, V3_VALUE, V3_VOCAB, V3_HIDDEN = 61, 128, 128, 64, 128, 129280, 7168


def activations(one: Any, **changes: Any) -> float:
    ask = {"devices": 8, "tp": 8, "global_batch": 1, "sequence": 1024, **changes}
    return float(one.rows(one("train", "deepseek-v3", "h200-sxm", **ask))["activations"])


def test_latent_attention_keeps_the_keys_and_values_it_expanded(one: Any) -> None:
    """Without recomputation the core's backward pass reads a key (content and rotary part) and a value of every head.

    DeepSeek-V3 (arXiv:2412.19437, section 3.2.3) recomputes the up-projections in order not to keep them."""
    per_head = V3_NOPE + V3_ROPE + V3_VALUE
    expanded = 2 * 1024 * V3_LAYERS * V3_HEADS // 8 * per_head
    assert activations(one) - activations(one, recompute="selective") == pytest.approx(expanded, rel=1e-9)


def test_unfused_latent_attention_keeps_its_softmax(one: Any) -> None:
    """2as²b bytes a layer: Korthikanti et al., arXiv:2205.05198, section 4.1."""
    softmax = 2 * V3_LAYERS * V3_HEADS // 8 * 1024**2
    assert activations(one, attention="unfused") - activations(one) == pytest.approx(softmax, rel=1e-9)


def test_a_prediction_layer_copies_the_embedding_but_not_the_output_matrix(one: Any) -> None:
    """DeepSeek-V3, section 2.2: the module shares both with the model; the output matrix is on the last stage already,
    the embedding on the first."""
    ask = {"devices": 16, "tp": 1, "pp": 16, "global_batch": 16, "sequence": 128}
    plain, more = (one("train", "deepseek-v3", "h200-sxm", mtp=mtp, **ask) for mtp in (False, True))
    module = more.case.graph.block_parameters(more.case.graph.extras["mtp"])
    last = [p.case.program.evaluate(p.case.complete(p.settings))["memory.1.weights"] for p in (plain, more)]
    assert last[1] - last[0] == pytest.approx(2 * (module + V3_VOCAB * V3_HIDDEN), rel=1e-9)
    sent = [leaf for leaf in leaves(more.tree) if leaf.name == "send tied embedding gradient"]
    assert sum(leaf.inputs["volume"][1] for leaf in sent) == 4 * V3_VOCAB * V3_HIDDEN


@pytest.mark.parametrize(("stage", "bytes_each"), [(1, 0), (2, 4), (3, 4 + 2)])
def test_sharded_tensors_are_whole_for_a_moment(one: Any, stage: int, bytes_each: int) -> None:
    """Until it is scattered a gradient (4 B an element) is whole, from gather to reshard a weight (2 B): the output
    matrix is the largest of Llama 3.1 8B."""
    made = one("train", "llama-3.1-8b", "h100-sxm", devices=8, dp=8, global_batch=8, sequence=16, zero=stage)
    whole = bytes_each * 128256 * 4096 * 7 / 8
    small = 16 * (2 * 4096 + (2 + 2 + 4) * 128256)  # the working set of the output layer and its loss
    assert whole <= one.rows(made)["workspace"] <= whole + small


def test_one_request_gains_and_loses_nothing_from_stages(one: Any) -> None:
    """It is on one stage at a time: the sum over stages is the model, whatever the slowest stage is."""
    whole, staged = (
        one("serve", "llama-3.2-1b", "h100-sxm", devices=stages, pp=stages).answer.figures["tpot_s"]
        for stages in (1, 8)
    )
    assert whole < staged < whole + 7 * 20e-6  # seven sends of 4 KB inside a node


@pytest.mark.parametrize(("ep", "skew", "same_as"), [(1, 3.0, 1.0), (2, 8.0, 2.0), (8, 3.0, 3.0)])
def test_the_busiest_rank_has_at_most_everything(one: Any, ep: int, skew: float, same_as: float) -> None:
    ask = {"devices": 8, "ep": ep, "dp": 8, "global_batch": 8, "sequence": 512}
    times = [
        one("train", "mixtral-8x7b", "h200-sxm", load_skew=value, **ask).answer.figures["step_time_s"]
        for value in (skew, same_as)
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-12)


@pytest.mark.parametrize(("tp", "copies"), [(4, 1), (8, 1), (16, 2), (32, 4)])
def test_copies_of_key_value_heads_add_up_their_gradients(one: Any, tp: int, copies: int) -> None:
    """Llama 3.1 70B has 8 key/value heads: on 16 ranks each stands twice, and each copy serves half the queries."""
    made = one("train", "llama-3.1-70b", "h100-sxm", devices=tp * 2, tp=tp, dp=2, global_batch=2, zero=1)
    found = [n for n in leaves(made.tree) if n.tags["op"] == "gradients" and "copies" in n.tags["over"]]
    assert bool(found) == (copies > 1)
    # Keys and values of 80 layers, width 8192, one head of 128, FP32; the optimizer state keeps half on each replica.
    payload = 4 * 2 * 80 * 8192 * 128 / 2
    for node in found:
        assert node.inputs["volume"][1] == pytest.approx(2 * payload * (copies - 1) / copies, rel=1e-12)


def test_decoding_holds_the_cache_once_and_expands_nothing(one: Any) -> None:
    """A step of 128 tokens needs little beside the cache: absorbed latent attention makes no keys and values of the
    context (DeepSeek-V2, arXiv:2405.04434, section 2.1.2), and what the core reads of a cache lies in the cache."""
    latent = one("serve", "deepseek-v3", "h200-sxm", devices=64, dp=64, ep=64, concurrency=64 * 128,
                 input_tokens=4000, output_tokens=1000)  # fmt: skip
    few = one("serve", "deepseek-v3", "h200-sxm", devices=64, dp=64, ep=64, concurrency=64,
              input_tokens=4000, output_tokens=1000)  # fmt: skip
    assert one.rows(latent)["activations"] == one.rows(few)["activations"]  # the prefill's, of 4000 tokens
    grouped = one("serve", "llama-2-7b", "h100-sxm", concurrency=40, input_tokens=2048, output_tokens=512)
    alone = one("serve", "llama-2-7b", "h100-sxm", concurrency=1, input_tokens=2048, output_tokens=512)
    assert one.rows(grouped)["activations"] == one.rows(alone)["activations"]


@pytest.mark.parametrize(
    ("model", "tp", "tokens"), [("llama-2-7b", 1, 119_408), ("llama-3.1-70b", 4, 484_016), ("qwen2.5-7b", 1, 1_045_632)]
)
def test_cache_capacity_of_vllm(one: Any, model: str, tp: int, tokens: int) -> None:
    """Blocks × 16 that vLLM 2026-02 allocated on H100 80 GB at its default utilisation of 0.9 (inference-sim,
    testdata/trained_physics_iter29.json, total_kv_blocks)."""
    made = one("serve", model, "h100-sxm", devices=tp, tp=tp, concurrency=128, input_tokens=2048, output_tokens=512)
    assert made.answer.figures["kv_capacity_tokens"] == pytest.approx(tokens, rel=0.04)
