"""The host: what plugins bring is found by kind and name, and a plugin's fault stays the plugin's."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from slipstick.core.errors import PluginError, UserError
from slipstick.core.host.hookspecs import API, hookimpl
from slipstick.core.host.host import Host
from slipstick.core.host.plugin import HOOKS, Plugin, PluginInfo, contract

HEAD = "import click\nfrom slipstick.core.host.hookspecs import hookimpl\n"
COMMAND = HEAD + (
    "@hookimpl\ndef slipstick_commands():\n"
    "    return [click.Command('{name}', short_help='Say {name}.', callback=lambda: click.echo('{name} was called'))]\n"
)

Write = Callable[[str, str], Path]


def others(host: Host) -> list[str]:
    """The commands that a host has beside the bundled one."""
    return [name for name in host.commands() if name != "calibrate"]


def load(environ: dict[str, str], *files: Path, **options: object) -> Host:
    """A host with the single-file plugins ``files``."""
    return Host.load(files=files, environ=environ, **options)  # type: ignore[arg-type]


def row(host: Host, name: str) -> PluginInfo:
    """The line of ``slipstick plugins`` about the plugin ``name``."""
    (found,) = [info for info in host.plugins() if info.name == name]
    return found


# --- each hook reaches its typed method ---------------------------------------------------------------------------

TYPED: dict[str, tuple[str, Callable[[Host], dict[str, object]]]] = {
    "slipstick_hardware": ("kernel family", Host.kernel_families),  # type: ignore[dict-item]
    "slipstick_architectures": ("architecture", Host.architectures),  # type: ignore[dict-item]
    "slipstick_strategies": ("strategy", Host.strategies),  # type: ignore[dict-item]
    "slipstick_offload_policies": ("offload policy", Host.offload_policies),  # type: ignore[dict-item]
    "slipstick_stacks": ("stack", Host.stacks),  # type: ignore[dict-item]
    "slipstick_schedulers": ("scheduler", Host.schedulers),  # type: ignore[dict-item]
    "slipstick_transforms": ("transform", Host.transforms),  # type: ignore[dict-item]
    "slipstick_trace_readers": ("trace reader", Host.trace_readers),  # type: ignore[dict-item]
    "slipstick_evidence": ("claim", Host.evidence),  # type: ignore[dict-item]
    "slipstick_commands": ("command", Host.commands),  # type: ignore[dict-item]
}


def stand_in(kind: str) -> object:
    """An object of ``kind`` with a name and no behaviour."""
    reference = next(reference for hook in HOOKS for noun, reference in hook.kinds if noun == kind)
    made = type("StandIn", (contract(reference),), {"name": "acme-thing"})
    made.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return object.__new__(made)


def module_with(monkeypatch: pytest.MonkeyPatch, hook: str, returned: object) -> Plugin:
    """A plugin whose only ``hook`` returns ``returned``."""
    module = ModuleType("acme_plugin_module")

    def implementation() -> object:
        return returned

    implementation.__name__ = hook
    setattr(module, hook, hookimpl(implementation))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return Plugin("acme", module.__name__, "distribution", "acme-chips 1.0")


def test_the_table_of_hooks_is_the_specification() -> None:
    assert [hook.name for hook in HOOKS] == list(TYPED)


@pytest.mark.parametrize("hook", TYPED)
def test_what_a_hook_brings_is_found_by_kind_and_name(hook: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method = TYPED[hook]
    thing = stand_in(kind)
    host = Host([module_with(monkeypatch, hook, [thing])])
    assert method(host) == {"acme-thing": thing}
    assert host.get(kind, "acme-thing") is thing
    with pytest.raises(UserError, match=f"unknown {kind} 'acme-thin'; did you mean acme-thing"):
        host.get(kind, "acme-thin")


@pytest.mark.parametrize("hook", TYPED)
@pytest.mark.parametrize("returned", [None, "text", {"a": 1}, [object()], [3], [type]])
def test_a_hook_that_returns_something_else_breaks_its_plugin(
    hook: str, returned: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = Host([module_with(monkeypatch, hook, returned)])
    (info,) = host.plugins()
    assert info.state == "broken"
    assert hook in info.reason
    assert "expected" in info.reason
    assert TYPED[hook][1](host) == {}


@pytest.mark.parametrize("name", [None, "", "two words", "--help", "x" * 101, 7, "naïve", "a\nb"])
def test_an_object_without_a_proper_name_breaks_its_plugin(name: object, monkeypatch: pytest.MonkeyPatch) -> None:
    thing = stand_in("architecture")
    type(thing).name = name  # type: ignore[attr-defined]
    (info,) = Host([module_with(monkeypatch, "slipstick_architectures", [thing])]).plugins()
    assert info.state == "broken"
    assert "slipstick_architectures" in info.reason
    assert "name" in info.reason


def test_an_unknown_kind_is_told_with_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean strategy"):
        Host([]).get("strategie", "tensor")


# --- faults stay where they are -----------------------------------------------------------------------------------

FAULTS = {
    "import_error": ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
    "syntax": ("def broken(:\n", "SyntaxError"),
    "raises_on_import": ("raise RuntimeError('first line\\nsecond line')\n", "RuntimeError: first line"),
    "leaves": ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
    "raising_hook": (HEAD + "@hookimpl\ndef slipstick_stacks():\n    return 1 / 0\n", "ZeroDivisionError"),
    "leaving_hook": (HEAD + "@hookimpl\ndef slipstick_stacks():\n    raise SystemExit(2)\n", "slipstick_stacks failed"),
    "unknown_hook": (
        HEAD + "@hookimpl\ndef slipstick_hardwares():\n    return []\n",
        "did you mean slipstick_hardware?",
    ),
    "no_hook": ("VALUE = 1\n", "has no hook"),
    "unmarked": ("def slipstick_hardware():\n    return []\n", "slipstick_hardware is not marked with @hookimpl"),
    "argument": (HEAD + "@hookimpl\ndef slipstick_stacks(colour):\n    return []\n", "colour"),
    "wrapper": (HEAD + "@hookimpl(wrapper=True)\ndef slipstick_stacks():\n    return (yield)\n", "hook wrapper"),
    "newer_api": (f"slipstick_api = {API + 1}\n", f"needs hook API {API + 1}, this slipstick offers {API}"),
    "odd_api": ("slipstick_api = 'two'\n", "slipstick_api must be a whole number"),
    "twice": (
        HEAD + "@hookimpl\ndef slipstick_commands():\n    return [click.Command('same'), click.Command('same')]\n",
        "two of command 'same'",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_plugin_is_a_row_and_nothing_else(fault: str, environ: dict[str, str], plugin_file: Write) -> None:
    text, reason = FAULTS[fault]
    host = load(environ, plugin_file(fault, text), plugin_file("sound", COMMAND.format(name="hello")))
    info = row(host, fault)
    assert info.state == "broken"
    assert reason in info.reason
    assert "\n" not in info.reason
    assert row(host, "sound").state == "active"
    assert others(host) == ["hello"]


def test_the_place_of_a_fault_is_told(environ: dict[str, str], plugin_file: Write) -> None:
    text = HEAD + "@hookimpl\ndef slipstick_stacks():\n    return 1 / 0\n"
    assert "(faulty.py, line 5)" in row(load(environ, plugin_file("faulty", text)), "faulty").reason


def test_an_unknown_name_tells_of_broken_plugins(environ: dict[str, str], plugin_file: Write) -> None:
    host = load(environ, plugin_file("zz_faulty", "raise ValueError\n"), disable=["[!z]*"])
    host.plugins()
    with pytest.raises(UserError, match=r"broken plugins: zz_faulty; see `slipstick plugins`"):
        host.get("command", "acme")


def test_a_plugin_of_this_api_or_an_older_one_works(environ: dict[str, str], plugin_file: Write) -> None:
    text = f"slipstick_api = {API}\n" + COMMAND.format(name="hello")
    assert row(load(environ, plugin_file("current", text)), "current").state == "active"


def test_two_plugins_of_one_name_are_told_apart(environ: dict[str, str], tmp_path: Path) -> None:
    files = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        files.append(tmp_path / folder / "same.py")
        files[-1].write_text(COMMAND.format(name=f"say-{folder}"))
    rows = [info for info in load(environ, *files).plugins() if info.name == "same"]
    assert [info.state for info in rows] == ["active", "broken"]
    assert str(files[0]) in rows[1].reason


# --- names are unique ---------------------------------------------------------------------------------------------


def test_a_clash_is_refused_by_naming_both(environ: dict[str, str], plugin_file: Write) -> None:
    text = COMMAND.format(name="hello")
    files = plugin_file("first", text), plugin_file("second", text)
    host = load(environ, *files)
    for ask in (host.commands, lambda: host.get("command", "hello")):
        with pytest.raises(PluginError) as caught:
            ask()
        told = str(caught.value)
        assert "'hello'" in told
        assert all(str(file) in told for file in files)
        assert "SLIPSTICK_DISABLE_PLUGINS=second" in told
    assert any("'hello'" in line for line in host.clashes())
    assert row(host, "first").state == row(host, "second").state == "active"
    settled = load({**environ, "SLIPSTICK_DISABLE_PLUGINS": "second"}, *files)
    assert others(settled) == ["hello"]
    assert settled.clashes() == []


def test_a_command_of_slipstick_itself_is_refused(environ: dict[str, str], plugin_file: Write) -> None:
    host = load(environ, plugin_file("greedy", COMMAND.format(name="train")), reserved_commands=["train"])
    assert others(host) == []
    assert "slipstick's own" in row(host, "greedy").reason


# --- switching off, and files -------------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["acme", "ac*", "other, acme", "[a]cm?"])
def test_a_plugin_is_switched_off_by_name_and_never_run(
    pattern: str, environ: dict[str, str], plugin_file: Write
) -> None:
    file = plugin_file("acme", "raise RuntimeError('was run')\n")
    info = row(load({**environ, "SLIPSTICK_DISABLE_PLUGINS": pattern}, file), "acme")
    assert info.state == "disabled"
    assert row(load(environ, file, disable=[pattern.split(", ")[-1]]), "acme").state == "disabled"


def test_everything_can_be_switched_off(environ: dict[str, str]) -> None:
    host = Host.load(environ={**environ, "SLIPSTICK_DISABLE_PLUGINS": "*"})
    assert {info.state for info in host.plugins()} == {"disabled"}
    assert host.architectures() == {}


def test_a_file_says_where_it_is(environ: dict[str, str], plugin_file: Write) -> None:
    file = plugin_file("acme", "__version__ = '0.3'\n" + COMMAND.format(name="hello"))
    info = row(load(environ, file), "acme")
    assert (info.origin, info.where, info.version) == ("file", str(file), "0.3")
    assert info.hooks == ("slipstick_commands",)


def test_a_missing_file_is_a_persons_mistake(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not there"):
        load(environ, tmp_path / "nothing.py")
    with pytest.raises(UserError, match="is a folder"):
        load(environ, tmp_path)


def test_a_file_may_hold_a_dataclass(environ: dict[str, str], plugin_file: Write) -> None:
    # dataclasses look their module up in sys.modules, which a module run by path is easily missing from.
    text = "from __future__ import annotations\nfrom dataclasses import dataclass\n"
    text += COMMAND.format(name="hello") + "@dataclass\nclass Thing:\n    size: int\n"
    assert row(load(environ, plugin_file("acme", text)), "acme").state == "active"
