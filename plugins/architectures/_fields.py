"""Fields that every Hugging Face configuration shares: what shapes a graph, what does not, and how weights are stored.

Floor: plugins. Uses the core's configuration and errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from slipstick.core.errors import UserError, shown
from slipstick.core.records.configuration import Configuration

_WORDS = (
    # what a file says of itself
    "architectures auto_map model_type name_or_path tokenizer_class torchscript transformers_version "
    "task_specific_params unsloth_version unsloth_fixed "
    # tokens and generation
    "bos_token_id eos_token_id pad_token_id sep_token_id decoder_start_token_id unk_token_id "
    "max_length max_new_tokens min_length do_sample early_stopping temperature top_k top_p typical_p prefix "
    "num_beams num_beam_groups diversity_penalty length_penalty repetition_penalty exponential_decay_length_penalty "
    "no_repeat_ngram_size encoder_no_repeat_ngram_size num_return_sequences remove_invalid_values bad_words_ids "
    "output_scores return_dict_in_generate use_cache cache_implementation suppress_tokens begin_suppress_tokens "
    "forced_bos_token_id forced_eos_token_id "
    # initialisation
    "initializer_range init_std init_device initializer_factor "
    # the library's own switches
    "return_dict output_attentions output_hidden_states is_encoder_decoder is_decoder chunk_size_feed_forward "
    "id2label label2id problem_type classifier_dropout cross_attention_hidden_size add_cross_attention "
    "finetuning_task num_labels pruned_heads tie_encoder_decoder use_bfloat16 tf_legacy_loss "
    "attn_implementation use_flash_attention use_flash_attn _attn_implementation "
    "pretraining_tp tp_plan base_model_tp_plan "
    # numbers that change values and not shapes
    "hidden_act activation_function hidden_activation rms_norm_eps layer_norm_eps layer_norm_epsilon norm_epsilon "
    "norm_eps rope_theta rope_scaling rope_parameters rope_local_base_freq rotary_emb_base rotary_base "
    "original_max_position_embeddings partial_rotary_factor rotary_pct rope_pct rope_ratio rope_interleave "
    "rope_interleaved "
    "output_router_logits router_aux_loss_coef aux_loss_alpha router_jitter_noise seq_aux norm_topk_prob "
    "routed_scaling_factor quantization_config"
)
IGNORED = frozenset(_WORDS.split())
"""Known, and of no consequence for a graph (``quantization_config`` is read apart)."""

_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "float64": "fp32", "half": "fp16", "float": "fp32"}


def dtype(config: Configuration) -> str:
    """The number format of weights that the file names (``dtype``, then ``torch_dtype``), empty where it is silent."""
    config.ignore(("dtype", "torch_dtype"))
    for name in ("dtype", "torch_dtype"):
        value = config.raw(name)
        if value is None or value == "auto":
            continue
        text = value.removeprefix("torch.") if isinstance(value, str) else value
        if not isinstance(text, str) or text not in _DTYPES:
            raise UserError(f"{config.origin}: field {name!r} is {shown(value)}; known: {', '.join(sorted(_DTYPES))}")
        return _DTYPES[text]
    return ""


def quantization(config: Configuration) -> dict[str, str]:
    """How the file says weights are stored: ``weight``, ``expert``, ``activation``, ``cache`` → number format.

    ``weight`` are linear layers outside the experts, ``expert`` the routed ones; ``activation`` is set where the
    multiplication itself runs in that format. Source: the quantizers of transformers, by their ``quant_method``.
    """
    if "quantization_config" not in config:
        return {}
    section = config.section("quantization_config")
    # ModelOpt writes no method in some files and names its producer instead.
    producer = section.raw("producer")
    by = producer.get("name") if isinstance(producer, dict) else None
    method = section.text("quant_method", by if isinstance(by, str) else "modelopt" if "quant_algo" in section else "")
    if method in ("fp8", "fbgemm_fp8"):
        return _both("fp8_block" if section.raw("weight_block_size") else "fp8") | {"activation": "fp8"}
    if method == "mxfp4":
        return {"expert": "mxfp4"}  # its modules_to_not_convert leave out all but the experts
    if method in ("gptq", "awq"):
        bits = section.integer("bits", 4, also=("w_bit",))
        return _both(_integer(bits, section))
    if method == "bitsandbytes":
        if section.boolean("load_in_4bit", section.boolean("_load_in_4bit", False)):
            return _both("int4")  # nf4 and fp4 both keep four bits an element
        if section.boolean("load_in_8bit", section.boolean("_load_in_8bit", False)):
            return _both("int8") | {"activation": "int8"}
        raise UserError(f"{section.origin}: one of load_in_4bit and load_in_8bit must be true")
    if method == "modelopt":
        return _modelopt(section)
    if method in ("compressed-tensors", "compressed_tensors"):
        return _compressed(section)
    known = "awq, bitsandbytes, compressed-tensors, fbgemm_fp8, fp8, gptq, modelopt, mxfp4"
    raise UserError(f"{section.origin}: field 'quant_method' is {shown(method)}; known: {known}")


def _both(number: str) -> dict[str, str]:
    return {"weight": number, "expert": number}


def _integer(bits: int, section: Configuration) -> str:
    if bits not in (4, 8):
        raise UserError(f"{section.origin}: {bits} bits per weight; known: 4, 8")
    return f"int{bits}"


def _modelopt(section: Configuration) -> dict[str, str]:
    """NVIDIA ModelOpt: ``quant_algo``, at the top or under ``quantization``, and ``kv_cache_quant_algo``."""
    inner = section.section("quantization") if "quantization" in section else section
    algorithm = inner.text("quant_algo", among=("FP8", "FP8_PB_WO", "NVFP4", "W4A16_AWQ", "W8A8_SQ_PER_CHANNEL"))
    found = {
        "FP8": _both("fp8") | {"activation": "fp8"},
        "FP8_PB_WO": _both("fp8_block"),
        "NVFP4": _both("nvfp4") | {"activation": "nvfp4"},
        "W4A16_AWQ": _both("int4"),
        "W8A8_SQ_PER_CHANNEL": _both("int8") | {"activation": "int8"},
    }[algorithm]
    cache = inner.raw("kv_cache_quant_algo")
    if cache is not None:
        found["cache"] = _named(cache, {"FP8": "fp8", "NVFP4": "nvfp4", "INT8": "int8"}, inner, "kv_cache_quant_algo")
    return found


def _compressed(section: Configuration) -> dict[str, str]:
    """compressed-tensors: groups of layers with ``weights`` and ``input_activations`` of some bits and type."""
    groups = section.raw("config_groups")
    if not isinstance(groups, Mapping) or not groups:
        raise UserError(f"{section.origin}: field 'config_groups' must be an object with at least one group")
    first = next(iter(groups.values()))
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise UserError(f"{section.origin}: the first of 'config_groups' must have an object 'weights'")
    found = _both(_bits(weights, section))
    acts = first.get("input_activations")
    if isinstance(acts, Mapping):
        found["activation"] = _bits(acts, section)
    cache = section.raw("kv_cache_scheme")
    if isinstance(cache, Mapping):
        found["cache"] = _bits(cache, section)
    return found


def _bits(scheme: Mapping[str, Any], section: Configuration) -> str:
    """``num_bits`` and ``type`` of one scheme → a number format."""
    named = f"{scheme.get('type', 'int')}{scheme.get('num_bits', '')}"
    if named == "float4":
        return "nvfp4" if scheme.get("group_size") == 16 else "mxfp4"
    return _named(named, {"float8": "fp8", "int8": "int8", "int4": "int4"}, section, "type and num_bits")


def _named(value: object, table: Mapping[str, str], section: Configuration, name: str) -> str:
    if not isinstance(value, str) or value not in table:
        raise UserError(f"{section.origin}: field {name!r} is {shown(value)}; known: {', '.join(sorted(table))}")
    return table[value]


def common(config: Configuration, *more: str) -> None:
    """Mark what never shapes a graph, and the family's own ``more`` of it, as known."""
    config.ignore(IGNORED)
    for names in more:
        config.ignore(names.split())


