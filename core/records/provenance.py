"""Where a number comes from: no value without a source.

Floor: records. Uses errors only.
"""

from __future__ import annotations

from typing import Literal

from attrs import frozen

Kind = Literal["datasheet", "measured", "fitted", "derived", "default"]


@frozen
class Source:
    """A place where a value can be checked: title, address or reference, and the date it was true or published."""

    key: str
    title: str
    url: str
    date: str
    kind: Kind = "datasheet"


@frozen
class Quantity:
    """A value in SI units [``unit``] with the source that stands behind it.

    ``text`` is the value as its author wrote it ("3.35 TB/s"); ``note`` says what a reader has to know.
    """

    value: float
    unit: str
    source: Source
    text: str = ""
    note: str = ""

    def __float__(self) -> float:
        return self.value
