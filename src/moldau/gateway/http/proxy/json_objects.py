"""Cuts a stream of JSON objects, one behind the other, into these objects, as its bytes come in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

STEPS_MAX: Final = 500
"""Braces, quotation marks and backslashes that one turn of the event loop looks at: a third of a millisecond."""
_OF_OBJECTS: Final = re.compile(rb'["{}]')
_OF_TEXTS: Final = re.compile(rb'["\\]')
_NO_SPACE: Final = re.compile(rb"[^ \t\r\n]")


class JsonObjects:
    def __init__(self) -> None:
        self._data = bytearray()
        self._position = 0
        """Up to there it was looked at."""
        self._depth = 0
        self._is_in_text = False
        self.has_more = False
        """Whether `take` may return more without `feed`."""

    @property
    def held_bytes(self) -> int:
        """How much is kept of what is not whole."""
        return len(self._data)

    @property
    def is_empty(self) -> bool:
        """Whether nothing but space is kept."""
        return not _NO_SPACE.search(self._data)

    @property
    def is_broken(self) -> bool:
        """Whether something comes that is no object."""
        return not self._depth and bool(_NO_SPACE.search(self._data, 0, self._position))

    def feed(self, data: bytes) -> None:
        self._data += data
        self.has_more = True

    def take(self) -> list[bytes]:
        """Return the next objects that are whole, as many as one turn finds. What stands before one and is no space is
        returned with it: whoever decodes it will see."""
        objects: list[bytes] = []
        start = 0
        for end in self._ends():
            objects.append(bytes(self._data[start:end]))
            start = end
        del self._data[:start]
        self._position -= start
        return objects

    def _ends(self) -> Iterator[int]:
        """Yield where objects end."""
        self.has_more = False
        for _ in range(STEPS_MAX):
            pattern = _OF_TEXTS if self._is_in_text else _OF_OBJECTS
            found = pattern.search(self._data, self._position)
            if found is None:
                self._position = len(self._data)
                return
            mark, end = found[0], found.end()
            if mark == b"\\":
                if end == len(self._data):  # what it stands before has not come yet
                    self._position = end - 1
                    return
                end += 1
            elif mark == b'"':
                self._is_in_text = not self._is_in_text
            else:
                self._depth = max(0, self._depth + (1 if mark == b"{" else -1))
            self._position = end
            if mark == b"}" and not self._depth:
                yield end
        self.has_more = True
