"""The whole story of each failure, in a file: the line that people read leaves out traces, causes and Java's words.

== 2026-11-16T17:31:37.539Z counts: ConnectionError: …
the traceback of Python, with what Spark and Java said
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

BYTES_MAX: Final = 1 << 20
"""Beyond it the file is put aside as failures.log.1, over an older one: a run that fails for weeks fills no disk."""


@dataclass(frozen=True, slots=True)
class FailureLog:
    path: Path
    now: Callable[[], str]

    def write(self, who: str, message: str, error: BaseException) -> None:
        """A log that cannot be written is no reason for a second failure."""
        with suppress(OSError):
            self._make_room()
            with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(f"== {self.now()} {who}: {message}\n{format_error(error)}\n")

    def _make_room(self) -> None:
        if self.path.exists() and self.path.stat().st_size > BYTES_MAX:
            os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))


def format_error(error: BaseException) -> str:
    """The traceback, and below it those of Java, which PySpark keeps in its exceptions and does not show."""
    told = "".join(traceback.format_exception(error)).rstrip("\n")
    return "\n".join([told, *(f"In Java: {trace}" for trace in _java_traces(error))])


def _java_traces(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        if trace := getattr(error, "_stackTrace", None):
            yield str(trace).rstrip("\n")
        error = getattr(error, "_cause", None) or error.__cause__
