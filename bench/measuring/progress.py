"""What the benchmark is doing, on stderr: a bar on a terminal, a line for each finished workload elsewhere."""

from __future__ import annotations

import sys
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar


class Progress:
    def __init__(self, steps: int) -> None:
        self._is_live = sys.stderr.isatty()
        columns = (TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.completed}/{task.total}"))
        self._bar = Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("starting", total=steps)

    def __enter__(self) -> Self:
        if self._is_live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._bar.stop()

    def say(self, what: str) -> None:
        """Show what is being done; only on a terminal."""
        self._bar.update(self._task, description=what)

    def step(self) -> None:
        self._bar.advance(self._task)

    def tell(self, what: str) -> None:
        """Print a line that stays."""
        if self._is_live:
            self._bar.console.print(what, markup=False, highlight=False)
        else:
            print(what, file=sys.stderr, flush=True)
