"""What a PyTorch profiler trace holds, gathered in one pass into compact tables: operators, kernels, collectives.

Calibration; used by ``kineto``. Of every event a few numbers are kept (some 40 bytes); names, and operators with the
same inputs, are kept once. The order of the events in the file doesn't matter: a kernel may stand before its operator.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from slipstick.core.errors import UserError, shown

from .operators import MOVES
from .operators_attention import ATTENTION
from .operators_call import Call
from .trace_json import TraceFile

KERNELS = frozenset({"kernel", "gpu_memcpy", "gpu_memset", "memcpy", "memset"})
OPERATORS = frozenset({"cpu_op", "operator"})
LAUNCHES = frozenset({"cuda_runtime", "cuda_driver", "runtime", "hip_runtime", "xpu_runtime", "privateuse1_runtime"})
BESIDE = frozenset(
    {
        *("python_function", "python", "user_annotation", "gpu_user_annotation", "trace", "overhead"),
        *("ac2g", "async_gpu", "async_cpu", "fwdbwd", "cpu_instant_event", "cuda_sync", "cuda_event"),
        *("mtia_runtime", "cuda_profiler_range"),
    }
)
"""Events that say where work comes from or what lies around it, not how long a kernel took."""

EXTRAS = ("bytes", "Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype")
"""What is kept of a transfer and of a collective."""

_MOST_DENSE = 1 << 28  # external ids above this are kept in a dictionary


class Names:
    """Every text once, by number."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        """The number of ``text``, a new one where it was not seen before."""
        found = self._numbers.setdefault(text, len(self.texts))
        if found == len(self.texts):
            self.texts.append(text)
        return found


class ByIdentifier:
    """A number for each identifier; identifiers are mostly small and dense, so four bytes each."""

    def __init__(self) -> None:
        self._dense = array("i")
        self._others: dict[int, int] = {}

    def __setitem__(self, identifier: int, number: int) -> None:
        if 0 <= identifier < len(self._dense) + (1 << 20) and identifier < _MOST_DENSE:
            if identifier >= len(self._dense):
                self._dense.extend(array("i", [-1]) * (identifier + 1 - len(self._dense)))
            self._dense[identifier] = number
        else:
            self._others[identifier] = number

    def get(self, identifier: int) -> int:
        """The number of ``identifier``, -1 for none."""
        if 0 <= identifier < len(self._dense):
            found = self._dense[identifier]
            if found >= 0 or not self._others:
                return found
        return self._others.get(identifier, -1)


class Events:
    """The tables of one trace.

    Kernels, by place: ``name``, ``seconds``, ``external`` (id of the operator, -1 for none), ``correlation``,
    ``device``, ``line``, and where they are transfers or collectives ``extra`` (place in ``extras``, -1 for none).
    Operators: ``calls`` (each kind of call once), ``call_of`` (external id → place in ``calls``), and of each one run
    ``op_thread``, ``op_start`` [µs], ``op_length`` [µs], ``op_call``, ``op_line``.
    """

    def __init__(self) -> None:
        self.names = Names()
        self.name, self.external, self.correlation = array("i"), array("q"), array("q")
        self.seconds, self.device, self.line, self.extra = array("d"), array("h"), array("i"), array("i")
        self.extras: list[Mapping[str, str | int | float]] = []
        self._extra_numbers: dict[tuple[tuple[str, str | int | float], ...], int] = {}
        self.calls: list[Call] = []
        self._call_numbers: dict[Call, int] = {}
        self.call_of = ByIdentifier()
        self.launch_of = ByIdentifier()
        self.graphs: set[int] = set()
        self.op_thread, self.op_call, self.op_line = array("i"), array("i"), array("i")
        self.op_start, self.op_length = array("d"), array("d")
        self._threads = Names()
        self._processes: set[str] = set()
        self.other: Counter[str] = Counter()
        self.count = 0
        self.head: dict[str, object] = {}

    def device_name(self, index: int) -> str:
        """What the trace calls device ``index``."""
        properties = self.head.get("deviceProperties")
        if isinstance(properties, list):
            for place, entry in enumerate(properties):
                if isinstance(entry, dict) and entry.get("id", place) == index and isinstance(entry.get("name"), str):
                    return str(entry["name"]).strip() or "unnamed GPU"
        return "unnamed GPU"

    def add_kernel(self, event: Mapping[str, object], args: Mapping[str, object], line: int, path: Path) -> None:
        """A kernel or a transfer that the GPU did."""
        length = _time(event, "dur", line, path)
        if length <= 0:
            raise UserError(
                f"{path.name}, line {line}: {shown(event.get('name'))} took {length:g} µs; more than 0, please"
            )
        self.name.append(self.names.number(str(event.get("name", ""))))
        self.seconds.append(length / 1e6)
        self.external.append(_identifier(args))
        self.correlation.append(_whole(args.get("correlation"), -1))
        self.device.append(min(max(_whole(args.get("device"), 0), 0), 32767))
        self.line.append(min(line, 2**31 - 1))
        extra = tuple((key, value) for key in EXTRAS if isinstance(value := args.get(key), str | int | float))
        number = -1
        if extra:
            number = self._extra_numbers.setdefault(extra, len(self.extras))
            if number == len(self.extras):
                self.extras.append(dict(extra))
        self.extra.append(number)

    def add_operator(self, event: Mapping[str, object], args: Mapping[str, object], line: int, path: Path) -> None:
        """An operator that the host ran."""
        name = str(event.get("name", ""))
        call = Call(name)
        if name not in MOVES:
            dims, types = args.get("Input Dims", args.get("Input dims")), args.get("Input type", args.get("Input Type"))
            # Plain values differ from call to call (a learning rate), and few operators' shapes need them.
            values = args.get("Concrete Inputs") if name in ATTENTION or name == "aten::index_select" else None
            call = Call(name, _frozen(dims), _texts(types), _texts(values))
        number = self._call_numbers.setdefault(call, len(self.calls))
        if number == len(self.calls):
            self.calls.append(call)
        identifier = _identifier(args)
        if identifier >= 0:
            # Two operators with one id in two processes: traces of several ranks in one file; kernels can't be told.
            earlier = self.call_of.get(identifier)
            self._processes.add(str(event.get("pid")))
            if earlier >= 0 and earlier != number and len(self._processes) > 1:
                raise UserError(
                    f"{path.name}, line {line}: operators of several processes share External id {identifier}; "
                    "give the traces of the ranks one by one"
                )
            self.call_of[identifier] = number
        length = _time(event, "dur", line, path)
        if length < 0:
            raise UserError(f"{path.name}, line {line}: {shown(name)} took {length:g} µs; not below 0, please")
        self.op_thread.append(self._threads.number(f"{event.get('pid')} {event.get('tid')}"))
        self.op_start.append(_time(event, "ts", line, path))
        self.op_length.append(length)
        self.op_call.append(number)
        self.op_line.append(min(line, 2**31 - 1))


def gather(path: Path) -> Events:
    """The tables of the trace at ``path``.

    Errors: UserError that names the line for what is no trace or what no measurement can be.
    """
    trace = TraceFile(path)
    found = Events()
    found.head = trace.head
    lower: dict[object, str] = {}
    for event in trace.events():
        found.count += 1
        if event.get("ph", "X") != "X":
            continue
        written = event.get("cat")
        if not isinstance(written, str):
            written = ""
        category = lower.get(written) or lower.setdefault(written, written.lower())
        args = event.get("args")
        args = args if isinstance(args, dict) else {}
        if category in KERNELS:
            found.add_kernel(event, args, trace.line, path)
        elif category in OPERATORS:
            found.add_operator(event, args, trace.line, path)
        elif category in LAUNCHES:
            correlation, external = _whole(args.get("correlation"), -1), _identifier(args)
            if "GraphLaunch" in str(event.get("name")):
                found.graphs.add(correlation)
            elif correlation >= 0 and 0 <= external < 2**31:
                found.launch_of[correlation] = external
        elif category not in BESIDE:
            found.other[category or "no category"] += 1
    return found


def _time(event: Mapping[str, object], key: str, line: int, path: Path) -> float:
    value = event.get(key)
    if type(value) is float and math.isfinite(value):
        return value
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            value = None
    if isinstance(value, bool) or not isinstance(value, int | float) or not _is_finite(value):
        told = "no" if key not in event else f"{shown(event[key])} as"
        raise UserError(
            f"{path.name}, line {line}: {shown(event.get('name'))} has {told} {key}; a number of µs is expected"
        )
    return float(value)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _identifier(args: Mapping[str, object]) -> int:
    found = _whole(args.get("External id", args.get("external id")), -1)
    return found if found > 0 else -1


def _whole(value: object, otherwise: int) -> int:
    if type(value) is int and 0 <= value < 2**62:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return otherwise
    try:
        found = int(value)
    except (ValueError, OverflowError):
        return otherwise
    return found if -(2**62) < found < 2**62 else otherwise


def _frozen(dims: object, deep: int = 0) -> tuple[object, ...]:
    """Lists as tuples, so that equal calls are found equal; what is no list of numbers and lists becomes ()."""
    if not isinstance(dims, list) or deep > 3:
        return ()
    return tuple(
        _frozen(item, deep + 1) if isinstance(item, list) else item if type(item) is int and 0 <= item < 2**53 else ()
        for item in dims
    )


def _texts(values: object) -> tuple[str, ...]:
    """Plain values as texts; a long one (a list of scalars) says nothing that is used."""
    if not isinstance(values, list):
        return ()
    return tuple(value if isinstance(value, str) and len(value) < 40 else "" for value in values)
