"""A page of plain text from blocks: names with values, tables, notes; aligned columns, nothing else.

Floor: face. Standard library and attrs only: output that is piped must not wait for rich. The same blocks are drawn
for a terminal by ``tables``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from attrs import field, frozen

WIDTH = 80
"""Columns of a page that is not drawn on a terminal."""

GAP = "  "
INDENT = "  "
_NARROWEST = 16
_FIRST_NARROWEST = 36
"""A column of words is never folded below this, and the first one, which holds names, not below the second."""


def _numbers(values: Iterable[int]) -> frozenset[int]:
    return frozenset(values)


@frozen
class Pairs:
    """Names with their values, under an optional title."""

    rows: tuple[tuple[str, str], ...]
    title: str = ""


@frozen
class Grid:
    """A table. ``right``: numbers of the columns with figures; ``split``: what is too wide goes on in a new table."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    title: str = ""
    right: frozenset[int] = field(default=(), converter=_numbers)
    split: bool = False


@frozen
class Note:
    """A paragraph; ``kind`` is "", "title", "warning", or "command": a line that a person copies, never folded."""

    text: str
    kind: str = ""


Block = Pairs | Grid | Note


def plain(blocks: Iterable[Block], width: int = WIDTH) -> str:
    r"""The page as text, its lines at most ``width`` wide where words allow.

    >>> print(plain([Note("train", "title"), Pairs((("step time", "4 s"), ("mfu", "40 %")))]), end="")
    train
      step time  4 s
      mfu        40 %
    >>> print(plain([Grid(("row", "bytes"), (("weights", "2 GB"), ("state", "10 GB")), right={1})]), end="")
    row      bytes
    weights   2 GB
    state    10 GB
    """
    lines: list[str] = []
    for block in blocks:
        if lines and _opens(block):
            lines.append("")
        if isinstance(block, Note):
            lines += _note(block, width)
        elif isinstance(block, Pairs):
            lines += [clean(block.title)] * bool(block.title)
            lines += _pairs(block, width)
        else:
            lines += [clean(block.title)] * bool(block.title)
            lines += _tables(block, width)
    return "".join(line.rstrip() + "\n" for line in lines)


def clean(text: str) -> str:
    r"""``text`` on one line and without characters that would act on a terminal.

    >>> clean("a\x1b[31mb\nc")
    'a?[31mb c'
    """
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def chunks(grid: Grid, width: int) -> Iterator[Grid]:
    """``grid`` as tables that each fit into ``width`` and begin with its first column."""
    widths = _natural(grid)
    start = 1
    while start < len(widths):
        stop, used = start, widths[0]
        while stop < len(widths) and (stop == start or used + len(GAP) + widths[stop] <= width):
            used += len(GAP) + widths[stop]
            stop += 1
        picked = [0, *range(start, stop)]
        yield Grid(
            tuple(grid.columns[i] for i in picked),
            tuple(tuple(row[i] for i in picked) for row in grid.rows),
            right={n for n, i in enumerate(picked) if i in grid.right},
        )
        start = stop


def _opens(block: Block) -> bool:
    """Whether an empty line comes before a block."""
    return isinstance(block, Grid) or (isinstance(block, Pairs) and bool(block.title)) or (
        isinstance(block, Note) and block.kind == "title"
    )  # fmt: skip


def _note(note: Note, width: int) -> list[str]:
    text = clean(note.text)
    if note.kind in ("title", "command"):
        return [text]
    return textwrap.wrap(text, width, subsequent_indent=INDENT, break_long_words=False, break_on_hyphens=False) or [""]


def _pairs(pairs: Pairs, width: int) -> list[str]:
    rows = [(clean(name), clean(value)) for name, value in pairs.rows]
    head = max((len(name) for name, _ in rows), default=0)
    lines = []
    for name, value in rows:
        # An address that is broken in two cannot be followed, so words stay whole here.
        folded = _folded(value, max(width - head - len(INDENT + GAP), _NARROWEST), whole_words=True)
        lines.append(f"{INDENT}{name:<{head}}{GAP}{folded[0]}")
        lines += [" " * (head + len(INDENT + GAP)) + more for more in folded[1:]]
    return lines


def _tables(grid: Grid, width: int) -> list[str]:
    if not grid.split:
        return _table(grid, width)
    lines: list[str] = []
    for number, part in enumerate(chunks(grid, width)):
        lines += [""] * bool(number) + _table(part, width)
    return lines


def _table(grid: Grid, width: int) -> list[str]:
    cells = [tuple(clean(cell) for cell in row) for row in grid.rows]
    widths = _fitted(grid, width)
    lines = []
    for row in [tuple(clean(name) for name in grid.columns), *cells]:
        folded = [_folded(cell, size) for cell, size in zip(row, widths, strict=True)]
        for level in range(max(len(parts) for parts in folded)):
            texts = [parts[level] if level < len(parts) else "" for parts in folded]
            lines.append(GAP.join(_placed(t, widths[i], i in grid.right) for i, t in enumerate(texts)))
    return lines


def _placed(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _natural(grid: Grid) -> list[int]:
    columns = [[clean(name), *(clean(row[i]) for row in grid.rows)] for i, name in enumerate(grid.columns)]
    return [max(len(cell) for cell in column) for column in columns]


def _fitted(grid: Grid, width: int) -> list[int]:
    """Widths of the columns: the widest column of words gives way until the table fits."""
    widths = _natural(grid)
    least = {i: _FIRST_NARROWEST if i == 0 else _NARROWEST for i in range(len(widths)) if i not in grid.right}
    while sum(widths) + len(GAP) * (len(widths) - 1) > width:
        free = [i for i, narrowest in least.items() if widths[i] > narrowest]
        if not free:
            break
        widest = max(free, key=lambda i: widths[i])
        widths[widest] -= 1
    return widths


def _folded(text: str, width: int, whole_words: bool = False) -> Sequence[str]:
    if len(text) <= width:
        return [text]
    return textwrap.wrap(text, width, break_long_words=not whole_words, break_on_hyphens=False) or [""]
