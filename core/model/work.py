"""What one device computes and communicates, operation by operation: the output of the law.

Floor: model. Data only; amounts are symbolic. ``placement`` and ``backward`` make these, ``pricing`` gives them a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, get_args

from attrs import evolve, field, frozen

if TYPE_CHECKING:
    from sympy import Expr

Direction = Literal["forward", "input gradient", "weight gradient", "update"]
CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send"]
COLLECTIVES: tuple[str, ...] = get_args(CollectiveKind)


@frozen
class Work:
    """One kernel on one device.

    ``kind``: gemm, grouped_gemm, attention, pointwise, permute, lookup, optimizer; ``flops`` executed [FLOP],
    ``model_flops`` what counts as useful work (without recomputation, attention without causal discount) [FLOP];
    ``reads`` and ``writes``: tensor name → bytes [B]; ``shape``: named extents for formulas that want
    them (m, n, k, groups; a product is y[m, n] = a[m, k] · b[k, n] where a was just made and b comes from memory;
    ``further`` and ``spilled``: of a pass where nothing is fused, kernels beyond the first, bytes beyond its own [B]);
    ``engine``: whose rate prices it (gemm, attention, vector); ``operand``: the tensor shared with work it may join;
    ``unfused_by``: the coefficient that says how far ``further`` and ``spilled`` are there, where it is not the
    kernel family's own.
    """

    name: str
    direction: Direction
    kind: str
    flops: Expr
    model_flops: Expr
    reads: Mapping[str, Expr]
    writes: Mapping[str, Expr]
    shape: Mapping[str, Expr] = field(factory=dict)
    engine: str = "vector"
    operand: str = ""
    unfused_by: str = ""

    @property
    def at_hand(self) -> Expr:
        """The part of the traffic that the kernel before may have left in a cache, and what goes out [B]: all that is
        written, and of a product's operands the one just made (forward its input, backward its output's gradient)."""
        import sympy

        forward = self.direction == "forward"
        made = [size for name, size in self.reads.items() if (name == self.operand if forward else name[:2] == "d(")]
        return sympy.Add(*made, *self.writes.values())

    @property
    def bytes(self) -> Expr:
        """Compulsory traffic to device memory [B]: every tensor read or written once."""
        import sympy

        return sympy.Add(*self.reads.values(), *self.writes.values())


@frozen
class Collective:
    """A transfer among the devices of a group over ``atoms``.

    ``elements``: of the whole tensor as one rank sees it (all-gather: the gathered result; reduce-scatter: the
    input; all-reduce: the tensor; all-to-all: what one rank holds before; send: what is sent); ``format`` names the
    number format; ``count``: how often in a row; ``copies``: of an all-to-all whose rows are copies for so many members
    each, where the network carries a row once for all members of a domain.
    """

    kind: CollectiveKind
    tensor: str
    op: str
    direction: Direction
    atoms: tuple[str, ...]
    elements: Expr
    format: str = "activation"
    count: int = 1
    copies: Expr | None = None

    @property
    def name(self) -> str:
        """How the tree calls it."""
        return f"{self.kind.replace('_', '-')} {self.tensor}"


@frozen
class Alternatives:
    """Several ways to do the same work; the cheapest is taken and named."""

    name: str
    direction: Direction
    variants: Mapping[str, tuple[Work, ...]]


Step = Work | Collective | Alternatives


def unfused(rounds: int, outputs: Iterable[Expr]) -> dict[str, Expr]:
    """What software that fuses nothing makes of a pass: ``rounds`` kernels for each output of so many bytes, where each
    further one reads and writes that tensor once more."""
    import sympy

    sizes = tuple(outputs)
    return {
        "further": sympy.Integer(max(rounds * len(sizes), 1) - 1),
        "spilled": 2 * (rounds - 1) * sympy.Add(*sizes),
    }


def unfused_loss(logits: Expr, kept: Expr, direction: Direction) -> dict[str, Expr]:
    """The same for a cross entropy over ``logits`` that keeps ``kept`` [B]: a copy in high precision, its logarithmic
    softmax in two readings; on the way back zeros for the targets, the softmax's gradient, and a copy back.

    Source: what PyTorch's ``cross_entropy`` runs under autocast (torch.nn.functional, version 2).
    """
    import sympy

    copied = 4 * (kept - logits)  # written and read once more each way, where the formats differ
    kernels, passes = (1, 1) if direction == "forward" else (2, 2)
    return {"further": sympy.Integer(kernels), "spilled": passes * kept + copied}


ROUTED_UNFUSED = "routed_unfused"
"""The coefficient for what routed experts add to their products."""

BIAS_ROUNDS = {"forward": 8, "input gradient": 10}
"""Passes over a routed product that adding its experts' biases takes where it is no part of the product: one expert at
a time, bias times routing probability in FP32, the sum, all experts joined again and brought back to 16 bits; on the
way back the sums over tokens and over widths. Source: Megatron-LM, megatron/core/transformer/moe/experts.py."""


def routed_bias(name: str, direction: Direction, product: Expr) -> Work:
    """What adding experts' biases to a routed ``product`` of so many bytes costs software that fuses nothing there."""
    import sympy

    zero = sympy.Integer(0)
    shape = unfused(BIAS_ROUNDS[direction], (product,))
    return Work(f"{name} bias", direction, "pointwise", zero, zero, {}, {}, shape, unfused_by=ROUTED_UNFUSED)


