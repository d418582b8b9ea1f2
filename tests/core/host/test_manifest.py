"""Installed plugins and the manifest: found when they appear, gone when they go, and damage is never trusted."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slipstick import __version__
from slipstick.core.host import manifest
from slipstick.core.host.host import Host

COMMAND = (
    "import click\nfrom slipstick.core.host.hookspecs import hookimpl\n"
    "@hookimpl\ndef slipstick_commands():\n    return [click.Command('{name}', short_help='Say {name}.')]\n"
)


def commands(environ: dict[str, str]) -> dict[str, str]:
    """Plugin → its commands, as the manifest on disk has them, without the bundled one."""
    rows = manifest.read(environ, __version__)
    assert rows is not None
    return {row.name: row.commands[0][0] for row in rows if row.commands and row.commands[0][0] != "calibrate"}


def others(host: Host) -> list[str]:
    """The commands that a host has beside the bundled one."""
    return [name for name in host.commands() if name != "calibrate"]


def names(host: Host) -> set[str]:
    """The names of the host's plugins."""
    return {info.name for info in host.plugins()}


def test_an_installed_plugin_is_found_and_the_manifest_follows(
    environ: dict[str, str], distribution: Callable[..., Path]
) -> None:
    assert "acme" not in names(Host.load(environ=environ))
    assert manifest.read(environ, __version__) is not None
    folder = distribution("acme", COMMAND.format(name="hello"), version="2.5")
    # The distribution has changed sys.path or a folder of it: what was remembered no longer holds.
    assert manifest.read(environ, __version__) is None
    host = Host.load(environ=environ)
    (info,) = [info for info in host.plugins() if info.name == "acme"]
    assert (info.version, info.origin, info.where, info.state) == ("2.5", "distribution", "acme 2.5", "active")
    assert commands(environ) == {"acme": "hello"}
    distribution("bolt", COMMAND.format(name="bye"))
    assert manifest.read(environ, __version__) is None
    assert {"acme", "bolt"} <= names(Host.load(environ=environ))
    assert commands(environ) == {"acme": "hello", "bolt": "bye"}
    shutil.rmtree(folder / "acme-2.5.dist-info")
    assert "acme" not in names(Host.load(environ=environ))
    assert commands(environ) == {"bolt": "bye"}


def test_a_plugin_that_changes_is_read_again(environ: dict[str, str], distribution: Callable[..., Path]) -> None:
    folder = distribution("acme", COMMAND.format(name="hello"))
    Host.load(environ=environ)
    assert commands(environ) == {"acme": "hello"}
    (folder / "acme_module.py").write_text(COMMAND.format(name="something-longer"))
    assert manifest.read(environ, __version__) is None


def test_a_fresh_manifest_loads_only_what_is_asked(environ: dict[str, str], distribution: Callable[..., Path]) -> None:
    text = COMMAND.format(name="hello") + "import acme_marks\nacme_marks.LOADED.append(1)\n"
    folder = distribution("acme", text)
    (folder / "acme_marks.py").write_text("LOADED = []\n")
    Host.load(environ=environ)
    del sys.modules["acme_module"]
    marks = sys.modules["acme_marks"]
    assert marks.LOADED == [1]
    host = Host.load(environ=environ)
    assert host.schedulers() == {}
    assert marks.LOADED == [1], "asked for schedulers, loaded a plugin that brings none"
    assert others(host) == ["hello"]
    assert marks.LOADED == [1, 1]
    del sys.modules["acme_marks"]


def test_a_broken_installed_plugin_is_tried_again(environ: dict[str, str], distribution: Callable[..., Path]) -> None:
    distribution("acme", "import a_missing_dependency\n")
    Host.load(environ=environ)
    for _ in range(2):
        (info,) = [info for info in Host.load(environ=environ).plugins() if info.name == "acme"]
        assert info.state == "broken"
        assert "a_missing_dependency" in info.reason


def test_what_was_switched_off_is_unknown_not_absent(
    environ: dict[str, str], distribution: Callable[..., Path]
) -> None:
    distribution("acme", COMMAND.format(name="hello"))
    assert others(Host.load(environ={**environ, "SLIPSTICK_DISABLE_PLUGINS": "acme"})) == []
    assert others(Host.load(environ=environ)) == ["hello"]


@pytest.mark.parametrize("value", ["no such module", "acme_module:nothing.here", ":", "acme_module:0"])
def test_an_entry_point_that_names_nothing_is_broken(
    value: str, environ: dict[str, str], distribution: Callable[..., Path]
) -> None:
    folder = distribution("acme", COMMAND.format(name="hello"))
    points = folder / "acme-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[slipstick.plugins]\nacme = {value}\n")
    rows = [info for info in Host.load(environ=environ, fresh=True).plugins() if info.name == "acme"]
    assert [info.state for info in rows] == ["broken"]


def test_unreadable_metadata_hides_nobody_else(environ: dict[str, str], distribution: Callable[..., Path]) -> None:
    distribution("acme", COMMAND.format(name="hello"))
    folder = distribution("bolt", COMMAND.format(name="bye"))
    (folder / "bolt-1.0.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00")
    (folder / "bolt-1.0.dist-info" / "entry_points.txt").write_bytes(b"\xff\xfe[slipstick")
    host = Host.load(environ=environ, fresh=True)
    assert "acme" in names(host)
    assert "hello" in host.commands()


def test_without_a_cache_nothing_is_written(environ: dict[str, str], tmp_path: Path) -> None:
    Host.load(environ={**environ, "SLIPSTICK_NO_CACHE": "1"})
    assert not (tmp_path / "cache").exists()


def test_a_cache_folder_that_cannot_be_is_no_error(environ: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert Host.load(environ={**environ, "SLIPSTICK_CACHE_DIR": str(tmp_path / "file")}).plugins()


def test_the_manifest_of_another_version_is_not_used(environ: dict[str, str]) -> None:
    Host.load(environ=environ)
    assert manifest.read(environ, __version__)
    assert manifest.read(environ, "0.0.1") is None


@given(data=st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_never_trusted(data: st.DataObject, environ: dict[str, str]) -> None:
    taken = manifest.environment(__version__)
    sound = [manifest.Row("acme", "acme_module", "acme", "1.0")]
    manifest.write(environ, taken, sound)
    file = manifest.cache_file(environ)
    assert file is not None
    content = bytearray(file.read_bytes())
    assert manifest.read(environ, __version__) == sound
    place = data.draw(st.integers(0, len(content) - 1))
    kind = data.draw(st.sampled_from(["cut", "byte", "insert"]))
    if kind == "cut":
        damaged = bytes(content[:place])
    elif kind == "byte":
        value = data.draw(st.integers(0, 255).filter(lambda value: value != content[place]))
        damaged = bytes(content[:place]) + bytes([value]) + bytes(content[place + 1 :])
    else:
        damaged = bytes(content[:place]) + b"x" + bytes(content[place:])
    file.write_bytes(damaged)
    assert manifest.read(environ, __version__) in (None, sound)


@pytest.mark.parametrize("body", [[], {}, {"rows": 3}, {"environment": {}, "rows": [[1]]}, None, "x"])
def test_other_json_is_not_a_manifest(body: object, environ: dict[str, str]) -> None:
    file = manifest.cache_file(environ)
    assert file is not None
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"body": body, "digest": manifest._digest(body)}))
    assert manifest.read(environ, __version__) is None


def test_no_temporary_file_is_left(environ: dict[str, str]) -> None:
    Host.load(environ=environ)
    folder = environ["SLIPSTICK_CACHE_DIR"]
    assert [name for name in os.listdir(folder) if name.endswith(".tmp")] == []
