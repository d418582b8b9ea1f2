"""One plugin: loading it without letting its faults out, and the contract of what its hooks return.

Floor: host. May use model (the interfaces), records, algebra, errors. Only ``host.py`` calls what is here.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from attrs import define, frozen

from ..errors import PluginError, nearest, shown
from .hookspecs import API, PROJECT
from .manifest import Row

State = Literal["active", "disabled", "broken"]


@frozen
class Hook:
    """What the host knows of a hook: the ``kinds`` it registers, each as (noun, "module:class" of its contract).

    The modules are relative to the folder of interfaces, and are imported when an object is to be checked.
    """

    name: str
    kinds: tuple[tuple[str, str], ...]


HOOKS = (
    Hook(
        "slipstick_hardware",
        (
            ("hardware catalog", ".hardware:HardwareCatalog"),
            ("kernel family", ".kernels:KernelFamily"),
            ("fitted records", ".hardware:FittedRecords"),
        ),
    ),
    Hook("slipstick_architectures", (("architecture", ".architecture:Architecture"),)),
    Hook("slipstick_strategies", (("strategy", ".strategy:Strategy"),)),
    Hook("slipstick_offload_policies", (("offload policy", ".offload:OffloadPolicy"),)),
    Hook("slipstick_stacks", (("stack", ".stack:Stack"),)),
    Hook("slipstick_schedulers", (("scheduler", ".scheduler:Scheduler"),)),
    Hook("slipstick_transforms", (("transform", ".transform:Transform"),)),
    Hook("slipstick_trace_readers", (("trace reader", ".trace_reader:TraceReader"),)),
    Hook("slipstick_evidence", (("claim", ".evidence:Claim"),)),
    Hook("slipstick_commands", (("command", "click:Command"),)),
)
HOOK_NAMES = tuple(hook.name for hook in HOOKS)
_INTERFACES = __name__.rsplit(".", 2)[0] + ".model.interfaces"


@define(eq=False)
class Plugin:
    """A plugin as the host keeps it.

    ``hooks`` is None until it was loaded; ``object`` is the module (or other object) whose hooks are called.
    ``where`` says where it comes from in words; ``value`` is what to import.
    """

    name: str
    value: str
    origin: Literal["distribution", "file", "user folder"]
    where: str
    version: str = ""
    hooks: tuple[str, ...] | None = None
    state: State = "active"
    reason: str = ""
    object: Any = None
    row: Row | None = None

    def fail(self, reason: str) -> None:
        """Mark the plugin as broken; the first reason stands."""
        if self.state != "broken":
            self.state, self.reason = "broken", reason

    def __str__(self) -> str:
        return f"{self.name} ({self.where})"


@frozen
class PluginInfo:
    """A line of ``slipstick plugins``: what a plugin is, what it has and whether it works."""

    name: str
    version: str
    hooks: tuple[str, ...]
    state: State
    reason: str
    origin: str
    where: str


# --- loading ------------------------------------------------------------------------------------------------------


def import_value(value: str) -> Any:
    """The object that an entry point's ``value``, "module" or "module:attribute", names."""
    path = value.split("[")[0].strip()
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module.strip())
    for part in attribute.strip().split(".") if attribute.strip() else ():
        found = getattr(found, part)
    return found


_FILE_MODULE = "slipstick_plugin_"


def is_plugin_file(module: str) -> bool:
    """Whether ``module`` is the name of a module that ``import_file`` made."""
    return module.startswith(_FILE_MODULE)


def import_file(path: Path) -> ModuleType:
    """The module that the single Python file ``path`` is; importing it a second time gives the same module."""
    resolved = path.resolve()
    mark = hashlib.sha256(str(resolved).encode(errors="surrogateescape")).hexdigest()[:8]
    name = f"{_FILE_MODULE}{mark}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, resolved)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # Before it runs, as the import statement does: dataclasses and pickling look their module up by name.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def one_line(error: BaseException) -> str:
    """``error`` in one line, with the file and line it came from.

    >>> one_line(ValueError("bad\\nworse"))
    'ValueError: bad'
    """
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
    if isinstance(error, SyntaxError) and error.filename:
        return text if error.filename in text else f"{text} ({Path(error.filename).name}, line {error.lineno})"
    import traceback

    # The innermost frame outside the import system and this folder: somebody's own file.
    skipped = (Path(importlib.__file__).parent, Path(__file__).parent)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith("<")]
    own = [frame for frame in frames if Path(frame.filename).parent not in skipped]
    return f"{text} ({Path(own[-1].filename).name}, line {own[-1].lineno})" if own else text


