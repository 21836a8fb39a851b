"""kafka-console-producer: after a fatal error of the client it ends with that error in one line."""

from __future__ import annotations

from typing import Any

import pytest

from moldau.cli.kafka import console_producer
from moldau.cli.kafka.connection import clients
from moldau.cli.kafka.console.line_reader import LineReader
from moldau.client.confluent import KafkaException


class Fenced:
    """An error of librdkafka."""

    def str(self) -> str:
        return "Producer fenced by newer epoch"

    def name(self) -> str:
        return "_FENCED"


class Producer:
    """As confluent-kafka's: `flush` or `poll` raises a fatal error once, from then on `produce` raises it."""

    def __init__(self, is_full: bool = False) -> None:
        self._is_full = is_full
        self._is_fatal = False

    def produce(self, *_: Any, **__: Any) -> None:
        if self._is_fatal:
            raise KafkaException(Fenced())
        if self._is_full:
            raise BufferError

    def poll(self, seconds: float) -> int:
        return self.flush(seconds)

    def flush(self, seconds: float = -1) -> int:
        if not self._is_fatal:
            self._is_fatal = True
            raise KafkaException(Fenced())
        return 0


@pytest.mark.parametrize("is_full", [False, True])
def test_a_fatal_error_ends_it(is_full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    producer: Any = Producer(is_full)
    monkeypatch.setattr(console_producer, "_lines", lambda: iter([b"a\n", b"b\n"]))
    with pytest.raises(clients.ClientError, match="Producer fenced by newer epoch"):
        console_producer._send(producer, "t", LineReader(), sync=True)
