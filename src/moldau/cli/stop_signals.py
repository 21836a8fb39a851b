"""Ctrl-C and SIGTERM for loops around librdkafka, which have to end in order: commit, leave the group, close."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stop:
    """Records the signal for the loop to check: an exception raised inside librdkafka's calls would be lost."""

    def __init__(self) -> None:
        self.status = 0
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is not threading.main_thread():
            return self
        for number in (signal.SIGINT, signal.SIGTERM):
            # A background job of a shell script inherits SIGINT as ignored; keep ignoring it.
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous_handlers[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous_handlers.items():
            signal.signal(number, handler)

    def _on_signal(self, number: int, _frame: object) -> None:
        self.status = 128 + number
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
