"""Arrow rows to a cluster as record batches: grouped by partition, idempotent, a few requests in flight, order kept.

The way of a row: its topic (option or column), its partition (column, murmur2 of the key, or a sticky choice), one
record batch per partition and Arrow batch, one Produce request per leader. When something fails, all that is not
acknowledged is sent again in its order with its sequence numbers, so the broker drops what it already has.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import BACKOFF_SECONDS_FIRST, BACKOFF_SECONDS_MAX, RETRIABLE, Cluster, by_topic
from moldau.spark.options import WriteOptions
from moldau.spark.records.encode import ProducerStamp, batch_limits, encode_batches
from moldau.spark.rows import Grouped, Rows, grouped
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header, stamp_producer
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

IN_FLIGHT_MAX: Final = 5
"""A broker remembers the last five batches of a producer, so a sixth unacknowledged one could be doubled."""
SEQUENCES: Final = 1 << 31
REQUEST_BYTES_MAX: Final = 16 << 20
LOST_TRACK: Final = frozenset(
    {
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)


@dataclass(frozen=True, slots=True, eq=False)
class _Batch:
    """A record batch on its way."""

    where: TopicPartition
    data: bytearray


class Producing:
    """One producer: its id, its sequence numbers, what it has in flight. Used by one task at a time."""

    def __init__(self, cluster: Cluster, options: WriteOptions, random: Random) -> None:
        self._cluster = cluster
        self._options = options
        self._random = random
        self._producer: tuple[int, int] | None = None
        self._sequences: dict[TopicPartition, int] = {}
        self._flights: dict[int, deque[list[_Batch]]] = {}
        """By node, what each request holds that is not answered yet."""
        self._unacknowledged: dict[TopicPartition, deque[_Batch]] = {}

    def send(self, rows: Rows) -> None:
        """Encodes and sends; waits only while too much is in flight."""
        if not len(rows.values):
            return
        batches = self._encoded(grouped(rows, self._partition_count, self._random))
        try:
            for node, request in self._requests(batches):
                self._launch(node, request)
        except (OSError, MalformedData, KafkaError) as error:
            self._recover(error)

    def flush(self) -> None:
        """Waits until everything sent is acknowledged."""
        try:
            for node in list(self._flights):
                while self._flights[node]:
                    self._land(node)
        except (OSError, MalformedData, KafkaError) as error:
            self._recover(error)

    def abandon(self) -> None:
        """Answers that nobody will read must not be mistaken for those of the next user of the connections."""
        for node, flights in self._flights.items():
            if flights:
                self._cluster.drop(node)
        self._flights.clear()

    # --- encoding -------------------------------------------------------------------------------------------------

    def _partition_count(self, topic: str) -> int:
        found = self._cluster.retry(lambda: self._cluster.topic(topic, create=True), self._options.metadata_timeout_ms)
        return len(found.leaders)

    def _encoded(self, rows: Grouped) -> list[_Batch]:
        """One batch for each partition, or more where its rows are too large for one."""
        starts = [start for _, start in rows.groups]
        limits = batch_limits(rows.columns, self._options.batch_bytes_max, starts)
        targets = [rows.groups[bisect_right(starts, first) - 1][0] for first, _ in limits]
        stamps = [self._stamp(where, end - first) for where, (first, end) in zip(targets, limits, strict=True)]
        encoded = encode_batches(
            rows.columns, limits, stamps, self._options.compression, self._options.compression_level
        )
        batches = [_Batch(where, data) for where, data in zip(targets, encoded, strict=True)]
        if self._options.acks:
            for batch in batches:
                self._unacknowledged.setdefault(batch.where, deque()).append(batch)
        return batches

    def _stamp(self, where: TopicPartition, count: int) -> ProducerStamp | None:
        if not self._options.is_idempotent:
            return None
        if self._producer is None:
            self._producer = self._cluster.retry(self._new_producer, self._options.metadata_timeout_ms)
        sequence = self._sequences.get(where, 0)
        self._sequences[where] = (sequence + count) % SEQUENCES
        return ProducerStamp(*self._producer, sequence)

    def _new_producer(self) -> tuple[int, int]:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = self._cluster.ask_any(ApiKey.INIT_PRODUCER_ID, request, InitProducerIdResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), f"no producer id: {ErrorCode(answer.error_code).name}")
        return answer.producer_id, answer.producer_epoch

    # --- sending --------------------------------------------------------------------------------------------------

    def _requests(self, batches: Iterable[_Batch]) -> Iterator[tuple[int, list[_Batch]]]:
        """What goes together: the same leader, one batch of a partition (the protocol's rule), not too many bytes."""
        open_requests: dict[int, list[_Batch]] = {}
        sizes: dict[int, int] = {}
        for batch in batches:
            node = self._cluster.leader(batch.where)
            request = open_requests.setdefault(node, [])
            is_full = sizes.get(node, 0) + len(batch.data) > REQUEST_BYTES_MAX
            if request and (is_full or any(other.where == batch.where for other in request)):
                yield node, request
                request = open_requests[node] = []
                sizes[node] = 0
            request.append(batch)
            sizes[node] = sizes.get(node, 0) + len(batch.data)
        yield from open_requests.items()

    def _launch(self, node: int, batches: list[_Batch]) -> None:
        channel = self._cluster.channel(node)
        if not self._options.acks:
            channel.send_unanswered(ApiKey.PRODUCE, self._request(batches))
            return
        flights = self._flights.setdefault(node, deque())
        while len(flights) >= IN_FLIGHT_MAX:
            self._land(node)
        channel.send(ApiKey.PRODUCE, self._request(batches))
        flights.append(batches)

    def _request(self, batches: Sequence[_Batch]) -> ProduceRequest:
        data = {batch.where: batch.data for batch in batches}
        return ProduceRequest(
            acks=self._options.acks,
            timeout_ms=self._options.request_timeout_ms,
            topic_data=[
                TopicProduceData(
                    self._cluster.topic(name).topic_id,
                    name,
                    [PartitionProduceData(index, data[TopicPartition(name, index)]) for index in indexes],
                )
                for name, indexes in by_topic(data).items()
            ],
        )

    def _land(self, node: int) -> None:
        """Reads one answer. What was taken is forgotten; the first thing refused is raised."""
        response = self._cluster.channel(node).receive(ProduceResponse)
        batches = {batch.where: batch for batch in self._flights[node].popleft()}
        names = {self._cluster.topic(where.topic).topic_id: where.topic for where in batches}
        refused: KafkaError | None = None
        for topic in response.responses:
            name = topic.name or names.get(bytes(topic.topic_id), "")
            for result in topic.partition_responses:
                batch = batches.pop(TopicPartition(name, result.index), None)
                if batch is None:
                    raise MalformedData(f"the broker answered for {name}-{result.index}, which was not sent")
                if result.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._acknowledged(batch)
                else:
                    code = ErrorCode(result.error_code)
                    refused = KafkaError(code, f"{batch.where}: {result.error_message or code.name}")
        if batches:
            raise MalformedData(f"the broker did not answer for {next(iter(batches))}")
        if refused is not None:
            raise refused

    def _acknowledged(self, batch: _Batch) -> None:
        first = self._unacknowledged[batch.where].popleft()
        assert first is batch, "answers come in the order of requests"

    # --- when something failed ------------------------------------------------------------------------------------

    def _recover(self, error: Exception) -> None:
        """Sends again, one batch of a partition at a time, until all is acknowledged or the time is over."""
        deadline = time.monotonic() + self._options.delivery_timeout_ms / 1000
        wait = BACKOFF_SECONDS_FIRST
        while True:
            if isinstance(error, KafkaError) and error.code not in RETRIABLE | LOST_TRACK:
                raise error
            if time.monotonic() + wait > deadline:
                raise error
            self._flights.clear()
            self._cluster.close()
            time.sleep(wait)
            wait = min(BACKOFF_SECONDS_MAX, wait * 2)
            try:
                if isinstance(error, KafkaError) and error.code in LOST_TRACK:
                    self._begin_anew()
                while firsts := [waiting[0] for waiting in self._unacknowledged.values() if waiting]:
                    for node, request in self._requests(firsts):
                        self._launch(node, request)
                        self._land(node)
                return
            except (OSError, MalformedData, KafkaError) as again:
                error = again

    def _begin_anew(self) -> None:
        """The broker no longer knows what this producer sent before: as a new one, rather twice than never."""
        self._producer = None
        self._sequences.clear()
        for where, waiting in self._unacknowledged.items():
            for _ in range(len(waiting)):
                batch = waiting.popleft()
                stamp = self._stamp(where, read_header(batch.data).record_count)
                if stamp is not None:
                    stamp_producer(memoryview(batch.data), stamp.producer_id, stamp.epoch, stamp.base_sequence)
                waiting.append(batch)
