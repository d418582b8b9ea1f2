"""The rules of the tree that no type checker knows: layers, links, declared plugins, cheap imports, size, no traces."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("core", "plugins", "hwdb", "calibration")
HEAVY = ("sympy", "numpy", "scipy", "cattrs", "rich", "torch", "transformers", "matplotlib", "pyarrow")
GROUP = "slipstick.plugins"
MOST_LINES = 400

MODULES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
PLUGIN_MODULES = [file for file in MODULES if file.relative_to(ROOT).parts[0] in ("plugins", "calibration")]


def shown(file: Path) -> str:
    """The path of ``file`` in the repository."""
    return file.relative_to(ROOT).as_posix()


def tree(file: Path) -> ast.Module:
    """The syntax tree of ``file``."""
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def at_import(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported; not those for type checkers."""
    for statement in body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            yield from at_import(statement.orelse)
            continue
        yield statement
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            for field in ("body", "orelse", "finalbody", "handlers"):
                for part in getattr(statement, field, []):
                    yield from at_import(part.body if isinstance(part, ast.ExceptHandler) else [part])


def imported(statement: ast.AST) -> list[str]:
    """The absolute module names that an import statement names."""
    if isinstance(statement, ast.Import):
        return [alias.name for alias in statement.names]
    if isinstance(statement, ast.ImportFrom) and not statement.level:
        return [statement.module or ""]
    return []


# --- layers -------------------------------------------------------------------------------------------------------


def test_the_import_contracts_hold() -> None:
    pytest.importorskip("importlinter", reason="import-linter is in the `dev` extra")
    code = "from importlinter.cli import lint_imports; import sys; sys.exit(lint_imports(no_cache=True))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", MODULES, ids=shown)
def test_imports_are_relative_inside_a_folder_and_absolute_across(file: Path) -> None:
    place = file.relative_to(ROOT)
    own = f"slipstick.{place.parts[0]}"
    for statement in ast.walk(tree(file)):
        for name in imported(statement):
            assert not f"{name}.".startswith(f"{own}."), f"{shown(file)}:{name} is in this folder: import it relatively"
        if isinstance(statement, ast.ImportFrom):
            # One dot is the file's own package; the top folder is len(parts) - 1 dots away.
            assert statement.level <= len(place.parts) - 1, f"{shown(file)} leaves {place.parts[0]} by dots"


def starts_light(file: Path) -> bool:
    """Whether a run that needs no formula imports ``file``; the others are only ever imported inside functions."""
    place = file.relative_to(ROOT)
    if place.parts[0] != "core":
        return True
    return place.parts[1] in ("errors.py", "records", "host", "face") or "interfaces" in place.parts


@pytest.mark.parametrize("file", [file for file in MODULES if starts_light(file)], ids=shown)
def test_heavy_packages_are_imported_inside_functions(file: Path) -> None:
    for statement in at_import(tree(file).body):
        for name in imported(statement):
            assert name.split(".")[0] not in HEAVY, f"{shown(file)} imports {name} at its top"


def test_loading_every_plugin_imports_nothing_heavy() -> None:
    # The rule that counts: what a plugin imports may import more.
    code = (
        "import json, sys\n"
        "from slipstick.core.host.host import Host\n"
        "host = Host.load(fresh=True)\n"
        "rows = [(info.name, info.state, info.reason) for info in host.plugins()]\n"
        "print(json.dumps([rows, sorted(sys.modules)]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    rows, modules = json.loads(done.stdout)
    assert rows
    assert [row for row in rows if row[1] != "active"] == []
    assert [name for name in HEAVY if name in modules] == []


# --- links and declared plugins -----------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", FOLDERS)
def test_each_folder_is_reached_by_a_relative_link(folder: str) -> None:
    link = ROOT / "src" / "slipstick" / folder
    assert link.is_symlink()
    assert os.readlink(link) == f"../../{folder}"
    assert link.resolve() == ROOT / folder
    assert (ROOT / folder).is_dir()
    assert not (ROOT / folder).is_symlink()


def has_hook(file: Path) -> bool:
    """Whether a function of ``file`` is marked as the implementation of a hook."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.FunctionDef) and any("hookimpl" in ast.unparse(mark) for mark in node.decorator_list):
            return True
    return False


def test_every_bundled_plugin_is_declared_and_the_reverse() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = sorted(project["entry-points"][GROUP].values())
    written = sorted(f"slipstick.{shown(file)[:-3].replace('/', '.')}" for file in PLUGIN_MODULES if has_hook(file))
    assert declared == written
    assert len(written) > 20


def test_what_is_installed_is_what_is_declared() -> None:
    from importlib import metadata

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = metadata.entry_points(group=GROUP)
    installed = {point.name: point.value for point in points if point.dist and point.dist.name == "slipstick"}
    assert installed == project["entry-points"][GROUP], "install again: the entry points have changed"


# --- the public face ----------------------------------------------------------------------------------------------


def test_each_name_of_the_public_face_is_there() -> None:
    import slipstick

    assert sorted(slipstick._HOMES) == sorted(set(slipstick.__all__) - {"__version__"})
    for name in slipstick.__all__:
        assert getattr(slipstick, name) is not None
        assert name in dir(slipstick)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = slipstick.nothing
    block = next(node for node in tree(ROOT / "src/slipstick/__init__.py").body if isinstance(node, ast.If))
    typed = {f".{part.module}": part.names[0].asname for part in block.body if isinstance(part, ast.ImportFrom)}
    names = [alias.asname for part in block.body if isinstance(part, ast.ImportFrom) for alias in part.names]
    assert sorted(name for name in names if name) == sorted(slipstick._HOMES)
    assert set(typed) == set(slipstick._HOMES.values())


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("file", MODULES, ids=shown)
def test_a_file_is_short_and_says_where_it_stands(file: Path) -> None:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert len(lines) <= MOST_LINES, f"{shown(file)} has {len(lines)} lines; one subject a file"
    text = ast.get_docstring(tree(file))
    assert text, f"{shown(file)} has no docstring"
    if file.name != "__init__.py" and file.relative_to(ROOT).parts[0] == "core":
        assert "floor" in text.casefold(), f"{shown(file)} does not say which floor it stands on"


SKIPPED = {".git", ".venv", "venv", "build", "dist", "site", "node_modules"}
TEXT = {".py", ".md", ".toml", ".json", ".txt", ".csv", ".html", ".bib", ".yml", ".yaml", ".cfg", ""}
# Written so that this line does not match itself.
TRACE = re.compile(r"(?<![\w.~/\-])/(?:work|root|home/[a-z]+|opt/pypi)/[a-zA-Z.]")


def texts() -> Iterator[Path]:
    """Every text file of the repository, by its own path and not by a link."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [
            name
            for name in folders
            if name not in SKIPPED and "cache" not in name and not name.endswith(".egg-info")
            if not (Path(folder) / name).is_symlink() and name != ".hypothesis"
        ]
        yield from (Path(folder) / name for name in files if Path(name).suffix in TEXT)


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    found = []
    for file in texts():
        try:
            text = file.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{shown(file)}: {match.group()}" for match in TRACE.finditer(text)]
    assert found == []
    assert TRACE.search("see /wo" + "rk/main"), "the pattern finds nothing"


def test_every_folder_of_modules_is_a_package() -> None:
    # import-linter does not see into a folder without one, and would pass whatever is in it.
    assert [shown(file.parent) for file in MODULES if not (file.parent / "__init__.py").exists()] == []
