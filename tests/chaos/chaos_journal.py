"""What a client process has done, as lines of JSON in a file: written before it has an effect, and read by the test.

Each line has a time of the monotonic clock, which all processes of the machine share. A killed process leaves all that
it wrote; a half line at the end is ignored.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

Event = dict[str, Any]
LOST_STATUS = 75
"""With it ends a client process that shall be started again, since its client has no connection."""


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def note(self, **event: Any) -> None:
        self._file.write(json.dumps({"t": time.monotonic(), **event}, separators=(",", ":")) + "\n")
        self._file.flush()


class Tail:
    """Reads what was added to a journal since the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def read(self) -> Iterator[Event]:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._at)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._at += len(line)
                yield json.loads(line)
