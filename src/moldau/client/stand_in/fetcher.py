"""Reads assigned partitions: each turn sends one full fetch to every leader and decodes the batches into messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from moldau.base.errors import ErrorCode
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition
from moldau.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster
from moldau.client.fetching.requests import Fetch, FetchedPartition, FetchLimits
from moldau.client.stand_in.values import (
    CLIENT_ERRORS,
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    Message,
    broker_error,
)
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BatchHeader
from moldau.wire.messages.fetch import FetchResponse
from moldau.wire.records import decode_records

FETCH_BYTES_MAX: Final = 16 << 20
PARTITION_BYTES_MAX: Final = 1 << 20
RESETS: Final = {"earliest": EARLIEST, "latest": LATEST}
"""The values of auto.offset.reset, as the timestamp to list offsets for."""
RESET_IS_AN_ERROR: Final = "error"
"""The value of auto.offset.reset with which nothing is read without a valid offset."""
SPECIAL_OFFSETS: Final = {OFFSET_BEGINNING: EARLIEST, OFFSET_END: LATEST}


@dataclass(slots=True)
class AssignedPartition:
    """A partition that is read. `position` is the next offset, or one of librdkafka's special offsets."""

    position: int
    is_paused: bool = False
    reported_end: int = -1
    """The last reported end of the log: it is reported once, until the log grows."""


class Fetcher:
    def __init__(self, cluster: Cluster, reset: str, read_committed: bool, reports_end: bool) -> None:
        self._cluster = cluster
        self._reset = reset
        self._read_committed = read_committed
        self._reports_end = reports_end
        self.assigned: dict[TopicPartition, AssignedPartition] = {}
        self.found_leaders = True
        """Whether the last fetch had a leader to ask."""

    def fetch(self, wait_ms: int) -> tuple[list[Message], Exception | None]:
        """Return the messages that are available or arrive in time, and an error after which leaders must be looked up.

        A partition without a leader or a node that does not answer does not delay the others.
        """
        messages = self._refuse_missing_offsets()
        active = {topic_partition: each for topic_partition, each in self.assigned.items() if not each.is_paused}
        self.found_leaders = False  # also if the look-up fails
        led, without_leader = self._cluster.led(active)
        self.found_leaders = bool(led)
        errors: list[Exception] = list(without_leader.values())
        sent: dict[int, Fetch] = {}
        for node, partitions in led.items():
            with self._collecting_errors(node, errors):
                self._resolve_positions({topic_partition: active[topic_partition] for topic_partition in partitions})
                sent[node] = self._send_fetch(node, partitions, wait_ms if len(led) == 1 else wait_ms // 2)
        for node, fetch in sent.items():
            with self._collecting_errors(node, errors):
                self._receive(node, fetch, messages, errors)
        return messages, _most_severe(errors)

    @contextmanager
    def _collecting_errors(self, node: int, errors: list[Exception]) -> Iterator[None]:
        try:
            yield
        except CLIENT_ERRORS as error:
            self._cluster.drop(node)
            errors.append(error)

    def _receive(self, node: int, fetch: Fetch, messages: list[Message], errors: list[Exception]) -> None:
        for fetched in fetch.partitions(self._cluster.channel(node).receive(FetchResponse)):
            try:
                messages += self._read_partition(self.assigned[fetched.partition], fetched)
            except BrokerError as error:
                errors.append(error)

    def _refuse_missing_offsets(self) -> list[Message]:
        """Return an error for each partition without an offset, if auto.offset.reset says so."""
        if self._reset != RESET_IS_AN_ERROR:
            return []
        return [
            _reset_error(topic_partition, each, "no previously committed offset available")
            for topic_partition, each in self.assigned.items()
            if not each.is_paused and each.position < 0 and each.position not in SPECIAL_OFFSETS
        ]

    def _resolve_positions(self, assigned: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Replace special offsets by real ones: the start or end of the log, or by auto.offset.reset."""
        unresolved = {topic_partition: each for topic_partition, each in assigned.items() if each.position < 0}
        if not unresolved:
            return
        at = {
            topic_partition: SPECIAL_OFFSETS.get(each.position, RESETS.get(self._reset, LATEST))
            for topic_partition, each in unresolved.items()
        }
        for topic_partition, offset in self._cluster.list_offsets(at, self._read_committed).items():
            unresolved[topic_partition].position = offset

    def _send_fetch(self, node: int, partitions: Sequence[TopicPartition], wait_ms: int) -> Fetch:
        positions = {partition: self.assigned[partition].position for partition in partitions}
        limits = FetchLimits(wait_ms, FETCH_BYTES_MAX, PARTITION_BYTES_MAX)
        sent = Fetch(self._cluster.topic, positions, limits, self._read_committed)
        self._cluster.channel(node).send(ApiKey.FETCH, sent.request)
        return sent

    def _read_partition(self, assigned: AssignedPartition, fetched: FetchedPartition) -> list[Message]:
        """Return the messages of one partition and move its position behind them."""
        topic_partition, code = fetched.partition, fetched.error
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self._reset == RESET_IS_AN_ERROR:
            return [_reset_error(topic_partition, assigned, "fetch failed: offset out of range")]
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            assigned.position = {"earliest": OFFSET_BEGINNING}.get(self._reset, OFFSET_END)
            return []
        if code in RETRIABLE:
            raise BrokerError(code)
        if code:
            assigned.is_paused = True
            return [Message(*topic_partition, None, error=broker_error(code))]
        messages, assigned.position = _messages(fetched)
        if self._reports_end and assigned.position >= fetched.end and assigned.reported_end != assigned.position:
            assigned.reported_end = assigned.position
            eof = KafkaError(KafkaError._PARTITION_EOF, "No more messages")
            messages.append(Message(*topic_partition, assigned.position, error=eof))
        return messages


def _reset_error(topic_partition: TopicPartition, assigned: AssignedPartition, reason: str) -> Message:
    """Return the error, and read no more of the partition."""
    assigned.is_paused = True
    offset = assigned.position if assigned.position >= 0 else None
    return Message(*topic_partition, offset, error=KafkaError(KafkaError._AUTO_OFFSET_RESET, reason))


def _most_severe(errors: Sequence[Exception]) -> Exception | None:
    """Return an error that is not retriable, if there is one, else any."""
    final = [each for each in errors if isinstance(each, BrokerError) and each.code not in RETRIABLE]
    return next(iter([*final, *errors]), None)


def _messages(fetched: FetchedPartition) -> tuple[list[Message], int]:
    """Return the records from the position on, and where the next fetch begins."""
    messages: list[Message] = []
    position = fetched.position
    for header, batch, holds_records in fetched.batches():
        if holds_records:
            messages += _records(fetched.partition, position, header, batch)
        position = max(position, header.next_offset)
    return messages, position


def _records(
    topic_partition: TopicPartition, position: int, header: BatchHeader, batch: memoryview
) -> Iterator[Message]:
    timestamp_type = 2 if header.is_log_append_time else 1
    leader_epoch = header.leader_epoch if header.leader_epoch >= 0 else None
    for record in decode_records(batch, header):
        if record.offset >= position:
            yield Message(
                *topic_partition,
                record.offset,
                record.key,
                record.value,
                record.headers,
                (timestamp_type, record.timestamp),
                leader_epoch=leader_epoch,
            )
