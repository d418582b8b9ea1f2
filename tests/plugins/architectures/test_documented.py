"""The table of the docs and the docstrings of the files say exactly which model types are read."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

from slipstick.plugins import architectures as bundled


def described() -> dict[str, set[str]]:
    """File → the model types that its architectures answer for."""
    found = {}
    for module in pkgutil.iter_modules(bundled.__path__):
        if not module.name.startswith("_") and module.name != "presets":
            loaded = importlib.import_module(f"{bundled.__name__}.{module.name}")
            found[module.name] = {t for item in loaded.slipstick_architectures() for t in item.model_types}
    return found


def test_the_table_in_the_docs_is_complete(root: Path) -> None:
    text = (root / "docs" / "architectures.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \|$", text, flags=re.MULTILINE)
    assert {name: set(re.findall(r"`(\w+)`", types)) for name, types in rows} == described()


def test_each_file_says_which_types_it_reads() -> None:
    for name, types in described().items():
        text = importlib.import_module(f"{bundled.__name__}.{name}").__doc__ or ""
        listed = text.partition("Model types:")[2].partition("\n\n")[0]
        assert types <= set(re.findall(r"\w+", listed)), f"{name}.py's docstring leaves out a type"


def test_sixty_types_are_read() -> None:
    assert sum(len(types) for types in described().values()) >= 60
