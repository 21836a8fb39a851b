"""Files of a log that are deleted after a delay.

They are renamed at once, so that no restart takes them for part of the log, and unlinked later: consumers may still
read them.
"""

from __future__ import annotations

from collections.abc import Iterable

from moldau.log import layout
from moldau.log.files import Files


class Deletions:
    __slots__ = ("_files", "_waiting")

    def __init__(self, files: Files) -> None:
        self._files = files
        self._waiting: list[tuple[int, str]] = []
        """(when to unlink it in ms, path)"""

    def __len__(self) -> int:
        return len(self._waiting)

    def mark(self, paths: Iterable[str], due_ms: int) -> None:
        """Rename those of the files that exist."""
        for path in paths:
            if self._files.exists(path):
                self._files.rename(path, path + layout.DELETED)
                self._waiting.append((due_ms, path + layout.DELETED))

    def renamed(self, paths: Iterable[str], due_ms: int) -> None:
        """Note files that were renamed to these paths already."""
        self._waiting += [(due_ms, path) for path in paths]

    def take(self, now_ms: int, delay_ms: int) -> list[str]:
        """Files whose delay is over. The caller unlinks them: for a large file that takes a good part of a second."""
        if not self._waiting:
            return []
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        # If the clock was put back, no file waits longer than the delay from now on.
        latest_ms = now_ms + delay_ms
        self._waiting = [(min(due_ms, latest_ms), path) for due_ms, path in self._waiting if due_ms > now_ms]
        return due
