"""Models by name or path: which configuration is meant, which architecture reads it, and what the graph looks like.

Floor: study. Uses host objects through ``architectures()`` only, model and records. Imports nothing heavy.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from attrs import evolve

from ..errors import PluginError, UserError, shown, unknown
from ..model.axes import Tensor
from ..model.graph import Block, ModelGraph
from ..model.interfaces.architecture import Architecture
from ..model.ops import Op
from ..records.configuration import Configuration
from ..records.numerics import WIDTHS

LIST = "see `slipstick models list`"


class HasArchitectures(Protocol):
    """What this file needs of a host: its architectures by name."""

    def architectures(self) -> Mapping[str, Architecture]:
        """Name → architecture, of every active plugin."""
        ...

    def architectures_with(self, wanted: str) -> Mapping[str, Architecture]:
        """Those that may answer for a ``model_type``, or that bring "presets"."""
        ...


def load_model(name_or_path: str, host: HasArchitectures) -> ModelGraph:
    """The graph of a model, given a preset's name or alias, a ``config.json``, or the folder that holds one.

    Anything with a path separator, an ending ``.json``, or that exists as a file or folder is a path, unless a preset
    has exactly that name.

    Errors: UserError for an unknown name (with the nearest ones), an unreadable file, a configuration without
    ``model_type`` or with one that no plugin reads, and whatever the architecture finds wrong.
    """
    if not name_or_path or "\0" in name_or_path or len(name_or_path) > 4096:
        raise UserError(f"a model is a preset's name or the path of a config.json, not {shown(name_or_path)}")
    presets = preset_paths(host)
    name = name_or_path
    if name in presets:
        config = Configuration.load(Path(presets[name]))
        config.origin = name
    elif _is_path(name_or_path):
        config = Configuration.load(Path(os.path.expanduser(name_or_path)))
        name = _path_name(Path(name_or_path))
    else:
        found = _alias(name_or_path, presets)
        if found is None:
            raise unknown("model", name_or_path, presets, f"a path to a config.json works too; {LIST}")
        name = found
        config = Configuration.load(Path(presets[found]))
        config.origin = found
    architecture = architecture_of(config, host)
    graph: object = architecture.graph(config)  # a plugin's promise, not yet a fact
    if not isinstance(graph, ModelGraph):
        kind = type(graph).__name__
        raise PluginError(f"architecture {architecture.name!r} returned a {kind}; ModelGraph is expected")
    facts = dict(graph.facts)
    note = config.raw("_slipstick")
    if isinstance(note, dict):
        facts |= {k: note[k] for k in ("title", "source") if isinstance(note.get(k), str)}
    return evolve(graph, name=name, facts=facts)


def preset_paths(host: HasArchitectures) -> dict[str, str]:
    """Every preset name that a plugin brings → its path; a name brought twice is refused."""
    paths: dict[str, str] = {}
    owner: dict[str, str] = {}
    for name, architecture in host.architectures_with("presets").items():
        for preset, path in architecture.presets().items():
            if preset in paths:
                raise UserError(
                    f"preset {preset!r} is brought by both {owner[preset]!r} and {name!r}; disable one plugin"
                )
            paths[preset], owner[preset] = path, name
    return paths


def architecture_of(config: Configuration, host: HasArchitectures) -> Architecture:
    """The architecture whose ``model_types`` hold the configuration's ``model_type``."""
    model_type = config.text("model_type")
    by_type: dict[str, Architecture] = {}
    owner: dict[str, str] = {}
    for name, architecture in host.architectures_with(model_type).items():
        for known in architecture.model_types:
            if known in by_type and known == model_type:
                raise UserError(
                    f"model_type {known!r} is claimed by both {owner[known]!r} and {name!r}; disable one plugin"
                )
            by_type[known], owner[known] = architecture, name
    if model_type in by_type:
        return by_type[model_type]
    by_type = {known: a for a in host.architectures().values() for known in a.model_types}
    line = str(unknown("model_type", model_type, by_type))
    raise UserError(
        f"{config.origin}: {line if line.endswith('?') else line + '.'} Known: {', '.join(sorted(by_type))}; "
        "a plugin adds one with the hook slipstick_architectures (docs/architectures.md)"
    )


