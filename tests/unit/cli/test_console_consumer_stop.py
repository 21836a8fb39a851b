"""kafka-console-consumer: signals while it commits and leaves its group."""

from __future__ import annotations

import signal
from typing import Any

from moldau.cli.kafka.console.print_loop import PrintLoop, run_to_end


class Consumer:
    """Notes how SIGTERM is handled during the close, and sends one if it does not end the process."""

    def __init__(self) -> None:
        self.handler: Any = None

    def close(self) -> None:
        self.handler = signal.getsignal(signal.SIGTERM)
        if callable(self.handler):
            signal.raise_signal(signal.SIGTERM)


def test_a_signal_does_not_interrupt_the_close() -> None:
    before, consumer = signal.getsignal(signal.SIGTERM), Consumer()
    status = run_to_end(PrintLoop(consumer, None, 0, None, skip_errors=False))  # type: ignore[arg-type]
    assert callable(consumer.handler), "the first signal would end the process"
    assert consumer.handler is not before
    assert status == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before
