"""Appends records of one user: batches gather for a partition while its last one is under way, and one request has the
batches of all partitions of a leader that are ready."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import ProducerIdAndEpoch, TopicPartition
from moldau.client.cluster import RETRIABLE, Topic
from moldau.client.producing import Produce
from moldau.gateway.kafka.brokers import Brokers
from moldau.gateway.kafka.chunks import (
    Call,
    Chunk,
    Outcome,
    chunks_by_partition,
    chunks_of_values,
    size_of,
    size_of_values,
)
from moldau.gateway.kafka.partition_queue import MISSING_FAILURES_MAX, Next, PartitionQueue
from moldau.gateway.kafka.room import Room
from moldau.gateway.ports import Appended, NewRecord
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

PATIENCE_S: Final = 30.0
"""So long a record is sent again and again."""
REQUEST_MS: Final = 10_000
REPLICATION_MS: Final = 8_000
"""How long a leader waits for its followers before it says that it waited too long."""
TURN_BYTES: Final = 2 << 20
RECORD_COSTS_BYTES: Final = 500
"""How much is built in one turn of the event loop: a record costs half a microsecond, and its bytes as good as nothing.
Together about two milliseconds."""


class Producer:
    def __init__(self, brokers: Brokers, room: Room) -> None:
        self._brokers, self._room = brokers, room
        self._loop = asyncio.get_running_loop()
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._ready: dict[TopicPartition, PartitionQueue] = {}
        """Those that have something to send, and no request under way."""
        self._flush: asyncio.Handle | None = None
        self._gathering: dict[str, int] = {}
        """Where records without a key go, by topic."""
        self._turns = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def append(self, topic: str, records: Sequence[NewRecord]) -> Appended:
        found = await self._brokers.topic(topic)
        if any(record.partition is not None and record.partition not in found.leaders for record in records):
            self._brokers.forget(topic)  # it may have more partitions by now
            found = await self._brokers.topic(topic)

        def put(call: Call) -> None:
            by_partition = chunks_by_partition(call, records, len(found.leaders), self._partition_without_key(found))
            for partition, chunks in by_partition.items():
                self._put(TopicPartition(topic, partition), chunks)

        return await self._outcomes(len(records), sum(map(size_of, records)), put)

    async def append_values(self, topic: str, values: Sequence[bytes]) -> Appended:
        found = await self._brokers.topic(topic)

        def put(call: Call) -> None:
            self._put(TopicPartition(topic, self._partition_without_key(found)), chunks_of_values(call, values))

        return await self._outcomes(len(values), size_of_values(values), put)

    @property
    def is_busy(self) -> bool:
        return any(queue.batch or queue.waiting for queue in self._queues.values())

    def close(self) -> None:
        """Answer everybody who waits, and append no more."""
        self._is_closed = True
        if self._flush is not None:
            self._flush.cancel()
        for task in self._tasks:
            task.cancel()
        for queue in self._queues.values():
            queue.fail(_closed())

    async def _outcomes(self, count: int, size: int, put: Callable[[Call], None]) -> Appended:
        if not count:
            return []
        await self._room.take(size)
        if self._is_closed:
            self._room.give_back(size)
            raise _closed()
        ended: asyncio.Future[None] = self._loop.create_future()

        def on_end() -> None:
            self._room.give_back(size)  # not before, also if nobody waits for the outcome any more
            if not ended.done():
                ended.set_result(None)

        call = Call(count, self._loop.time() + PATIENCE_S, on_end)
        put(call)
        await ended
        outcomes: list[Outcome | None] = call.outcomes
        return outcomes  # type: ignore[return-value]  # none is missing

    def _partition_without_key(self, topic: Topic) -> int:
        """Return the partition of records without a key: one for all until it is sent, so that they share a batch; then
        the next one with a leader, and without a request under way if there is one."""
        chosen = self._gathering.get(topic.name)
        if chosen is None:
            self._turns += 1
            led = [partition for partition in topic.leaders if self._brokers.leader(topic, partition) is not None]
            idle = [partition for partition in led if not self._is_busy(topic.name, partition)]
            candidates = idle or led or list(topic.leaders)
            chosen = self._gathering[topic.name] = candidates[self._turns % len(candidates)]
        return chosen

    def _is_busy(self, topic: str, partition: int) -> bool:
        queue = self._queues.get(TopicPartition(topic, partition))
        return queue is not None and queue.is_busy

    def _put(self, partition: TopicPartition, chunks: Iterable[Chunk]) -> None:
        queue = self._queues.get(partition)
        if queue is None:
            queue = self._queues[partition] = PartitionQueue(partition)
        queue.waiting.extend(chunks)
        self._send_soon(queue)

    # --- sending ----------------------------------------------------------------------------------------------------

    def _send_soon(self, queue: PartitionQueue) -> None:
        if queue.is_busy or not (queue.waiting or queue.batch):
            return
        self._ready[queue.partition] = queue
        if self._flush is None:
            self._flush = self._loop.call_soon(self._send_ready)

    def _send_ready(self) -> None:
        """Send a batch of partitions that are ready, as many as can be built in a turn. A partition whose leader or
        producer id is not known learns it first."""
        self._flush = None
        now_ms = time.time_ns() // 1_000_000
        by_leader: dict[int, dict[TopicPartition, PartitionQueue]] = {}
        topics: dict[str, Topic] = {}
        left = TURN_BYTES
        while self._ready and left > 0:
            partition, queue = self._ready.popitem()
            queue.is_busy = True
            if self._gathering.get(partition.topic) == partition.partition:
                del self._gathering[partition.topic]
            topic = self._brokers.known(partition.topic)
            leader = None if topic is None else self._brokers.leader(topic, partition.partition)
            if topic is None or leader is None or queue.producer is None:
                self._run(self._learn(queue))
                continue
            batch = queue.prepare(now_ms)
            left -= len(batch.data) + batch.count * RECORD_COSTS_BYTES
            topics[partition.topic] = topic
            by_leader.setdefault(leader, {})[partition] = queue
        for leader, queues in by_leader.items():
            self._send(leader, queues, topics)
        if self._ready and self._flush is None:
            self._flush = self._loop.call_soon(self._send_ready)

    def _send(self, leader: int, queues: Mapping[TopicPartition, PartitionQueue], topics: Mapping[str, Topic]) -> None:
        data = {partition: queue.batch.data for partition, queue in queues.items() if queue.batch is not None}
        produce = Produce(topics.__getitem__, data, REPLICATION_MS)
        answer = self._brokers.send(leader, ApiKey.PRODUCE, produce.request, REQUEST_MS)
        answer.then(partial(self._on_answer, queues, produce))

    def _on_answer(self, queues: Mapping[TopicPartition, PartitionQueue], produce: Produce, response: Any) -> None:
        if self._is_closed:
            return  # what became of these was said
        now = self._loop.time()
        try:
            if isinstance(response, KafkaError):
                raise response
            results = produce.partitions(response)
        except (KafkaError, MalformedData) as error:
            code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
            for queue in queues.values():
                self._after(queue, queue.on_answer(code, -1, str(error), now))
            return
        for partition, result in results.items():
            queue = queues[partition]
            code = ErrorCode(result.error_code)
            self._after(queue, queue.on_answer(code, result.base_offset, result.error_message, now))

    def _after(self, queue: PartitionQueue, what: Next) -> None:
        if what is Next.GO_ON:
            queue.is_busy = False
            self._send_soon(queue)
        else:
            self._brokers.forget(queue.partition.topic)
            self._loop.call_later(queue.backoff_s, self._again, queue)

    def _again(self, queue: PartitionQueue) -> None:
        queue.is_busy = False
        self._send_soon(queue)

    # --- what must be known before a batch can be sent --------------------------------------------------------------

    async def _learn(self, queue: PartitionQueue) -> None:
        """Get what is missing for a partition, and send again."""
        try:
            topic = await self._brokers.topic(queue.partition.topic)
            queue.missing_failures = 0
            if self._brokers.leader(topic, queue.partition.partition) is None:
                self._brokers.forget(topic.name)
                raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{queue.partition} has no leader")
            if queue.producer is None:
                queue.producer = await self._new_producer()
            queue.is_busy = False
        except KafkaError as error:
            queue.missing_failures += error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if error.code in RETRIABLE and queue.missing_failures <= MISSING_FAILURES_MAX:
                self._after(queue, queue.on_obstacle(error, self._loop.time()))
                return
            queue.fail(error)
            queue.is_busy, queue.missing_failures = False, 0
        self._send_soon(queue)

    async def _new_producer(self) -> ProducerIdAndEpoch:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._brokers.ask_any(ApiKey.INIT_PRODUCER_ID, request)
        if response.error_code:
            raise _no_producer_id(ErrorCode(response.error_code))
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _no_producer_id(code: ErrorCode) -> KafkaError:
    is_refused = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return KafkaError(code, "no right to write to any topic" if is_refused else f"no producer id: {code.name}")


def _closed() -> KafkaError:
    return KafkaError(ErrorCode.NETWORK_EXCEPTION, "the gateway stops")
