"""Records become batches, go to the leaders of their partitions, and are sent again until they are taken or too old."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import TopicPartition as Where
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, RETRIABLE, Cluster, by_topic
from moldau.client.murmur2 import partition_of
from moldau.client.stand_in.outbox import Queued, Result
from moldau.client.stand_in.values import FAILURES, KafkaError, broker_error, error_of
from moldau.wire.apis import ApiKey
from moldau.wire.compression import Compression
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.records import IN_LINE, Record, build_batch

BATCH_BYTES: Final = 512 << 10
"""About as many bytes of keys and values go into one batch: below the message.max.bytes of any ordinary broker."""
REQUEST_MS: Final = 30_000
METADATA_MS_MAX: Final = 30_000
"""A topic that is not there may just be being created; so long."""
SEQUENCES: Final = 1 << 31
ACKS: Final = {"0": 0, "1": 1, "all": -1, "-1": -1}
TAKEN: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
LOST_TRACK: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""The broker no longer knows this producer: it begins anew."""


@dataclass(slots=True)
class Outgoing:
    """The records of one batch, by their places in what is being sent."""

    where: Where
    places: list[int]
    data: bytearray | None = None
    """Once it was sent it stays the same: a broker knows by its sequence that it has it already."""


class BatchSender:
    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._acks = ACKS[str(config.get("acks", "all"))]
        self._codec = Compression[str(config.get("compression.type", "none")).upper()]
        self._timeout_ms = float(config.get("message.timeout.ms", 300_000))
        self._is_idempotent = str(config.get("enable.idempotence", False)).lower() == "true"
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[Where, int] = {}

    def send(self, records: Sequence[Queued], tell: Callable[[Exception], None]) -> list[Result]:
        """What came of each record. `tell` hears of what is wrong while it is tried again."""
        results: dict[int, Result] = {}
        try:
            patience_ms = min(self._timeout_ms, METADATA_MS_MAX)
            partitions = self._cluster.retry(lambda: self._partitions(records), patience_ms)
        except FAILURES as error:
            return [Result(error_of(error), each.partition, None) for each in records]
        waiting = _batches(records, partitions)
        deadline = time.monotonic() + self._timeout_ms / 1000
        wait = BACKOFF_SECONDS_FIRST
        while waiting:
            trouble = self._round(waiting, records, results)
            waiting = [batch for batch in waiting if batch.places[0] not in results]
            if trouble is None:
                continue
            tell(trouble)
            if time.monotonic() > deadline:
                late = KafkaError(KafkaError._MSG_TIMED_OUT, f"Not delivered in time: {trouble}")
                for batch in waiting:
                    _settle(batch, results, late)
                break
            time.sleep(wait)
            wait = min(BACKOFF_SECONDS_MAX, wait * 2)
        return [results[place] for place in range(len(records))]

    def close(self) -> None:
        self._cluster.close()

    def _partitions(self, records: Sequence[Queued]) -> list[int]:
        """Where each record goes: as told, by its key, or all of a topic that have none to one partition."""
        sticky: dict[str, int] = {}
        found = []
        for each in records:
            partition = each.partition
            if partition < 0:
                count = len(self._cluster.topic(each.topic, create=True).leaders)
                if each.key is not None:
                    partition = partition_of(each.key, count)
                else:
                    partition = sticky.setdefault(each.topic, random.randrange(count))
            found.append(partition)
        return found

    def _round(
        self, waiting: Sequence[Outgoing], records: Sequence[Queued], results: dict[int, Result]
    ) -> Exception | None:
        """Sends the first batch of each partition; gives what went wrong and may pass."""
        first: dict[Where, Outgoing] = {}
        for batch in waiting:
            first.setdefault(batch.where, batch)
        trouble: Exception | None = None
        try:
            for batch in first.values():
                if batch.data is None:
                    batch.data = self._encoded(batch.where, [records[place] for place in batch.places])
            for node, partitions in self._cluster.by_leader(first).items():
                for where, said in self._exchange(node, [first[where] for where in partitions]).items():
                    trouble = self._judge(first[where], said, results) or trouble
        except FAILURES as error:
            if isinstance(error, BrokerError) and error.code not in RETRIABLE:
                for batch in first.values():
                    _settle(batch, results, error_of(error))
                return None
            if not isinstance(error, BrokerError):
                self._cluster.close()
            trouble = error
        if trouble is not None:
            self._cluster.forget()
        return trouble

    def _judge(self, batch: Outgoing, said: PartitionProduceResponse, results: dict[int, Result]) -> Exception | None:
        code = ErrorCode(said.error_code)
        if code in TAKEN:
            _settle(batch, results, None, said.base_offset)
            return None
        if code in LOST_TRACK and self._is_idempotent:
            self._producer = None
            self._sequences.clear()
            batch.data = None
        elif code not in RETRIABLE:
            # A gap in the sequence would make the broker refuse what comes after it.
            self._producer = None
            self._sequences.clear()
            _settle(batch, results, broker_error(code, said.error_message))
            return None
        return BrokerError(code, said.error_message)

    def _encoded(self, where: Where, records: Sequence[Queued]) -> bytearray:
        producer_id, epoch, sequence = -1, -1, -1
        if self._is_idempotent:
            producer_id, epoch = self._producer_id()
            sequence = self._sequences.get(where, 0)
            self._sequences[where] = (sequence + len(records)) % SEQUENCES
        return build_batch(
            [Record(IN_LINE, each.timestamp_ms, each.key, each.value, tuple(each.headers)) for each in records],
            compression=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def _producer_id(self) -> tuple[int, int]:
        if self._producer is None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if answer.error_code:
                raise BrokerError(ErrorCode(answer.error_code))
            self._producer = answer.producer_id, answer.producer_epoch
        return self._producer

    def _exchange(self, node: int, batches: Sequence[Outgoing]) -> dict[Where, PartitionProduceResponse]:
        data = {batch.where: batch.data for batch in batches}
        topics = {name: self._cluster.topic(name).topic_id for name in by_topic(data)}
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=REQUEST_MS,
            topic_data=[
                TopicProduceData(
                    topics[name], name, [PartitionProduceData(index, data[Where(name, index)]) for index in indexes]
                )
                for name, indexes in by_topic(data).items()
            ],
        )
        channel = self._cluster.channel(node)
        if self._acks == 0:
            channel.send_unanswered(ApiKey.PRODUCE, request)
            return {where: PartitionProduceResponse(where.partition, base_offset=-1) for where in data}
        answer = channel.ask(ApiKey.PRODUCE, request, ProduceResponse)
        names = {topic_id: name for name, topic_id in topics.items()}
        found = {
            Where(topic.name or names.get(bytes(topic.topic_id), ""), each.index): each
            for topic in answer.responses
            for each in topic.partition_responses
        }
        if found.keys() != data.keys():
            raise MalformedData("the broker answered for other partitions than were sent")
        return found


def _batches(records: Sequence[Queued], partitions: Sequence[int]) -> list[Outgoing]:
    batches: list[Outgoing] = []
    filling: dict[Where, tuple[Outgoing, int]] = {}
    for place, (each, partition) in enumerate(zip(records, partitions, strict=True)):
        where = Where(each.topic, partition)
        size = len(each.key or b"") + len(each.value or b"")
        batch, filled = filling.get(where, (None, 0))
        if batch is None or filled + size > BATCH_BYTES:
            batch, filled = Outgoing(where, []), 0
            batches.append(batch)
        batch.places.append(place)
        filling[where] = batch, filled + size
    return batches


def _settle(batch: Outgoing, results: dict[int, Result], error: KafkaError | None, base_offset: int = -1) -> None:
    for number, place in enumerate(batch.places):
        offset = base_offset + number if base_offset >= 0 else -1
        results[place] = Result(error, batch.where.partition, offset)
