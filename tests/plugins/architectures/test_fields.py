"""What a configuration may and may not say: unknown and missing fields, sizes that do not fit, quantisation, fuzz."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstick.core.errors import UserError
from slipstick.core.model.graph import ModelGraph
from slipstick.core.model.interfaces.architecture import Architecture
from slipstick.core.records.configuration import Configuration

GraphOf = Callable[[dict[str, Any]], ModelGraph]

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 8,
    "num_key_value_heads": 2, "vocab_size": 100, "max_position_embeddings": 128,
}  # fmt: skip

# Keys of published config.json files of several years that no family may stumble over.
PUBLISHED_KEYS: dict[str, Any] = {
    "architectures": ["XForCausalLM"], "auto_map": {"AutoConfig": "x.Y"}, "torch_dtype": "bfloat16", "use_cache": True,
    "transformers_version": "4.43.0", "_name_or_path": "some/where", "bos_token_id": 1, "eos_token_id": [2, 3],
    "pad_token_id": None, "initializer_range": 0.02, "tie_word_embeddings": False, "chunk_size_feed_forward": 0,
    "pretraining_tp": 1, "rope_theta": 500000.0, "rope_scaling": {"factor": 8.0, "rope_type": "llama3"},
    "attention_dropout": 0.0, "hidden_act": "silu", "rms_norm_eps": 1e-5, "quantization_config": None,
    "output_attentions": False, "id2label": {"0": "LABEL_0"},
}  # fmt: skip


def test_keys_of_published_files_are_known(graph_of: GraphOf) -> None:
    assert graph_of(PUBLISHED_KEYS | LLAMA).parameters == graph_of(LLAMA).parameters


def test_library_wide_keys_are_known_to_every_family(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    wide = ("architectures", "auto_map", "torch_dtype", "use_cache", "transformers_version", "_name_or_path",
            "bos_token_id", "eos_token_id", "initializer_range", "quantization_config")  # fmt: skip
    extra = {key: PUBLISHED_KEYS[key] for key in wide}
    for row in golden["cases"].values():
        assert graph_of(row["fields"] | extra).parameters == row["parameters"]


def test_an_unknown_field_is_named_in_every_family(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    for row in golden["cases"].values():
        with pytest.raises(UserError, match=r"^test\.json: unknown field 'hidden_sizes_of_doom'"):
            graph_of(row["fields"] | {"hidden_sizes_of_doom": 3})


def test_a_misspelt_field_is_missing_with_a_hint(graph_of: GraphOf) -> None:
    fields = {("hiden_size" if key == "hidden_size" else key): value for key, value in LLAMA.items()}
    with pytest.raises(UserError, match=r"field 'hidden_size' is missing; is 'hiden_size' meant\?"):
        graph_of(fields)


@pytest.mark.parametrize("name", [key for key in LLAMA if key not in ("model_type", "num_key_value_heads")])
def test_a_missing_field_is_named(graph_of: GraphOf, name: str) -> None:
    with pytest.raises(UserError, match=f"field '{name}' is missing"):
        graph_of({key: value for key, value in LLAMA.items() if key != name})


def test_key_value_heads_are_asked_where_files_always_have_them(graph_of: GraphOf) -> None:
    fields = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"}
    for model_type in ("mistral", "qwen2", "mixtral", "gemma2", "phi3", "granite", "starcoder2"):
        with pytest.raises(UserError, match="field 'num_key_value_heads' is missing"):
            graph_of(fields | {"model_type": model_type, "head_dim": 8})
    # Llama 2's files are older than grouped queries: there the field's absence has a meaning.
    assert graph_of(fields).sizes["kv_heads"] == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 3}, "8 query heads are not a multiple of 3 key/value heads"),
        ({"hidden_size": 63}, "hidden_size 63 is not a multiple of num_attention_heads 8"),
        ({"hidden_size": 0}, "field 'hidden_size' must be between 1 and"),
        ({"hidden_size": -64}, "field 'hidden_size' must be between 1 and"),
        ({"hidden_size": 10**18}, "field 'hidden_size' must be between 1 and"),
        ({"hidden_size": "64"}, "field 'hidden_size' must be a whole number"),
        ({"hidden_size": math.nan}, "field 'hidden_size' must be a whole number"),
        ({"num_hidden_layers": 10**9}, "field 'num_hidden_layers' must be between 1 and 10,000"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries for 2 layers"),
        ({"layer_types": ["full_attention", "sideways"]}, "field 'layer_types' holds 'sideways'"),
        ({"attention_bias": "no"}, "field 'attention_bias' must be true or false"),
        ({"attention_dropout": 7}, "field 'attention_dropout' must be between"),
        ({"torch_dtype": "decimal"}, "field 'torch_dtype' is 'decimal'"),
    ],
)
def test_values_that_do_not_fit(graph_of: GraphOf, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        graph_of(LLAMA | changes)


def test_more_experts_per_token_than_experts(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    fields = golden["cases"]["mixtral"]["fields"] | {"num_experts_per_tok": 7}
    with pytest.raises(UserError, match="7 experts per token are chosen among 6"):
        graph_of(fields)


def test_multimodal_configurations_give_their_language_model(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    for inner, outer in (("gemma3_text", "gemma3"), ("llama4_text", "llama4")):
        row = golden["cases"][inner]
        graph = graph_of({"model_type": outer, "vision_config": {"hidden_size": 8}, "text_config": row["fields"]})
        assert graph.parameters == row["parameters"]
        assert "image tower" in graph.facts["scope"]
        with pytest.raises(UserError, match=r"test\.json: text_config: unknown field 'oops'"):
            graph_of({"model_type": outer, "text_config": row["fields"] | {"oops": 1}})


def test_a_text_config_that_names_only_what_differs(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    """Gemma 3's published multimodal files leave vocabulary, heads and positions to the class."""
    silent = {"hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "sliding_window": 16}
    graph = graph_of({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **silent}})
    assert graph.parameters == golden["cases"]["gemma3_text-silent"]["parameters"]


