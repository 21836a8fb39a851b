"""A consumer that reads all partitions of its topic from their leaders, from the first record on. What it has read must
never change, and the end offset that ListOffsets returns must never decrease.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.client import NO_NODE, ClusterClient, Leader
from cluster.ledger import Ledger
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX, BatchHeader, has_valid_crc, read_header
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

FETCH_WAIT_MS = 400
FETCH_TIMEOUT_MS = 2_000
END_GAP_MS = 1_500
LATEST = -1
EARLIEST = -2
FETCH_BYTES = 4_096
RACKS = ("east", "west")
UNKNOWN_TOPIC_ERRORS = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The topic does not exist, or a broker does not know it yet."""
TRY_AGAIN = {
    *UNKNOWN_TOPIC_ERRORS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
}


@dataclass(slots=True, eq=False)
class Place:
    """The position of a consumer in one partition."""

    topic_id: Uuid
    partition: int
    position: int = 0
    last_epoch: int = -1
    """Leader epoch of the last batch that was read."""
    checked_epoch: int = -1
    """The leader epoch in which the position was last validated."""
    end: int = -1
    """The latest offset that a leader returned."""
    high_watermark: int = -1
    high_watermark_epoch: int = -1
    is_fetching: bool = False
    failures: int = 0
    """Failures since the last response."""
    replica: int = NO_NODE
    """A follower nearer than the leader, which the leader recommended (KIP-392)."""


def whole_batches(records: Any) -> Iterator[memoryview]:
    """Yield the whole batches; the last one of a fetch may be cut short and is fetched again."""
    data = memoryview(records) if records else memoryview(b"")
    while len(data) >= BATCH_HEADER_BYTES:
        size = LENGTH_PREFIX.unpack_from(data)[1] + LENGTH_PREFIX.size
        if size > len(data):
            return
        yield data[:size]
        data = data[size:]


