"""What a person's own files add: fitted records in order of precedence, stacks by folder and by path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.errors import PluginError, UserError
from slipstick.core.host.host import Host
from slipstick.core.model.interfaces.stack import COEFFICIENTS
from slipstick.core.records.fitted_toml import write_records
from slipstick.core.records.provenance import Quantity, Source
from slipstick.core.records.stack import StackFit, StackRecord, write_stack

BROUGHT = """
from pathlib import Path
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.records.fitted_catalog import FittedCatalog
@hookimpl
def slipstick_hardware():
    return [FittedCatalog(Path({folder!r}), "brought")]
"""

BROKEN = """
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.hardware import FittedRecords
class Lost(FittedRecords):
    name = "lost"
    def records(self, accelerator):
        raise KeyError("no\\nsuch table")
    def accelerators(self):
        return ()
@hookimpl
def slipstick_hardware():
    return [Lost()]
"""


def stack_text(time_factor: float, name: str = "ours") -> str:
    source = Source("fit", "a fit", "https://example.org", "2026-11-30", "fitted")
    values = {"time_factor": Quantity(time_factor, COEFFICIENTS["time_factor"][0], source)}
    fits = (StackFit(task="serve", values=values),)
    return write_stack(StackRecord(name=name, title="Ours", kernels={}, fits=fits))


def test_beside_the_accelerators_file_then_ones_own_folder_then_plugins(
    environ: dict[str, str], tmp_path: Path, plugin_file: Callable[[str, str], Path], fitted: Callable[..., Any]
) -> None:
    folders = {name: tmp_path / name for name in ("beside", "mine", "brought")}
    for number, (name, folder) in enumerate(folders.items(), start=1):
        place = folder if name == "brought" else folder / "fitted"
        write_records(place / "bench-chip.lab.toml", [fitted(rows=number, note=name)])
    plugin = plugin_file("brought", BROUGHT.format(folder=str(folders["brought"])))
    own = {**environ, "SLIPSTICK_HARDWARE_DIR": str(folders["mine"])}
    host = Host.load(files=[plugin], environ=own)
    assert [r.note for r in host.fitted("bench-chip", str(folders["beside"]))] == ["beside", "mine", "brought"]
    assert [r.note for r in host.fitted("bench-chip")] == ["mine", "brought"]
    assert [r.note for r in Host.load(files=[plugin], environ=environ).fitted("bench-chip")] == ["brought"]
    assert host.fitted("other-chip") == ()


def test_records_beside_an_accelerators_file_are_those_of_its_machine(
    environ: dict[str, str], chip: Path, slotted_file: Path, fitted: Callable[..., Any]
) -> None:
    host = Host.load(files=[slotted_file], environ=environ)
    machine = host.machine(str(chip))
    assert machine.folder == str(chip.parent)
    assert host.fitted(machine.accelerator.name, machine.folder) == ()
    write_records(chip.parent / "fitted" / "bench-chip.lab.toml", [fitted()])
    assert host.fitted(machine.accelerator.name, machine.folder) == (fitted(),)
    assert host.machine("h100-sxm").folder == ""  # by its name: there is no file of a person's


def test_a_catalog_that_fails_is_named_on_one_line(
    environ: dict[str, str], plugin_file: Callable[[str, str], Path]
) -> None:
    host = Host.load(files=[plugin_file("careless", BROKEN)], environ=environ)
    with pytest.raises(PluginError, match=r"plugin careless.* failed to bring fitted records") as caught:
        host.fitted("bench-chip")
    assert "\n" not in str(caught.value)


def test_an_unsound_file_is_the_persons_matter(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "fitted").mkdir()
    (tmp_path / "fitted" / "bench-chip.lab.toml").write_text("[[record", encoding="utf-8")
    with pytest.raises(UserError, match=r"bench-chip\.lab\.toml: not TOML"):
        Host.load(environ=environ).fitted("bench-chip", str(tmp_path))


def test_a_stack_is_found_in_ones_own_folder_and_by_its_path(environ: dict[str, str], tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    (mine / "stacks").mkdir(parents=True)
    (mine / "stacks" / "ours.toml").write_text(stack_text(1.25), encoding="utf-8")
    elsewhere = tmp_path / "elsewhere.toml"
    elsewhere.write_text(stack_text(1.5), encoding="utf-8")
    host = Host.load(environ={**environ, "SLIPSTICK_HARDWARE_DIR": str(mine)})
    assert host.stack("ours").coefficients("serve", "any")["time_factor"].value == 1.25
    assert host.stack(str(elsewhere)).coefficients("serve", "any")["time_factor"].value == 1.5
    assert host.stack(str(elsewhere)).name == "elsewhere"
    assert "ours" in host.stacks()
    assert "elsewhere" not in host.stacks()
    with pytest.raises(UserError, match="unknown stack 'our'; did you mean ours"):
        host.stack("our")
    with pytest.raises(UserError, match=r"none\.toml: no such file"):
        host.stack(str(tmp_path / "none.toml")).coefficients("serve", "any")


def test_a_stack_of_ones_own_does_not_take_a_bundled_ones_name(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "ideal.toml").write_text(stack_text(1.25, "ideal"), encoding="utf-8")
    host = Host.load(environ={**environ, "SLIPSTICK_HARDWARE_DIR": str(tmp_path)})
    with pytest.raises(PluginError, match=r"ideal.*user"):
        host.stack("ideal")
    assert host.stack("vllm").name == "vllm"  # the others are as they were