def test_generation_keys_of_older_files_are_known(graph_of: GraphOf) -> None:
    old = {"top_k": 50, "temperature": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0, "num_return_sequences": 1}
    assert graph_of(LLAMA | old).parameters == graph_of(LLAMA).parameters


FP8_BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
W4 = {"num_bits": 4, "type": "int", "group_size": 128}
F8 = {"num_bits": 8, "type": "float"}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({**FP8_BLOCK, "weight_block_size": None}, {"weight": "fp8", "expert": "fp8", "activation": "fp8"}),
        (FP8_BLOCK, {"weight": "fp8_block", "expert": "fp8_block", "activation": "fp8"}),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, {"expert": "mxfp4"}),
        ({"quant_method": "gptq", "bits": 4}, {"weight": "int4", "expert": "int4"}),
        ({"quant_method": "gptq", "bits": 8}, {"weight": "int8", "expert": "int8"}),
        ({"quant_method": "awq", "w_bit": 4}, {"weight": "int4", "expert": "int4"}),
        (
            {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
            {"weight": "int4", "expert": "int4"},
        ),
        (
            {"quant_method": "bitsandbytes", "load_in_8bit": True},
            {"weight": "int8", "expert": "int8", "activation": "int8"},
        ),
        (
            {"producer": {"name": "modelopt"}, "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8"},
            {"weight": "nvfp4", "expert": "nvfp4", "activation": "nvfp4", "cache": "fp8"},
        ),
        (
            {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": None}},
            {"weight": "fp8", "expert": "fp8", "activation": "fp8"},
        ),
        (
            {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": W4}}},
            {"weight": "int4", "expert": "int4"},
        ),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": F8, "input_activations": F8}},
                "kv_cache_scheme": F8,
            },
            {"weight": "fp8", "expert": "fp8", "activation": "fp8", "cache": "fp8"},
        ),
    ],
)
def test_quantisation_of_published_files(graph_of: GraphOf, section: dict[str, Any], expected: dict[str, str]) -> None:
    assert graph_of(LLAMA | {"quantization_config": section}).quantization == expected


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"quant_method": "abacus"}, "field 'quant_method' is 'abacus'; known: awq"),
        ({}, "field 'quant_method' is ''"),
        ({"quant_method": "gptq", "bits": 3}, "3 bits per weight; known: 4, 8"),
        ({"quant_method": "bitsandbytes"}, "one of load_in_4bit and load_in_8bit must be true"),
        ({"quant_method": "compressed-tensors"}, "field 'config_groups' must be an object"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": 3}}, "must have an object 'weights'"),
        ("fp8", "field 'quantization_config' must be an object"),
    ],
)
def test_quantisation_that_is_not_known(graph_of: GraphOf, section: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        graph_of(LLAMA | {"quantization_config": section})


def test_presets_keep_their_quantisation(by_type: dict[str, Architecture], root: Path) -> None:
    for name, expected in {"deepseek-v3": "fp8_block", "gpt-oss-120b": "mxfp4"}.items():
        config = Configuration.load(root / f"plugins/architectures/presets/{name}.json")
        assert by_type[config.text("model_type")].graph(config).quantization["expert"] == expected


def complaint(graph_of: GraphOf, fields: dict[str, Any]) -> str:
    """The one line that ``fields`` are answered with, empty where they make a graph; any other error passes through."""
    try:
        graph_of(fields)
    except UserError as error:
        return str(error)
    return ""


ODD: list[Any] = [None, -1, 0, math.nan, math.inf, 10**30, "x", "", [], ["x"], [[[]]], {}, {"a": 1}, True, 0.5]


def test_any_one_field_gone_or_odd_is_a_graph_or_one_clear_line(graph_of: GraphOf, golden: dict[str, Any]) -> None:
    """Every field of every family, taken away or replaced by something odd: never anything but a UserError."""
    seen: set[str] = set()
    for row in golden["cases"].values():
        fields = row["fields"]
        if fields["model_type"] in seen:
            continue
        seen.add(fields["model_type"])
        for i, name in enumerate(sorted(fields)):
            if name == "model_type":
                continue
            variants = [{key: value for key, value in fields.items() if key != name}]
            # Each field meets every third odd value; over the families each name meets all of them.
            variants += [fields | {name: odd} for odd in ODD[(i + len(seen)) % 3 :: 3]]
            for variant in variants:
                line = complaint(graph_of, variant)
                assert "\n" not in line
                assert len(line) < 400


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_several_odd_fields_at_once(graph_of: GraphOf, golden: dict[str, Any], data: st.DataObject) -> None:
    row = golden["cases"][data.draw(st.sampled_from(sorted(golden["cases"])))]
    names = data.draw(st.lists(st.sampled_from(sorted(set(row["fields"]) - {"model_type"})), min_size=1, max_size=4))
    changed = row["fields"] | {name: data.draw(json_values) for name in names}
    assert "\n" not in complaint(graph_of, json.loads(json.dumps(changed)))
