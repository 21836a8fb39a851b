"""A consumer that a client of the REST proxy has made: librdkafka's, in a thread of its own. Only that thread calls its
methods, one after the other."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client import confluent as librdkafka
from moldau.gateway.http.proxy.consumer_config import ConsumerConfig
from moldau.gateway.http.proxy.failures import (
    ILLEGAL_STATE,
    INVALID_CONFIG,
    NOT_JSON,
    ProxyError,
    instance_not_found,
    partition_not_found,
    unprocessable,
)

SLICE_S: Final = 0.1
"""So long it waits at a time: between two a client may end it."""
SEEK_S: Final = 2.0
"""So long after an assignment librdkafka refuses to seek: it is not reading yet."""
TAKEN_MAX: Final = 500
QUEUE_BYTES: Final = 1 << 20
"""What librdkafka reads ahead, and what may wait here before more is taken: there may be a thousand consumers."""
COMMITTED_S: Final = 10.0
LOCAL_FAILURES: Final = frozenset({"_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_WAIT_COORD", "_MSG_TIMED_OUT"})
T = TypeVar("T")
_json: Final = msgspec.json.Decoder(msgspec.Raw)


class RestConsumer:
    def __init__(self, config: ConsumerConfig) -> None:
        self._config = config
        self._consumer: Any = None
        self._subscribed: str | None = None
        """By topics, by a pattern or by partitions."""
        self._topics: list[str] = []
        self._waiting: deque[Any] = deque()
        """Messages that nobody has asked for yet."""
        self._answered: dict[TopicPartition, int] = {}
        """Where to go on behind the messages that were answered."""
        self._refusal: KafkaError | None = None
        self.is_ending = False
        """If another thread sets it, a call that waits returns."""

    # --- life -------------------------------------------------------------------------------------------------------

    def open(self, login: Callable[[], Mapping[str, Any]], max_idle_s: float) -> None:
        """`login` returns the settings of the user; it may wait."""
        if librdkafka.IS_STAND_IN:
            raise ProxyError(501, 501, "consumers need confluent-kafka, which this Python does not have")
        settings = {
            "group.id": self._config.group,
            "auto.offset.reset": self._config.auto_offset_reset,
            "enable.auto.commit": self._config.commits,
            "enable.auto.offset.store": False,
            "max.poll.interval.ms": str(int(max_idle_s * 1000) + 60_000),
            "queued.max.messages.kbytes": str(QUEUE_BYTES >> 10),
            "queued.min.messages": "1000",
            "fetch.max.bytes": str(QUEUE_BYTES),
            "max.partition.fetch.bytes": str(QUEUE_BYTES),
            "message.max.bytes": str(QUEUE_BYTES),
            **librdkafka.without_log(),
            **login(),
            "error_cb": self._on_error,
        }
        try:
            self._consumer = librdkafka.Consumer(settings)
        except (librdkafka.KafkaException, ValueError, TypeError) as error:
            raise unprocessable(f"Invalid consumer configuration: {error}", INVALID_CONFIG) from None

    def call(self, work: Callable[[RestConsumer], T]) -> T:
        """Do it. librdkafka's errors become those of the gateway."""
        if self._consumer is None:
            raise instance_not_found()
        try:
            return work(self)
        except librdkafka.KafkaException as error:
            raise _told(error.args[0]) from None

    def close(self, is_deleted: bool) -> None:
        """Leave the group. Who deletes a consumer has got its last answer."""
        if self._consumer is None:
            return
        if is_deleted:
            self._store_answered()
        self._consumer.close()
        self._consumer = None

    def _on_error(self, error: Any) -> None:
        if error.name() == "_AUTHENTICATION":
            self._refusal = KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, error.str())

    # --- what it reads ----------------------------------------------------------------------------------------------

    def subscribe(self, topics: Sequence[str]) -> None:
        self._become("topics")
        self._subscribe(topics)
        self._topics = list(topics)

    def subscribe_pattern(self, pattern: str) -> None:
        self._become("a pattern")
        self._subscribe([f"^({pattern})$"])

    def _subscribe(self, topics: Sequence[str]) -> None:
        if not topics:
            self.unsubscribe()
            return
        self._consumer.subscribe(list(topics), on_assign=_nothing, on_revoke=self._on_revoke, on_lost=self._on_revoke)

    def unsubscribe(self) -> None:
        self._store_answered()
        self._consumer.unsubscribe()
        self._consumer.unassign()
        self._subscribed = None
        self._topics = []
        self._forget()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        self._become("partitions")
        self._store_answered()
        self._forget()
        self._consumer.assign([librdkafka.TopicPartition(*each) for each in dict.fromkeys(partitions)])

    def subscription(self) -> list[str]:
        if self._subscribed == "a pattern":
            return sorted({topic for topic, _ in self.assignment()})
        return self._topics

    def assignment(self) -> list[TopicPartition]:
        return sorted(TopicPartition(each.topic, each.partition) for each in self._consumer.assignment())

    def _become(self, subscribed: str) -> None:
        if self._subscribed not in (None, subscribed):
            text = (
                f"Illegal state: it has {self._subscribed}, and cannot have {subscribed} too; delete its subscription"
            )
            raise ProxyError(409, ILLEGAL_STATE, text)
        self._subscribed = subscribed

    def _on_revoke(self, _: Any, partitions: Iterable[Any]) -> None:
        self._forget({TopicPartition(each.topic, each.partition) for each in partitions})

    def _forget(self, partitions: set[TopicPartition] | None = None) -> None:
        """Forget the messages of these partitions, or of all."""
        if partitions is None:
            self._waiting.clear()
            self._answered.clear()
            return
        self._waiting = deque(each for each in self._waiting if _place(each) not in partitions)
        for partition in partitions:
            self._answered.pop(partition, None)

    # --- records ----------------------------------------------------------------------------------------------------

    def records(self, timeout_s: float, max_bytes: int) -> bytes:
        """Return records as JSON: wait until there are enough, or the time is over. The next call says that those of
        this one have arrived."""
        self._store_answered()
        deadline = time.monotonic() + timeout_s
        lines: list[bytes] = []
        size = 0
        if sum(map(_size, self._waiting)) < QUEUE_BYTES:  # else a client that takes little at a time would fill memory
            self._take(0)
        while True:
            while self._waiting:
                message = self._waiting[0]
                message_bytes = _size(message)
                if lines and size + message_bytes > max_bytes:
                    return _array(lines)
                line = self._line(message, is_first=not lines)
                if line is None:
                    return _array(lines)
                self._waiting.popleft()
                self._answered[_place(message)] = message.offset() + 1
                lines.append(line)
                size += message_bytes
            remaining = deadline - time.monotonic()
            if remaining <= 0 or self.is_ending or (0 <= self._config.min_bytes <= size and lines):
                return _array(lines)
            self._take(min(remaining, SLICE_S))

    def _take(self, wait_s: float) -> None:
        """Take what librdkafka has read."""
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        first = self._consumer.poll(wait_s)
        if first is not None:
            for message in (first, *self._consumer.consume(TAKEN_MAX, 0)):
                error = message.error()
                if error is None:
                    self._waiting.append(message)
                elif error.name().endswith("AUTHORIZATION_FAILED") or error.name() == "_AUTO_OFFSET_RESET":
                    raise _told(error)

    def _line(self, message: Any, is_first: bool) -> bytes | None:
        """Return a message as the client gets it. One that is no JSON ends the answer before it: None."""
        key, value = message.key(), message.value()
        if self._config.is_json:
            try:
                key, value = _checked(key), _checked(value)
            except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
                if not is_first:
                    return None
                text = f"{_place(message)}, offset {message.offset()}: the record is no JSON; read it with a consumer"
                raise ProxyError(408, NOT_JSON, f"{text} of the format binary, or go on behind it") from None
        return msgspec.json.encode(
            {
                "topic": message.topic(),
                "key": key,
                "value": value,
                "partition": message.partition(),
                "offset": message.offset(),
            }
        )

    # --- positions and offsets --------------------------------------------------------------------------------------

    def seek(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Go on there."""
        assigned = set(self.assignment())
        for partition in offsets:
            if partition not in assigned:
                raise ProxyError(409, ILLEGAL_STATE, f"Illegal state: No current assignment for partition {partition}")
        deadline = time.monotonic() + SEEK_S
        for partition, offset in offsets.items():
            self._seek(partition, offset, deadline)
        self._forget(set(offsets))
        self._answered |= offsets

    def _seek(self, partition: TopicPartition, offset: int, deadline: float) -> None:
        while True:
            try:
                self._consumer.seek(librdkafka.TopicPartition(*partition, offset))
                return
            except librdkafka.KafkaException as error:
                if error.args[0].name() != "_STATE" or time.monotonic() > deadline:
                    raise
            self._take(0.01)

    def commit(self, offsets: Mapping[TopicPartition, tuple[int, str]] | None) -> None:
        """Commit these offsets, with their metadata; None: behind all records that were answered."""
        chosen = {each: (offset, "") for each, offset in self._answered.items()} if offsets is None else offsets
        if not chosen:
            return
        wanted = [
            librdkafka.TopicPartition(*partition, offset, metadata)  # type: ignore[call-arg, unused-ignore]
            for partition, (offset, metadata) in chosen.items()
        ]
        for result in self._consumer.commit(offsets=wanted, asynchronous=False):
            if result.error is not None:
                raise _told(result.error)

    def committed(self, partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
        wanted = [librdkafka.TopicPartition(*each) for each in partitions]
        found = self._consumer.committed(wanted, COMMITTED_S) if wanted else []
        for each in found:
            if each.error is not None:
                raise _told(each.error)
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "offset": each.offset,
                "metadata": each.metadata or "",
            }
            for each in found
            if each.offset >= 0
        ]

    def _store_answered(self) -> None:
        """Let librdkafka commit what the client has got, if it is to commit."""
        if not self._config.commits or not self._answered:
            return
        assigned = set(self.assignment())
        stored = [
            librdkafka.TopicPartition(*each, offset) for each, offset in self._answered.items() if each in assigned
        ]
        if stored:
            self._consumer.store_offsets(offsets=stored)


def _nothing(_: Any, __: Any) -> None:
    """librdkafka assigns."""


def _place(message: Any) -> TopicPartition:
    return TopicPartition(message.topic(), message.partition())


def _size(message: Any) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _checked(data: bytes | None) -> msgspec.Raw | None:
    if data is None:
        return None
    if not data.isascii():
        data.decode()
    return _json.decode(data)


def _array(lines: Sequence[bytes]) -> bytes:
    return b"[%b]" % b",".join(lines)


def _told(error: Any) -> Exception:
    name, text = error.name(), error.str()
    if name == "_STATE":
        return ProxyError(409, ILLEGAL_STATE, f"Illegal state: {text}")
    if name in ("_INVALID_ARG", "_UNKNOWN_PROTOCOL"):
        return unprocessable(text, INVALID_CONFIG)
    if name in ("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC"):
        return partition_not_found(text)
    if error.code() >= 0:
        return KafkaError(ErrorCode(error.code()), text)
    code = ErrorCode.REQUEST_TIMED_OUT if name in LOCAL_FAILURES else ErrorCode.UNKNOWN_SERVER_ERROR
    return KafkaError(code, text)
