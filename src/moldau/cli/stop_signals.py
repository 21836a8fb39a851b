"""Ctrl-C and SIGTERM for loops around librdkafka, which have to end in order: commit, leave the group, close. And the
end of the process that started this one.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

STOP_WITH_STDIN: Final = "MOLDAU_STOP_WITH_STDIN"
"""The variable that makes `moldau start` and `moldau console` stop when their stdin ends: its other end closes when the
process that started them ends, even if it was killed."""
READ_BYTES: Final = 4096
EXIT_SIGNALS: Final = ("SIGTERM", "SIGHUP")
"""By name: Windows lacks the second."""


def stop_with_stdin() -> None:
    """Send SIGTERM to this process when its standard input ends."""

    def wait_for_end() -> None:
        while os.read(0, READ_BYTES):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="end of stdin", daemon=True).start()


@contextmanager
def exiting_at_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the block by SystemExit, as Ctrl-C does by KeyboardInterrupt, so that it can clean up.
    Outside the main thread, where Python can set no handlers, nothing changes."""
    previous_handlers: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        for each in signal.Signals:
            if each.name in EXIT_SIGNALS and signal.getsignal(each) is not signal.SIG_IGN:  # `nohup` ignores one
                previous_handlers[each] = signal.signal(each, lambda received, _: sys.exit(128 + received))
    try:
        yield
    finally:
        for number, handler in previous_handlers.items():
            signal.signal(number, handler)


class StopSignals:
    """Records the first SIGINT or SIGTERM for the loop to check; a second signal, of either kind, ends the process.

    Raising an exception instead does not work: inside librdkafka's calls it would be lost. Outside the main thread
    Python can set no handlers: signals are not recorded there and do what they did before.
    """

    def __init__(self) -> None:
        self.exit_status = 0
        """0 means go on; after a signal, the status to exit with."""
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
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
        self.exit_status = 128 + number
        for handled in self._previous_handlers:
            signal.signal(handled, signal.SIG_DFL)
