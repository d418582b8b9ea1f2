"""Three small models that every strategy and kernel family can be tried on: dense, routed, and with latent attention.

Floor: testkit. Uses the model floor only, so that the kit depends on no plugin. Sizes are powers of two: every degree
that the kit tries divides them, and a law that holds «where degrees divide» can be tested exactly.
"""

from __future__ import annotations

from ..model.axes import (
    BATCH,
    CHOICES,
    EXPERTS,
    FFN,
    HEAD_DIM,
    HEADS,
    HIDDEN,
    KV_HEADS,
    LATENT,
    QUERY,
    ROUTED,
    VOCAB,
    Axis,
    Tensor,
    Weight,
    axis,
)
from ..model.graph import Block, ModelGraph, Run
from ..model.ops import (
    Attention,
    Combine,
    Contraction,
    Dispatch,
    GroupedContraction,
    LatentAttention,
    Lookup,
    Loss,
    Norm,
    Op,
    Pointwise,
    Sampling,
)

B, Q, H = axis(BATCH), axis(QUERY), axis(HIDDEN)
STREAM = (B, Q, H)
HEAD, KV, D, F, V = axis(HEADS), axis(KV_HEADS), axis(HEAD_DIM), axis(FFN), axis(VOCAB)

SIZES = {
    "hidden": 256, "heads": 16, "kv_heads": 16, "head_dim": 16, "ffn": 1024, "vocab": 4096, "layers": 8,
    "experts": 16, "top_k": 2, "ffn@expert": 128, "latent@kv": 64, "head_dim@qk": 32, "head_dim@rope": 16,
    "head_dim@nope": 16, "head_dim@value": 16,
}  # fmt: skip


def dense() -> ModelGraph:
    """A GPT-like model: grouped attention, a plain feed-forward block with biases."""
    ops: list[Op] = [*_attention(), *_feed()]
    return _model("dense", ops, ("hidden", "heads", "kv_heads", "head_dim", "ffn"))


def routed() -> ModelGraph:
    """A mixture of experts behind grouped attention."""
    ops: list[Op] = [*_attention(), *_experts()]
    return _model("routed", ops, ("hidden", "heads", "kv_heads", "head_dim", "experts", "top_k", "ffn@expert"))


def latent() -> ModelGraph:
    """Latent attention before a plain feed-forward block."""
    ops: list[Op] = [*_latent(), *_feed()]
    names = ("hidden", "heads", "ffn", "latent@kv", "head_dim@qk", "head_dim@rope", "head_dim@nope", "head_dim@value")
    return _model("latent", ops, names)


def all_models() -> dict[str, ModelGraph]:
    """The three by name."""
    return {"dense": dense(), "routed": routed(), "latent": latent()}


def _model(name: str, ops: list[Op], sizes: tuple[str, ...]) -> ModelGraph:
    x = Tensor("x", STREAM)
    normed = Tensor("output.norm", STREAM)
    logits = Tensor("output", (B, Q, V))
    table = Weight("embedding.table", (V, H), "high")
    embedding = Block("embedding", (Lookup("embedding", table, Tensor("y", STREAM)),), "tokens")
    output = Block(
        "output",
        (
            Norm("output.norm", (x,), (normed,), 5, parameters=(Weight("output.norm.weight", (H,), "high"),)),
            Contraction("output", normed, Weight("output.weight", (H, V), "high"), logits),
            Loss("loss", logits, Tensor("loss.probabilities", logits.axes, "wide")),
            Sampling("sampling", logits),
        ),
        output="output",
    )
    return ModelGraph(
        name, "testkit", embedding, (Run((Block("layer", tuple(ops)),), "layers"),), output,
        {size: SIZES[size] for size in (*sizes, "vocab", "layers")},
    )  # fmt: skip


def _linear(name: str, x: Tensor, over: tuple[Axis, ...], to: tuple[Axis, ...], format: str = "weight") -> Contraction:
    out = Tensor(name, (*(a for a in x.axes if a not in over), *to))
    return Contraction(name, x, Weight(f"{name}.weight", over + to, format), out)


