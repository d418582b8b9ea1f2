"""Fine-tuning with adapters: what its settings make of a model and of a recipe.

Floor: study. No sympy.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import UserError
from ..model.adapters import ALL, stored_apart, with_adapters
from ..model.graph import ModelGraph
from ..records.numerics import Numerics, with_base

TARGETS = "+"
"""What stands between several layers that adapters are put beside."""


def fine_tuned(
    graph: ModelGraph, recipe: Numerics, chosen: Mapping[str, Any]
) -> tuple[ModelGraph, Numerics, list[str]]:
    """The model that is trained, its recipe, and what a reader of the answer has to know.

    ``chosen``: settings by name (``lora_rank``, ``lora_targets``, ``base_precision``); without a rank all of the model
    is trained. Errors: UserError for a rank that the model can't have, a layer that it lacks, or targets or a format of
    frozen weights without a rank.
    """
    rank, targets, base = (chosen.get(name) for name in ("lora_rank", "lora_targets", "base_precision"))
    if rank is None:
        for flag, value in (("--lora-targets", targets), ("--base-precision", base)):
            if value is not None:
                raise UserError(f"{flag} {value}: only adapters leave weights frozen; give their rank with --lora-rank")
        return graph, recipe, []
    try:
        tuned = with_adapters(graph, int(rank), tuple((targets or ALL).split(TARGETS)))
    except UserError as error:
        raise UserError(f"--lora-rank {rank}{f' --lora-targets {targets}' if targets else ''}: {error}") from None
    told = (
        f"adapters: {tuned.trained_parameters:,} trained parameters beside {graph.parameters:,} frozen ones, whose "
        "gradients are neither made nor counted"
    )
    if base is not None:
        recipe, read = with_base(recipe, str(base))
        if read != "plain":
            tuned = stored_apart(tuned, read == "expanded")
    return tuned, recipe, [told]