def on(config: Configuration, *names: str, default: float = 0.0) -> bool:
    """Whether a dropout rate is above zero (the first of ``names`` that the file has)."""
    config.ignore(names)
    for name in names:
        if name in config:
            return config.number(name, maximum=1.0) > 0
    return default > 0


def head_sizes(config: Configuration, *, kv: str = "required", head_dim: str = "ratio") -> dict[str, int]:
    """``hidden``, ``heads``, ``kv_heads``, ``head_dim`` under their usual names, and the checks between them.

    ``kv``: ``required``, or ``heads`` where real files of the family leave the field out and mean «as many as query
    heads» (files older than grouped-query attention). ``head_dim``: ``ratio`` lets the file leave it out and means
    hidden / heads.
    """
    hidden = config.integer("hidden_size")
    heads = config.integer("num_attention_heads", maximum=100_000)
    if kv == "heads":
        kv_heads = config.integer("num_key_value_heads", heads, maximum=100_000)
    else:
        kv_heads = config.integer("num_key_value_heads", maximum=100_000)
    if "head_dim" in config or head_dim != "ratio":
        dim = config.integer("head_dim", maximum=1_000_000)
    else:
        config.ignore(("head_dim",))
        dim = divided(config, hidden, heads, "hidden_size", "num_attention_heads")
    grouped(config, heads, kv_heads)
    return {"hidden": hidden, "heads": heads, "kv_heads": kv_heads, "head_dim": dim}


def grouped(config: Configuration, heads: int, kv_heads: int) -> None:
    """Refuse query heads that do not spread evenly over key/value heads."""
    if heads % kv_heads:
        raise UserError(f"{config.origin}: {heads} query heads are not a multiple of {kv_heads} key/value heads")


def divided(config: Configuration, whole: int, parts: int, whole_name: str, parts_name: str) -> int:
    """``whole / parts`` where that is a whole number."""
    if whole % parts:
        raise UserError(f"{config.origin}: {whole_name} {whole} is not a multiple of {parts_name} {parts}")
    return whole // parts


def layer_count(config: Configuration, name: str = "num_hidden_layers") -> int:
    """Number of layers, at most ten thousand."""
    return config.integer(name, maximum=10_000)


LAYER_TYPES = ("full_attention", "sliding_attention", "chunked_attention")


def layer_types(config: Configuration, layers: int, default: Iterable[str]) -> list[str]:
    """The kind of attention of each layer: ``layer_types`` of the file, or the family's ``default`` rule."""
    types = config.texts("layer_types", list(default), among=LAYER_TYPES)
    same_length(config, types, layers, "layer_types")
    return types


def same_length(config: Configuration, items: Sequence[object], layers: int, name: str) -> None:
    """Refuse a per-layer list whose length is not the number of layers."""
    if len(items) != layers:
        raise UserError(f"{config.origin}: {name} has {len(items)} entries for {layers} layers")
