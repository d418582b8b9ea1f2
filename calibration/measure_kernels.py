"""One execution of each kind of kernel through PyTorch, on tensors that are not in the cache already.

Stands on the core and the design; torch is handed in. A model reads each weight once in a step, and by then something
else is in the cache: weights, key-value caches and optimizer state are rotated over copies that together exceed it
twice. Activations come from the operation before and stay one copy, as they do in a model.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from attrs import field, frozen

from .measure_design import WIDTH, Case

Run = Callable[[int], object]

ROTATED = 512
"""Copies at most; below about 100 KB even so many fit a cache, as they do in a model."""
RANDOM = 1 << 20
"""Elements of the random block that tensors are filled from: making each of them at random takes too long."""
GRAPHS, SMALL_GRAPH = 16, 8e6
"""Backward passes executed at a time: as many as have together so many bytes, at most sixteen."""
TENSOR = 1 << 22
"""Elements of the largest single tensor that the optimizer gets."""


@frozen(eq=False)
class Bench:
    """``run``: executes ``repeats`` times, the argument is a running number; ``source``: whose kernel; ``facts`` for
    the trace."""

    run: Run
    source: str
    facts: Mapping[str, str] = field(factory=dict)
    repeats: int = 1


@frozen(eq=False)
class Place:
    """Where tensors live: ``cache`` [B] of the last level, ``memory`` [B] that the copies of one case may fill."""

    torch: Any
    device: Any
    cache: float
    memory: float
    seed: int = 0
    blocks: dict[str, Any] = field(factory=dict)

    @property
    def cuda(self) -> bool:
        """Whether it is a CUDA device."""
        return str(self.device.type) == "cuda"

    def dtype(self, number_format: str) -> Any:
        """torch's name of a format."""
        names = {"bf16": "bfloat16", "fp16": "float16", "fp8": "float8_e4m3fn", "": "uint8"}
        return getattr(self.torch, names.get(number_format, "float32"))

    def tensor(self, number_format: str, *shape: float) -> Any:
        """Random numbers of a normal law, small enough that long chains of products stay finite."""
        extents = [int(extent) for extent in shape]
        count, block = math.prod(extents), self.random(number_format)
        whole = self.torch.empty(count, dtype=block.dtype, device=self.device)
        full = count // RANDOM * RANDOM
        whole[:full].view(-1, RANDOM).copy_(block.expand(count // RANDOM, RANDOM))
        whole[full:].copy_(block[: count - full])
        return whole.view(extents)

    def random(self, number_format: str) -> Any:
        """The block that tensors of a format are filled from."""
        if number_format not in self.blocks:
            generator = self.torch.Generator(device=self.device).manual_seed(self.seed)
            block = self.torch.randn(RANDOM, generator=generator, device=self.device) * 0.1
            self.blocks[number_format] = (block.abs() if not number_format else block).to(self.dtype(number_format))
        return self.blocks[number_format]

    def copies(self, size: float) -> int:
        """How many copies of ``size`` bytes fill the cache twice, as far as memory goes; one that does so is enough."""
        wanted = math.ceil(2 * self.cache / max(size, 1.0))
        return max(1, min(wanted, ROTATED, int(self.memory / max(size, 1.0))))


def bench(case: Case, place: Place) -> Bench:
    """Tensors and a call for one case. Errors: what torch raises where the device can't run it."""
    return _BENCHES[case.kernel](case, place)


def _rotated(make: Callable[[], Any], size: float, place: Place) -> list[Any]:
    return [make() for _ in range(place.copies(size))]


def _facts(copies: list[Any], **more: str) -> dict[str, str]:
    return {"copies": str(len(copies)), **more}


def _gemm(case: Case, place: Place) -> Bench:
    torch, name = place.torch, case.format
    m, n, k = (int(case.shape[axis]) for axis in "mnk")
    if name == "fp8":
        return _gemm_fp8(m, n, k, place)
    size = WIDTH[name] * n * k
    run: Run
    if case.variant == "weight gradient":  # no weight is read: both operands are activations
        grad, x = place.tensor(name, k, m), place.tensor(name, k, n)
        weights = [x]
        run = lambda call: torch.mm(grad.t(), x)  # noqa: E731  # one line a variant reads best
    elif case.variant == "input gradient":
        x = place.tensor(name, m, k)
        weights = _rotated(lambda: place.tensor(name, k, n), size, place)
        run = lambda call: torch.mm(x, weights[call % len(weights)])  # noqa: E731
    else:
        x = place.tensor(name, m, k)
        weights = _rotated(lambda: place.tensor(name, n, k), size, place)
        run = lambda call: torch.nn.functional.linear(x, weights[call % len(weights)])  # noqa: E731
    if place.cuda and name in ("fp32", "tf32"):
        run = _with_precision(run, torch, "high" if name == "tf32" else "highest")
    library = "cuBLAS" if place.cuda else "MKL" if name == "fp32" and torch.backends.mkl.is_available() else "oneDNN"
    return Bench(run, library, _facts(weights))


def _gemm_fp8(m: int, n: int, k: int, place: Place) -> Bench:
    """One scale a tensor, result in bf16."""
    torch = place.torch
    x = place.tensor("fp8", m, k)
    weights = _rotated(lambda: place.tensor("fp8", n, k), n * k, place)
    one = torch.ones((), device=place.device)

    def run(call: int) -> object:
        weight = weights[call % len(weights)].t()
        return torch._scaled_mm(x, weight, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return Bench(run, "cuBLAS", _facts(weights))


def _with_precision(run: Run, torch: Any, precision: str) -> Run:
    """TF32 is a switch of the process, and cases are timed in turn."""

    def switched(call: int) -> object:
        torch.set_float32_matmul_precision(precision)
        return run(call)

    return switched


def _heads(case: Case, place: Place) -> tuple[Callable[[], tuple[Any, Any, Any]], float]:
    """What makes queries, keys and values as a model has them (heads inside tokens), and the bytes of one set."""
    s = {name: int(value) for name, value in case.shape.items()}

    def make() -> tuple[Any, Any, Any]:
        q = place.tensor(case.format, s["batch"], s["query"], s["heads"], s["head_dim"])
        k, v = (place.tensor(case.format, s["batch"], s["context"], s["kv_heads"], s["head_dim"]) for _ in range(2))
        return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)

    rows = s["query"] * s["heads"] + 2 * s["context"] * s["kv_heads"]
    return make, WIDTH[case.format] * s["batch"] * s["head_dim"] * rows


def _attention(case: Case, place: Place) -> Bench:
    attend = place.torch.nn.functional.scaled_dot_product_attention
    make, size = _heads(case, place)
    decode = case.shape["query"] == 1
    # Prefill attends to keys that the projection just wrote; decoding to a cache that nobody touched for a step.
    sets = _rotated(make, size, place) if decode else [make()]
    options = {"is_causal": bool(case.shape["causal"]) and not decode,
               "enable_gqa": case.shape["heads"] != case.shape["kv_heads"]}  # fmt: skip
    return Bench(lambda call: attend(*sets[call % len(sets)], **options), "PyTorch SDPA", _facts(sets))


def _attention_backward(case: Case, place: Place) -> Bench:
    attend = place.torch.nn.functional.scaled_dot_product_attention
    make, size = _heads(case, place)
    options = {"is_causal": bool(case.shape["causal"]), "enable_gqa": case.shape["heads"] != case.shape["kv_heads"]}

    def graph() -> tuple[Any, list[Any]]:
        leaves = [part.requires_grad_() for part in make()]
        return attend(*leaves, **options), leaves

    return _backward(graph, size, place, "PyTorch SDPA")


def _backward(graph: Callable[[], tuple[Any, list[Any]]], size: float, place: Place, source: str) -> Bench:
    """The backward pass of graphs that are alike, several at a time where they are small: a model starts autograd once
    a step, not once an operation. ``graph``: what makes an output and its leaves; ``size`` [B] of these."""
    torch = place.torch
    repeats = max(1, min(GRAPHS, int(SMALL_GRAPH / max(size, 1.0))))
    with torch.enable_grad():
        made = [graph() for _ in range(repeats)]
    outputs = [output for output, _ in made]
    leaves = [leaf for _, own in made for leaf in own]
    given = [torch.ones_like(output) for output in outputs]

    def run(call: int) -> object:
        return torch.autograd.grad(outputs, leaves, given, retain_graph=True)

    return Bench(run, source, repeats=repeats)


def _pointwise(case: Case, place: Place) -> Bench:
    name, _, columns = case.variant.partition(" of rows of ")
    width = int(columns)
    rows = int(case.shape["elements"]) // width
    make = _passes(place, case.format, rows, width)[name.removesuffix("_backward")]
    if not name.endswith("_backward"):
        forward, inputs = make()
        return Bench(lambda call: forward(*inputs), "PyTorch eager")

    def graph() -> tuple[Any, list[Any]]:
        # What a model trains or hands back: not the targets of a loss, not the angles of the rotary embedding.
        # Parameters of the norms take a gradient too: a reduction over rows, part of the pass in a model.
        forward, inputs = make()
        leaves = [part.requires_grad_() for part in (inputs[:1] if name.startswith(("cross", "rotary")) else inputs)]
        return forward(*inputs), leaves

    return _backward(graph, case.shape["bytes"], place, "PyTorch eager")


def _passes(place: Place, number_format: str, rows: int, width: int) -> dict[str, Callable[[], tuple[Any, list[Any]]]]:
    """Name → what makes the function and its inputs."""
    torch = place.torch
    f = torch.nn.functional

    def tensors(count: int) -> list[Any]:
        return [place.tensor(number_format, rows, width) for _ in range(count)]

    def gain() -> Any:
        return place.tensor(number_format, width)

    def rms(x: Any, g: Any) -> Any:
        wide = x.float()
        return g * (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype)

    def normed(x: Any, g: Any, b: Any) -> Any:
        return f.layer_norm(x, (width,), g, b)

    def rotary(x: Any, cos: Any, sin: Any) -> Any:
        half = x.shape[-1] // 2
        return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin

    def loss(x: Any, target: Any) -> Any:
        return f.cross_entropy(x.float(), target)

    head = 64  # angles depend on the place and are shared by all heads

    def rotary_inputs() -> list[Any]:
        x = place.tensor(number_format, rows, width // head, head)
        return [x, place.tensor(number_format, rows, 1, head), place.tensor(number_format, rows, 1, head)]

    return {
        "add": lambda: (torch.add, tensors(2)),
        "rms_norm": lambda: (rms, [*tensors(1), gain()]),
        "add_rms_norm": lambda: (lambda x, y, g: rms(x + y, g), [*tensors(2), gain()]),
        "layer_norm": lambda: (normed, [*tensors(1), gain(), gain()]),
        "add_layer_norm": lambda: (lambda x, y, g, b: normed(x + y, g, b), [*tensors(2), gain(), gain()]),
        "gelu": lambda: (lambda x: f.gelu(x, approximate="tanh"), tensors(1)),
        "silu_mul": lambda: (lambda gate, up: f.silu(gate) * up, tensors(2)),
        "rotary": lambda: (rotary, rotary_inputs()),
        "cross_entropy": lambda: (loss, [*tensors(1), torch.arange(rows, device=place.device) % width]),
    }


def _grouped(case: Case, place: Place) -> Bench:
    """Tokens sorted by expert, two grouped products with the gated activation between, and the weighted sum back."""
    torch, s = place.torch, {name: int(value) for name, value in case.shape.items()}
    f = torch.nn.functional
    grouped = getattr(f, "grouped_mm", None) or torch._grouped_mm
    experts, hidden, ffn, top_k = s["experts"], s["hidden"], s["ffn"], s["top_k"]
    x = place.tensor(case.format, s["tokens"], hidden)
    generator = torch.Generator(device=place.device).manual_seed(place.seed)
    scores = torch.rand(s["tokens"], experts, generator=generator, device=place.device)
    gates, chosen = scores.softmax(-1).topk(top_k)
    order = chosen.reshape(-1).argsort(stable=True)
    token = order // top_k
    weight = gates.reshape(-1)[order].unsqueeze(-1).to(x.dtype)
    ends = torch.bincount(chosen.reshape(-1), minlength=experts).cumsum(0).to(torch.int32)

    def make() -> tuple[Any, Any]:
        up = place.tensor(case.format, experts, 2 * ffn, hidden)
        return up.transpose(1, 2), place.tensor(case.format, experts, hidden, ffn).transpose(1, 2)

    sets = _rotated(make, WIDTH[case.format] * 3 * experts * hidden * ffn, place)

    def run(call: int) -> object:
        up, down = sets[call % len(sets)]
        gate, linear = grouped(x[token], up, offs=ends).chunk(2, dim=-1)
        y = grouped(f.silu(gate) * linear, down, offs=ends) * weight
        return torch.zeros_like(x).index_add_(0, token, y)

    return Bench(run, "PyTorch grouped_mm", _facts(sets, routing="even, at random"))


def _optimizer(case: Case, place: Place) -> Bench:
    """One step of AdamW over tensors as a model has them: parameters and gradients in FP32, two moments."""
    torch, count = place.torch, int(case.shape["elements"])
    sizes = [TENSOR] * (count // TENSOR) + ([count % TENSOR] if count % TENSOR else [])

    def parameters() -> list[Any]:
        made = [place.tensor("fp32", size).requires_grad_() for size in sizes]
        for one in made:
            one.grad = torch.full_like(one, 1e-3)
        return made

    deepspeed = None if place.cuda else _deepspeed_adam()
    if case.variant == "deepspeed" and deepspeed is not None:
        steps, source = [deepspeed(parameters()) for _ in range(place.copies(16 * count))], "DeepSpeed CPUAdam"
    else:
        options = {"foreach": True} if case.variant == "foreach" else {"fused": True}
        make = lambda: torch.optim.AdamW(parameters(), lr=1e-4, **options)  # noqa: E731
        steps, source = _rotated(make, 16 * count, place), f"PyTorch {next(iter(options))}"
    for one in steps:
        one.step()  # the first step makes the moments
    return Bench(lambda call: steps[call % len(steps)].step(), source, _facts(steps))


def _deepspeed_adam() -> Any:
    """DeepSpeed's optimizer for the host, None where it is not installed or does not build."""
    try:
        return importlib.import_module("deepspeed.ops.adam").DeepSpeedCPUAdam
    except Exception:  # it compiles on import: anything may go wrong
        return None


def optimizer_variants(cuda: bool) -> tuple[str, ...]:
    """The ways to take an Adam step that are there."""
    if cuda:
        return ("fused", "foreach")
    return ("fused", "deepspeed") if _deepspeed_adam() is not None else ("fused",)


def _lookup(case: Case, place: Place) -> Bench:
    torch, columns = place.torch, int(case.variant.removeprefix("rows of "))
    tokens = int(case.shape["elements"]) // columns
    row = columns * WIDTH[case.format]
    vocabulary = int(max(1024, min(max(32768, 2 * place.cache / row), place.memory / row)))
    table = place.tensor(case.format, vocabulary, columns)
    generator = torch.Generator(device=place.device).manual_seed(place.seed)
    ids = [torch.randint(vocabulary, (tokens,), generator=generator, device=place.device) for _ in range(8)]
    return Bench(lambda call: torch.nn.functional.embedding(ids[call % 8], table), "PyTorch eager")


def _copy(case: Case, place: Place) -> Bench:
    size = int(case.shape["bytes"]) // 2
    pairs = _rotated(lambda: (place.tensor("", size), place.tensor("", size)), 2 * size, place)

    def run(call: int) -> object:
        target, source = pairs[call % len(pairs)]
        return target.copy_(source)

    return Bench(run, "PyTorch copy", _facts(pairs))


def _host_copy(case: Case, place: Place) -> Bench:
    """Between host and device; pinned memory lets the copy engine work by itself."""
    torch, size = place.torch, int(case.shape["bytes"])
    pinned = case.variant == "pinned"
    host = torch.zeros(size, dtype=torch.uint8, pin_memory=pinned)
    device = place.tensor("", size)
    source, target = (host, device) if case.kernel == "host_to_device" else (device, host)
    return Bench(lambda call: target.copy_(source, non_blocking=pinned), f"PyTorch copy, {case.variant}")


_BENCHES: dict[str, Callable[[Case, Place], Bench]] = {
    "gemm": _gemm,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "pointwise": _pointwise,
    "grouped_gemm": _grouped,
    "optimizer": _optimizer,
    "lookup": _lookup,
    "memory_copy": _copy,
    "host_to_device": _host_copy,
    "device_to_host": _host_copy,
}
