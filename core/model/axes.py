"""Named axes and the tensors made of them.

Floor: model. Pure data (no sympy): an axis has a role, which is what parallel strategies speak of, and a size, which
is the name of the symbol that holds its extent.
"""

from __future__ import annotations

from attrs import field, frozen

BATCH, QUERY, CONTEXT = "batch", "query", "context"
HIDDEN, FFN, VOCAB = "hidden", "ffn", "vocab"
HEADS, KV_HEADS, HEAD_DIM, LATENT = "heads", "kv_heads", "head_dim", "latent"
EXPERTS, ROUTED, CHOICES = "experts", "routed", "choices"
POSITIONS, LAYERS, FLAT = "positions", "layers", "flat"

ROLES: dict[str, str] = {
    BATCH: "sequences processed together",
    QUERY: "tokens whose output is computed",
    CONTEXT: "tokens that attention may look at",
    HIDDEN: "width of the residual stream",
    FFN: "inner width of a feed-forward block",
    VOCAB: "vocabulary entries",
    HEADS: "query heads",
    KV_HEADS: "key/value heads",
    HEAD_DIM: "width of one head",
    LATENT: "width of a compressed (latent) projection",
    EXPERTS: "routed experts",
    ROUTED: "token copies that reach one device's experts",
    CHOICES: "experts that a router scores (never split: every token needs all scores)",
    POSITIONS: "rows of a learned position table",
    LAYERS: "blocks of the model (split into pipeline stages)",
    FLAT: "packed elements of weights, gradients or optimizer state",
}


@frozen
class Axis:
    """One named axis: ``role`` is one of ``ROLES``; ``size`` names the symbol of its extent.

    Two axes of a block with the same role and different extents have sizes qualified by ``@``
    (``ffn`` and ``ffn@shared``): they follow the same strategy and count differently.

    >>> axis("ffn"), axis("ffn", "shared").size
    (Axis(role='ffn', size='ffn'), 'ffn@shared')
    """

    role: str
    size: str


def axis(role: str, qualifier: str = "") -> Axis:
    """The axis of ``role``; ``qualifier`` tells extents of the same role apart."""
    if role not in ROLES:
        raise ValueError(f"unknown axis role {role!r}; known: {', '.join(ROLES)}")
    return Axis(role, f"{role}@{qualifier}" if qualifier else role)


@frozen
class Tensor:
    """A tensor of a block: a ``name`` unique in its block, named ``axes``, and the number ``format`` it is kept in.

    ``format`` is a role, not a type; a numerics recipe says how wide each is:
    ``activation``; ``mask`` (one byte); ``wide`` (softmax statistics, logits of the loss: FP32 in training);
    ``cache`` (keys and values kept for decoding); ``weight`` (linear layers), ``expert`` (routed linear layers),
    ``high`` (weights that quantisation leaves alone: norms, embeddings, routers, output layer); ``frozen`` (linear
    layers that are not trained, where they are kept in a format of their own).
    """

    name: str
    axes: tuple[Axis, ...]
    format: str = "activation"

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of its axes, in order."""
        return tuple(a.role for a in self.axes)

    @property
    def is_stream(self) -> bool:
        """Whether it has the shape of the residual stream (batch, query, hidden), or of one compressed to a latent:
        strategies may store those split."""
        return self.roles in ((BATCH, QUERY, HIDDEN), (BATCH, QUERY, LATENT))


@frozen
class Weight(Tensor):
    """A tensor of the model's own values. ``tied`` names the weight of another block whose values it shares (not
    counted again). ``frozen``: it is not trained, so that it has no gradient and no optimizer state. ``stored``: the
    format role it lies in memory in, where products need it expanded to ``format`` first.
    """

    format: str = field(default="weight")
    tied: str = ""
    frozen: bool = False
    stored: str = ""

    @property
    def kept(self) -> str:
        """The format role it lies in memory in."""
        return self.stored or self.format

    @property
    def operand(self) -> str:
        """The name of the tensor that products read: its own, or that of its expanded copy."""
        return f"{self.name} expanded" if self.stored else self.name
