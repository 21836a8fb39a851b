"""Ctrl-C and SIGTERM for loops around librdkafka, which must end by themselves: commit, leave the group, close."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stop:
    """The signal, noted for the loop to see: an exception raised inside librdkafka's calls is lost there."""

    def __init__(self) -> None:
        self.status = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in (signal.SIGINT, signal.SIGTERM):
            # A job in the background of a script is told to ignore Ctrl-C, and goes on doing so.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: object) -> None:
        self.status = 128 + number
        signal.signal(number, signal.SIG_DFL)  # asked twice, it ends at once
