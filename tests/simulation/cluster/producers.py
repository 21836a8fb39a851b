"""Idempotent producers, whose every acknowledged record must be stored once and in order, and careless producers, which
have no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from cluster.client import ClusterClient, Leader
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.records import NEXT_OFFSET, Record, build_batch

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

IN_FLIGHT_MAX = 5
RECORDS_MAX = 4
ACKS_ALL = -1
WAIT_MS = 1_500
"""How long a leader may wait for the in-sync replicas."""
TRY_AGAIN = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNSUPPORTED_VERSION,  # the client's own error for a node that is no broker any more
}
MOVED = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
}


@dataclass(slots=True, eq=False)
class Batch:
    place: int
    """Index among the batches of its lane."""
    first: int
    """Number of its first record in its lane, which is also its sequence."""
    values: list[bytes]
    data: bytes
    is_acknowledged: bool = False


@dataclass(slots=True, eq=False)
class Lane:
    """One partition as a producer sees it."""

    topic_id: Uuid
    partition: int
    queue: list[Batch] = field(default_factory=list)
    """Unacknowledged batches, in order."""
    next_number: int = 0
    batches: int = 0
    attempt: int = 0
    """Grows when all unacknowledged batches are sent again: errors of earlier attempts are ignored then."""
    is_waiting: bool = False
    """Whether another attempt is scheduled."""
    failures: int = 0
    """Failures since the last acknowledgement."""
    acknowledged_by: int | None = None
    """The node of the last acknowledgement."""


class Producer(ClusterClient):
    """Idempotent, acks=all, several requests in flight, retries for ever."""

    def __init__(self, world: ClusterWorld, name: str, topic: str, rng: Random, gap_ms: int) -> None:
        super().__init__(world, name, topic, rng)
        self._gap_ms = gap_ms
        self.producer_id = -1
        self.producer_epoch = -1
        self.lanes: dict[int, Lane] = {}
        self.is_over = False
        """Whether it sends only what it has already begun."""
        self._begin()

    @property
    def is_idle(self) -> bool:
        return all(not lane.queue for lane in self.lanes.values())

    def _begin(self) -> None:
        request = InitProducerIdRequest(None, -1, -1, -1)
        self.ask(self.some_broker(), ApiKey.INIT_PRODUCER_ID, 4, request, self._initialised, "metadata")

    def _initialised(self, response: InitProducerIdResponse | KafkaError) -> None:
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        self.trace_result("gets a producer id", code)
        if isinstance(response, KafkaError) or code is not ErrorCode.NONE:
            self.retry(self._begin)
            return
        self.world.audit.producer_id_given(self.name, response.producer_id)
        self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
        self.refresh()
        self._write()

    def topic_changed(self) -> None:
        self.lanes = {}

    def leaders_known(self) -> None:
        assert self.topic_id is not None
        for partition in self.leaders:
            if partition not in self.lanes:
                self.lanes[partition] = self.new_lane(self.topic_id, partition)

    def new_lane(self, topic_id: Uuid, partition: int) -> Lane:
        return Lane(topic_id, partition)

    # --- writing --------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if self.is_over:
            return
        self.later(1 + int(self.rng.expovariate(1) * self._gap_ms), self._write)
        if self.lanes and self.producer_id >= 0:
            lane = self.lanes[self.rng.choice(list(self.lanes))]
            if self._has_room(lane):
                self._put(lane)

    def _has_room(self, lane: Lane) -> bool:
        """Whether another batch may be sent. The first one goes alone, because a broker without state of the producer
        accepts any sequence; and no batch may be so far ahead that a broker has forgotten the first unacknowledged
        one."""
        return not lane.queue or max(0, lane.batches - IN_FLIGHT_MAX) < lane.queue[0].place

    def _put(self, lane: Lane) -> None:
        batch = self.new_batch(lane)
        lane.batches += 1
        lane.queue.append(batch)
        if not lane.is_waiting:
            self._send(lane, batch)

    def new_batch(self, lane: Lane) -> Batch:
        count = self.rng.randint(1, RECORDS_MAX)
        first, lane.next_number = lane.next_number, lane.next_number + count
        values = [f"{self.name}/{lane.partition}/{first + place}".encode() for place in range(count)]
        return Batch(lane.batches, first, values, self.encoded(values, first))

    def encoded(self, values: list[bytes], sequence: int) -> bytes:
        data = build_batch(
            [self.record(value) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=sequence,
        )
        return bytes(data)

    def record(self, name: bytes) -> Record:
        return Record(NEXT_OFFSET, self.world.clock.now_ms(), None, name)

    def _send(self, lane: Lane, batch: Batch) -> None:
        leader = self.leader_of(lane.partition)
        if leader is None:
            self._again(lane)
            return
        attempt = lane.attempt
        request = produce_request(ACKS_ALL, leader, lane.partition, batch.data)
        self.ask(
            leader.node_id,
            ApiKey.PRODUCE,
            13,
            request,
            lambda reply: self._replied(lane, batch, attempt, leader.node_id, reply),
            "write",
        )

    def _replied(
        self, lane: Lane, batch: Batch, attempt: int, node_id: int, reply: ProduceResponse | KafkaError
    ) -> None:
        if lane is not self.lanes.get(lane.partition) or batch.is_acknowledged:
            return
        code, partition = produced(reply)
        if partition is not None and code is ErrorCode.NONE:
            batch.is_acknowledged = True
            lane.failures = 0
            lane.acknowledged_by = node_id
            lane.queue.remove(batch)
            self.world.trace(f"{self.name} {lane.partition}@{batch.first} at {partition.base_offset}")
            self.world.audit.acknowledged(lane.topic_id, lane.partition, partition.base_offset, batch.values)
            return
        if attempt != lane.attempt:
            return
        self.trace_result(f"{lane.partition}@{batch.first}", code)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # Another node may be a former leader that does not know yet that it was replaced.
            if batch is lane.queue[0] and lane.acknowledged_by in (None, node_id):
                self.world.violated(
                    f"{self.name}: {batch.values[0]!r} is out of order although all earlier records are acknowledged"
                )
        elif code not in TRY_AGAIN:
            self.world.violated(f"{self.name}: {batch.values[0]!r} is refused with {code.name}")
        if code in MOVED:
            self.refresh()
        self._again(lane)

    def _again(self, lane: Lane) -> None:
        """Send all unacknowledged batches again, in order."""
        lane.attempt += 1
        if not lane.is_waiting:
            lane.is_waiting = True
            self.retry(lambda: self._resend(lane), lane.failures)
            lane.failures += 1

    def _resend(self, lane: Lane) -> None:
        lane.is_waiting = False
        if lane is not self.lanes.get(lane.partition):
            return
        if self.leader_of(lane.partition) is None:
            self.refresh()
            self._again(lane)
            return
        for batch in list(lane.queue):
            self._send(lane, batch)


class CarelessProducer(ClusterClient):
    """acks=1, one attempt for each record, no guarantee."""

    def __init__(self, world: ClusterWorld, name: str, topic: str, rng: Random, gap_ms: int) -> None:
        super().__init__(world, name, topic, rng)
        self._gap_ms = gap_ms
        self._sent = 0
        self.is_over = False
        self.refresh()
        self._write()

    @property
    def is_idle(self) -> bool:
        return True

    def _write(self) -> None:
        if self.is_over:
            return
        self.later(1 + int(self.rng.expovariate(1) * self._gap_ms), self._write)
        if not self.leaders:
            return
        partition = self.rng.choice(list(self.leaders))
        leader = self.leader_of(partition)
        if leader is None:
            self.refresh()
            return
        self._sent += 1
        value = f"{self.name}/-/{self._sent}".encode()
        data = build_batch([Record(NEXT_OFFSET, self.world.clock.now_ms(), None, value)])
        request = produce_request(1, leader, partition, bytes(data))
        self.ask(leader.node_id, ApiKey.PRODUCE, 13, request, self._replied, "write")

    def _replied(self, reply: ProduceResponse | KafkaError) -> None:
        code, _ = produced(reply)
        self.trace_result("writes with acks=1", code)
        if code in MOVED:
            self.refresh()
        elif code is not ErrorCode.NONE and code not in TRY_AGAIN:
            self.world.violated(f"{self.name} writes with acks=1: {code.name}")


def produce_request(acks: int, leader: Leader, partition: int, data: bytes, wait_ms: int = WAIT_MS) -> ProduceRequest:
    topic = TopicProduceData(leader.topic_id, "", [PartitionProduceData(partition, data)])
    return ProduceRequest(None, acks, wait_ms, [topic])


def produced(reply: ProduceResponse | KafkaError) -> tuple[ErrorCode, PartitionProduceResponse | None]:
    if isinstance(reply, KafkaError):
        return reply.code, None
    partition = reply.responses[0].partition_responses[0]
    return ErrorCode(partition.error_code), partition