class Consumer(ClusterClient):
    isolation_level = 0
    """0 reads uncommitted records, 1 does not."""
    may_skip = False
    """Whether records that once existed may be missing, as after compaction."""

    def __init__(self, world: ClusterWorld, name: str, topic: str, rng: Random) -> None:
        super().__init__(world, name, topic, rng)
        self._rack = rng.choice(RACKS)
        self.places: dict[int, Place] = {}
        self.refresh()
        self.later(END_GAP_MS, self._look_at_ends)

    def topic_changed(self) -> None:
        self.places = {}

    def leaders_known(self) -> None:
        assert self.topic_id is not None
        for partition in self.leaders:
            if partition not in self.places:
                self.places[partition] = Place(self.topic_id, partition)
        self._continue()

    @property
    def _may_be_another(self) -> bool:
        """Whether a request by name may be answered for a topic that was created since."""
        return self.topic in self.world.fleeting

    def _is_current(self, place: Place) -> bool:
        return self.places.get(place.partition) is place

    def _continue(self) -> None:
        """Fetch or validate every partition whose leader is known."""
        by_node: dict[int, list[Place]] = {}
        for place in self.places.values():
            leader = self.leader_of(place.partition)
            if leader is None or place.is_fetching:
                continue
            place.is_fetching = True
            if place.checked_epoch < leader.epoch and place.last_epoch >= 0:
                self._look_at_end(place, leader)
                self._check_position(place, leader)
            else:
                node_id = place.replica if place.replica in self.brokers else leader.node_id
                by_node.setdefault(node_id, []).append(place)
        for node_id, places in by_node.items():
            self._fetch(node_id, places)

    def _rest(self, places: list[Place]) -> None:
        """After a failure, refresh the metadata and try again a little later."""
        self.refresh()

        def resume() -> None:
            for place in places:
                place.is_fetching = False
            self._continue()

        self.retry(resume, max(place.failures for place in places))
        for place in places:
            place.failures += 1
            place.replica = NO_NODE

    # --- fetching -------------------------------------------------------------------------------------------------

    def _fetch(self, node_id: int, places: list[Place]) -> None:
        requested = [
            FetchPartition(
                place.partition, self.leaders[place.partition].epoch, place.position, partition_max_bytes=FETCH_BYTES
            )
            for place in places
        ]
        epochs = {place.partition: self.leaders[place.partition].epoch for place in places}
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=4 * FETCH_BYTES,
            isolation_level=self.isolation_level,
            topics=[FetchTopic(places[0].topic_id, "", requested)],
            rack_id=self._rack,
        )
        purpose = f"read-{places[0].partition}"
        self.ask(
            node_id,
            ApiKey.FETCH,
            17,
            request,
            lambda reply: self._fetched(places, epochs, reply),
            purpose,
            FETCH_TIMEOUT_MS,
        )

    def _fetched(self, places: list[Place], epochs: dict[int, int], reply: FetchResponse | KafkaError) -> None:
        if isinstance(reply, KafkaError) or reply.error_code:
            code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.error_code)
            self._judge(code, "fetches")
            self._rest(places)
            return
        failed = []
        answered = {each.partition_index: each for topic in reply.responses for each in topic.partitions}
        for place in places:
            partition_data = answered.get(place.partition)
            if not self._is_current(place):
                continue
            if (
                partition_data is not None
                and partition_data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
                and self._may_be_deleted(place)
            ):
                self._begin_at_start(place)
            elif partition_data is None or partition_data.error_code:
                code = (
                    ErrorCode.UNKNOWN_SERVER_ERROR if partition_data is None else ErrorCode(partition_data.error_code)
                )
                if code is not ErrorCode.OFFSET_OUT_OF_RANGE or place.replica == NO_NODE:
                    self._judge(code, f"fetches {place.partition} at {place.position}")
                failed.append(place)
            else:
                place.is_fetching = False
                place.failures = 0
                self.take(place, epochs[place.partition], partition_data)
        if failed:
            self._rest(failed)
        self._continue()

    def _judge(self, code: ErrorCode, what: str) -> None:
        self.trace_result(what, code)
        if code not in TRY_AGAIN:
            self.world.violated(f"{self.name} {what}: {code.name}")

    def take(self, place: Place, epoch: int, partition_data: Any) -> None:
        if partition_data.preferred_read_replica != NO_NODE:
            place.replica = partition_data.preferred_read_replica
            return
        if place.replica != NO_NODE:
            epoch = NO_NODE  # a follower's high watermark may be behind
        elif place.high_watermark_epoch == epoch and partition_data.high_watermark < place.high_watermark:
            self.world.violated(
                f"{self.name}: the high watermark of {place.partition} decreases from {place.high_watermark} "
                f"to {partition_data.high_watermark} in epoch {epoch}"
            )
        place.high_watermark, place.high_watermark_epoch = partition_data.high_watermark, epoch
        end = self.readable_end(place, epoch, partition_data)
        self.begins(place, epoch, partition_data.log_start_offset)
        for batch in whole_batches(partition_data.records):
            self._read(place, batch, end)

    def readable_end(self, place: Place, epoch: int, partition_data: Any) -> int:
        """Return the offset that no returned record may reach. `epoch` is -1 for a follower's response."""
        return int(partition_data.high_watermark)

    def begins(self, place: Place, epoch: int, start_offset: int) -> None:
        """Check the log start offset of a response. `epoch` is -1 for a follower's response."""
        self._ledger(place).begins(self.name, start_offset)

    def was_read(self, place: Place, header: BatchHeader, batch: memoryview) -> None:
        """Called with each batch that was read."""

    def _read(self, place: Place, batch: memoryview, end: int) -> None:
        header = read_header(batch)
        if not has_valid_crc(batch):
            self.world.violated(f"{self.name}: a batch of {place.partition} at {header.base_offset} has a wrong CRC")
        if header.last_offset >= end:
            self.world.violated(
                f"{self.name} reads {place.partition} up to {header.last_offset}, the readable end is {end}"
            )
        if header.next_offset <= place.position:
            return
        if header.base_offset > place.position and not self.may_skip:
            self.world.violated(f"{self.name}: {place.partition} has no record at {place.position}")
        self.world.audit.was_read(self.name, place.topic_id, place.partition, header, batch)
        place.position, place.last_epoch = header.next_offset, header.leader_epoch
        self.was_read(place, header, batch)

    # --- validation of the position -------------------------------------------------------------------------------

    def _check_position(self, place: Place, leader: Leader) -> None:
        requested = OffsetForLeaderPartition(place.partition, leader.epoch, place.last_epoch)
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(self.topic, [requested])])
        epoch = leader.epoch
        self.ask(
            leader.node_id,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            4,
            request,
            lambda reply: self._position_checked(place, epoch, reply),
            "check",
        )

    def _position_checked(self, place: Place, epoch: int, reply: OffsetForLeaderEpochResponse | KafkaError) -> None:
        if not self._is_current(place):
            return
        partition_data = None if isinstance(reply, KafkaError) else reply.topics[0].partitions[0]
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if partition_data is None or code is not ErrorCode.NONE:
            self._judge(code, f"validates its position in {place.partition}")
            self._rest([place])
            return
        is_cut = partition_data.leader_epoch < place.last_epoch or partition_data.end_offset < place.position
        # A log that starts here need not know the epochs of earlier records.
        is_known = place.position > self._ledger(place).start
        if is_cut and is_known and not self._may_be_another:
            self.world.violated(
                f"{self.name} has read {place.partition} up to {place.position} of epoch {place.last_epoch}; "
                f"now epoch {partition_data.leader_epoch} ends at {partition_data.end_offset}"
            )
        place.checked_epoch = epoch
        place.is_fetching = False
        self._continue()

    # --- the log start offset -------------------------------------------------------------------------------------

    def _ledger(self, place: Place) -> Ledger:
        return self.world.audit.ledger(place.topic_id, place.partition)

    def _may_be_deleted(self, place: Place) -> bool:
        """Whether the next records may have been deleted. A follower may only be behind: then the leader is asked."""
        return place.replica == NO_NODE and place.position < self._ledger(place).start

    def _begin_at_start(self, place: Place) -> None:
        leader = self.leader_of(place.partition)
        if leader is None:
            self._rest([place])
            return
        requested = ListOffsetsPartition(place.partition, leader.epoch, EARLIEST)
        request = ListOffsetsRequest(-1, self.isolation_level, [ListOffsetsTopic(self.topic, [requested])])
        self.ask(
            leader.node_id, ApiKey.LIST_OFFSETS, 8, request, lambda reply: self._start_found(place, reply), "start"
        )

    def _start_found(self, place: Place, reply: ListOffsetsResponse | KafkaError) -> None:
        if not self._is_current(place):
            return
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self._judge(code, f"looks up the start of {place.partition}")
            self._rest([place])
            return
        start = reply.topics[0].partitions[0].offset
        if not self._may_be_another:
            self._ledger(place).begins(self.name, start)
        if start > place.position:
            place.position, place.last_epoch = start, -1
            self.skipped(place)
        place.is_fetching = False
        self._continue()

    def skipped(self, place: Place) -> None:
        """Called when it continues at a higher offset because records were deleted."""

    # --- the latest offset ----------------------------------------------------------------------------------------

    def _look_at_ends(self) -> None:
        self.later(END_GAP_MS, self._look_at_ends)
        if not self.places:
            return
        place = self.rng.choice(list(self.places.values()))
        leader = self.leader_of(place.partition)
        if leader is not None:
            self._look_at_end(place, leader)

    def _look_at_end(self, place: Place, leader: Leader) -> None:
        requested = ListOffsetsPartition(place.partition, leader.epoch, LATEST)
        request = ListOffsetsRequest(-1, self.isolation_level, [ListOffsetsTopic(self.topic, [requested])])
        known = max(place.end, place.position)
        self.ask(
            leader.node_id, ApiKey.LIST_OFFSETS, 8, request, lambda reply: self._end_found(place, known, reply), "end"
        )

    def _end_found(self, place: Place, known: int, reply: ListOffsetsResponse | KafkaError) -> None:
        """Check the latest offset. `known` is what it was at the request: responses on different connections may
        overtake each other."""
        if not self._is_current(place):
            return
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self._judge(code, f"looks up the end of {place.partition}")
            return
        end = reply.topics[0].partitions[0].offset
        # Before a log start offset that was moved, or was moved back by a crash, a transaction may be open as before.
        is_deleted = end <= self._ledger(place).start > 0
        if end < known and not is_deleted and not self._may_be_another:
            self.world.violated(f"{self.name}: the end of {place.partition} decreases from {known} to {end}")
        place.end = max(place.end, end)
