"""Gives a worker process its work from the event loop. A thread exchanges messages with it; waiting for a socket does
not block the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from moldau.runtime.worker_processes.process import NoAnswer, NotStarted, Unreadable, WorkerProcess

Result = TypeVar("Result")

IDLE_S: Final = 60.0
"""After so long without work a process is ended."""


class WorkerThread:
    def __init__(self, loop: asyncio.AbstractEventLoop, process: WorkerProcess[Any], name: str, idle_s: float) -> None:
        self._loop = loop
        self._process = process
        self._name = name
        self._idle_s = idle_s
        self._idle_timer: asyncio.TimerHandle | None = None
        self._is_busy = False
        self._is_closed = False

    def run(self, work: Callable[[], Result], on_result: Callable[[Result | NoAnswer], None]) -> None:
        """Run work that asks the process in a thread; call `on_result` on the loop, whatever happens."""
        assert not self._is_busy, "one piece of work at a time"
        self._is_busy = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            threading.Thread(target=self._run, args=(work, on_result), name=self._name, daemon=True).start()
        except RuntimeError as refused:
            self._loop.call_soon(self._on_result, NotStarted("thread", str(refused), is_shortage=True), on_result)

    def close(self) -> None:
        self._is_closed = True
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._process.close(is_idle=not self._is_busy)

    def _run(self, work: Callable[[], Result], on_result: Callable[[Result | NoAnswer], None]) -> None:
        result: Result | NoAnswer
        try:
            result = work()
        except BaseException as unexpected:
            result = Unreadable(type(unexpected).__name__)
            raise
        finally:
            with suppress(RuntimeError):  # the loop is closed, so nothing waits for the result
                self._loop.call_soon_threadsafe(self._on_result, result, on_result)

    def _on_result(self, result: Result | NoAnswer, on_result: Callable[[Result | NoAnswer], None]) -> None:
        self._is_busy = False
        if self._is_closed:
            self._process.stop()
        else:
            self._idle_timer = self._loop.call_later(self._idle_s, self._process.stop)
        on_result(result)
