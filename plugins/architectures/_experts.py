"""Which layers have experts, and of what sizes: the two rules that several families share.

Floor: plugins. Uses the core's configuration and errors.
"""

from __future__ import annotations

from attrs import evolve

from slipstick.core.errors import UserError
from slipstick.core.records.configuration import Configuration

from ._plans import Experts, Mlp

MANY = 100_000
"""More experts than any published model has by three orders of magnitude; a larger number is a slip."""


def dense_or_routed(
    config: Configuration, routed: list[bool], dense: Mlp, experts: Experts, width: int, sizes: dict[str, int]
) -> list[Mlp | Experts]:
    """Dense layers of inner size ``width`` (``ffn@dense``) beside routed ones, as ``routed`` says layer by layer."""
    if all(routed):
        return [experts] * len(routed)
    if not width:
        raise UserError(f"{config.origin}: the inner size of the dense layers is missing (field 'intermediate_size')")
    sizes["ffn@dense"] = width
    plain = evolve(dense, qualifier="dense")
    return [experts if r else plain for r in routed]


def deepseek_experts(
    config: Configuration, routed: list[bool], sizes: dict[str, int], dense: Mlp | None = None
) -> list[Mlp | Experts]:
    """DeepSeek's field names: leading dense layers, then routed experts and ``n_shared_experts`` that see every token.

    Several shared experts are one block of their summed width, as the model classes build it.
    """
    config.ignore(("moe_intermediate_size", "n_shared_experts", "n_routed_experts", "num_experts_per_tok"))
    experts = Experts()
    if any(routed):
        width = config.integer("moe_intermediate_size")
        sizes |= {
            "ffn@expert": width,
            "experts": config.integer("n_routed_experts", maximum=MANY),
            "top_k": config.integer("num_experts_per_tok", maximum=MANY),
        }
        shared = config.integer("n_shared_experts", 0, minimum=0, maximum=1000)
        if shared:
            sizes["ffn@shared"] = shared * width
            experts = Experts(shared=Mlp(qualifier="shared"))
    config.ignore(("intermediate_size",))
    width = 0 if all(routed) else config.integer("intermediate_size")
    return dense_or_routed(config, routed, dense or Mlp(), experts, width, sizes)
