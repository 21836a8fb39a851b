"""Outputs for the progress line: updated in place in a notebook and on a terminal, as separate lines elsewhere."""

from __future__ import annotations

import shutil
import sys
from typing import Any, Final, Protocol, TextIO

LINE_EVERY_S: Final = 10.0
"""The shortest time between two lines in a log, except for the last line."""


class Screen(Protocol):
    def show(self, line: str, now_s: float) -> None: ...

    def end(self, line: str) -> None:
        """Show the last line, which stays."""


class Terminal:
    def __init__(self, out: TextIO) -> None:
        self._out = out

    def show(self, line: str, now_s: float) -> None:
        width = shutil.get_terminal_size().columns - 1
        short = line if len(line) <= width else line[: width - 1] + "…"
        self._out.write(f"\r{_encodable(short, self._out)}\x1b[K")
        self._out.flush()

    def end(self, line: str) -> None:
        self._out.write(f"\r{_encodable(line, self._out)}\x1b[K\n")
        self._out.flush()


class Lines:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._shown_s: float | None = None

    def show(self, line: str, now_s: float) -> None:
        if self._shown_s is None or now_s - self._shown_s >= LINE_EVERY_S:
            self._shown_s = now_s
            print(_encodable(line, self._out), file=self._out, flush=True)

    def end(self, line: str) -> None:
        print(_encodable(line, self._out), file=self._out, flush=True)


def _encodable(line: str, out: TextIO) -> str:
    """Return the line with "?" for what the encoding of the output lacks: Latin-1 has no "…"."""
    encoding = out.encoding or "utf-8"
    return line.encode(encoding, "replace").decode(encoding)


class Notebook:
    """One output of a cell, which Jupyter replaces by its id."""

    def __init__(self, display: Any) -> None:
        self._display = display
        self._handle: Any = None

    def show(self, line: str, now_s: float) -> None:
        data = {"text/plain": line}
        if self._handle is None:
            self._handle = self._display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)

    def end(self, line: str) -> None:
        self.show(line, 0.0)


def screen() -> Screen:
    """Return the output for this process. IPython on a terminal counts as a terminal."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython else None
    if shell is not None and hasattr(shell, "kernel"):
        from importlib import import_module

        return Notebook(import_module("IPython.display").display)
    return Terminal(sys.stdout) if sys.stdout.isatty() else Lines(sys.stdout)
