"""A model as blocks of operations and runs of equal layers, with the values of its sizes.

Floor: model. Pure data and exact integer counts (no sympy): a graph's structure is what a compiled formula depends
on, its sizes are inputs of that formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from attrs import field, frozen

from .axes import EXPERTS, Tensor, Weight
from .ops import Attention, LatentAttention, Op


@frozen
class Block:
    """Operations in execution order, from the stream tensor ``input`` to the stream tensor ``output``."""

    name: str
    ops: tuple[Op, ...]
    input: str = "x"
    output: str = "y"

    def weights(self) -> Iterator[Weight]:
        """Every trained tensor of the block, once."""
        seen: set[str] = set()
        for op in self.ops:
            for weight in op.weights:
                if weight.name not in seen:
                    seen.add(weight.name)
                    yield weight


@frozen
class Run:
    """A stretch of layers that repeats a ``cycle`` of blocks; ``layers`` names the size «number of layers in the run».

    A plain model is one run with a cycle of one block; Gemma-3 is a cycle of five sliding blocks and a full one.
    """

    cycle: tuple[Block, ...]
    layers: str

    def kinds(self) -> list[tuple[Block, int]]:
        """The different blocks of the cycle with how often each occurs in it."""
        counts: dict[Block, int] = {}
        for block in self.cycle:
            counts[block] = counts.get(block, 0) + 1
        return list(counts.items())


@frozen
class ModelGraph:
    """A model: ``embedding`` block, ``runs`` of layers, ``output`` block (final norm and logits), and its sizes.

    ``sizes`` maps each size symbol to its extent; ``extras``: blocks that a scenario may switch on (``mtp``: a
    multi-token-prediction layer of training); ``quantization``: how the configuration says weights are stored
    (``weight``, ``expert``, ``cache``, ``activation`` → number format), empty for plain 16-bit;
    ``facts``: other things worth showing (maximum positions, source of a preset).
    """

    name: str
    architecture: str
    embedding: Block
    runs: tuple[Run, ...]
    output: Block
    sizes: dict[str, int]
    extras: dict[str, Block] = field(factory=dict)
    quantization: dict[str, str] = field(factory=dict)
    dtype: str = "bf16"
    max_positions: int = 0
    facts: dict[str, str] = field(factory=dict)

    def structure(self) -> str:
        """A text that is equal for two graphs exactly when the same compiled formula serves both."""
        parts = (self.embedding, self.runs, self.output, sorted(self.extras.items()))
        return repr(parts)

    def parts(self) -> Iterator[tuple[Block, int]]:
        """Every different block with how often it occurs in the model (extras left out)."""
        yield self.embedding, 1
        for run in self.runs:
            cycles = self.sizes[run.layers] // len(run.cycle)
            for block, count in run.kinds():
                yield block, count * cycles
        yield self.output, 1

    def elements(self, tensor: Tensor) -> int:
        """Number of elements of a whole tensor whose sizes are all known."""
        return prod(self.sizes[a.size] for a in tensor.axes)

    def block_parameters(self, block: Block) -> int:
        """Elements of one block's weights, tied weights not counted."""
        return sum(self.elements(w) for w in block.weights() if not w.tied)

    @property
    def layers(self) -> int:
        """Number of layers over all runs."""
        return sum(self.sizes[run.layers] for run in self.runs)

    @property
    def parameters(self) -> int:
        """Elements of the model's weights (tied weights once, extras left out): what the model class reports."""
        return sum(self.block_parameters(block) * count for block, count in self.parts())

    @property
    def trained_parameters(self) -> int:
        """Elements of the model that are not frozen (tied weights once, extras left out)."""
        return sum(
            count * self.elements(weight)
            for block, count in self.parts()
            for weight in block.weights()
            if not (weight.tied or weight.frozen)
        )

    @property
    def active_parameters(self) -> int:
        """Elements that take part in one token's forward pass: of routed experts only the chosen ones."""
        total = 0
        for block, count in self.parts():
            for weight in block.weights():
                elements = self.elements(weight)
                if EXPERTS in weight.roles:
                    elements = elements * self.sizes["top_k"] // self.sizes["experts"]
                if not weight.tied:
                    total += elements * count
        return total

    def kv_elements(self) -> int:
        """Cache elements per token over all layers, as if no window limited any layer."""
        total = 0
        for block, count in self.parts():
            for op in block.ops:
                for tensor in cached(op):
                    total += count * prod(self.sizes[a.size] for a in tensor.axes[2:])
        return total

    def kv_bytes_per_token(self, width: float = 2.0) -> float:
        """Bytes of cache per token over all layers at ``width`` [B] per element.

        Source: 2·L·kv·d·b for grouped-query attention, (d_c + d_r)·L·b for latent attention (arXiv:2405.04434).
        """
        return self.kv_elements() * width


def cached(op: Op) -> tuple[Tensor, ...]:
    """The tensors of an operation that a cache keeps for later tokens (axes 0 and 1 are batch and query)."""
    if isinstance(op, Attention):
        return (op.k, op.v)
    if isinstance(op, LatentAttention):
        return (op.latent, op.rope_key)
    return ()


def runs_of(kinds: Sequence[Block], prefix: str = "layers") -> tuple[tuple[Run, ...], dict[str, int]]:
    """Layers given one by one → the fewest runs of repeating cycles this greedy reading finds, and their sizes.

    Sizes are named ``layers`` for the only run, else ``layers@0``, ``layers@1``, ...

    >>> a, b = Block("a", ()), Block("b", ())
    >>> runs, sizes = runs_of([a, b, b, b, b])
    >>> [[block.name for block in run.cycle] for run in runs], sizes
    ([['a'], ['b']], {'layers@0': 1, 'layers@1': 4})
    """
    found: list[tuple[tuple[Block, ...], int]] = []
    start = 0
    while start < len(kinds):
        best_cycle, best_length = 1, 1
        for cycle in range(1, min(16, len(kinds) - start) + 1):
            length = cycle
            while start + length < len(kinds) and kinds[start + length] == kinds[start + length - cycle]:
                length += 1
            length -= length % cycle
            if (length >= 2 * cycle or cycle == 1) and length > best_length:
                best_cycle, best_length = cycle, length
        found.append((tuple(kinds[start : start + best_cycle]), best_length))
        start += best_length
    names = [prefix] if len(found) == 1 else [f"{prefix}@{i}" for i in range(len(found))]
    runs = tuple(Run(cycle, name) for (cycle, _), name in zip(found, names, strict=True))
    return runs, {name: length for (_, length), name in zip(found, names, strict=True)}
