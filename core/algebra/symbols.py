"""The one table of symbols: what each name of a formula means, its unit, its bounds and how it is typeset.

Floor: algebra, on top of errors and units. sympy is imported only when a symbol is asked for as a sympy object.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from attrs import frozen

from ..errors import PluginError, unknown
from .units import dimension_of_unit

if TYPE_CHECKING:
    import sympy

INF = math.inf
UNIT_SYMBOLS = {"FLOP": "FLOP", "byte": "B", "second": "s", "joule": "J", "dollar": "USD"}
"""Symbols that stand for one unit and carry its dimension into a formula; the compiler puts 1 for them."""

_INDEX = re.compile(r"_\d+$")


@frozen
class SymbolInfo:
    """What a symbol means: ``unit`` in SI, the range of its value, its default where it has one."""

    name: str
    latex: str
    unit: str
    meaning: str
    lower: float = 0.0
    upper: float = INF
    integer: bool = False
    default: float | None = None


class SymbolTable:
    """Names to SymbolInfo, each with the owner that brought it.

    A name without an entry of its own inherits the entry of the part before "@", or before a trailing ``_<digits>``:
    ``layers_3`` and ``hidden@decode`` need none.

    >>> table = SymbolTable()
    >>> table.register(SymbolInfo("layers", "L", "1", "transformer layers", lower=1, integer=True), "doc")
    >>> table.info("layers_3").meaning
    'transformer layers'
    """

    def __init__(self) -> None:
        self._infos: dict[str, SymbolInfo] = {}
        self._owners: dict[str, str] = {}
        self._symbols: dict[str, sympy.Symbol] = {}

    def register(self, info: SymbolInfo, owner: str) -> None:
        """Add ``info``; the same entry of the same owner again is no error, any other clash is a PluginError."""
        known = self._infos.get(info.name)
        if known is not None:
            if known == info and self._owners[info.name] == owner:
                return
            holder = self._owners[info.name]
            raise PluginError(f"the symbol {info.name!r} of {owner} is already defined by {holder}; rename one of them")
        dimension_of_unit(info.unit)  # a UserError here names the bad unit
        self._infos[info.name] = info
        self._owners[info.name] = owner
        # a name that inherited from a shorter one has an entry of its own from now on
        self._symbols.pop(info.name, None)

    def info(self, name: str) -> SymbolInfo:
        """The entry of ``name`` or the one it inherits. Raises UserError with the nearest names."""
        found = self.get(name)
        if found is None:
            raise unknown("symbol", name, self._infos, "see the table of symbols")
        return found

    def get(self, name: str) -> SymbolInfo | None:
        """Like ``info``, but None for an unknown name."""
        plain = name.partition("@")[0]
        for candidate in (name, plain, _INDEX.sub("", plain)):
            if candidate in self._infos:
                return self._infos[candidate]
        return None

    def owner(self, name: str) -> str:
        """Who registered the entry that ``name`` has or inherits."""
        return self._owners[self.info(name).name]

    def symbol(self, name: str) -> sympy.Symbol:
        """The sympy symbol of ``name``: positive, and integer where its entry says so."""
        found = self._symbols.get(name)
        if found is None:
            import sympy

            found = sympy.Symbol(name, positive=True, integer=True if self.info(name).integer else None)
            self._symbols[name] = found
        return found

    def names(self) -> tuple[str, ...]:
        """All registered names, sorted."""
        return tuple(sorted(self._infos))

    def as_rows(self) -> list[tuple[str, str, str, str, str]]:
        """(name, LaTeX, unit, range, meaning) of every entry in the order of registration, for the documentation."""
        return [(info.name, info.latex, info.unit, _range_text(info), info.meaning) for info in self._infos.values()]


def _range_text(info: SymbolInfo) -> str:
    upper = "∞" if info.upper == INF else f"{info.upper:g}"
    return f"{info.lower:g} to {upper}" + (", whole" if info.integer else "")


TABLE = SymbolTable()
"""The table of the running program; plugins add their own symbols to it with ``register``."""

register = TABLE.register
info = TABLE.info
symbol = TABLE.symbol
as_rows = TABLE.as_rows


def unit_symbol(name: str) -> sympy.Symbol:
    """The symbol of one unit ("FLOP", "byte", "second", "joule", "dollar"): 2*FLOP*m*n*k has the dimension FLOP."""
    if name not in UNIT_SYMBOLS:
        raise unknown("unit symbol", name, UNIT_SYMBOLS)
    return TABLE.symbol(name)


def _core() -> None:
    counts = [
        ("batch", "b", "sequences that a device group works on at once"),
        ("micro_batch", "b_{\\mu}", "sequences of one micro-batch"),
        ("global_batch", "B", "sequences of one optimizer step, all devices together"),
        ("micro_batches", "m", "micro-batches that a pipeline works through in one step"),
        ("hidden", "h", "width of the residual stream"),
        ("heads", "a", "attention (query) heads"),
        ("kv_heads", "a_{kv}", "key and value heads"),
        ("head_dim", "d", "width of one head"),
        ("ffn", "f", "width of the feed-forward layer"),
        ("vocab", "V", "entries of the vocabulary"),
        ("experts", "E", "routed experts of a layer"),
        ("top_k", "k", "experts that a token is routed to"),
        ("layers", "L", "transformer layers"),
        ("tp", "t", "tensor parallel degree"),
        ("cp", "c", "context parallel degree"),
        ("ep", "e", "expert parallel degree"),
        ("dp", "d_p", "data parallel degree"),
        ("pp", "p", "pipeline parallel degree"),
        ("etp", "t_e", "tensor parallel degree of the experts"),
        ("edp", "d_e", "data parallel degree of the experts"),
        ("epd", "e_d", "data parallel groups that share one set of experts"),
        ("ept", "e_t", "tensor parallel ranks that share one set of experts"),
        ("devices", "N", "devices of a pool"),
        ("concurrency", "C", "requests in flight at once"),
        ("tier_span", "n", "devices that reach one another on a tier of the network"),
    ]
    lengths = [
        ("sequence", "s", "tokens of one training sequence"),
        ("query", "s_q", "tokens of a sequence that are computed now"),
        ("context", "s_k", "tokens of a sequence that are attended to"),
        ("input_tokens", "n_{in}", "tokens of a prompt"),
        ("output_tokens", "n_{out}", "tokens generated for a request"),
        ("tokens", "T", "tokens in all, of a training run or a batch"),
    ]
    widths = [
        ("weight_width", "w_w", "bytes of one weight element"),
        ("activation_width", "w_a", "bytes of one activation element"),
        ("gradient_width", "w_g", "bytes of one gradient element"),
        ("gradient_copy_width", "w_{g'}", "bytes of what is kept of a gradient element beside that"),
        ("master_width", "w_m", "bytes of one master weight element"),
        ("moment_width", "w_o", "bytes of the optimizer moments of one element, all moments together"),
        ("cache_width", "w_c", "bytes of one element of the key-value cache"),
    ]
    rest = [
        SymbolInfo("gemm_rate", "R_{mm}", "FLOP/s", "dense matrix rate in the number format of the operation"),
        SymbolInfo("attention_rate", "R_{at}", "FLOP/s", "dense matrix rate of the attention core"),
        SymbolInfo("vector_rate", "R_{v}", "FLOP/s", "rate of pointwise arithmetic"),
        SymbolInfo("hbm_bandwidth", "W", "B/s", "bandwidth of the device memory"),
        SymbolInfo("hbm_capacity", "M", "B", "capacity of the device memory"),
        SymbolInfo("tier_bandwidth", "W_n", "B/s", "bandwidth of a tier of the network, per device and direction"),
        SymbolInfo("tier_latency", "\\ell", "s", "latency of one message on a tier of the network"),
        SymbolInfo("compute_efficiency", "\\eta_c", "1", "fraction of the arithmetic rate that a kernel reaches", 0, 1),
        SymbolInfo("memory_efficiency", "\\eta_m", "1", "fraction of the memory bandwidth that a kernel reaches", 0, 1),
        SymbolInfo("link_efficiency", "\\eta_l", "1", "fraction of a link's bandwidth that a collective reaches", 0, 1),
        SymbolInfo("launch", "t_0", "s", "time that a kernel costs before it works"),
        SymbolInfo("reserve", "M_0", "B", "device memory that the runtime keeps for itself"),
        SymbolInfo("price", "q", "USD/s", "price of one device for one second"),
    ]
    for name, latex, meaning in counts:
        register(SymbolInfo(name, latex, "1", meaning, lower=1, integer=True), "slipstick")
    for name, latex, meaning in lengths:
        # not declared whole: these may be means over a distribution of requests
        register(SymbolInfo(name, latex, "1", meaning, lower=0), "slipstick")
    for name, latex, meaning in widths:
        register(SymbolInfo(name, latex, "B", meaning, lower=0, upper=64), "slipstick")
    for entry in rest:
        register(entry, "slipstick")
    for name, unit in UNIT_SYMBOLS.items():
        latex = f"\\mathrm{{{name}}}"
        register(SymbolInfo(name, latex, unit, f"one {name}, the unit", lower=1, upper=1, default=1), "slipstick")


_core()
