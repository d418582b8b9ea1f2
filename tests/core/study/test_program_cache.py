"""Compiled formulas on disk: a second process answers without sympy, and nothing damaged or stale is trusted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.host.host import Host
from slipstick.core.study import program as program_module
from slipstick.core.study.ask import ask

QUESTION = """
import json, sys
from slipstick.core.host.host import Host
from slipstick.core.study.ask import ask
host = Host.load()
found = {}
for task, model, given in (
    ("train", "llama-3.1-8b", {"devices": 16, "tp": 2, "pp": 2, "global_batch": 16}),
    ("serve", "deepseek-v3", {"devices": 8, "tp": 8, "concurrency": 32}),
):
    found[task] = ask(task, (model,), ("h200-sxm",), given, host).predictions[0].to_json()
heavy = ("sympy", "numpy", "rich", "slipstick.core.algebra.compile")
law = tuple("slipstick.core.model." + name for name in ("pairs", "latent", "placement", "backward", "blocks"))
print(json.dumps([found, [name for name in (*heavy, *law) if name in sys.modules]]))
"""


def run(folder: Path, **more: str) -> tuple[dict[str, Any], list[str]]:
    """The answers of a fresh process, and which heavy modules it imported."""
    environment = {**os.environ, "SLIPSTICK_CACHE_DIR": str(folder), **more}
    done = subprocess.run(
        [sys.executable, "-c", QUESTION], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    answers, heavy = json.loads(done.stdout)
    return answers, heavy


def entries(folder: Path) -> list[Path]:
    return sorted((folder / "programs").glob("*.json"))


def test_a_second_process_needs_no_sympy(tmp_path: Path) -> None:
    first, heavy = run(tmp_path)
    assert "sympy" in heavy
    assert len(entries(tmp_path)) == 2
    second, light = run(tmp_path)
    assert light == []
    assert second == first


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "other"])
def test_a_damaged_entry_is_built_again(
    tmp_path: Path, host: Host, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTICK_CACHE_DIR", str(tmp_path))
    question = ("serve", ("llama-3.1-8b",), ("h200-sxm",), {"concurrency": 4})

    def fresh() -> dict[str, Any]:
        monkeypatch.setattr(program_module, "_LOADED", {})
        return ask(*question, host).predictions[0].to_json()

    first = fresh()
    (entry,) = entries(tmp_path)
    whole = entry.read_bytes()
    half = len(whole) // 2
    entry.write_bytes(
        {
            "cut": whole[:half],
            "flipped": whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :],
            "empty": b"",
            "other": whole.replace(b'"format":1', b'"format":9'),
        }[damage]
    )
    assert entry.read_bytes() != whole
    assert fresh() == first
    assert entries(tmp_path) == [entry]
    assert entry.read_bytes() == whole


def test_a_well_formed_entry_with_another_tape_is_not_trusted(tmp_path: Path) -> None:
    """A payload may pass the cache's checksum and still be no program: it is built again, not believed."""
    made = {"format": 1, "tape": {"format": 1, "instructions": [["system", 0]], "sha256": "x"}, "nodes": []}
    assert program_module.Program.from_payload(made) is None
    assert program_module.Program.from_payload({}) is None
    assert program_module.Program.from_payload({**made, "format": 2}) is None


def test_without_a_cache_nothing_is_written(tmp_path: Path) -> None:
    answers, heavy = run(tmp_path, SLIPSTICK_NO_CACHE="1")
    assert "sympy" in heavy
    assert answers["serve"]["feasible"]
    assert not list(tmp_path.iterdir())


PLUGIN = """
from slipstick.core.host.hookspecs import hookimpl
from slipstick.core.model.interfaces.strategy import Strategy
from slipstick.core.model.layout import Rules, Split
from slipstick.core.model.mesh import Dimension

class RingAttention(Strategy):
    name = "ring"
    dimensions = (Dimension("ring", "ring attention degree", order=21),)

    def rules(self, options):
        return Rules(splits=(Split("query", "ring"),))

@hookimpl
def slipstick_strategies():
    return [RingAttention()]
"""


def test_an_edited_plugin_file_has_other_entries(tmp_path: Path) -> None:
    """Its formulas may have changed, so the entries made with the old file are not asked."""
    cache = tmp_path / "cache"
    file = tmp_path / "ring.py"
    code = (
        "import sys; from slipstick.core.host.host import Host; from slipstick.core.study.ask import ask; "
        "host = Host.load(files=[sys.argv[1]]); "
        "given = {'devices': 8, 'ring': 8, 'global_batch': 1, 'sequence': 1024, 'zero': 0}; "
        "made = ask('train', ('llama-3.1-8b',), ('b300',), given, host); "
        "print(made.predictions[0].time, 'sympy' in sys.modules)"
    )

    def answered() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", code, str(file)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={**os.environ, "SLIPSTICK_CACHE_DIR": str(cache)},
        )
        assert done.returncode == 0, done.stderr
        time, imported = done.stdout.split()
        return time, imported

    file.write_text(PLUGIN, encoding="utf-8")
    time, imported = answered()
    assert imported == "True"
    assert answered() == (time, "False")
    assert len(entries(cache)) == 1
    file.write_text(PLUGIN + "# edited\n", encoding="utf-8")
    assert answered() == (time, "True")
    assert len(entries(cache)) == 2
