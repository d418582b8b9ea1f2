"""The operations a model is made of. Each says what it reads, writes, multiplies and keeps for its backward pass.

Floor: model. Pure data. An operation holds no formula: floating-point operations, bytes, collectives and saved
activations all follow from its axes (``placement``, ``memory``). Backward operations are derived (``backward``).
"""

from __future__ import annotations

from attrs import frozen

from .axes import Axis, Tensor, Weight


@frozen
class Op:
    """Base of all operations: a ``name`` unique in its block."""

    name: str

    @property
    def reads(self) -> tuple[Tensor, ...]:
        """Activation tensors it reads."""
        return ()

    @property
    def writes(self) -> tuple[Tensor, ...]:
        """Activation tensors it writes."""
        return ()

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Trained tensors it uses."""
        return ()

    @property
    def saves(self) -> tuple[Tensor, ...]:
        """Tensors its backward pass needs again."""
        return ()


@frozen
class Contraction(Op):
    """``out[...] = sum over the axes that x and weight share and out lacks of x · weight`` (+ bias): a linear layer."""

    x: Tensor
    weight: Weight
    out: Tensor
    bias: Weight | None = None

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.out,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.weight,) if self.bias is None else (self.weight, self.bias)

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return () if self.weight.frozen else (self.x,)  # the input's own gradient needs the weight alone


@frozen
class GroupedContraction(Contraction):
    """A linear layer of each routed expert on the token copies routed to it: x and out have experts and routed axes."""


@frozen
class Attention(Op):
    """Softmax attention of q [batch, query, heads, head_dim] over k, v [batch, query, kv_heads, head_dim].

    k and v are given as produced (for the query tokens); the operation reads them over the whole ``context``:
    the same tokens in training, the cache in decoding. ``window``: name of the size that limits the context (sliding
    or chunked), empty for full attention; ``chunked``: the window is a fixed chunk, not a sliding one.
    ``dropout``: attention probabilities are dropped out (kept for backward when unfused). ``sinks``: a trained
    logit per head.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    out: Tensor
    causal: bool = True
    window: str = ""
    chunked: bool = False
    dropout: bool = False
    sinks: Weight | None = None

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.q, self.k, self.v)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.out,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return () if self.sinks is None else (self.sinks,)

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return (self.q, self.k, self.v, self.out)


@frozen
class LatentAttention(Op):
    """Multi-head latent attention (DeepSeek-V2): keys and values are up-projections of one latent per token.

    q [batch, query, heads, head_dim@qk], latent [batch, query, latent@kv], rope_key [batch, query, head_dim@rope];
    weights up_key [latent@kv, heads, head_dim@nope] and up_value [latent@kv, heads, head_dim@value];
    out [batch, query, heads, head_dim@value]. The cache holds latent and rope_key. Two ways to compute it, the
    cheaper is chosen: expand keys and values of the context, or absorb both up-projections into query and output.

    Source: DeepSeek-V2, arXiv:2405.04434, section 2.1.
    """

    q: Tensor
    latent: Tensor
    rope_key: Tensor
    up_key: Weight
    up_value: Weight
    out: Tensor
    causal: bool = True

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.q, self.latent, self.rope_key)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.out,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.up_key, self.up_value)

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return (self.q, self.latent, self.rope_key, self.out)

    @property
    def expanded(self) -> tuple[Tensor, Tensor]:
        """Keys (with the rotary part, one for each head) and values as the core reads them where it expands them."""
        return Tensor(f"{self.name}.keys", self.q.axes), Tensor(f"{self.name}.values", self.out.axes)


@frozen
class Pointwise(Op):
    """Element by element: rotary embedding, activation function, gate product, residual sum, dropout, soft cap.

    ``flops``: operations per element of the first output; ``saved``: what its backward pass needs again (a residual
    sum needs nothing, an activation function its input, dropout its mask); ``rounds``: passes over each output that
    software takes which fuses nothing (an RMSNorm written as square, mean, product, gain takes four); ``apart``: no
    library has a kernel for the whole of it, so that this is what routed experts cost beside their products.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    flops: int = 1
    saved: tuple[Tensor, ...] = ()
    parameters: tuple[Weight, ...] = ()
    rounds: int = 1
    apart: bool = False

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return self.inputs

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return self.outputs

    @property
    def weights(self) -> tuple[Weight, ...]:
        return self.parameters

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return self.saved


@frozen
class Norm(Pointwise):
    """A normalisation (RMSNorm, LayerNorm); keeps its input for backward.

    ``over``: the axes it normalises over, where they are not those of its gain (the last axis if it has none):
    a gain for each head does not mean that all heads are normalised together.
    """

    over: tuple[Axis, ...] = ()

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return self.inputs

    @property
    def normalised(self) -> tuple[Axis, ...]:
        """The axes whose mean and variance are taken."""
        x = self.inputs[0]
        return self.over or (self.parameters[0].axes if self.parameters else x.axes[-1:])


@frozen
class Lookup(Op):
    """Rows of a table picked by token or position: a contraction with a one-hot tensor that costs no multiplication."""

    table: Weight
    out: Tensor

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.out,)

    @property
    def weights(self) -> tuple[Weight, ...]:
        return (self.table,)


@frozen
class Dispatch(Op):
    """Token copies go to their experts: x [batch, query, hidden] becomes out [experts, routed, hidden].

    ``top_k`` names the size «experts per token».
    """

    x: Tensor
    out: Tensor
    top_k: str = "top_k"

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.out,)


@frozen
class Combine(Op):
    """Expert outputs x [experts, routed, hidden] return to their tokens, weighted and summed into out (a stream)."""

    x: Tensor
    out: Tensor
    top_k: str = "top_k"

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.x,)

    @property
    def writes(self) -> tuple[Tensor, ...]:
        return (self.out,)

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return (self.x,)


@frozen
class Loss(Op):
    """Cross entropy over logits [batch, query, vocab]; keeps the probabilities for backward."""

    logits: Tensor
    probabilities: Tensor

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.logits,)

    @property
    def saves(self) -> tuple[Tensor, ...]:
        return (self.probabilities,)


@frozen
class Sampling(Op):
    """One token drawn from logits [batch, query, vocab] for each sequence."""

    logits: Tensor

    @property
    def reads(self) -> tuple[Tensor, ...]:
        return (self.logits,)
