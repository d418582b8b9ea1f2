"""What one layer of a decoder may look like: records that a family fills in, and the shared builder reads.

Floor: plugins. Pure data; each field names one difference between published families.
"""

from __future__ import annotations

from attrs import frozen

NORMS = ("gain", "gain+bias", "free")
ORDERS = ("pre", "post", "sandwich", "outer", "parallel")


@frozen
class Heads:
    """Grouped-query attention: ``heads`` query heads on ``kv_heads`` keys and values of ``head_dim``.

    ``qk_norm``: queries and keys normalised per head with one gain for all heads (``shared``), one a head (``each``) or
    nothing trained (``free``), or over all heads together (``joint``); ``norm_first``: before the rotation.
    ``window``: name of the size that limits the context; ``clip``: values of q, k, v are clamped.
    """

    q_bias: bool = False
    kv_bias: bool = False
    out_bias: bool = False
    rotary: bool = True
    qk_norm: str = ""
    qk_kind: str = "gain"
    norm_first: bool = True
    inner_norm: str = ""
    window: str = ""
    chunked: bool = False
    sinks: bool = False
    dropout: bool = False
    clip: bool = False
    qualifier: str = ""


@frozen
class Latent:
    """Multi-head latent attention; ``q_latent``: queries are compressed too; ``down_bias``: the compressions' bias."""

    q_latent: bool = True
    down_bias: bool = False
    out_bias: bool = False


@frozen
class Mlp:
    """A feed-forward block of inner size ``ffn`` (``ffn@qualifier``); ``activation_weights``: trained scalars in it."""

    gated: bool = True
    bias: bool = False
    down_bias: bool = False
    inner_norm: str = ""
    qualifier: str = ""
    activation_weights: tuple[str, ...] = ()


@frozen
class Experts:
    """Routed experts of inner size ``ffn@expert``, beside an optional ``shared`` block that every token passes.

    ``correction_bias``: a trained offset of the choice, where the model class counts it as a parameter;
    ``activation_rounds``: passes of an activation function that libraries have no kernel for; 0 for a plain one.
    """

    gated: bool = True
    bias: bool = False
    router_bias: bool = False
    correction_bias: bool = False
    shared: Mlp | None = None
    shared_gate: bool = False
    qualifier: str = "expert"
    activation_rounds: int = 0


@frozen
class Layer:
    """One kind of layer: ``mixer`` and ``feed`` with norms of kind ``norm`` placed as ``order`` says.

    ``order``: ``pre`` (norm before each part), ``post`` (after each part, before the sum), ``sandwich`` (both),
    ``outer`` (after the sum), ``parallel`` (both parts read the same stream; ``two_norms``: each its own norm).
    """

    name: str
    mixer: Heads | Latent
    feed: Mlp | Experts
    norm: str = "gain"
    order: str = "pre"
    two_norms: bool = False
    dropout: bool = False
    scaled_residual: bool = False
