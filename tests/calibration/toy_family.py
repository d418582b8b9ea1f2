"""A small kernel family with a reader of its own, loaded as a plugin file: enough to fit every kind of row."""

from __future__ import annotations

from slipstick.core.algebra.formula import Formula, Parameter
from slipstick.core.errors import UserError
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.kernels import KernelFamily, Part, Priced, parameter_symbol
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread
from slipstick.core.records.provenance import Quantity, Source

STATED = Source("default", "the toy's default", "https://example.org", "2026-01-01", "default")
LAUNCH = Parameter("launch", "s", "time of an empty kernel", 3e-6, 0.0, 1e-3)
COMPUTE = Parameter("compute_efficiency", "1", "fraction of the rate", 0.7, 0.01, 1.5)
MEMORY = Parameter("memory_efficiency", "1", "fraction of the bandwidth", 0.7, 0.01, 1.5)
INPUTS = {"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"}


def _smooth(n):
    compute = n.flops / (n.compute_efficiency * n.rate)
    return n.launch + n.pnorm(n.order, compute, n.bytes / (n.memory_efficiency * n.bandwidth))


ROOF = Formula(
    "toy-roof",
    inputs=INPUTS,
    parameters=(LAUNCH, COMPUTE, MEMORY, Parameter("order", "1", "sharpness", 3.0, 0.5, 8.0)),
    build=_smooth,
    unit="s",
    source="toy",
)
PASS = Formula(
    "toy-pass",
    inputs={"bytes": "B", "bandwidth": "B/s"},
    parameters=(LAUNCH, MEMORY),
    build=lambda n: n.launch + n.bytes / (n.memory_efficiency * n.bandwidth),
    unit="s",
    source="toy",
)
LINK = Formula(
    "toy-link",
    inputs={"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s"},
    parameters=(Parameter("link_efficiency", "1", "fraction of the link", 0.8, 0.01, 1.5),),
    build=lambda n: n.hops * n.latency + n.volume / (n.link_efficiency * n.bandwidth),
    unit="s",
    source="toy",
)
SLOTS = {
    "gemm": ROOF, "grouped_gemm": ROOF, "attention.context": ROOF, "attention.decode": ROOF, "pointwise": PASS,
    "all_reduce": LINK,
}  # fmt: skip


class Toy(KernelFamily):
    """Smooth rooflines."""

    name = "toy"

    def price(self, work):
        return Priced(ROOF, {})

    def slots(self):
        return SLOTS

    def measured(self, row, machine):
        s = row.shape
        common = {"rate": machine["rate"], "bandwidth": machine["bandwidth"]}
        if row.kernel == "gemm":
            amounts = {"flops": 2 * s["m"] * s["n"] * s["k"], "bytes": 2 * (s["m"] * s["k"] + s["n"] * s["k"])}
            return (Part("gemm", {**common, **amounts}),)
        if row.kernel == "attention":
            cells = s["batch"] * s["heads"] * s["query"] * s["context"]
            read = 2 * s["batch"] * (s["kv_heads"] * s["context"] + s["heads"] * s["query"]) * 2 * s["head_dim"]
            slot = "attention.decode" if (s["query"] <= 1).all() else "attention.context"
            return (Part(slot, {**common, "flops": 4 * cells * s["head_dim"], "bytes": read}),)
        if row.kernel == "grouped_gemm":
            copies = s["tokens"] * s["top_k"]
            one = {"flops": 6 * copies * s["hidden"] * s["ffn"], "bytes": 6 * s["experts"] * s["hidden"] * s["ffn"]}
            moved = {"bytes": 4 * copies * s["hidden"], "bandwidth": machine["bandwidth"]}
            return (Part("grouped_gemm", {**common, **one}), Part("pointwise", moved))
        if row.kernel == "pointwise":
            return (Part("pointwise", {"bytes": s["bytes"], "bandwidth": machine["bandwidth"]}),)
        if row.kernel == "all_reduce":
            share = 2 * (row.ranks - 1) / row.ranks
            amounts = {"volume": share * s["bytes"], "hops": 2 * (row.ranks - 1)}
            link = {"bandwidth": machine["link_bandwidth"], "latency": machine["link_latency"]}
            return (Part("all_reduce", {**amounts, **link}),)
        return ()

    def transfer_slot(self, kind):
        return kind if kind == "all_reduce" else ""

    def transfer(self):
        return LINK

    def transfer_parameters(self):
        return {"link_efficiency": "link_efficiency"}

    def defaults(self):
        symbols = {parameter_symbol(p.name, slot): p for slot, formula in SLOTS.items() for p in formula.parameters}
        symbols["link_efficiency"] = LINK.parameters[0]
        return {name: Quantity(p.default, p.unit, STATED, str(p.default)) for name, p in symbols.items()}

    def formulas(self):
        return (ROOF, PASS, LINK)


class Lines(TraceReader):
    """Lines of ``toy;kernel;format;device;seconds;ranks;name=value;...``."""

    name = "toy-lines"

    def sniff(self, path, head):
        return head.startswith(b"toy;")

    def rows(self, path):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            _, kernel, number_format, device, seconds, ranks, *extents = line.split(";")
            if kernel == "lost":
                yield Unread("lost", "the toy can't read it", line=number)
                continue
            try:
                shape = {name: float(value) for name, value in (pair.split("=") for pair in extents)}
                time = float(seconds)
            except ValueError:
                raise UserError(f"{path.name}, line {number}: not a toy") from None
            yield TraceRow(
                kernel, shape, number_format, device, time, "by the toy", ranks=int(ranks), source="lib", line=number
            )


@hookimpl
def slipstick_hardware():
    return [Toy()]


@hookimpl
def slipstick_trace_readers():
    return [Lines()]
