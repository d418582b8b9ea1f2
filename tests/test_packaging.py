"""A wheel built from a copy of the repository holds everything, and works from where it is installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from slipstick import __version__

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "plugins", "hwdb", "calibration")
DATA = (".toml", ".json", ".csv", ".html")


def run(*words: str, **environ: str) -> str:
    """Run a Python of this environment; its output."""
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environ},
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the repository, built without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    # A copy, since a build leaves files behind, and a stale build folder would hide what is missing.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*FOLDERS, "src"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=ignored)
    run("-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder / "out"), str(copy))
    (built,) = (folder / "out").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel is installed, apart from the installation under test."""
    site = tmp_path_factory.mktemp("site")
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel))
    return site


def test_the_wheel_holds_every_module_and_record(wheel: Path) -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*") if "__pycache__" not in file.parts]
    wanted = {f"slipstick/{file.relative_to(ROOT).as_posix()}" for file in files if file.suffix in (".py", *DATA)}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert len([name for name in wanted if name.endswith(".toml")]) > 40
    assert sorted(wanted - names) == []
    assert "slipstick/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)


def test_the_wheel_holds_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
        assert archive.testzip() is None
    assert tops == {"slipstick", f"slipstick-{__version__}.dist-info"}


def test_what_was_installed_works(installed: Path, tmp_path: Path) -> None:
    environ = {"PYTHONPATH": str(installed), "SLIPSTICK_CACHE_DIR": str(tmp_path)}
    place = run("-c", "import slipstick; print(slipstick.__file__)", **environ).strip()
    assert Path(place).is_relative_to(installed)
    assert run("-m", "slipstick", "--version", **environ) == f"slipstick {__version__}\n"
    listed = json.loads(run("-m", "slipstick", "plugins", "--json", **environ))
    assert [row for row in listed["plugins"] if row["state"] != "active"] == []
    assert {row["where"] for row in listed["plugins"]} == {f"slipstick {__version__}"}
    code = "from slipstick import Host; print(Host.load().machine('h100-sxm').accelerator.memory_capacity.value)"
    assert float(run("-c", code, **environ)) == 80e9


def test_it_installs_into_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    run("-m", "venv", "--without-pip", str(tmp_path / "venv"))
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    run("-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", str(wheel))
    code = "import slipstick, importlib.metadata as m; print(slipstick.__version__, m.version('slipstick'))"
    done = subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [__version__, __version__]
    assert (python.parent / "slipstick").exists() or (python.parent / "slipstick.exe").exists()
