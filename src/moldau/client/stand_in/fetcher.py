"""Reads assigned partitions: one full fetch a turn from every leader, its batches opened into messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition as Where
from moldau.client.cluster import EARLIEST, LATEST, RETRIABLE, Cluster, by_topic
from moldau.client.stand_in.values import (
    FAILURES,
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
"""What auto.offset.reset may say, as the time to ask for."""


@dataclass(slots=True)
class Reading:
    """A partition that is read. `position` is the next offset, or one of librdkafka's numbers for a place."""

    position: int
    is_paused: bool = False
    end_told: int = -1
    """The end of the log that was told last: it is told once, until the log grows."""


class Fetcher:
    def __init__(self, cluster: Cluster, reset: str, read_committed: bool, tells_end: bool) -> None:
        self._cluster = cluster
        self._reset = reset
        self._read_committed = read_committed
        self._tells_end = tells_end
        self.readings: dict[Where, Reading] = {}

    def fetched(self, wait_ms: int) -> tuple[list[Message], Exception | None]:
        """What there is, or comes within the time, and what went wrong: then leaders have to be found anew.

        A partition without a leader and a node that does not answer hold up nobody else.
        """
        wanted = {where: each for where, each in self.readings.items() if not each.is_paused}
        led, wrong = self._cluster.led(wanted)
        troubles: list[Exception] = list(wrong.values())
        messages: list[Message] = []
        asked: list[int] = []
        for node, partitions in led.items():
            with self._noting(node, troubles):
                self._locate({where: wanted[where] for where in partitions})
                self._ask(node, partitions, wait_ms if len(led) == 1 else wait_ms // 2)
                asked.append(node)
        for node in asked:
            with self._noting(node, troubles):
                self._receive(node, led[node], messages, troubles)
        return messages, _worst(troubles)

    @contextmanager
    def _noting(self, node: int, troubles: list[Exception]) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            self._cluster.drop(node)
            troubles.append(error)

    def _receive(
        self, node: int, partitions: Sequence[Where], messages: list[Message], troubles: list[Exception]
    ) -> None:
        answer = self._cluster.channel(node).receive(FetchResponse)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code))
        for where, data in self._partitions(answer, partitions):
            try:
                messages += self._opened(where, self.readings[where], data)
            except BrokerError as error:
                troubles.append(error)

    def _locate(self, wanted: Mapping[Where, Reading]) -> None:
        """Places become offsets: where the log begins or ends, or where auto.offset.reset says."""
        times = {OFFSET_BEGINNING: EARLIEST, OFFSET_END: LATEST}
        lost = {where: each for where, each in wanted.items() if each.position < 0}
        if not lost:
            return
        at = {where: times.get(each.position, RESETS.get(self._reset, LATEST)) for where, each in lost.items()}
        for where, offset in self._cluster.list_offsets(at, self._read_committed).items():
            lost[where].position = offset

    def _ask(self, node: int, partitions: Sequence[Where], wait_ms: int) -> None:
        topics = [
            FetchTopic(
                self._cluster.topic(name).topic_id,
                name,
                [
                    FetchPartition(
                        index,
                        fetch_offset=self.readings[Where(name, index)].position,
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

    def _partitions(self, answer: FetchResponse, asked: Sequence[Where]) -> Iterator[tuple[Where, PartitionData]]:
        names = {self._cluster.topic(where.topic).topic_id: where.topic for where in asked}
        for topic in answer.responses:
            name = topic.topic or names.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                where = Where(name, data.partition_index)
                if where not in self.readings:
                    raise MalformedData(f"the broker answered for {where}, which was not asked")
                yield where, data

    def _opened(self, where: Where, reading: Reading, data: PartitionData) -> list[Message]:
        """The messages of one partition; its position moves behind them."""
        code = ErrorCode(data.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            reading.position = {"earliest": OFFSET_BEGINNING}.get(self._reset, OFFSET_END)
            return []
        if code in RETRIABLE:
            raise BrokerError(code)
        if code:
            reading.is_paused = True
            return [Message(*where, None, error=broker_error(code))]
        messages, reading.position = _messages(where, reading.position, data, self._read_committed)
        end = data.last_stable_offset if self._read_committed else data.high_watermark
        if self._tells_end and reading.position >= end and reading.end_told != reading.position:
            reading.end_told = reading.position
            eof = KafkaError(KafkaError._PARTITION_EOF, "No more messages")
            messages.append(Message(*where, reading.position, error=eof))
        return messages


def _worst(troubles: Sequence[Exception]) -> Exception | None:
    """One that does not pass by itself, before those that do."""
    lasting = [each for each in troubles if isinstance(each, BrokerError) and each.code not in RETRIABLE]
    return next(iter([*lasting, *troubles]), None)


def _messages(where: Where, position: int, data: PartitionData, read_committed: bool) -> tuple[list[Message], int]:
    """The records from the position on, without those of aborted transactions if committed ones are read."""
    messages: list[Message] = []
    aborted = sorted(((each.first_offset, each.producer_id) for each in data.aborted_transactions or ()), reverse=True)
    aborting: set[int] = set()
    if not data.records:
        return messages, position
    assert isinstance(data.records, memoryview)
    for header, batch in split_batches(_whole(data.records)):
        while aborted and aborted[-1][0] <= header.last_offset:
            aborting.add(aborted.pop()[1])
        if header.is_control:
            _end_transaction(header, batch, aborting)
        elif not (read_committed and header.is_transactional and header.producer_id in aborting):
            messages += _records(where, position, header, batch)
        position = max(position, header.next_offset)
    return messages, position


def _whole(records: memoryview) -> memoryview:
    """Without a last batch that was cut: Kafka's brokers fill an answer to its limit."""
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


def _records(where: Where, position: int, header: BatchHeader, batch: memoryview) -> Iterator[Message]:
    kind = 2 if header.is_log_append_time else 1
    for record in decode_records(batch, header):
        if record.offset >= position:
            yield Message(*where, record.offset, record.key, record.value, record.headers, (kind, record.timestamp))
