"""Messages as they come from librdkafka, and the printer they go to; for `moldau consume`, with and without a group."""

from __future__ import annotations

from typing import Any, BinaryIO, Final, Protocol

from moldau.cli.connect import failure
from moldau.cli.records import format_language
from moldau.cli.records.format_language import Formatter

FETCH_RECORDS_MAX: Final = 1000
POLL_SECONDS: Final = 0.2
"""The longest that Ctrl-C waits."""
ENDLESS: Final = 1 << 63


class Message(format_language.Record, Protocol):
    """confluent_kafka's Message: a record, or an error in its place."""

    def error(self) -> Any: ...


class Printer:
    """Renders records and counts them; what was rendered leaves the process in one write after every poll."""

    def __init__(self, render: Formatter, out: BinaryIO, limit: int | None) -> None:
        self._render = render
        self._out = out
        self._left = ENDLESS if limit is None else limit
        self._rendered: list[bytes] = []
        self.printed = 0

    def is_full(self) -> bool:
        return self._left == 0

    def print(self, message: Message) -> None:
        self.printed += 1
        self._left -= 1
        self._rendered.append(self._render(message, self.printed))

    def flush(self) -> None:
        self._out.write(b"".join(self._rendered))
        self._out.flush()
        self._rendered.clear()


def arrived(consumer: Any) -> list[Message]:
    """The messages that are here, or the first to come within POLL_SECONDS.

    Asked for many at once librdkafka waits the whole time for more; so one is waited for, and the rest is taken along.
    """
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(FETCH_RECORDS_MAX, 0)]


def end_of_log(message: Message) -> int:
    """The offset at which librdkafka says the log ends; raises for any other error in a record's place."""
    from moldau.client.confluent import KafkaError

    error = message.error()
    if error.code() != KafkaError._PARTITION_EOF:
        raise failure(error, f"{message.topic()} partition {message.partition()}" if message.topic() else "")
    return message.offset() or 0
