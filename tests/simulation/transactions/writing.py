"""Batches of a transaction on their way to its partitions: several in flight, sent again in order until all are
acknowledged or one is refused for good.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cluster.ledger import name_of
from cluster.producers import ACKS_ALL, MOVED, TRY_AGAIN, WAIT_MS, produced
from cluster.scripted import Then

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.records import Record, build_batch
from transactions.client import Place

if TYPE_CHECKING:
    from transactions.producer import TransactionalProducer

IN_FLIGHT_MAX = 5
PATIENCE_MS = 2_500
"""How long it tries to write to a topic that may be deleted."""
ABORTS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }
)
"""Errors that end the transaction, or this write of it."""
AGAIN = frozenset(
    {
        *TRY_AGAIN,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


@dataclass(slots=True, eq=False)
class Lane:
    """A partition as one epoch of a producer sees it."""

    topic_id: Uuid | None = None
    """Id of the topic: a recreated topic has none of what was written."""
    end_offset: int = 0
    """Next offset after the last acknowledged record."""
    next_sequence: int = 0
    is_known: bool = False
    """Whether something of this epoch was acknowledged, so that the partition has its state."""
    acknowledged_by: int | None = None
    """The node of the last acknowledgement."""


@dataclass(slots=True, eq=False)
class Batch:
    values: list[bytes]
    sequence: int
    data: bytes
    was_sent_in_time: bool = False
    """Whether it was sent before another process took over the transactional id."""
    is_acknowledged: bool = False


@dataclass(slots=True, eq=False)
class Queue:
    place: Place
    lane: Lane
    unsent: deque[Batch]
    in_flight: list[Batch] = field(default_factory=list)
    attempt: int = 0
    is_waiting: bool = False
    failures: int = 0
    began_ms: int = 0


class Writing:
    """Writes all batches; completes with NONE when all are acknowledged, or with the error for which it gave up."""

    def __init__(
        self, client: TransactionalProducer, lanes: dict[Place, Lane], batches: dict[Place, list[list[Record]]]
    ) -> None:
        self._client = client
        self._then: Then | None = None
        self._queues = []
        for place, given in batches.items():
            lane = lanes.setdefault(place, Lane())
            if lane.topic_id is None and (leader := client.routes.get(place)) is not None:
                lane.topic_id = leader.topic_id
            queue = Queue(place, lane, deque(self._batch(lane, records) for records in given))
            queue.began_ms = client.world.elapsed_ms
            self._queues.append(queue)

    def _batch(self, lane: Lane, records: list[Record]) -> Batch:
        sequence, lane.next_sequence = lane.next_sequence, lane.next_sequence + len(records)
        data = build_batch(
            records,
            producer_id=self._client.producer_id,
            producer_epoch=self._client.producer_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return Batch([name_of(record) for record in records], sequence, bytes(data))

    def ask(self, then: Then) -> None:
        self._then = then
        for queue in self._queues:
            self._fill(queue)

    def _over(self, code: ErrorCode) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(code)

    def _fill(self, queue: Queue) -> None:
        """Send batches; the first of an epoch goes alone if a broker without its state would accept any sequence."""
        window = IN_FLIGHT_MAX if queue.lane.is_known or self._client.is_v2 else 1
        while queue.unsent and len(queue.in_flight) < window and not queue.is_waiting:
            batch = queue.unsent.popleft()
            queue.in_flight.append(batch)
            self._send(queue, batch)
            if self._then is None:
                return

    def _send(self, queue: Queue, batch: Batch) -> None:
        client = self._client
        leader = client.route(queue.place)
        if self._is_lost(queue):
            self._over(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        if leader is None:
            self._again(queue)
            return
        queue.lane.topic_id = leader.topic_id
        batch.was_sent_in_time |= not client.is_replaced
        topic, partition = queue.place
        attempt = queue.attempt
        data = [PartitionProduceData(partition, batch.data)]
        request = ProduceRequest(
            client.transactional_id, ACKS_ALL, WAIT_MS, [TopicProduceData(leader.topic_id, topic, data)]
        )
        version = 13 if client.is_v2 else 11
        client.ask(
            leader.node_id,
            ApiKey.PRODUCE,
            version,
            request,
            lambda reply: self._replied(queue, batch, attempt, leader.node_id, reply),
            "write",
        )

    def _is_lost(self, queue: Queue) -> bool:
        """Whether the topic was deleted, or seems so: it was not found for long, or has another id."""
        client, lane = self._client, queue.lane
        if not client.world.may_be_deleted(queue.place[0]):
            return False
        leader = client.routes.get(queue.place)
        is_another = leader is not None and lane.topic_id not in (None, leader.topic_id)
        return is_another or client.world.elapsed_ms - queue.began_ms > PATIENCE_MS

    def _replied(
        self, queue: Queue, batch: Batch, attempt: int, node_id: int, reply: ProduceResponse | KafkaError
    ) -> None:
        if batch.is_acknowledged or self._then is None:
            return
        client = self._client
        code, partition = produced(reply)
        if partition is not None and code is ErrorCode.NONE:
            self._acknowledged(queue, batch, node_id, partition.base_offset)
            return
        if attempt != queue.attempt:
            return
        why = "" if partition is None else partition.error_message
        client.trace_result(f"{batch.values[0].decode()} #{batch.sequence} at n{node_id}: {why}", code)
        if code in ABORTS:
            self._over(code)
            return
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            if self._may_be_forgotten(queue):
                self._over(code)
                return
            # Another node may be a former leader that does not know yet that it was replaced.
            if batch is queue.in_flight[0] and queue.lane.acknowledged_by in (None, node_id):
                client.world.violated(
                    f"{client.name}: {batch.values[0]!r} is out of order although all earlier records are acknowledged"
                )
        elif code not in AGAIN:
            client.world.violated(f"{client.name}: {batch.values[0]!r} is refused with {code.name}")
        if code in MOVED:
            client.refresh()
        self._again(queue)

    def _may_be_forgotten(self, queue: Queue) -> bool:
        """Whether all its records there are deleted, so that a later leader has no state of it; or, for writes by name,
        whether the topic was recreated."""
        lane, topic = queue.lane, queue.place[0]
        assert lane.topic_id is not None
        ledger = self._client.world.audit.ledger(lane.topic_id, queue.place[1])
        is_by_name = not self._client.is_v2 and self._client.world.may_be_deleted(topic)
        return is_by_name or 0 < lane.end_offset <= ledger.start

    def _acknowledged(self, queue: Queue, batch: Batch, node_id: int, offset: int) -> None:
        client = self._client
        batch.is_acknowledged = queue.lane.is_known = True
        queue.lane.acknowledged_by = node_id
        queue.in_flight.remove(batch)
        queue.failures = 0
        topic, partition = queue.place
        client.world.trace(f"{client.name} {topic}-{partition} {batch.values[0].decode()} at {offset}")
        queue.lane.end_offset = offset + len(batch.values)
        if client.is_v2 or not client.world.may_be_deleted(topic):
            # Otherwise it is unknown which topic had the name there.
            assert queue.lane.topic_id is not None
            client.world.audit.acknowledged(queue.lane.topic_id, partition, offset, batch.values)
        if not batch.was_sent_in_time:
            client.world.violated(
                f"{client.name} has written {batch.values[0]!r} although another process had replaced it"
            )
        self._fill(queue)
        if not any(each.in_flight or each.unsent for each in self._queues):
            self._over(ErrorCode.NONE)

    def _again(self, queue: Queue) -> None:
        queue.attempt += 1
        if not queue.is_waiting:
            queue.is_waiting = True
            self._client.retry(lambda: self._resend(queue), queue.failures)
            queue.failures += 1

    def _resend(self, queue: Queue) -> None:
        queue.is_waiting = False
        if self._then is None:
            return
        if self._is_lost(queue):
            self._over(ErrorCode.UNKNOWN_TOPIC_ID)
            return
        if self._client.route(queue.place) is None:
            self._client.refresh()
            self._again(queue)
            return
        for batch in list(queue.in_flight):
            self._send(queue, batch)
        self._fill(queue)
