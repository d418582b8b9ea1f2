"""The model that a measured row is about: a preset, a published configuration, or one made from the row's columns.

Floor: study. A dense model whose columns are all there is made from them; the dimensions of experts and whatever
column is blank come from the preset or configuration that the row's model name maps to (``names.toml``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import define, evolve, field, frozen

from ...errors import SlipstickError
from ...host.host import Host
from ...model.graph import ModelGraph
from ...records.configuration import Configuration
from ...records.measured import MeasuredPoint
from ..models import architecture_of, preset_paths
from .names import Skipped, found, squeezed

COLUMNS = ("layers", "hidden", "heads", "kv_heads", "ffn", "vocab")
POSITIONS = 2048
"""Longest sequence of a model made from columns, where neither the row nor a preset of its name gives one."""
PADDED_VOCABULARY = 51_200
"""GPT-2's 50,257 tokens as Megatron-LM pads them for a tensor parallel degree of 8: taken where a row gives none."""


@frozen(eq=False)
class Shape:
    """A model graph, and what was taken for granted to make it."""

    graph: ModelGraph
    notes: tuple[str, ...] = ()


@define(eq=False)
class Shapes:
    """Models of rows, each made once. ``shape`` raises Skipped with the reason where there is none."""

    host: Host
    _made: dict[tuple[Any, ...], Shape | Skipped] = field(factory=dict, init=False)
    _presets: dict[str, str] = field(factory=dict, init=False)
    _aliases: dict[str, str] = field(factory=dict, init=False)

    def shape(self, point: MeasuredPoint, said: Mapping[str, Any] | None = None) -> Shape:
        """The model of a point; ``said``: what its text says (``first_dense``: layers before those with experts)."""
        columns = {name: point.setting[name] for name in COLUMNS if name in point.setting}
        if said and "first_dense" in said:
            columns["first_dense"] = int(said["first_dense"])
        sequence = point.setting.get("sequence")
        key = (point.model, tuple(columns.items()), sequence)
        if key not in self._made:
            try:
                self._made[key] = self._shape(point.model, columns, sequence)
            except SlipstickError as error:
                self._made[key] = Skipped(f"no architecture reads its configuration: {error}")
            except Skipped as reason:
                self._made[key] = reason
        made = self._made[key]
        if isinstance(made, Skipped):
            raise Skipped(*made.args)
        return made

    def _shape(self, model: str, columns: Mapping[str, Any], sequence: Any) -> Shape:
        for name, value in columns.items():
            if not isinstance(value, int) or value < 1:
                raise Skipped(f"{name} is {value}; a whole number is expected")
        named = self._named(model)
        positions = sequence if isinstance(sequence, int) else POSITIONS
        if named is not None:
            fields, name, note = named
            graph = self._graph(fields, name)
            if sequence is None and graph.max_positions:
                positions = graph.max_positions
            if "experts" in graph.sizes or not {"layers", "hidden", "heads"} <= columns.keys():
                return self._cut(fields, name, graph, columns, (note,) if note else ())
        if not {"layers", "hidden", "heads"} <= columns.keys():
            raise Skipped(f"no preset or configuration is known for {model!r}, and its row does not describe it")
        return self._made_of(model, columns, positions)

    def _named(self, model: str) -> tuple[dict[str, Any], str, str] | None:
        """The configuration that a name maps to, what it is called, and what makes it an approximation."""
        entry = found("model", model)
        if entry is not None and "config" in entry.data:
            return dict(entry.data["config"]), model, entry.note
        preset = self._preset(str(entry.data["preset"]) if entry is not None else model)
        if preset is None:
            return None
        fields = json.loads(Path(self._presets[preset]).read_text(encoding="utf-8"))
        return fields, preset, entry.note if entry is not None else ""

    def _preset(self, name: str) -> str | None:
        if not self._presets:
            self._presets = preset_paths(self.host)
            for preset, path in self._presets.items():
                note = json.loads(Path(path).read_text(encoding="utf-8")).get("_slipstick", {})
                for alias in (preset, *note.get("aliases", ())):
                    self._aliases.setdefault(squeezed(str(alias)), preset)
        return name if name in self._presets else self._aliases.get(squeezed(name))

    def _graph(self, fields: Mapping[str, Any], name: str) -> ModelGraph:
        config = Configuration(fields, name)
        return evolve(architecture_of(config, self.host).graph(config), name=name)

    def _cut(
        self, fields: dict[str, Any], name: str, graph: ModelGraph, columns: Mapping[str, Any], notes: tuple[str, ...]
    ) -> Shape:
        """A named model, with as many layers as its row says."""
        layers = columns.get("layers", graph.layers)
        dense = columns.get("first_dense")
        if dense is not None and "first_k_dense_replace" in fields and dense != fields["first_k_dense_replace"]:
            fields = {**fields, "first_k_dense_replace": dense}
            graph = self._graph(fields, f"{name}, {dense} dense")
        if layers != graph.layers:
            key = next((k for k in ("num_hidden_layers", "n_layer") if k in fields), None)
            if key is None:
                raise Skipped(f"{name} has {graph.layers} layers and the row {layers}")
            graph = self._graph({**fields, key: layers}, f"{name}, {layers} layers")
        for column in ("hidden", "heads"):
            if column in columns and columns[column] != graph.sizes.get(column, columns[column]):
                raise Skipped(f"{column} is {columns[column]} in the row and {graph.sizes[column]} in {name}")
        return Shape(graph, notes)

    def _made_of(self, model: str, columns: Mapping[str, Any], positions: int) -> Shape:
        """A dense model made from columns."""
        hidden, heads = columns["hidden"], columns["heads"]
        entry = found("family", model)
        ffn = columns.get("ffn", 4 * hidden)
        form = str(entry.data["form"]) if entry is not None else "gated" if ffn < 4 * hidden else "gpt"
        notes = []
        if "vocab" not in columns:
            notes.append(f"vocabulary not stated: {PADDED_VOCABULARY:,} taken")
        vocab = columns.get("vocab", PADDED_VOCABULARY)
        head_dim = entry.data.get("head_dim") if entry is not None else None
        if head_dim is None and hidden % heads:
            raise Skipped(f"{heads} heads do not divide a hidden size of {hidden}")
        fields = filled(form, columns, ffn, vocab, positions, head_dim)
        return Shape(self._graph(fields, model or "model"), tuple(notes))


