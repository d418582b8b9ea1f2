"""The common shape of today's decoders: usual field names, a norm before each part, attention and MLP chosen per layer.

Floor: plugins. A family overrides the one or two methods in which it differs; what it does not read stays an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from attrs import evolve

from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._decoder import Decoder, build
from ._fields import common, head_sizes, layer_count, layer_types, on
from ._plans import Experts, Heads, Latent, Layer, Mlp

SHORT = {"full_attention": "full", "sliding_attention": "sliding", "chunked_attention": "chunked"}


class LlamaLike(Architecture):
    """Base of the families whose files use Llama's field names.

    ``known``: further fields of the family that shape nothing. ``kv``: ``heads`` where its real files may leave the
    number of key/value heads out. ``tied``: what its configuration class assumes of ``tie_word_embeddings``.
    """

    known: ClassVar[str] = ""
    kv: ClassVar[str] = "required"
    head_dim: ClassVar[str] = "ratio"
    tied: ClassVar[bool] = False
    norm: ClassVar[str] = "gain"
    order: ClassVar[str] = "pre"

    def graph(self, config: Configuration) -> ModelGraph:
        return self.text_graph(config)

    def text_graph(self, config: Configuration, outer: Configuration | None = None, **facts: str) -> ModelGraph:
        """The graph of the language model in ``config``; ``outer``: the multimodal configuration around it."""
        common(config, self.known)
        layers = layer_count(config)
        sizes = self.sizes(config)
        kinds = self.kinds(config, layers)
        mixer = self.mixer(config)
        if "sliding_attention" in kinds:
            sizes["window"] = config.integer("sliding_window")
        if "chunked_attention" in kinds:
            sizes["window"] = config.integer("attention_chunk_size")
        config.ignore(("sliding_window",))
        mixers = [self.shaped(mixer, kind) for kind in kinds]
        mixers = self.positions(config, mixers)
        feeds = self.feeds(config, layers, sizes)
        plan = self.layer(config)
        plans = [evolve(plan, mixer=m, feed=f) for m, f in zip(mixers, feeds, strict=True)]
        return build(
            config,
            config.text("model_type", self.model_types[0]),
            Decoder(
                layers=named(plans),
                sizes=sizes,
                tied=config.boolean("tie_word_embeddings", self.tied),
                max_positions=self.max_positions(config),
                facts=facts,
                **({"final_norm": self.norm} | self.around(config)),
            ),
            outer=outer,
        )

    def sizes(self, config: Configuration) -> dict[str, int]:
        """Sizes of the stream, the heads and the vocabulary."""
        return head_sizes(config, kv=self.kv, head_dim=self.head_dim) | {"vocab": config.integer("vocab_size")}

    def max_positions(self, config: Configuration) -> int:
        """The longest context the file speaks of."""
        return config.integer("max_position_embeddings")

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        """The kind of attention of each layer; full everywhere unless the file lists it."""
        return layer_types(config, layers, ["full_attention"] * layers)

    def mixer(self, config: Configuration) -> Heads:
        """The attention of a layer without a window."""
        bias = config.boolean("attention_bias", False)
        return Heads(q_bias=bias, kv_bias=bias, out_bias=bias, dropout=on(config, "attention_dropout"))

    def shaped(self, mixer: Heads, kind: str) -> Heads:
        """``mixer`` with the window that ``kind`` of attention has."""
        if kind == "full_attention":
            return mixer
        return evolve(mixer, window="window", chunked=kind == "chunked_attention")

    def positions(self, config: Configuration, mixers: list[Heads]) -> list[Heads]:
        """``mixers`` with the rotation switched off in the layers where a family does so."""
        return mixers

    def feeds(self, config: Configuration, layers: int, sizes: dict[str, int]) -> list[Mlp | Experts]:
        """The feed-forward part of each layer; adds its sizes to ``sizes``."""
        sizes["ffn"] = config.integer("intermediate_size")
        return [self.mlp(config)] * layers

    def mlp(self, config: Configuration) -> Mlp:
        """The dense feed-forward block."""
        return Mlp()

    def layer(self, config: Configuration) -> Layer:
        """Norms, their order and dropout of a layer (attention and MLP are filled in later)."""
        return Layer("layer", Heads(), Mlp(), norm=self.norm, order=self.order)

    def around(self, config: Configuration) -> dict[str, Any]:
        """Options of the decoder around its layers (``Decoder``'s fields)."""
        return {}


def named(plans: Iterable[Layer]) -> list[Layer]:
    """The same layers, each kind with a name that says in what it differs from the others.

    >>> plain, windowed = Layer("", Heads(), Mlp()), Layer("", Heads(window="window"), Mlp())
    >>> [layer.name for layer in named([plain, windowed, plain])]
    ['full', 'sliding', 'full']
    """
    plans = list(plans)
    mixers, feeds = {p.mixer for p in plans}, {p.feed for p in plans}
    result = []
    for plan in plans:
        words = []
        if len(mixers) > 1 and isinstance(plan.mixer, Heads):
            words.append(_attention_word(plan.mixer))
            if len({m.rotary for m in mixers if isinstance(m, Heads)}) > 1:
                words.append("rotary" if plan.mixer.rotary else "nope")
        if len(feeds) > 1:
            words.append("moe" if isinstance(plan.feed, Experts) else "dense")
        result.append(evolve(plan, name="_".join(words) or "layer"))
    return result


def _attention_word(mixer: Heads | Latent) -> str:
    if isinstance(mixer, Latent) or not mixer.window:
        return "full"
    return "chunked" if mixer.chunked else "sliding"


def every(layers: int, period: int, kind: str = "sliding_attention") -> list[str]:
    """``kind`` in all layers but each ``period``-th, which looks at everything.

    >>> every(4, 2)
    ['sliding_attention', 'full_attention', 'sliding_attention', 'full_attention']
    """
    return ["full_attention" if period and (i + 1) % period == 0 else kind for i in range(layers)]
