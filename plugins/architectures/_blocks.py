"""The operations of a decoder block, written once: linear layers, attention, feed-forward, experts, residual sums.

Floor: plugins. Uses the core's axes and operations. Every tensor has the name of the operation that writes it, every
weight the name of its operation plus ``.weight`` or ``.bias``; the block reads stream ``x`` and writes stream ``y``.

What is kept for the backward pass follows the rule that each distinct saved tensor counts once: a linear layer keeps
its input, a normalisation its input, an activation function its input, a dropout its mask of one byte, a sum nothing.
Source: Korthikanti et al., arXiv:2205.05198, section 4.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from slipstick.core.model.axes import (
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
    Axis,
    Tensor,
    Weight,
    axis,
)
from slipstick.core.model.graph import Block
from slipstick.core.model.ops import (
    Attention,
    Combine,
    Contraction,
    Dispatch,
    GroupedContraction,
    LatentAttention,
    Norm,
    Op,
    Pointwise,
)

from ._plans import Experts, Heads, Latent, Layer, Mlp

B, Q, H = axis(BATCH), axis(QUERY), axis(HIDDEN)
STREAM = (B, Q, H)
CHOICE = Axis(CHOICES, EXPERTS)
EXPERT = axis(EXPERTS)

ACTIVATION_FLOPS, ROTARY_FLOPS, NORM_FLOPS = 8, 3, 5
"""Operations per element of a GELU or SiLU, a rotation, a normalisation (the order matters, not the digit)."""

RMS_ROUNDS, ROTARY_ROUNDS = 4, 5
"""Passes of an RMSNorm and of a rotation as eager models write them: square, mean, product, gain; product with the
cosine, negation and joining of the halves, product with the sine, sum. A LayerNorm is one everywhere."""


class BlockBuilder:
    """Collects the operations of one block in execution order."""

    def __init__(self, name: str, input: str = "x") -> None:
        self.name = name
        self.ops: list[Op] = []
        self.x = Tensor(input, STREAM)

    def block(self, output: str = "y") -> Block:
        """The finished block."""
        return Block(self.name, tuple(self.ops), self.x.name, output)

    def linear(
        self,
        name: str,
        x: Tensor,
        over: Iterable[Axis],
        to: Iterable[Axis],
        *,
        bias: bool = False,
        format: str = "weight",
        tied: str = "",
        out: str = "",
    ) -> Tensor:
        """A linear layer that sums over the axes ``over`` of ``x`` and brings the axes ``to``."""
        over, to = tuple(over), tuple(to)
        written = Tensor(out or name, tuple(a for a in x.axes if a not in over) + to)
        weight = Weight(f"{name}.weight", over + to, format, tied)
        offset = Weight(f"{name}.bias", to, "high") if bias else None
        self.ops.append(Contraction(name, x, weight, written, offset))
        return written

    def grouped(self, name: str, x: Tensor, over: Axis, to: Axis, *, bias: bool = False) -> Tensor:
        """The same layer of every routed expert: ``over`` → ``to`` on the token copies of ``x``."""
        out = Tensor(name, (*(a for a in x.axes if a != over), to))
        weight = Weight(f"{name}.weight", (EXPERT, over, to), "expert")
        offset = Weight(f"{name}.bias", (EXPERT, to), "high") if bias else None
        self.ops.append(GroupedContraction(name, x, weight, out, offset))
        return out

    def norm(
        self,
        name: str,
        x: Tensor,
        kind: str,
        over: tuple[Axis, ...] = (H,),
        out: str = "",
        *,
        within: tuple[Axis, ...] = (),
    ) -> Tensor:
        """A normalisation of ``kind`` gain, gain+bias or free (no trained values).

        ``over``: axes of its gain; ``within``: the axes it normalises over, where they are fewer.
        """
        written = Tensor(out or name, x.axes)
        weights: tuple[Weight, ...] = ()
        if kind != "free":
            weights = (Weight(f"{name}.weight", over, "high"),)
        if kind == "gain+bias":
            weights += (Weight(f"{name}.bias", over, "high"),)
        rounds = 1 if kind == "gain+bias" else RMS_ROUNDS
        self.ops.append(Norm(name, (x,), (written,), flops=NORM_FLOPS, parameters=weights, rounds=rounds, over=within))
        return written

    def pointwise(
        self,
        name: str,
        inputs: tuple[Tensor, ...],
        out: Tensor,
        *,
        flops: int = 1,
        saved: tuple[Tensor, ...] = (),
        parameters: tuple[Weight, ...] = (),
        rounds: int = 1,
    ) -> Tensor:
        """Element by element from ``inputs`` to ``out``."""
        self.ops.append(Pointwise(name, inputs, (out,), flops, saved, parameters, rounds))
        return out

    def dropout(self, name: str, x: Tensor, out: str = "") -> Tensor:
        """Dropout: keeps its mask, one byte an element."""
        written, mask = Tensor(out or name, x.axes), Tensor(f"{name}.mask", x.axes, "mask")
        self.ops.append(Pointwise(name, (x,), (written, mask), 2, (mask,)))
        return written

    def add(self, name: str, terms: tuple[Tensor, ...], out: str = "", flops: int = 1) -> Tensor:
        """The sum of ``terms``, written to ``out``; keeps nothing."""
        return self.pointwise(name, terms, Tensor(out or name, terms[0].axes), flops=flops)

    def activation(
        self, name: str, gate: Tensor, up: Tensor | None, parameters: tuple[Weight, ...] = (), apart: int = 0
    ) -> Tensor:
        """``act(gate)``, times ``up`` where the layer is gated; ``apart``: passes of one that no library fuses."""
        inputs = (gate,) if up is None else (gate, up)
        flops = ACTIVATION_FLOPS + (up is not None)
        out = Tensor(name, gate.axes)
        rounds = apart or len(inputs)
        self.ops.append(Pointwise(name, inputs, (out,), flops, inputs, parameters, rounds, apart=apart > 0))
        return out

    # --- the mixers: what one token learns from the others -------------------------------------------------------

    def attention(self, x: Tensor, plan: Heads) -> Tensor:
        """Softmax attention of grouped heads, with its four projections."""
        heads, kv_heads = axis(HEADS, plan.qualifier), axis(KV_HEADS, plan.qualifier)
        dim = axis(HEAD_DIM, plan.qualifier)
        q = self.linear("attention.q", x, (H,), (heads, dim), bias=plan.q_bias)
        k = self.linear("attention.k", x, (H,), (kv_heads, dim), bias=plan.kv_bias)
        v = self.linear("attention.v", x, (H,), (kv_heads, dim), bias=plan.kv_bias)
        if plan.clip:
            q = self.pointwise("attention.q_clip", (q,), Tensor("attention.q_clip", q.axes), flops=2, saved=(q,))
            k = self.pointwise("attention.k_clip", (k,), Tensor("attention.k_clip", k.axes), flops=2, saved=(k,))
            v = self.pointwise("attention.v_clip", (v,), Tensor("attention.v_clip", v.axes), flops=2, saved=(v,))
        if plan.norm_first:
            q, k = self._head_norms(q, k, plan, heads, kv_heads, dim)
        if plan.rotary:
            q, k = self._rotate(q, k)
        if not plan.norm_first:
            q, k = self._head_norms(q, k, plan, heads, kv_heads, dim)
        sinks = Weight("attention.sinks", (heads,), "high") if plan.sinks else None
        mixed = Tensor("attention", q.axes)
        self.ops.append(
            Attention(
                "attention", q, k, v, mixed,
                window=plan.window, chunked=plan.chunked, dropout=plan.dropout, sinks=sinks,
            )
        )  # fmt: skip
        if plan.inner_norm:
            mixed = self.norm("attention.inner_norm", mixed, plan.inner_norm, (heads, dim))
        return self.linear("attention.o", mixed, (heads, dim), (H,), bias=plan.out_bias)

    def _head_norms(
        self, q: Tensor, k: Tensor, plan: Heads, heads: Axis, kv_heads: Axis, dim: Axis
    ) -> tuple[Tensor, Tensor]:
        """Normalised queries and keys, as ``Heads.qk_norm`` says."""
        if not plan.qk_norm:
            return q, k
        kind = plan.qk_kind if plan.qk_norm != "free" else "free"
        many = plan.qk_norm in ("each", "joint")
        within = (dim,) if plan.qk_norm == "each" else ()
        q = self.norm("attention.q_norm", q, kind, (heads, dim) if many else (dim,), within=within)
        k = self.norm("attention.k_norm", k, kind, (kv_heads, dim) if many else (dim,), within=within)
        return q, k

    def _rotate(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Rotary position embedding: linear in its input, so nothing is kept."""
        q_out, k_out = Tensor("attention.q_rotary", q.axes), Tensor("attention.k_rotary", k.axes)
        self.ops.append(Pointwise("attention.rotary", (q, k), (q_out, k_out), ROTARY_FLOPS, rounds=ROTARY_ROUNDS))
        return q_out, k_out

    def latent_attention(self, x: Tensor, plan: Latent) -> Tensor:
        """Multi-head latent attention. Source: DeepSeek-V2, arXiv:2405.04434, section 2.1."""
        heads, qk, rope = axis(HEADS), axis(HEAD_DIM, "qk"), axis(HEAD_DIM, "rope")
        nope, value = axis(HEAD_DIM, "nope"), axis(HEAD_DIM, "value")
        kv, low_q = axis(LATENT, "kv"), axis(LATENT, "q")
        if plan.q_latent:
            q_a = self.linear("attention.q_a", x, (H,), (low_q,), bias=plan.down_bias)
            q_a = self.norm("attention.q_norm", q_a, "gain", (low_q,))
            q = self.linear("attention.q_b", q_a, (low_q,), (heads, qk))
        else:
            q = self.linear("attention.q", x, (H,), (heads, qk))
        latent = self.linear("attention.kv_a", x, (H,), (kv,), bias=plan.down_bias)
        k_rope = self.linear("attention.k_rope", x, (H,), (rope,), bias=plan.down_bias)
        latent = self.norm("attention.kv_norm", latent, "gain", (kv,))
        q, k_rope = self._rotate(q, k_rope)
        up_key = Weight("attention.up_key", (kv, heads, nope))
        up_value = Weight("attention.up_value", (kv, heads, value))
        mixed = Tensor("attention", (B, Q, heads, value))
        self.ops.append(LatentAttention("attention", q, latent, k_rope, up_key, up_value, mixed))
        return self.linear("attention.o", mixed, (heads, value), (H,), bias=plan.out_bias)

    # --- the feed-forward part ------------------------------------------------------------------------------------

    def mlp(self, x: Tensor, plan: Mlp, name: str = "mlp") -> Tensor:
        """A feed-forward block: gated (three matrices) or plain (two)."""
        ffn = axis(FFN, plan.qualifier)
        trained = tuple(Weight(f"{name}.act.{w}", (), "high") for w in plan.activation_weights)
        if plan.gated:
            gate = self.linear(f"{name}.gate", x, (H,), (ffn,), bias=plan.bias)
            up = self.linear(f"{name}.up", x, (H,), (ffn,), bias=plan.bias)
            inner = self.activation(f"{name}.act", gate, up, trained)
        else:
            inner = self.activation(
                f"{name}.act", self.linear(f"{name}.up", x, (H,), (ffn,), bias=plan.bias), None, trained
            )
        if plan.inner_norm:
            inner = self.norm(f"{name}.inner_norm", inner, plan.inner_norm, (ffn,))
        return self.linear(f"{name}.down", inner, (ffn,), (H,), bias=plan.down_bias)

    def experts(self, x: Tensor, plan: Experts) -> Tensor:
        """Routed experts (and the shared ones every token passes through)."""
        ffn = axis(FFN, plan.qualifier)
        scores = self.linear("moe.router", x, (H,), (CHOICE,), bias=plan.router_bias, format="high")
        correction = (Weight("moe.top_k.bias", (CHOICE,), "high"),) if plan.correction_bias else ()
        chosen = Tensor("moe.top_k", scores.axes)
        self.pointwise("moe.top_k", (scores,), chosen, flops=5, saved=(chosen,), parameters=correction)
        routed = Tensor("moe.dispatch", (EXPERT, axis(ROUTED), H))
        self.ops.append(Dispatch("moe.dispatch", x, routed))
        up = self.grouped("moe.up", routed, H, ffn, bias=plan.bias)
        if plan.gated:
            gate = self.grouped("moe.gate", routed, H, ffn, bias=plan.bias)
            inner = self.activation("moe.act", gate, up, apart=plan.activation_rounds)
        else:
            inner = self.activation("moe.act", up, None, apart=plan.activation_rounds)
        down = self.grouped("moe.down", inner, ffn, H, bias=plan.bias)
        out = Tensor("moe.combine", STREAM)
        self.ops.append(Combine("moe.combine", down, out))
        if plan.shared is None:
            return out
        always = self.mlp(x, plan.shared, "shared")
        if plan.shared_gate:
            gate = self.linear("shared.router", x, (H,), (), format="high")
            weighed = Tensor("shared.weighed", STREAM)
            always = self.pointwise("shared.weighed", (always, gate), weighed, flops=5, saved=(always, gate))
        return self.add("moe.sum", (out, always))

    # --- a whole layer ----------------------------------------------------------------------------------------------

    def mix(self, x: Tensor, plan: Layer) -> Tensor:
        """The attention part of a layer."""
        if isinstance(plan.mixer, Latent):
            return self.latent_attention(x, plan.mixer)
        return self.attention(x, plan.mixer)

    def feed(self, x: Tensor, plan: Layer) -> Tensor:
        """The feed-forward part of a layer: one block, routed experts, or both side by side."""
        if isinstance(plan.feed, Mlp):
            return self.mlp(x, plan.feed)
        return self.experts(x, plan.feed)

    def layer(self, plan: Layer, x: Tensor | None = None, out: str = "y") -> Tensor:
        """One layer from stream ``x`` to stream ``out``, norms and sums in the order that ``plan`` says."""
        x = self.x if x is None else x
        kind, sum_flops = plan.norm, 1 + plan.scaled_residual

        def dropped(name: str, t: Tensor) -> Tensor:
            return self.dropout(f"{name}.dropout", t) if plan.dropout else t

        if plan.order == "parallel":
            # One sum of three terms; the two halves read one norm (GPT-J, Falcon-7B) or one each (GPT-NeoX).
            n = self.norm("attention.norm", x, kind)
            mixed = dropped("attention", self.mix(n, plan))
            m = self.norm("mlp.norm", x, kind) if plan.two_norms else n
            fed = dropped("mlp", self.feed(m, plan))
            return self.add("residual", (x, mixed, fed), out, 2)
        before, after = plan.order in ("pre", "sandwich"), plan.order in ("post", "sandwich")
        stream = x
        for name, part, last in (("attention", self.mix, False), ("mlp", self.feed, True)):
            inner = self.norm(f"{name}.norm", stream, kind) if before else stream
            inner = part(inner, plan)
            if after:
                inner = self.norm(f"{name}.post_norm", inner, kind)
            inner = dropped(name, inner)
            end = out if last else f"{name}.residual"
            if plan.order == "outer":
                # The norm stands on the sum itself, as in the first transformers (OPT-350M).
                stream = self.add(f"{name}.residual", (stream, inner), f"{name}.sum", sum_flops)
                stream = self.norm(f"{name}.outer_norm", stream, kind, out=end)
            else:
                stream = self.add(f"{name}.residual", (stream, inner), end, sum_flops)
        return stream