def filled(
    form: str, columns: Mapping[str, Any], ffn: int, vocab: int, positions: int, head_dim: int | None = None
) -> dict[str, Any]:
    """The configuration of a dense model.

    ``form``: "gpt" (plain feed-forward, learned positions, tied embeddings), "bloom", "mpt" (the same without learned
    positions), "gated" (gated feed-forward, rotary positions, grouped key/value heads, an output matrix of its own).
    """
    layers, hidden, heads = columns["layers"], columns["hidden"], columns["heads"]
    kv_heads = columns.get("kv_heads", heads)
    if form == "gpt" and kv_heads == heads:
        return {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads, "n_inner": ffn,
                "vocab_size": vocab, "n_positions": positions}  # fmt: skip
    if form == "bloom" and ffn == 4 * hidden:
        return {"model_type": "bloom", "n_layer": layers, "hidden_size": hidden, "n_head": heads, "vocab_size": vocab}
    if form == "mpt" and ffn == 4 * hidden:
        return {"model_type": "mpt", "n_layers": layers, "d_model": hidden, "n_heads": heads, "vocab_size": vocab,
                "max_seq_len": positions}  # fmt: skip
    if form in ("gpt", "bloom", "mpt"):
        # A plain feed-forward of another width or with fewer key/value heads: Nemotron's has both.
        return {"model_type": "nemotron", "num_hidden_layers": layers, "hidden_size": hidden,
                "num_attention_heads": heads, "num_key_value_heads": kv_heads, "intermediate_size": ffn,
                "vocab_size": vocab, "max_position_embeddings": positions, "tie_word_embeddings": True}  # fmt: skip
    fields = {"model_type": "llama", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
              "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
              "max_position_embeddings": positions, "tie_word_embeddings": False}  # fmt: skip
    return fields | ({"head_dim": head_dim} if head_dim is not None else {})
