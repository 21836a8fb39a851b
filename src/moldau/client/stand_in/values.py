"""Errors, partitions and messages in the form of confluent_kafka."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from moldau.base.errors import ErrorCode, MalformedData, UnusableProperty
from moldau.base.errors import KafkaError as BrokerError
from moldau.client.cluster import RETRIABLE, Unreachable

OFFSET_BEGINNING: Final = -2
OFFSET_END: Final = -1
OFFSET_INVALID: Final = -1001

LOCAL_ERRORS: Final = {
    -196: "_FAIL",
    -195: "_TRANSPORT",
    -192: "_MSG_TIMED_OUT",
    -191: "_PARTITION_EOF",
    -190: "_UNKNOWN_PARTITION",
    -187: "_ALL_BROKERS_DOWN",
    -186: "_INVALID_ARG",
    -185: "_TIMED_OUT",
    -172: "_STATE",
    -140: "_AUTO_OFFSET_RESET",
}
"""The errors of librdkafka itself that can happen here."""
LIBRDKAFKA_NAMES: Final = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "UNKNOWN_TOPIC_OR_PART",
    ErrorCode.MESSAGE_TOO_LARGE: "MSG_SIZE_TOO_LARGE",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "TOPIC_EXCEPTION",
}
"""Broker errors that have another name in librdkafka."""


class KafkaError:
    """An error as a value, with librdkafka's name for it."""

    _FAIL: Final = -196
    _TRANSPORT: Final = -195
    _MSG_TIMED_OUT: Final = -192
    _PARTITION_EOF: Final = -191
    _UNKNOWN_PARTITION: Final = -190
    _ALL_BROKERS_DOWN: Final = -187
    _INVALID_ARG: Final = -186
    _TIMED_OUT: Final = -185
    _STATE: Final = -172
    _AUTO_OFFSET_RESET: Final = -140
    TOPIC_ALREADY_EXISTS: Final = int(ErrorCode.TOPIC_ALREADY_EXISTS)
    UNKNOWN_TOPIC_OR_PART: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def __init__(self, code: int, reason: str | None = None, fatal: bool = False) -> None:
        self._code = code
        self._reason = reason
        self._fatal = fatal

    def code(self) -> int:
        return self._code

    def name(self) -> str:
        if self._code in LOCAL_ERRORS:
            return LOCAL_ERRORS[self._code]
        code = ErrorCode(self._code)
        return LIBRDKAFKA_NAMES.get(code, code.name)

    def str(self) -> str:
        return self._reason or self.name().strip("_").replace("_", " ").capitalize()

    def fatal(self) -> bool:
        return self._fatal

    def retriable(self) -> bool:
        return self._code in (self._TRANSPORT, self._TIMED_OUT) or self._code in RETRIABLE

    def __repr__(self) -> Any:  # not `str`, which is a method here
        return f"KafkaError({self.name()}: {self.str()})"


class KafkaException(Exception):
    """Its one argument is the KafkaError."""


def broker_error(code: int, message: str | None = None) -> KafkaError:
    return KafkaError(code, f"Broker: {message}" if message else None)


def to_kafka_error(error: Exception) -> KafkaError:
    """Return the confluent_kafka error for an exception of our own client."""
    if isinstance(error, BrokerError):
        return broker_error(int(error.code), error.message)
    if isinstance(error, Unreachable):
        return KafkaError(KafkaError._ALL_BROKERS_DOWN, str(error))
    if isinstance(error, TimeoutError):
        return KafkaError(KafkaError._TIMED_OUT, str(error))
    if isinstance(error, UnusableProperty | ValueError):
        return KafkaError(KafkaError._INVALID_ARG, str(error))
    return KafkaError(KafkaError._TRANSPORT, str(error))


CLIENT_ERRORS: Final = (BrokerError, OSError, MalformedData)
"""The exceptions of our own client."""


@contextmanager
def as_kafka_exceptions() -> Iterator[None]:
    try:
        yield
    except (*CLIENT_ERRORS, UnusableProperty) as error:
        raise KafkaException(to_kafka_error(error)) from error


class TopicPartition:
    def __init__(self, topic: str, partition: int = -1, offset: int = OFFSET_INVALID) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.error: KafkaError | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TopicPartition) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        return f"TopicPartition({self.topic}, {self.partition}, {self.offset})"

    def _key(self) -> tuple[str, int]:
        return self.topic, self.partition


class Message:
    """A record that was read or written, or an error in its place."""

    __slots__ = (
        "_error", "_headers", "_key", "_leader_epoch", "_offset", "_partition", "_timestamp", "_topic", "_value",
    )  # fmt: skip

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int | None,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        timestamp: tuple[int, int] = (0, -1),
        error: KafkaError | None = None,
        leader_epoch: int | None = None,
    ) -> None:
        self._topic = topic
        self._partition = partition
        self._offset = offset
        self._key = key
        self._value = value
        self._headers = headers
        self._timestamp = timestamp
        self._error = error
        self._leader_epoch = leader_epoch

    def topic(self) -> str:
        return self._topic

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int | None:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return list(self._headers) or None

    def timestamp(self) -> tuple[int, int]:
        """Return its type (0 none, 1 CreateTime, 2 LogAppendTime) and the milliseconds since 1970."""
        return self._timestamp

    def error(self) -> KafkaError | None:
        return self._error

    def leader_epoch(self) -> int | None:
        return self._leader_epoch

    def latency(self) -> float | None:
        return None

    def __len__(self) -> int:
        return len(self._value or b"")