def check_api(found: object) -> None:
    """Refuse a plugin that needs a newer hook API than this slipstick has. Raises ``PluginError``."""
    wanted = getattr(found, "slipstick_api", 1)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 1:
        raise PluginError(f"slipstick_api must be a whole number from 1, not {shown(wanted)}")
    if wanted > API:
        raise PluginError(f"needs hook API {wanted}, this slipstick offers {API}; upgrade slipstick")


def check_hooks(found: object) -> None:
    """Refuse a plugin whose hooks are misnamed, unmarked or none at all. Raises ``PluginError``."""
    marked = []
    for name in dir(found):
        attribute = inspect.getattr_static(found, name, None)
        options = getattr(attribute, f"{PROJECT}_impl", None)
        if not isinstance(options, dict):
            if name in HOOK_NAMES:
                raise PluginError(f"{name} is not marked with @hookimpl")
            continue
        if options.get("wrapper") or options.get("hookwrapper"):
            raise PluginError(f"{name} is a hook wrapper; a hook only registers, there is nothing to wrap")
        hook = options.get("specname") or name
        if hook not in HOOK_NAMES:
            near = nearest(hook, HOOK_NAMES, limit=1)
            told = f"did you mean {near[0]}?" if near else f"there are {', '.join(HOOK_NAMES)}"
            raise PluginError(f"unknown hook {shown(hook)}; {told}")
        marked.append(hook)
    if not marked:
        raise PluginError("has no hook; mark one of its functions, such as slipstick_hardware, with @hookimpl")


# --- the contract of what a hook returns --------------------------------------------------------------------------


def contract(reference: str) -> type:
    """The class that "module:class" names; a leading dot stands for the folder of interfaces."""
    module, name = reference.split(":")
    found: type = getattr(importlib.import_module(module, _INTERFACES if module.startswith(".") else None), name)
    return found


def checked(hook: Hook, returned: object) -> list[tuple[str, Any]]:
    """The objects of what ``hook`` ``returned`` as (kind, object). Raises ``PluginError`` for a broken contract."""
    if not isinstance(returned, list | tuple):
        raise PluginError(f"{hook.name} returned {_a(returned)}; a list of objects is expected")
    found: list[tuple[str, Any]] = []
    seen = set()
    for item in returned:
        kind = next((noun for noun, reference in hook.kinds if isinstance(item, contract(reference))), None)
        name = getattr(item, "name", None)
        if kind is None:
            wanted = " or ".join(reference.split(":")[1] for _, reference in hook.kinds)
            raise PluginError(f"{hook.name} returned {_a(item)} in its list; {wanted} is expected")
        if not is_name(name):
            raise PluginError(f"{hook.name} returned a {kind} whose name is {shown(name)}; {NAME_RULE}")
        if (kind, name) in seen:
            raise PluginError(f"{hook.name} returned two of {kind} {name!r}")
        seen.add((kind, name))
        found.append((kind, item))
    return found


NAME_RULE = "a name is 1 to 100 letters, digits or -._+/ and starts with a letter or a digit"


def is_name(name: object) -> bool:
    """Whether ``name`` may stand for a registered object.

    >>> is_name("h100-sxm"), is_name("two words"), is_name("--help"), is_name(7)
    (True, False, False, False)
    """
    if not isinstance(name, str) or not 0 < len(name) <= 100 or not name.isascii() or not name[0].isalnum():
        return False
    return all(letter.isalnum() or letter in "-._+/" for letter in name)


def _a(thing: object) -> str:
    if thing is None:
        return "nothing"
    name = thing.__name__ if isinstance(thing, type) else type(thing).__name__
    return f"the class {name}" if isinstance(thing, type) else f"a {name}"


def clash(kind: str, name: str, owners: Iterable[Plugin]) -> PluginError:
    """The one wording for two plugins that bring the same name: both owners, and how to switch one off."""
    several = list(owners)
    told = " and ".join(str(owner) for owner in several)
    last = several[-1].name
    return PluginError(
        f"{kind} {name!r} is brought by plugins {told}; switch one off, for example SLIPSTICK_DISABLE_PLUGINS={last}"
    )
