"""Which bytes of segments are most likely in the page cache, because this process has written them lately.

Whoever sends them does not ask the kernel whether they are. There is one budget for all logs: the bytes that were
written last, to whichever logs. A budget for each log would claim more memory than any machine has, with a thousand
logs.
"""

from __future__ import annotations

from typing import Final

HOT_BYTES: Final = 256 << 20
"""The kernel keeps at least so many of the pages that were written last."""
MARK_EVERY_BYTES: Final = 8 << 20
MARK_AFTER_BYTES: Final = HOT_BYTES // 8
"""A log that is written to once in a while gets a new mark when so much was written to others."""
MARKS_MAX: Final = 8
"""Of a segment: at most its last 64 MiB are hot, however few bytes the other logs get."""


class WrittenBytes:
    """Counts what this process has written to all its segments."""

    __slots__ = ("total",)

    def __init__(self) -> None:
        self.total = 0


_WRITTEN: Final = WrittenBytes()


class HotBytes:
    """Remembers when the last parts of a segment were written, in terms of `WrittenBytes`."""

    __slots__ = ("_marks", "_written")

    def __init__(self, size: int, written: WrittenBytes = _WRITTEN) -> None:
        """`size` is that of the segment when it was opened: what it had then was not written by this process."""
        self._written = written
        self._marks = [(size, written.total)]

    def note(self, position: int, size: int) -> None:
        """Called when `size` bytes were written at `position`."""
        written = self._written
        begin, total = self._marks[-1]
        if position - begin >= MARK_EVERY_BYTES or written.total - total >= MARK_AFTER_BYTES:
            self._marks.append((position, written.total))
            if len(self._marks) > MARKS_MAX:
                del self._marks[0]
        written.total += size

    def is_hot(self, position: int) -> bool:
        """Whether the bytes from `position` on are among the last written of all logs."""
        for begin, total in reversed(self._marks):
            if begin <= position:
                return self._written.total - total <= HOT_BYTES
        return False