@frozen
class Gradient:
    """The gradient of one weight on one device (of a frozen one: what it would be): its local ``elements`` and the
    atoms over which it is a partial sum.

    ``copies``: groups of ranks that hold the same part of a replicated axis, each with the sum of its own users only.
    """

    weight: str
    elements: Expr
    partial: tuple[str, ...]
    format: str
    copies: tuple[str, ...] = ()


def fused(steps: Iterable[Step]) -> list[Step]:
    """Neighbouring work that real kernels do at once, as one piece.

    Contractions of the same tensor are one matrix product (query, key and value; gate and up), and a chain of
    pointwise operations is one pass over memory; what lies between is not read again. Collectives in between do not
    matter: what kernels are joined is a property of the software, and a layout over one device must change nothing.
    """
    result: list[Step] = []
    for step in steps:
        index = _partner(result, step)
        if index is None or not isinstance(step, Work):
            result.append(step)
        else:
            earlier = result[index]
            assert isinstance(earlier, Work)
            result[index] = _merge(earlier, step)
    return result


def _partner(done: list[Step], step: Step) -> int | None:
    """Index of the earlier piece that ``step`` joins: products look back over other work, passes only one place."""
    if not isinstance(step, Work):
        return None
    looked = 0
    for index in range(len(done) - 1, -1, -1):
        earlier = done[index]
        if isinstance(earlier, Collective):
            continue
        if not isinstance(earlier, Work):
            return None
        if _fusible(earlier, step):
            return index
        looked += 1
        if step.kind != "gemm" or looked == 8:
            return None
    return None


def _fusible(a: Work, b: Work) -> bool:
    if a.direction != b.direction or a.kind != b.kind or a.engine != b.engine or a.unfused_by != b.unfused_by:
        return False
    if a.kind == "gemm":
        return bool(a.operand) and a.operand == b.operand
    return a.kind == "pointwise" and any(name in b.reads for name in a.writes)


def _merge(a: Work, b: Work) -> Work:
    import sympy

    reads = {**a.reads, **{name: size for name, size in b.reads.items() if name not in a.writes}}
    shape = dict(a.shape)
    if a.kind == "pointwise":  # what is not fused is not joined either: one kernel more, and what lies between moves
        zero = sympy.Integer(0)
        between = a.bytes + b.bytes - sympy.Add(*reads.values(), *a.writes.values(), *b.writes.values())
        shape = {"further": a.shape.get("further", zero) + b.shape.get("further", zero) + 1,
                 "spilled": a.shape.get("spilled", zero) + b.shape.get("spilled", zero) + between}  # fmt: skip
    if a.kind == "gemm":
        # Joined along the axis that the two do not share: the outputs, which the input gradient sums over.
        axis = {"forward": "n", "input gradient": "k"}.get(a.direction, "m")
        shape[axis] = a.shape[axis] + b.shape[axis]
    return evolve(
        a,
        name=f"{a.name} + {b.name}",
        flops=a.flops + b.flops,
        model_flops=a.model_flops + b.model_flops,
        reads=reads,
        writes={**a.writes, **b.writes},
        shape=shape,
    )
