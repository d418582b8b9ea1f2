"""Models as pages: the list of presets, and one model with its blocks, operations and shapes.

Floor: face. Uses the plain data of ``describe`` in the study floor, and the unit table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..algebra.units import format_count, format_si
from .text import Block, Grid, Note, Pairs


def models_page(rows: Sequence[Mapping[str, Any]], types: Sequence[str]) -> list[Block]:
    """The presets, then every model type that a configuration may have."""
    table = tuple(
        (
            row["name"],
            format_count(row["parameters"]),
            format_count(row["active_parameters_per_token"]),
            f"{row['kv_bytes_per_token'] / 1024:,.1f} KiB",
            str(row["layers"]),
            row["architecture"],
        )
        for row in rows
    )
    columns = ("model", "parameters", "active", "cache a token", "layers", "model_type")
    return [
        Grid(columns, table, right={1, 2, 3, 4}) if table else Note("no preset has that text"),
        Note(""),
        Note(f"The path of a config.json works in place of a name. Known model_type: {', '.join(types)}."),
    ]


def model_page(description: Mapping[str, Any], operations: bool) -> list[Block]:
    """One model; ``operations``: each operation of each kind of block too."""
    total, active = description["parameters"], description["active_parameters_per_token"]
    pairs = [
        ("model_type", description["architecture"]),
        ("parameters", f"{total:,} ({format_count(total)})"),
        ("active a token", f"{active:,} ({format_count(active)})" if active != total else "all"),
        ("cache a token", f"{format_si(description['kv_bytes_per_token'], 'B')} over {description['layers']} layers"),
        ("format", description["dtype"]),
    ]
    if description["quantization"]:
        pairs.append(("quantised", ", ".join(f"{role} {form}" for role, form in description["quantization"].items())))
    if description["max_positions"]:
        pairs.append(("positions", f"{description['max_positions']:,}"))
    pairs += [(name, value) for name, value in description["facts"].items()]
    blocks: list[Block] = [
        Note(description["name"], "title"),
        Pairs(tuple(pairs)),
        Pairs(tuple((name, f"{value:,}") for name, value in description["sizes"].items()), "Sizes"),
        _parts(description["blocks"], total),
    ]
    if operations:
        blocks += [_operations(block) for block in description["blocks"]]
    else:
        blocks.append(Note("--operations shows what each block does."))
    return blocks


def _parts(parts: Sequence[Mapping[str, Any]], total: int) -> Grid:
    rows = []
    for block in parts:
        whole = block["parameters"] * block["count"]
        times = str(block["count"]) if block["count"] else f"extra: {block['extra']}"
        share = f"{whole / total:.1%}" if total and block["count"] else "–"
        rows.append((block["name"], times, f"{block['parameters']:,}", share))
    return Grid(("block", "times", "parameters each", "share"), tuple(rows), "Blocks", right={1, 2, 3})


def _operations(block: Mapping[str, Any]) -> Grid:
    rows = []
    for op in block["operations"]:
        weights = "; ".join(_shape(weight) + (" tied" if weight.get("tied") else "") for weight in op["weights"])
        writes = "; ".join(_shape(tensor) for tensor in op["writes"])
        rows.append((op["name"], op["kind"], weights or "–", writes, f"{op['parameters']:,}"))
    title = f"Block {block['name']}" + (f", {block['count']} times" if block["count"] else ", extra")
    return Grid(("operation", "kind", "weights", "writes", "parameters"), tuple(rows), title, right={4})


def _shape(tensor: Mapping[str, Any]) -> str:
    """The extents of a tensor: numbers where the model fixes them, else the name of the size."""
    sizes = zip(tensor["axes"], tensor["shape"], strict=True)
    return "×".join(name if extent is None else str(extent) for name, extent in sizes) or "1"
