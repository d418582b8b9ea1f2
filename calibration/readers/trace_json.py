"""Events of a chrome trace, one after the other, from a file that may be larger than the memory.

Calibration. The standard library's JSON decoder works on a window that moves over the text; only one event, and what
stands beside the list of events, is in memory at a time. Plain and gzip files alike.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

from slipstick.core.errors import UserError

CHUNK = 1 << 20
"""Characters read at a time."""

LARGEST = 64 << 20
"""Characters that one event, or one entry of the head, may have."""

_SPACE = re.compile(r"[ \t\n\r]*")
_NEXT = re.compile(r"[ \t\n\r]*,[ \t\n\r]*(?=[^ \t\n\r,])")
_GZIP = b"\x1f\x8b"


def inflated(head: bytes) -> bytes:
    """The first bytes of a file as they are once unpacked: ``head`` itself where it isn't gzip's.

    >>> inflated(gzip.compress(b"{}")), inflated(b"{}")
    (b'{}', b'{}')
    """
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 4096)
    except zlib.error:
        return b""


class TraceFile:
    """A chrome trace: an object with a list ``traceEvents``, or such a list alone.

    ``head``: what stands beside the events, filled while they are read; ``line``: where the last event began.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head: dict[str, object] = {}
        self.line = 1
        self._text = ""
        self._at = 0
        self._counted = 0  # characters of the window whose line ends are in ``line``
        self._ended = False
        self._decode = json.JSONDecoder(strict=False).raw_decode  # PyTorch writes control characters as they are

    def events(self) -> Iterator[dict[str, object]]:
        """The events in the order of the file; what is no object is passed over.

        Errors: UserError that names the line where the text is no JSON or ends too early.
        """
        try:
            with self._open() as file:
                self._file = file
                first = self._peek()
                if first == "[":
                    yield from self._list()
                elif first == "{":
                    yield from self._object()
                else:
                    raise self._error("a chrome trace begins with { or [" if first else "the file is empty")
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise UserError(f"{self.path.name} is damaged after line {self.line}: {error}") from None
        except OSError as error:
            raise UserError(f"{self.path.name} can't be read: {error.strerror or error}") from None

    # --- the two forms ----------------------------------------------------------------------------------------

    def _object(self) -> Iterator[dict[str, object]]:
        self._at += 1
        while self._peek() != "}":
            key = self._value()
            if not isinstance(key, str):
                raise self._error("a name in quotes is expected here")
            self._expect(":")
            if key == "traceEvents" and self._peek() == "[":
                yield from self._list()
            else:
                self.head[key] = self._value()
            if self._peek() == ",":
                self._at += 1
            elif self._peek() != "}":
                raise self._error(
                    "the text ends here, in the middle" if not self._peek() else "a comma is missing here"
                )
        self._at += 1

    def _list(self) -> Iterator[dict[str, object]]:
        self._at += 1
        while self._peek() != "]":
            event = self._value()
            if isinstance(event, dict):
                yield event
            between = _NEXT.match(self._text, self._at)
            if between:  # nearly always: the next event begins in the window
                self._at = between.end()
            elif self._peek() == ",":
                self._at += 1
            elif self._peek() != "]":
                raise self._error(
                    "the text ends here, in the middle" if not self._peek() else "a comma is missing here"
                )
        self._at += 1

    # --- the window -------------------------------------------------------------------------------------------

    def _open(self) -> io.TextIOBase:
        with self.path.open("rb") as file:
            packed = file.read(2) == _GZIP
        if packed:
            return gzip.open(self.path, "rt", encoding="utf-8", errors="replace")
        return self.path.open(encoding="utf-8", errors="replace")

    def _more(self, size: int = CHUNK) -> bool:
        """Reads on; what lies before the place that is looked at is given up."""
        if self._ended:
            return False
        chunk = self._file.read(size)
        self._count()
        self._text = self._text[self._at :] + chunk
        self._at = self._counted = 0
        self._ended = not chunk
        return bool(chunk)

    def _count(self) -> None:
        self.line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at

    def _peek(self) -> str:
        """The next character that is no space, "" at the end of the file."""
        while True:
            space = _SPACE.match(self._text, self._at)
            self._at = space.end() if space else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def _expect(self, wanted: str) -> None:
        if self._peek() != wanted:
            raise self._error(f"{wanted} is missing here")
        self._at += 1

    def _value(self) -> object:
        if not self._peek():
            raise self._error("the text ends here, in the middle")
        size = CHUNK
        while True:
            self._count()
            problem = "it is nested too deeply"
            try:
                value, end = self._decode(self._text, self._at)
                if end < len(self._text) or self._ended:  # a number at the end of the window may go on
                    self._at = end
                    return value
                problem = ""
            except json.JSONDecodeError as error:
                # Text that ends in the middle fails at its end, or in a string that has none.
                margin = 0 if self._ended else 16
                whole = error.pos < len(self._text.rstrip()) - margin and not error.msg.startswith("Unterminated")
                problem = f"{error.msg} (in character {error.pos - self._at + 1} from the beginning of this event)"
                if whole:
                    raise self._error(problem) from None
            except RecursionError:
                raise self._error(problem) from None
            except ValueError as error:  # a whole number of thousands of digits
                raise self._error(str(error)) from None
            if len(self._text) - self._at > LARGEST:
                raise self._error(f"one event has more than {LARGEST >> 20} million characters") from None
            if self._ended and problem:
                raise self._error(f"the text ends in the middle: {problem}") from None
            self._more(size)
            size *= 2  # so that a long event is not decoded too often

    def _error(self, what: str) -> UserError:
        self._count()
        return UserError(f"{self.path.name}, line {self.line}: no JSON of a trace: {what}")