def _norm(name: str, x: str) -> Norm:
    gain = Weight(f"{name}.weight", (H,), "high")
    return Norm(name, (Tensor(x, STREAM),), (Tensor(name, STREAM),), 5, parameters=(gain,))


def _sum(name: str, terms: tuple[str, ...], out: str) -> Pointwise:
    return Pointwise(name, tuple(Tensor(t, STREAM) for t in terms), (Tensor(out, STREAM),))


def _attention() -> list[Op]:
    normed = Tensor("attention.norm", STREAM)
    q = _linear("attention.q", normed, (H,), (HEAD, D))
    k = _linear("attention.k", normed, (H,), (KV, D))
    v = _linear("attention.v", normed, (H,), (KV, D))
    mixed = Tensor("attention", q.out.axes)
    return [
        _norm("attention.norm", "x"), q, k, v, Attention("attention", q.out, k.out, v.out, mixed),
        _linear("attention.o", mixed, (HEAD, D), (H,)), _sum("attention.residual", ("x", "attention.o"), "middle"),
    ]  # fmt: skip


def _latent() -> list[Op]:
    normed = Tensor("attention.norm", STREAM)
    qk, rope, nope, value = (axis(HEAD_DIM, name) for name in ("qk", "rope", "nope", "value"))
    kv = axis(LATENT, "kv")
    q = _linear("attention.q", normed, (H,), (HEAD, qk))
    down = _linear("attention.kv_a", normed, (H,), (kv,))
    key = _linear("attention.k_rope", normed, (H,), (rope,))
    mixed = Tensor("attention", (B, Q, HEAD, value))
    core = LatentAttention(
        "attention", q.out, down.out, key.out, Weight("attention.up_key", (kv, HEAD, nope)),
        Weight("attention.up_value", (kv, HEAD, value)), mixed,
    )  # fmt: skip
    return [
        _norm("attention.norm", "x"), q, down, key, core, _linear("attention.o", mixed, (HEAD, value), (H,)),
        _sum("attention.residual", ("x", "attention.o"), "middle"),
    ]  # fmt: skip


def _feed() -> list[Op]:
    up = _linear("mlp.up", Tensor("mlp.norm", STREAM), (H,), (F,))
    inner = Tensor("mlp.act", up.out.axes)
    down = _linear("mlp.down", inner, (F,), (H,))
    act = Pointwise("mlp.act", (up.out,), (inner,), 8, (up.out,))
    biased = Contraction("mlp.down", down.x, down.weight, down.out, Weight("mlp.down.bias", (H,), "high"))
    return [_norm("mlp.norm", "middle"), up, act, biased, _sum("mlp.residual", ("middle", "mlp.down"), "y")]


def _experts() -> list[Op]:
    experts, inner_width = axis(EXPERTS), axis(FFN, "expert")
    normed = Tensor("moe.norm", STREAM)
    router = _linear("moe.router", normed, (H,), (Axis(CHOICES, EXPERTS),), "high")
    chosen = Tensor("moe.top_k", router.out.axes)
    copies = Tensor("moe.dispatch", (experts, axis(ROUTED), H))
    up = Tensor("moe.up", (experts, axis(ROUTED), inner_width))
    inner = Tensor("moe.act", up.axes)
    down = Tensor("moe.down", copies.axes)
    return [
        _norm("moe.norm", "middle"), router, Pointwise("moe.top_k", (router.out,), (chosen,), 5, (chosen,)),
        Dispatch("moe.dispatch", normed, copies),
        GroupedContraction("moe.up", copies, Weight("moe.up.weight", (experts, H, inner_width), "expert"), up),
        Pointwise("moe.act", (up,), (inner,), 8, (up,)),
        GroupedContraction("moe.down", inner, Weight("moe.down.weight", (experts, inner_width, H), "expert"), down),
        Combine("moe.combine", down, Tensor("moe.combine", STREAM)),
        _sum("moe.residual", ("middle", "moe.combine"), "y"),
    ]  # fmt: skip
