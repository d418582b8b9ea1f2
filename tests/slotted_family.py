"""A kernel family with slots that can price whole models: a plugin file for tests of calibration."""

from __future__ import annotations

from slipstick.core.algebra.formula import Formula, Parameter
from slipstick.core.algebra.symbols import symbol
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.kernels import KernelFamily, Part, Priced, parameter_symbol
from slipstick.core.model.interfaces.trace_reader import TraceReader, TraceRow, Unread
from slipstick.core.records.provenance import Quantity, Source

STATED = Source("default", "the slotted family's default", "https://example.org", "2026-01-01", "default")


def _roof(n):
    compute = n.flops / (n.compute_efficiency * n.rate)
    memory = n.bytes / (n.memory_efficiency * n.bandwidth)
    return n.launch + n.fmax(compute, memory), {"compute": compute, "memory": memory, "latency": n.launch}


ROOF = Formula(
    "slotted-roof",
    inputs={"flops": "FLOP", "bytes": "B", "rate": "FLOP/s", "bandwidth": "B/s"},
    parameters=(
        Parameter("compute_efficiency", "1", "fraction of the rate", 0.5, 0.01, 1.5),
        Parameter("memory_efficiency", "1", "fraction of the bandwidth", 0.5, 0.01, 1.5),
        Parameter("launch", "s", "time of an empty kernel", 0.0, 0.0, 1e-3),
    ),
    build=_roof,
    unit="s",
    source="test",
)
LINK = Formula(
    "slotted-link",
    inputs={"volume": "B", "bandwidth": "B/s", "hops": "1", "latency": "s"},
    parameters=(Parameter("link_efficiency", "1", "fraction of the link", 0.5, 0.01, 1.5),),
    build=lambda n: (
        n.hops * n.latency + n.volume / (n.link_efficiency * n.bandwidth),
        {"link": n.volume / (n.link_efficiency * n.bandwidth), "latency": n.hops * n.latency},
    ),
    unit="s",
    source="test",
)
WORK = ("gemm", "grouped_gemm", "attention.context", "attention.decode", "pointwise")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send")
SLOTS = {**dict.fromkeys(WORK, ROOF), **dict.fromkeys(COLLECTIVES, LINK)}


class Slotted(KernelFamily):
    """A roofline for each kind of kernel, with parameters of its own."""

    name = "slotted"

    def price(self, work):
        slot = work.kind if work.kind in SLOTS else "pointwise"
        if work.kind == "attention":
            slot = "attention.decode" if work.shape.get("query") == 1 else "attention.context"
        inputs = {"flops": work.flops, "bytes": work.bytes, "rate": symbol(f"{work.engine}_rate"),
                  "bandwidth": symbol("hbm_bandwidth")}  # fmt: skip
        return Priced(ROOF, inputs, {p.name: parameter_symbol(p.name, slot) for p in ROOF.parameters}, slot)

    def slots(self):
        return SLOTS

    def measured(self, row, machine):
        shape, common = row.shape, {"rate": machine["rate"], "bandwidth": machine["bandwidth"]}
        if row.kernel == "gemm":
            m, n, k = shape["m"], shape["n"], shape["k"]
            return (Part("gemm", {**common, "flops": 2 * m * n * k, "bytes": 2 * (m * k + k * n + m * n)}),)
        if row.kernel == "all_reduce":
            link = {"bandwidth": machine["link_bandwidth"], "latency": machine["link_latency"]}
            share = 2 * (row.ranks - 1) / row.ranks
            return (Part("all_reduce", {**link, "volume": share * shape["bytes"], "hops": 2 * (row.ranks - 1)}),)
        return ()

    def transfer_slot(self, kind):
        return kind if kind in COLLECTIVES else ""

    def transfer(self):
        return LINK

    def transfer_parameters(self):
        return {"link_efficiency": parameter_symbol("link_efficiency", "all_reduce")}

    def defaults(self):
        return {
            parameter_symbol(p.name, slot): Quantity(p.default, p.unit, STATED, f"{p.default:g}")
            for slot, formula in SLOTS.items()
            for p in formula.parameters
        }

    def formulas(self):
        return (ROOF, LINK)


class Lines(TraceReader):
    """Lines of ``slotted m n k seconds`` for products, and of ``lost`` for what is not read."""

    name = "slotted-lines"

    def sniff(self, path, head):
        return head.startswith(b"slotted ")

    def rows(self, path):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if line == "lost":
                yield Unread("lost", "the reader passes it over", line=number)
            else:
                m, n, k, seconds = map(float, line.split()[1:])
                yield TraceRow("gemm", {"m": m, "n": n, "k": k}, "bf16", "bench-chip", seconds, "as told", line=number)


@hookimpl
def slipstick_trace_readers():
    return [Lines()]


@hookimpl
def slipstick_hardware():
    return [Slotted()]
