"""Writes every failure in full to a file: the one-line message leaves out tracebacks, causes and Java's messages.

== 2026-11-16T17:31:37.539Z counts: ConnectionError: …
Python's traceback, and the messages and stack traces of Spark and Java
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
"""A larger file is renamed to failures.log.1 and replaces the older one: a run that fails for weeks fills no disk."""


@dataclass(frozen=True, slots=True)
class FailureLog:
    path: Path
    now: Callable[[], str]
    masked: Callable[[str], str] = str
    """Returns a text without passwords."""

    def write(self, query: str, message: str, error: BaseException) -> None:
        """Append the failure. Ignore errors of the file system: they must not cause a second failure."""
        with suppress(OSError):
            self._rotate()
            with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(self.masked(f"== {self.now()} {query}: {message}\n{format_error(error)}\n"))

    def _rotate(self) -> None:
        if self.path.exists() and self.path.stat().st_size > BYTES_MAX:
            os.replace(self.path, self.path.with_name(f"{self.path.name}.1"))


def format_error(error: BaseException) -> str:
    """Return the traceback, and after it Java's stack traces, which PySpark's exceptions hold and do not show."""
    python_trace = "".join(traceback.format_exception(error)).rstrip("\n")
    return "\n".join([python_trace, *(f"In Java: {trace}" for trace in _java_traces(error))])


def _java_traces(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        if trace := getattr(error, "_stackTrace", None):
            yield str(trace).rstrip("\n")
        error = getattr(error, "_cause", None) or error.__cause__
