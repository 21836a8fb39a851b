"""Those who read: a consumer that follows the leaders of its topic's partitions from the first record on. What it has
read once must stay so, and what it is told to be the end must not go back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

from cluster_client import NOBODY, ClusterClient, Leader
from cluster_ledger import Ledger

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.apis import ApiKey
from moldau.wire.batch import BATCH_HEADER_BYTES, LENGTH_PREFIX, BatchHeader, check_crc, read_header
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
    from cluster_world import World

FETCH_WAIT_MS = 400
FETCH_TIMEOUT_MS = 2_000
END_GAP_MS = 1_500
LATEST = -1
EARLIEST = -2
FETCH_BYTES = 4_096
RACKS = ("east", "west")
GONE = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""There is no such topic, or somebody has not heard of it yet."""
TRY_AGAIN = {
    *GONE,
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
    """How far one partition was read."""

    topic_id: Uuid
    partition: int
    position: int = 0
    last_epoch: int = -1
    """Of the batch that was read last."""
    checked_epoch: int = -1
    """The leader epoch in which the position was last found to be good."""
    end: int = -1
    """What it was last told to be the end, by a leader who may say so."""
    high_watermark: int = -1
    high_watermark_epoch: int = -1
    is_fetching: bool = False
    failures: int = 0
    """Since it was last answered."""
    replica: int = NOBODY
    """A follower nearer than the leader, to which the leader has sent it (KIP-392)."""


def whole_batches(records: Any) -> Iterator[memoryview]:
    """The last one of a fetch may be cut short: it comes again."""
    data = memoryview(records) if records else memoryview(b"")
    while len(data) >= BATCH_HEADER_BYTES:
        size = LENGTH_PREFIX.unpack_from(data)[1] + LENGTH_PREFIX.size
        if size > len(data):
            return
        yield data[:size]
        data = data[size:]


class Consumer(ClusterClient):
    isolation_level = 0
    """Whether it reads what is not decided yet."""
    may_skip = False
    """Whether offsets may be missing that were there once."""

    def __init__(self, world: World, name: str, topic: str, rng: Random) -> None:
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
        self._go_on()

    @property
    def _may_be_another(self) -> bool:
        """What is asked by name may be answered for a topic that was made since."""
        return self.topic in self.world.fleeting

    def _is_current(self, place: Place) -> bool:
        return self.places.get(place.partition) is place

    def _go_on(self) -> None:
        """Every partition whose leader is known is either being fetched or being looked after."""
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
        """After a failure: ask who leads, and try again a little later."""
        self.refresh()

        def go_on() -> None:
            for place in places:
                place.is_fetching = False
            self._go_on()

        self.retry(go_on, max(place.failures for place in places))
        for place in places:
            place.failures += 1
            place.replica = NOBODY

    # --- fetching -------------------------------------------------------------------------------------------------

    def _fetch(self, node_id: int, places: list[Place]) -> None:
        asked = [
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
            topics=[FetchTopic(places[0].topic_id, "", asked)],
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
            self._judge(code, "is refused a fetch")
            self._rest(places)
            return
        failed = []
        answered = {each.partition_index: each for topic in reply.responses for each in topic.partitions}
        for place in places:
            found = answered.get(place.partition)
            if not self._is_current(place):
                continue
            if found is not None and found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and self._may_be_gone(place):
                self._begin_at_start(place)
            elif found is None or found.error_code:
                code = ErrorCode.UNKNOWN_SERVER_ERROR if found is None else ErrorCode(found.error_code)
                if code is not ErrorCode.OFFSET_OUT_OF_RANGE or place.replica == NOBODY:
                    self._judge(code, f"{place.partition} at {place.position}")
                failed.append(place)
            else:
                place.is_fetching = False
                place.failures = 0
                self.take(place, epochs[place.partition], found)
        if failed:
            self._rest(failed)
        self._go_on()

    def _judge(self, code: ErrorCode, what: str) -> None:
        self.told(what, code)
        if code not in TRY_AGAIN:
            self.world.violated(f"{self.name} {what}: {code.name}")

    def take(self, place: Place, epoch: int, found: Any) -> None:
        if found.preferred_read_replica != NOBODY:
            place.replica = found.preferred_read_replica
            return
        if place.replica != NOBODY:
            epoch = NOBODY  # a follower's is its own, and may be behind
        elif place.high_watermark_epoch == epoch and found.high_watermark < place.high_watermark:
            self.world.violated(
                f"{self.name}: the high watermark of {place.partition} goes back from {place.high_watermark} "
                f"to {found.high_watermark} in epoch {epoch}"
            )
        place.high_watermark, place.high_watermark_epoch = found.high_watermark, epoch
        end = self.readable_end(place, epoch, found)
        self.begins(place, epoch, found.log_start_offset)
        for batch in whole_batches(found.records):
            self._read(place, batch, end)

    def readable_end(self, place: Place, epoch: int, found: Any) -> int:
        """Nothing that is shown may reach it. `epoch` is -1 for what a follower says."""
        return int(found.high_watermark)

    def begins(self, place: Place, epoch: int, start_offset: int) -> None:
        """It is told where the log begins. `epoch` is -1 for what a follower says."""
        self._ledger(place).begins(self.name, start_offset)

    def was_read(self, place: Place, header: BatchHeader, batch: memoryview) -> None:
        """The next batch."""

    def _read(self, place: Place, batch: memoryview, end: int) -> None:
        header = read_header(batch)
        if not check_crc(batch):
            self.world.violated(f"{self.name}: a batch of {place.partition} at {header.base_offset} has a wrong CRC")
        if header.last_offset >= end:
            self.world.violated(
                f"{self.name} is shown {place.partition} up to {header.last_offset}, {end} is the end for it"
            )
        if header.next_offset <= place.position:
            return
        if header.base_offset > place.position and not self.may_skip:
            self.world.violated(f"{self.name}: {place.partition} has nothing at {place.position}")
        self.world.audit.was_read(self.name, place.topic_id, place.partition, header, batch)
        place.position, place.last_epoch = header.next_offset, header.leader_epoch
        self.was_read(place, header, batch)

    # --- whether the position is still good -----------------------------------------------------------------------

    def _check_position(self, place: Place, leader: Leader) -> None:
        asked = OffsetForLeaderPartition(place.partition, leader.epoch, place.last_epoch)
        request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(self.topic, [asked])])
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
        found = None if isinstance(reply, KafkaError) else reply.topics[0].partitions[0]
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if found is None or code is not ErrorCode.NONE:
            self._judge(code, f"{place.partition} has its position checked")
            self._rest([place])
            return
        is_cut = found.leader_epoch < place.last_epoch or found.end_offset < place.position
        # A log that begins here need not know the epochs of what was before it.
        is_known = place.position > self._ledger(place).start
        if is_cut and is_known and not self._may_be_another:
            self.world.violated(
                f"{self.name} has read {place.partition} up to {place.position} of epoch {place.last_epoch}; "
                f"now epoch {found.leader_epoch} ends at {found.end_offset}"
            )
        place.checked_epoch = epoch
        place.is_fetching = False
        self._go_on()

    # --- where the beginning is -----------------------------------------------------------------------------------

    def _ledger(self, place: Place) -> Ledger:
        return self.world.audit.ledger(place.topic_id, place.partition)

    def _may_be_gone(self, place: Place) -> bool:
        """What would come next, by what people have deleted. A follower may only be behind: the leader is asked."""
        return place.replica == NOBODY and place.position < self._ledger(place).start

    def _begin_at_start(self, place: Place) -> None:
        leader = self.leader_of(place.partition)
        if leader is None:
            self._rest([place])
            return
        asked = ListOffsetsPartition(place.partition, leader.epoch, EARLIEST)
        request = ListOffsetsRequest(-1, self.isolation_level, [ListOffsetsTopic(self.topic, [asked])])
        self.ask(
            leader.node_id, ApiKey.LIST_OFFSETS, 8, request, lambda reply: self._start_found(place, reply), "start"
        )

    def _start_found(self, place: Place, reply: ListOffsetsResponse | KafkaError) -> None:
        if not self._is_current(place):
            return
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self._judge(code, f"{place.partition} looks for its beginning")
            self._rest([place])
            return
        start = reply.topics[0].partitions[0].offset
        if not self._may_be_another:
            self._ledger(place).begins(self.name, start)
        if start > place.position:
            place.position, place.last_epoch = start, -1
            self.skipped(place)
        place.is_fetching = False
        self._go_on()

    def skipped(self, place: Place) -> None:
        """It goes on further up: what it would have read is gone."""

    # --- where the end is -----------------------------------------------------------------------------------------

    def _look_at_ends(self) -> None:
        self.later(END_GAP_MS, self._look_at_ends)
        if not self.places:
            return
        place = self.rng.choice(list(self.places.values()))
        leader = self.leader_of(place.partition)
        if leader is not None:
            self._look_at_end(place, leader)

    def _look_at_end(self, place: Place, leader: Leader) -> None:
        asked = ListOffsetsPartition(place.partition, leader.epoch, LATEST)
        request = ListOffsetsRequest(-1, self.isolation_level, [ListOffsetsTopic(self.topic, [asked])])
        known = max(place.end, place.position)
        self.ask(
            leader.node_id, ApiKey.LIST_OFFSETS, 8, request, lambda reply: self._end_found(place, known, reply), "end"
        )

    def _end_found(self, place: Place, known: int, reply: ListOffsetsResponse | KafkaError) -> None:
        """`known` is what it knew when it asked: answers on different connections may overtake each other."""
        if not self._is_current(place):
            return
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.topics[0].partitions[0].error_code)
        if isinstance(reply, KafkaError) or code is not ErrorCode.NONE:
            self._judge(code, f"{place.partition} looks for its end")
            return
        end = reply.topics[0].partitions[0].offset
        # Before a start that was moved, or is moved no more after a crash, a transaction may be open as it ever was.
        is_deleted = end <= self._ledger(place).start > 0
        if end < known and not is_deleted and not self._may_be_another:
            self.world.violated(f"{self.name}: the end of {place.partition} goes back from {known} to {end}")
        place.end = max(place.end, end)
