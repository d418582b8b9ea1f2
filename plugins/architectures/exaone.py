"""LG EXAONE 4 and Swiss AI Apertus: normalised queries and keys, each with one trait of its own.

Floor: plugins. Model types: exaone4, apertus.
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

from ._fields import layer_types, on
from ._llama_like import LlamaLike, every
from ._plans import Heads, Mlp

LETTERS = {"L": "sliding_attention", "G": "full_attention"}
"""How files spell a pattern: local and global layers (``LLLG``)."""


class Exaone4(LlamaLike):
    """EXAONE 4: norms after each part; in the 32B three sliding layers to a full one, which rotates nothing."""

    name = "exaone4"
    model_types = ("exaone4",)
    order = "post"

    def kinds(self, config: Configuration, layers: int) -> list[str]:
        if "sliding_window" not in config:
            config.ignore(("sliding_window_pattern", "layer_types"))
            return ["full_attention"] * layers
        pattern = config.raw("sliding_window_pattern")
        if not isinstance(pattern, str):
            return layer_types(config, layers, every(layers, config.integer("sliding_window_pattern", 4)))
        if not pattern or set(pattern) - set(LETTERS):
            raise UserError(f"{config.origin}: field 'sliding_window_pattern' must be a number or letters L and G")
        return layer_types(config, layers, [LETTERS[pattern[i % len(pattern)]] for i in range(layers)])

    def mixer(self, config: Configuration) -> Heads:
        return Heads(qk_norm="shared", dropout=on(config, "attention_dropout"))

    def positions(self, config: Configuration, mixers: list[Heads]) -> list[Heads]:
        if not any(m.window for m in mixers):
            return mixers
        return [evolve(m, rotary=bool(m.window)) for m in mixers]


class Apertus(LlamaLike):
    """Apertus: a plain MLP whose activation (xIELU) has two trained scalars."""

    name = "apertus"
    model_types = ("apertus",)

    def mixer(self, config: Configuration) -> Heads:
        return evolve(super().mixer(config), qk_norm="shared")

    def mlp(self, config: Configuration) -> Mlp:
        bias = config.boolean("mlp_bias", False)
        return Mlp(gated=False, bias=bias, down_bias=bias, activation_weights=("alpha_p", "alpha_n"))


@hookimpl
def slipstick_architectures() -> list[Architecture]:
    """The architectures of this file."""
    return [Exaone4(), Apertus()]
