"""Messages polled from librdkafka, and the printer for them; for `moldau consume`, with and without a group."""

from __future__ import annotations

from typing import Any, BinaryIO, Final, Protocol

from moldau.cli.connect import failure
from moldau.cli.records import format_language
from moldau.cli.records.format_language import Formatter

FETCH_RECORDS_MAX: Final = 1000
POLL_SECONDS: Final = 0.2
"""How long one poll waits, which is the longest time until Ctrl-C is noticed."""
ENDLESS: Final = 1 << 63


class Message(format_language.Record, Protocol):
    """confluent_kafka's Message: a record, or an error in place of one."""

    def error(self) -> Any: ...


class Printer:
    """Renders and counts records; rendered records are written out together after every poll."""

    def __init__(self, render: Formatter, out: BinaryIO, limit: int | None) -> None:
        self._render = render
        self._out = out
        self._left = ENDLESS if limit is None else limit
        self._rendered: list[bytes] = []
        self.printed = 0

    def reached_limit(self) -> bool:
        return self._left == 0

    def print(self, message: Message) -> None:
        self.printed += 1
        self._left -= 1
        self._rendered.append(self._render(message, self.printed))

    def flush(self) -> None:
        self._out.write(b"".join(self._rendered))
        self._out.flush()
        self._rendered.clear()


def poll_messages(consumer: Any) -> list[Message]:
    """Return the messages that have arrived, or the first to arrive within POLL_SECONDS.

    A consume() of many messages would wait its whole timeout for more; so wait for one, and take the rest without.
    """
    first = consumer.poll(POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(FETCH_RECORDS_MAX, 0)]


def eof_offset(message: Message) -> int:
    """Return the offset of an end-of-partition event; raise any other error."""
    from moldau.client.confluent import KafkaError

    error = message.error()
    if error.code() != KafkaError._PARTITION_EOF:
        raise failure(error, f"{message.topic()} partition {message.partition()}" if message.topic() else "")
    return message.offset() or 0