def describe(graph: ModelGraph) -> dict[str, Any]:
    """What ``models show`` prints, as plain JSON values.

    ``kv_bytes_per_token``: at the width of the configuration's cache format, else of its 16-bit (or other) dtype.
    """
    cache = graph.quantization.get("cache", graph.dtype)
    return {
        "name": graph.name,
        "architecture": graph.architecture,
        "parameters": graph.parameters,
        "active_parameters_per_token": graph.active_parameters,
        "kv_bytes_per_token": graph.kv_bytes_per_token(WIDTHS.get(cache, 2.0)),
        "layers": graph.layers,
        "max_positions": graph.max_positions,
        "dtype": graph.dtype,
        "quantization": dict(graph.quantization),
        "sizes": dict(graph.sizes),
        "blocks": [_block(block, count, graph) for block, count in graph.parts()]
        + [_block(block, 0, graph, extra=name) for name, block in graph.extras.items()],
        "facts": dict(graph.facts),
    }


def _block(block: Block, count: int, graph: ModelGraph, extra: str = "") -> dict[str, Any]:
    """One block: how often it occurs (0: an extra), and its operations with shapes."""
    shown_block: dict[str, Any] = {"name": block.name, "count": count, "parameters": graph.block_parameters(block)}
    if extra:
        shown_block["extra"] = extra
    seen: set[str] = set()
    shown_block["operations"] = [_op(op, graph, seen) for op in block.ops]
    return shown_block


def _op(op: Op, graph: ModelGraph, seen: set[str]) -> dict[str, Any]:
    """One operation: kind, shapes of what it reads, writes and multiplies, trained elements it brings."""
    own = [w for w in op.weights if w.name not in seen and not w.tied]
    seen.update(w.name for w in op.weights)
    return {
        "name": op.name,
        "kind": type(op).__name__,
        "reads": [_tensor(t, graph) for t in op.reads],
        "writes": [_tensor(t, graph) for t in op.writes],
        "weights": [_tensor(w, graph) | ({"tied": w.tied} if w.tied else {}) for w in op.weights],
        "parameters": sum(graph.elements(w) for w in own),
    }


def _tensor(tensor: Tensor, graph: ModelGraph) -> dict[str, Any]:
    """Name, axes by their size symbols, and the extents that the model fixes (null: the scenario's)."""
    return {
        "name": tensor.name,
        "axes": [a.size for a in tensor.axes],
        "shape": [graph.sizes.get(a.size) for a in tensor.axes],
        "format": tensor.format,
    }


def _is_path(text: str) -> bool:
    separators = {os.sep, os.altsep} - {None}
    if text.endswith(".json") or text.startswith((".", "~")):
        return True
    try:
        if Path(text).exists():
            return True
    except OSError:
        return True
    # «owner/name» is also how hubs name a model: a path only when its first part is there.
    return any(s in text for s in separators if s) and (os.path.isabs(text) or text.count("/") != 1)


def _path_name(path: Path) -> str:
    """How a model given by path is called: its file's stem, or its folder's name."""
    path = Path(os.path.expanduser(path))
    if path.name == "config.json" or path.is_dir():
        folder = path if path.is_dir() else path.parent
        return folder.resolve().name or "model"
    return path.stem


def _alias(name: str, presets: Mapping[str, str]) -> str | None:
    """The preset that lists ``name`` among its aliases (hub names; read only when no preset is called so)."""
    wanted = name.casefold()
    for preset, path in presets.items():
        if preset.casefold() == wanted:
            return preset
        try:
            note = json.loads(Path(path).read_text(encoding="utf-8")).get("_slipstick", {})
            aliases = note.get("aliases", [])
        except (OSError, ValueError, AttributeError):
            continue  # a broken preset of a third party must not hide the others
        if any(isinstance(alias, str) and alias.casefold() == wanted for alias in aliases):
            return preset
    return None
