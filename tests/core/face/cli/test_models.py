"""``slipstick models``: presets and what a configuration amounts to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstick.core.host.host import Host

Run = Callable[..., Any]


def test_the_list_has_every_preset_and_every_model_type(slipstick: Run) -> None:
    host = Host.load()
    found = slipstick("models", "list", "--json").json
    assert [row["name"] for row in found["models"]] == sorted(host.presets())
    assert found["problems"] == []
    done = slipstick("models", "list")
    for name in host.presets():
        assert f"\n{name} " in done.out
    for architecture in host.architectures().values():
        for known in architecture.model_types:
            assert known in found["model_types"]
            assert known in done.out


def test_the_list_by_text(slipstick: Run) -> None:
    rows = slipstick("models", "list", "GEMMA", "--json").json["models"]
    assert rows
    assert all("gemma" in row["name"] for row in rows)
    assert "no preset has that text" in slipstick("models", "list", "nothing-like-it").out


def test_what_llama_amounts_to(slipstick: Run) -> None:
    # Meta's model card and config.json: 8.03 billion parameters, 8 key/value heads of 128 in 32 layers.
    found = slipstick("models", "show", "llama-3.1-8b", "--json").json
    assert found["parameters"] == 8_030_261_248
    assert found["active_parameters_per_token"] == 8_030_261_248
    assert found["kv_bytes_per_token"] == 2 * 8 * 128 * 32 * 2
    done = slipstick("models", "show", "llama-3.1-8b")
    assert "8,030,261,248 (8.03B)" in done.out
    assert "131.1 kB over 32 layers" in done.out
    assert "--operations" in done.out


def test_operations_have_their_shapes(slipstick: Run) -> None:
    found = slipstick("models", "show", "llama-3.1-8b", "--json").json
    weights = [w for b in found["blocks"] for op in b["operations"] for w in op["weights"]]
    # The shapes of the checkpoint: gate and up 4096×14336, down 14336×4096, embedding 128256×4096.
    shapes = [tuple(weight["shape"]) for weight in weights]
    assert shapes.count((4096, 14336)) == 2
    assert shapes.count((14336, 4096)) == 1
    assert (128256, 4096) in shapes
    done = slipstick("models", "show", "llama-3.1-8b", "--operations")
    assert "14336×4096" in done.out
    assert "batch×query×4096" in done.out


def test_experts_and_extras_are_told(slipstick: Run) -> None:
    done = slipstick("models", "show", "deepseek-v3")
    assert "extra: mtp" in done.out
    assert "weight fp8" in done.out
    assert "active a token" in done.out


def test_a_configuration_by_path(slipstick: Run, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(Path(Host.load().presets()["gpt2"]).read_text())
    for given in (str(path), str(tmp_path)):
        found = slipstick("models", "show", given, "--json").json
        assert found["name"] == tmp_path.name
        assert found["parameters"] == 124_439_808  # Hugging Face openai-community/gpt2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "config.json"),
        ("[]", "config.json"),
        ("{}", "model_type"),
        ('{"model_type": "lama"}', "llama"),
        ('{"model_type": 3}', "model_type"),
        ('{"model_type": "llama"}', "config.json"),
        ('{"model_type": "llama", "hidden_size": NaN}', "config.json"),
    ],
)
def test_a_bad_configuration_is_one_line(slipstick: Run, tmp_path: Path, content: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    done = slipstick("models", "show", str(path))
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert words in done.err


@pytest.mark.parametrize("name", ["llama-3.1-8", "", "/", "none.json", "a\0b", "x" * 5000])
def test_an_unknown_model_is_one_line(slipstick: Run, name: str) -> None:
    done = slipstick("models", "show", name)
    assert done.status == 2
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    assert len(done.err) < 600


def test_a_broken_preset_does_not_hide_the_others(slipstick: Run, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text('{"model_type": "llama"}')
    plugin = tmp_path / "acme.py"
    plugin.write_text(
        "from slipstick.core.host.hookspecs import hookimpl\n"
        "from slipstick.core.model.interfaces.architecture import Architecture\n"
        "class Acme(Architecture):\n"
        "    name = 'acme'\n    model_types = ('acme',)\n"
        f"    def presets(self):\n        return {{'acme-1': {str(tmp_path / 'bad.json')!r}}}\n"
        "    def graph(self, config):\n        raise NotImplementedError\n"
        "@hookimpl\ndef slipstick_architectures():\n    return [Acme()]\n"
    )
    done = slipstick("--plugin", str(plugin), "models", "list", "--json")
    assert done.status == 0, done.err
    assert "gpt2" in [row["name"] for row in done.json["models"]]
    assert [line for line in done.json["problems"] if line.startswith("acme-1: ")]
    assert "warning: acme-1" in done.err
