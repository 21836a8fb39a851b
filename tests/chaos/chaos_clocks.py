"""Clocks of nodes that are set forward and back, or run too fast: libfaketime, where it is installed.

A clock that is set changes the time of day only. One that drifts has another speed, of the monotonic clock too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")
"""Where Debian's and others' packages have it."""


@cache
def library() -> Path | None:
    found = (path for pattern in LIBRARIES for path in sorted(Path("/").glob(pattern.lstrip("/"))))
    return next(found, None)


def why_no_clocks() -> str | None:
    return None if library() else "libfaketime is not installed (Debian: apt-get install faketime)"


@dataclass
class Clock:
    file: Path
    speed: float = 1.0
    offset_s: int = 0

    @property
    def drifts(self) -> bool:
        return self.speed != 1.0

    def set(self, offset_s: int) -> None:
        """From now on the node's time of day is that far ahead, or behind; it notices within a tenth of a second."""
        self.offset_s = offset_s
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset_s:+d}" + (f" x{self.speed}" if self.drifts else "") + "\n")
        new.replace(self.file)

    def environment(self) -> dict[str, str]:
        """Return what the node's process needs in order to see this clock."""
        self.set(self.offset_s)
        modules = (str(Path(__file__).with_name("faked_clock")), os.environ.get("PYTHONPATH"))
        return {
            "PYTHONPATH": os.pathsep.join(filter(None, modules)),
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "0" if self.drifts else "1",
            "NO_FAKE_STAT": "1",
        }
