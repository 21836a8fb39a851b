"""Groups records into batches and sends them to the partition leaders until they are accepted or too old.

The producer's thread calls `send` in a loop (`producer.py`). Each call tries the first batch of every partition once;
what must be sent again stays in the queues for the next call.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from moldau.base.errors import ErrorCode
from moldau.base.errors import KafkaError as BrokerError
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, RETRIABLE, Cluster
from moldau.client.producing import ALL, Produce
from moldau.client.stand_in.outbox import FinishedRecord, QueuedRecord, Result
from moldau.client.stand_in.partitioner import Partitioner, Pending
from moldau.client.stand_in.values import CLIENT_ERRORS, KafkaError, broker_error, to_kafka_error
from moldau.wire.apis import ApiKey
from moldau.wire.batch import next_sequence
from moldau.wire.compression import Compression
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.produce import PartitionProduceResponse, ProduceResponse
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

BATCH_BYTES: Final = 512 << 10
"""The approximate size of a batch: below the message.max.bytes of any ordinary broker."""
REQUEST_MS: Final = 30_000
ACKS: Final = {"0": 0, "1": 1, "all": ALL, "-1": ALL}
ACCEPTED: Final = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
PRODUCER_UNKNOWN: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
"""The broker no longer knows this producer, which gets a new id."""


@dataclass(slots=True)
class Batch:
    """The records of one batch."""

    topic_partition: TopicPartition
    deadline: float
    records: list[QueuedRecord] = field(default_factory=list)
    size_in_bytes: int = 0
    data: bytearray | None = None
    """Unchanged once it was sent: the broker detects a duplicate by its sequence."""


class BatchSender:
    def __init__(self, cluster: Cluster, config: Mapping[str, Any]) -> None:
        self._cluster = cluster
        self._acks = ACKS[str(config.get("acks", "all")).lower()]
        self._codec = Compression[str(config.get("compression.type", "none")).upper()]
        self._timeout_seconds = float(config.get("message.timeout.ms", 300_000)) / 1000 or math.inf
        self._is_idempotent = str(config.get("enable.idempotence", False)).lower() == "true"
        self._id_and_epoch: ProducerIdAndEpoch | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._partitioner = Partitioner(cluster)
        self._queues: dict[TopicPartition, deque[Batch]] = {}
        """The batches of each partition in order; no queue is empty."""
        self._done: list[FinishedRecord] = []
        self._wait_seconds = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether records wait to be sent or sent again."""
        return bool(self._partitioner.waiting or self._queues)

    def send(self, records: Sequence[QueuedRecord], on_error: Callable[[Exception], None]) -> list[FinishedRecord]:
        """Send these records after those that wait, as far as possible now; return all finished ones.

        `on_error` gets an error that will be retried; before the retry this call sleeps for the backoff.
        """
        now = time.monotonic()
        self._partitioner.add(records, now + self._timeout_seconds)
        errors: list[Exception] = []
        self._partitioner.assign_partitions(now, self._enqueue, self._done, errors)
        self._send_first_batches(errors)
        if errors:
            self._recover(errors)
            timed_out = KafkaError(KafkaError._MSG_TIMED_OUT, f"Not delivered in time: {errors[0]}")
            self._fail_expired(time.monotonic(), timed_out)
        if self._done or not errors:
            self._wait_seconds = 0.0
        else:
            on_error(errors[0])
            self._wait_seconds = min(BACKOFF_SECONDS_MAX, self._wait_seconds * 2 or BACKOFF_SECONDS_FIRST)
            time.sleep(self._wait_seconds)
        return self._take_done()

    def fail_all(self, error: KafkaError) -> list[FinishedRecord]:
        """Fail all waiting records with this error; return them and those finished before."""
        self._cluster.close()
        self._fail_expired(math.inf, error)
        return self._take_done()

    def _take_done(self) -> list[FinishedRecord]:
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        self._cluster.close()

    def _enqueue(self, topic_partition: TopicPartition, pending: Pending) -> None:
        queue = self._queues.setdefault(topic_partition, deque())
        size = pending.record.size_in_bytes()
        if not queue or queue[-1].data is not None or queue[-1].size_in_bytes + size > BATCH_BYTES:
            queue.append(Batch(topic_partition, pending.deadline))
        queue[-1].records.append(pending.record)
        queue[-1].size_in_bytes += size

    def _send_first_batches(self, errors: list[Exception]) -> None:
        """Send the first batch of each partition that has a leader."""
        first = {topic_partition: queue[0] for topic_partition, queue in self._queues.items()}
        try:
            led, without_leader = self._cluster.led(first)
        except CLIENT_ERRORS as error:
            errors.append(error)
            return
        for topic_partition, reason in without_leader.items():
            self._fail([first[topic_partition]], reason, errors)
        for node, partitions in led.items():
            batches = [first[topic_partition] for topic_partition in partitions]
            try:
                for topic_partition, response in self._exchange(node, batches).items():
                    self._on_response(first[topic_partition], response, errors)
            except CLIENT_ERRORS as error:
                self._fail(batches, error, errors)

    def _recover(self, errors: Sequence[Exception]) -> None:
        if all(isinstance(each, BrokerError) for each in errors):
            self._cluster.forget()
        else:
            self._cluster.close()

    def _fail(self, batches: Sequence[Batch], error: Exception, errors: list[Exception]) -> None:
        """Fail the batches, unless the error is retriable."""
        if not isinstance(error, BrokerError) or error.code in RETRIABLE:
            errors.append(error)
            return
        for batch in batches:
            self._finish(batch, to_kafka_error(error))

    def _on_response(self, batch: Batch, response: PartitionProduceResponse, errors: list[Exception]) -> None:
        code = ErrorCode(response.error_code)
        if code in ACCEPTED:
            self._finish(batch, None, response.base_offset)
        elif code in PRODUCER_UNKNOWN and self._is_idempotent:
            self._reset_producer()
            batch.data = None
            errors.append(BrokerError(code, response.error_message))
        elif code in RETRIABLE:
            errors.append(BrokerError(code, response.error_message))
        else:
            self._finish(batch, broker_error(code, response.error_message))

    def _fail_expired(self, until: float, error: KafkaError) -> None:
        """Fail all records and batches whose deadline is not after `until`."""
        self._done += self._partitioner.take_expired(until, error)
        for batch in [each for queue in self._queues.values() for each in queue if each.deadline <= until]:
            self._finish(batch, error)

    def _finish(self, batch: Batch, error: KafkaError | None, base_offset: int = -1) -> None:
        """Remove the batch from its queue, where it is the first."""
        queue = self._queues[batch.topic_partition]
        queue.popleft()
        if not queue:
            del self._queues[batch.topic_partition]
        if error is not None and batch.data is not None:
            # The broker would refuse all later batches because of the gap in the sequence.
            self._reset_producer()
        for number, record in enumerate(batch.records):
            offset = base_offset + number if base_offset >= 0 else -1
            self._done.append(FinishedRecord(record, Result(error, batch.topic_partition.partition, offset)))

    def _reset_producer(self) -> None:
        self._id_and_epoch = None
        self._sequences.clear()

    def _encode(self, topic_partition: TopicPartition, records: Sequence[QueuedRecord]) -> bytearray:
        producer_id, epoch, sequence = -1, -1, -1
        if self._is_idempotent:
            producer_id, epoch = self._producer_id_and_epoch()
            sequence = self._sequences.get(topic_partition, 0)
            self._sequences[topic_partition] = next_sequence(sequence, len(records))
        return build_batch(
            [Record(NEXT_OFFSET, each.timestamp_ms, each.key, each.value, tuple(each.headers)) for each in records],
            compression=self._codec,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
        )

    def _producer_id_and_epoch(self) -> ProducerIdAndEpoch:
        if self._id_and_epoch is None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
            if response.error_code:
                raise BrokerError(ErrorCode(response.error_code))
            self._id_and_epoch = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
        return self._id_and_epoch

    def _exchange(self, node: int, batches: Sequence[Batch]) -> dict[TopicPartition, PartitionProduceResponse]:
        for batch in batches:
            if batch.data is None:
                batch.data = self._encode(batch.topic_partition, batch.records)
        produce = Produce(
            self._cluster.topic,
            {batch.topic_partition: batch.data for batch in batches if batch.data},
            REQUEST_MS,
            self._acks,
        )
        channel = self._cluster.channel(node)
        if self._acks == 0:
            channel.send_unanswered(ApiKey.PRODUCE, produce.request)
            return {
                batch.topic_partition: PartitionProduceResponse(batch.topic_partition.partition, base_offset=-1)
                for batch in batches
            }
        return produce.partitions(channel.ask(ApiKey.PRODUCE, produce.request, ProduceResponse))
