"""Names, paths and aliases of models, and every way to get them wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from slipstick.core.errors import UserError
from slipstick.core.host.host import Host
from slipstick.core.model.graph import Block, ModelGraph, Run
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration
from slipstick.core.study.models import describe, load_model, preset_paths


class Tiny(Architecture):
    """The smallest architecture there is: a width, and nothing in its blocks."""

    name = "tiny"
    model_types = ("tiny",)

    def __init__(self, presets: dict[str, str] | None = None) -> None:
        self.brought = presets or {}

    def graph(self, config: Configuration) -> ModelGraph:
        sizes = {"hidden": config.integer("hidden_size"), "layers": 2}
        config.ignore(["model_type"])
        config.finish()
        empty = Block("empty", ())
        return ModelGraph("", "tiny", empty, (Run((Block("layer", ()),), "layers"),), empty, sizes)

    def presets(self) -> dict[str, str]:
        return self.brought


class Few:
    """A host of the architectures it is given."""

    def __init__(self, *found: Architecture) -> None:
        self.found = {f"{type(item).__name__}{i}": item for i, item in enumerate(found)}

    def architectures_with(self, wanted: str) -> dict[str, Architecture]:
        return self.architectures()

    def architectures(self) -> dict[str, Architecture]:
        return self.found


@pytest.fixture
def few(tmp_path: Path) -> Few:
    path = tmp_path / "presets" / "tiny-1.json"
    path.parent.mkdir()
    note = {"aliases": ["acme/Tiny-1B"], "title": "Tiny", "source": "https://example.org"}
    path.write_text(json.dumps({"model_type": "tiny", "hidden_size": 4, "_slipstick": note}), encoding="utf-8")
    return Few(Tiny({"tiny-1": str(path)}))


def test_a_preset_by_its_name_its_case_or_its_hub_name(few: Few) -> None:
    for name in ("tiny-1", "Tiny-1", "acme/Tiny-1B", "ACME/tiny-1b"):
        graph = load_model(name, few)
        assert graph.name == "tiny-1"
        assert graph.facts == {"title": "Tiny", "source": "https://example.org"}


def test_a_path_is_a_file_or_a_folder_with_a_config(few: Few, tmp_path: Path) -> None:
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "tiny", "hidden_size": 8}', encoding="utf-8")
    (tmp_path / "other.json").write_text('{"model_type": "tiny", "hidden_size": 9}', encoding="utf-8")
    assert load_model(str(folder), few).sizes["hidden"] == 8
    assert load_model(str(folder / "config.json"), few).name == "my-model"
    assert load_model(str(tmp_path / "other.json"), few).name == "other"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tiny-2", r"unknown model 'tiny-2'; did you mean tiny-1\? a path to a config.json works too"),
        ("../x", r"^\.\./x: no such file$"),
        ("../../etc/passwd", r"^\.\./\.\./etc/passwd: no such file$"),
        ("nowhere.json", r"^nowhere\.json: no such file$"),
        ("/", "is a folder without a config.json"),
        (os.devnull, "not a regular file"),
        ("", "a model is a preset's name or the path of a config.json"),
        ("a\0b", "a model is a preset's name or the path of a config.json"),
        ("a" * 5000, "a model is a preset's name or the path of a config.json"),
        ("a" * 300, "unknown model|cannot be read"),
    ],
)
def test_names_that_are_no_model(
    few: Few, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    with pytest.raises(UserError, match=message) as caught:
        load_model(name, few)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not valid JSON at line 1"),
        ('{"model_type": "tiny", "hidd', "not valid JSON at line 1, column"),
        ("[1, 2]", "a model configuration is a JSON object, this is a list"),
        ("[" * 100_000, "not valid JSON"),
        ("{}", "field 'model_type' is missing"),
        ('{"model_type": 7}', "field 'model_type' must be a string, not '7'"),
        ('{"model_type": "tini"}', "unknown model_type 'tini'; did you mean tiny.*slipstick_architectures"),
        ('{"model_type": "tiny", "hidden_size": NaN}', "field 'hidden_size' must be a whole number"),
        ('{"model_type": "tiny", "hidden_size": 4, "__import__": 1}', "^$"),
    ],
)
def test_files_that_are_no_configuration(few: Few, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text, encoding="utf-8")
    if message == "^$":  # names that start with an underscore are notes of whoever wrote the file
        assert load_model(str(path), few).sizes["hidden"] == 4
        return
    with pytest.raises(UserError, match=message):
        load_model(str(path), few)


def test_a_file_of_a_gigabyte_is_not_read(few: Few, tmp_path: Path) -> None:
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(UserError, match="1,000,000,000 bytes; a model configuration has less than"):
        load_model(str(path), few)


def test_two_plugins_with_one_preset_or_model_type_are_both_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text('{"model_type": "tiny", "hidden_size": 4}', encoding="utf-8")
    with pytest.raises(UserError, match="model_type 'tiny' is claimed by both 'Tiny0' and 'Tiny1'"):
        load_model(str(path), Few(Tiny(), Tiny()))
    with pytest.raises(UserError, match="preset 'a' is brought by both 'Tiny0' and 'Tiny1'"):
        preset_paths(Few(Tiny({"a": "x"}), Tiny({"a": "y"})))


def test_the_bundled_plugins_through_the_real_host() -> None:
    host = Host.load()
    assert len(preset_paths(host)) >= 40
    shown = describe(load_model("llama-3.1-8b", host))
    assert json.loads(json.dumps(shown)) == shown
    assert (shown["parameters"], shown["kv_bytes_per_token"], shown["layers"]) == (8_030_261_248, 131_072, 32)
    layer = shown["blocks"][1]
    assert (layer["name"], layer["count"]) == ("layer", 32)
    query = next(op for op in layer["operations"] if op["name"] == "attention.q")
    assert query["kind"] == "Contraction"
    assert query["weights"] == [
        {
            "name": "attention.q.weight", "axes": ["hidden", "heads", "head_dim"], "shape": [4096, 32, 128],
            "format": "weight",
        }
    ]  # fmt: skip
    assert query["reads"][0]["shape"] == [None, None, 4096]
    total = sum(block["count"] * sum(op["parameters"] for op in block["operations"]) for block in shown["blocks"])
    assert total == shown["parameters"]


def test_a_cache_of_another_format_has_other_bytes(tmp_path: Path) -> None:
    host = Host.load()
    fields = json.loads(Path(preset_paths(host)["llama-3.1-8b"]).read_text(encoding="utf-8"))
    fields["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields), encoding="utf-8")
    assert describe(load_model(str(path), host))["kv_bytes_per_token"] == 65_536
