"""Machines by name, alias and path, from installed catalogs and a person's own folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from slipstick.core.errors import PluginError, UserError
from slipstick.core.host.host import Host

CHIP = """
schema = 1
kind = "accelerator"
name = "{name}"
title = "Acme {name}"
vendor = "Acme"
aliases = [{aliases}]
{extra}
[sources.sheet]
title = "Acme data sheet"
url = "https://example.org/{name}"
date = "2025-01"
kind = "datasheet"
[values]
memory_capacity = {{ value = "{memory}", source = "sheet" }}
memory_bandwidth = {{ value = "1 TB/s", source = "sheet" }}
[rates]
bf16 = {{ value = "100 TFLOP/s", source = "sheet" }}
"""

BOX = """
schema = 1
kind = "node"
name = "{name}"
title = "A box"
devices = 4
source = "sheet"
[sources.sheet]
title = "Acme data sheet"
url = "https://example.org/box"
date = "2025-01"
kind = "datasheet"
[[tiers]]
name = "wire"
bandwidth = {{ value = "50 GB/s", source = "sheet" }}
latency = {{ value = "2 us", source = "sheet" }}
"""

CATALOG = """
from pathlib import Path
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.records.hardware_toml import TomlCatalog
@hookimpl
def slipstick_hardware():
    return [TomlCatalog(Path(__file__).parent / "{folder}", origin="{folder}")]
"""

Write = Callable[[str, str], Path]


def chip(folder: Path, name: str, aliases: str = "", memory: str = "64 GB", extra: str = "") -> Path:
    """Write an accelerator's record into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.toml"
    path.write_text(CHIP.format(name=name, aliases=aliases, memory=memory, extra=extra))
    return path


def test_a_record_in_the_users_folder_is_found(environ: dict[str, str], tmp_path: Path) -> None:
    chip(tmp_path / "mine", "acme-one", aliases='"one"')
    host = Host.load(environ={**environ, "SLIPSTICK_HARDWARE_DIR": str(tmp_path / "mine")})
    machine = host.machine("acme-one")
    assert machine.accelerator.memory_capacity.value == 64e9
    assert (machine.node.devices, machine.node.tiers, machine.host) == (1, (), None)
    assert host.machine("one") == machine
    assert host.get("accelerator", "acme-one") == machine.accelerator
    (info,) = [info for info in host.plugins() if info.name == "user"]
    assert (info.origin, info.where) == ("user folder", str(tmp_path / "mine"))
    with pytest.raises(UserError, match="unknown accelerator 'acme-on'; did you mean acme-one"):
        host.machine("acme-on")


def test_without_a_users_folder_there_is_no_row(environ: dict[str, str]) -> None:
    assert "user" not in [info.name for info in Host.load(environ=environ).plugins()]


def test_a_file_works_by_path(environ: dict[str, str], tmp_path: Path) -> None:
    path = chip(tmp_path / "away", "mychip")
    box = tmp_path / "box.toml"
    box.write_text(BOX.format(name="box"))
    host = Host.load(environ=environ)
    assert host.machine(str(path)).name == "mychip"
    machine = host.machine(str(path), node=str(box))
    assert (machine.node.name, machine.node.devices) == ("box", 4)
    assert machine.node.tiers[0].bandwidth.value == 50e9


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("./none.toml", "none.toml"),
        ("../mychip", "has to end in .toml"),
        ("/", "has to end in .toml"),
        ("", "unknown accelerator"),
        ("x" * 10_000, "unknown accelerator"),
        ("a\nb", "unknown accelerator"),
    ],
)
def test_what_is_no_machine_is_one_line(name: str, told: str, environ: dict[str, str]) -> None:
    with pytest.raises(UserError, match=told) as caught:
        Host.load(environ=environ).machine(name)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_an_accelerators_path_is_no_node(environ: dict[str, str], tmp_path: Path) -> None:
    path = str(chip(tmp_path / "away", "mychip"))
    with pytest.raises(UserError, match="a node form is needed"):
        Host.load(environ=environ).machine(path, node=path)


def test_a_name_inside_a_record_never_reaches_the_file_system(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "box.toml").write_text(BOX.format(name="box"))
    for name in (f"{tmp_path}/box.toml", "../box.toml", "box.toml"):
        path = chip(tmp_path / "away", "mychip", extra=f'node = "{name}"')
        with pytest.raises(UserError):
            Host.load(environ=environ).machine(str(path))


def test_two_catalogs_with_one_accelerator_are_refused_by_naming_both(
    environ: dict[str, str], plugin_file: Write, tmp_path: Path
) -> None:
    chip(tmp_path / "red", "acme-one")
    chip(tmp_path / "blue", "acme-one", memory="80 GB")
    chip(tmp_path / "blue", "acme-two")
    files = [plugin_file(f"from_{folder}", CATALOG.format(folder=folder)) for folder in ("red", "blue")]
    host = Host.load(environ=environ, files=files)
    with pytest.raises(PluginError) as caught:
        host.machine("acme-one")
    assert all(str(file) in str(caught.value) for file in files)
    assert any("acme-one" in line for line in host.clashes())
    with pytest.raises(PluginError, match="acme-one"):
        host.machines().names("accelerator")
    # Another name is not held up by the clash, and switching one plugin off settles it.
    assert host.machine("acme-two").name == "acme-two"
    settled = Host.load(environ=environ, files=files, disable=["from_red"])
    assert settled.machine("acme-one").accelerator.memory_capacity.value == 80e9
    assert settled.machines().owner("accelerator", "acme-one").name == "from_blue"


def test_a_name_goes_before_another_ones_alias(environ: dict[str, str], tmp_path: Path) -> None:
    chip(tmp_path / "mine", "acme-one", aliases='"acme-two"')
    chip(tmp_path / "mine", "acme-two")
    host = Host.load(environ={**environ, "SLIPSTICK_HARDWARE_DIR": str(tmp_path / "mine")})
    assert host.machine("acme-two").name == "acme-two"


FAULTY = """
from slipstick.core.host.hookspecs import hookimpl
class Faulty:
    name = "faulty"
    def names(self, kind):
        {names}
    def load(self, kind, name, resolve):
        {load}
    def aliases(self, kind):
        return {{}}
@hookimpl
def slipstick_hardware():
    return [Faulty()]
"""


def test_a_catalog_that_cannot_list_is_broken(environ: dict[str, str], plugin_file: Write) -> None:
    host = Host.load(environ=environ, files=[plugin_file("f1", FAULTY.format(names="1 / 0", load="pass"))])
    (info,) = [info for info in host.plugins() if info.name == "f1"]
    assert info.state == "broken"
    assert "ZeroDivisionError" in info.reason


@pytest.mark.parametrize(("load", "told"), [("1 / 0", "ZeroDivisionError"), ("return 3", "is a int")])
def test_a_catalog_that_cannot_load_is_told(load: str, told: str, environ: dict[str, str], plugin_file: Write) -> None:
    file = plugin_file("f2", FAULTY.format(names="return ('x1',) if kind == 'accelerator' else ()", load=load))
    with pytest.raises(PluginError, match=told):
        Host.load(environ=environ, files=[file]).machine("x1")


def test_an_unknown_kind_of_record_is_told() -> None:
    with pytest.raises(UserError, match="did you mean accelerator"):
        Host([]).machines().owners("accelerators")
