"""Reads assigned partitions: each turn sends one full fetch to every leader and decodes the batches into messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster
from moldau.client.stand_in.values import (
    CLIENT_ERRORS,
    OFFSET_BEGINNING,
    OFFSET_END,
    KafkaError,
    Message,
    broker_error,
)
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BATCH_HEADER_BYTES, BatchHeader, read_header, split_batches
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.wire.records import decode_records, read_end_txn_marker

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
        requested_nodes: list[int] = []
        for node, partitions in led.items():
            with self._collecting_errors(node, errors):
                self._resolve_positions({topic_partition: active[topic_partition] for topic_partition in partitions})
                self._send_fetch(node, partitions, wait_ms if len(led) == 1 else wait_ms // 2)
                requested_nodes.append(node)
        for node in requested_nodes:
            with self._collecting_errors(node, errors):
                self._receive(node, led[node], messages, errors)
        return messages, _most_severe(errors)

    @contextmanager
    def _collecting_errors(self, node: int, errors: list[Exception]) -> Iterator[None]:
        try:
            yield
        except CLIENT_ERRORS as error:
            self._cluster.drop(node)
            errors.append(error)

    def _receive(
        self, node: int, partitions: Sequence[TopicPartition], messages: list[Message], errors: list[Exception]
    ) -> None:
        response = self._cluster.channel(node).receive(FetchResponse)
        if response.error_code:
            raise BrokerError(ErrorCode(response.error_code))
        for topic_partition, data in self._partitions(response, partitions):
            try:
                messages += self._read_partition(topic_partition, self.assigned[topic_partition], data)
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

    def _send_fetch(self, node: int, partitions: Sequence[TopicPartition], wait_ms: int) -> None:
        topics = [
            FetchTopic(
                self._cluster.topic(name).topic_id,
                name,
                [
                    FetchPartition(
                        index,
                        fetch_offset=self.assigned[TopicPartition(name, index)].position,
                        partition_max_bytes=PARTITION_BYTES_MAX,
                    )
                    for index in indexes
                ],
            )
            for name, indexes in by_topic(partitions).items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=FETCH_BYTES_MAX,
            isolation_level=int(self._read_committed),
            topics=topics,
        )
        self._cluster.channel(node).send(ApiKey.FETCH, request)

    def _partitions(
        self, response: FetchResponse, requested: Sequence[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, PartitionData]]:
        names = {
            self._cluster.topic(topic_partition.topic).topic_id: topic_partition.topic for topic_partition in requested
        }
        for topic in response.responses:
            name = topic.topic or names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                topic_partition = TopicPartition(name, data.partition_index)
                if topic_partition not in self.assigned:
                    raise MalformedData(f"the fetch response has {topic_partition}, which was not requested")
                yield topic_partition, data

    def _read_partition(
        self, topic_partition: TopicPartition, assigned: AssignedPartition, data: PartitionData
    ) -> list[Message]:
        """Return the messages of one partition and move its position behind them."""
        code = ErrorCode(data.error_code)
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
        messages, assigned.position = _messages(topic_partition, assigned.position, data, self._read_committed)
        end = data.last_stable_offset if self._read_committed else data.high_watermark
        if self._reports_end and assigned.position >= end and assigned.reported_end != assigned.position:
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


def _messages(
    topic_partition: TopicPartition, position: int, data: PartitionData, read_committed: bool
) -> tuple[list[Message], int]:
    """Return the records from the position on; for read_committed, without those of aborted transactions."""
    messages: list[Message] = []
    aborted = sorted(((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True)
    aborting: set[int] = set()
    if not data.records:
        return messages, position
    assert isinstance(data.records, memoryview)
    for header, batch in split_batches(_complete_batches(data.records)):
        while aborted and aborted[-1][0] <= header.last_offset:
            aborting.add(aborted.pop()[1])
        if header.is_control:
            _end_transaction(header, batch, aborting)
        elif not (read_committed and header.is_transactional and header.producer_id in aborting):
            messages += _records(topic_partition, position, header, batch)
        position = max(position, header.next_offset)
    return messages, position


def _complete_batches(records: memoryview) -> memoryview:
    """Cut off an incomplete last batch: Kafka's brokers fill a response up to its limit."""
    end = 0
    while len(records) - end >= BATCH_HEADER_BYTES:
        size = read_header(records, end).size_in_bytes
        if size < BATCH_HEADER_BYTES or size > len(records) - end:
            break
        end += size
    return records[:end]


def _end_transaction(header: BatchHeader, batch: memoryview, aborting: set[int]) -> None:
    for record in decode_records(batch, header):
        marker = read_end_txn_marker(record)
        if marker is not None and not marker.committed:
            aborting.discard(header.producer_id)


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
