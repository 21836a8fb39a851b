"""A consumer that starts again and again as a new process, and continues at its committed offset.

Like a real one it knows only what brokers tell it then: the leader of its partition and the coordinator of its group
from any broker that answers, and its offset from that coordinator. Some of them know leader epochs (KIP-320): they
validate their position before they read, as the Java client and librdkafka do. The others know none and take the leader
of the latest Metadata response.

Any of them would begin again at offset 0 if a broker says that its position does not exist, or that it has committed
none. A broker may say so only if it is true. The only excuse is that of a broker which the controller has told to give
the partition to another, as in a preferred election, and which has not heard of it yet: nobody else was elected because
of its silence.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from machines.network import SimulatedPeers

from cluster.client import NO_NODE, Leader
from cluster.consumers import FETCH_BYTES, FETCH_WAIT_MS, LATEST, TRY_AGAIN, whole_batches
from cluster.scripted import Script, ScriptedClient
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.topic_names import CONSUMER_OFFSETS_TOPIC
from moldau.runtime.coordinators.topic import java_hash
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from moldau.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from cluster.world import ClusterWorld

NONE_COMMITTED = -1
NO_EPOCH = -1
FAILURES_MAX = 6
"""After that many in a row it starts again."""
TURNS = (2, 12)
"""Fetches of one process."""
PAUSE_MS = (20, 700)
QUESTION_MS = 1_500
COORDINATOR_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
}


class StartAgain(Exception):
    """The process ends, and another one takes over."""


class ReturningConsumer(ScriptedClient):
    def __init__(
        self, world: ClusterWorld, name: str, topic: str, partition: int, rng: Random, knows_epochs: bool
    ) -> None:
        super().__init__(world, name, topic, rng)
        self.group_id = f"group-{name}"
        self._partition = partition
        self._knows_epochs = knows_epochs
        self._leader = Leader(b"", NO_NODE, NO_EPOCH)
        self._coordinator = NO_NODE
        self._position = 0
        self._position_epoch = NO_EPOCH
        """The leader epoch of the last record before the position."""
        self._acknowledged = NONE_COMMITTED
        """The last committed offset."""
        self._doubtful: dict[int, None] = {}
        """Commits without a response: any of them may still take effect."""
        self._failures = 0
        self.starts = 0
        self.play(self._run())

    def refresh(self) -> None:
        """Its script asks for metadata when it needs it."""

    def _run(self) -> Script[None]:
        while True:
            try:
                self._start()
                yield from self._live()
            except StartAgain:
                yield self.pause_after(1)

    def _start(self) -> None:
        """Forget what only a process knows, and close its connections."""
        self.starts += 1
        self.brokers = dict(self.world.bootstrap)
        self.peers.close()
        self.peers = SimulatedPeers(self.world.network, self.process, self.world.timers.after_ms)
        self._leader = Leader(b"", NO_NODE, NO_EPOCH)
        self._coordinator = NO_NODE
        self._failures = 0

    def _live(self) -> Script[None]:
        yield from self._find_leader()
        yield from self._resume()
        if self._knows_epochs:
            yield from self._validate()
        for _ in range(self.rng.randint(*TURNS)):
            yield from self._fetch()
            yield from self._look_at_end()
            if self.rng.random() < 0.5:
                yield from self._commit()
            yield self.pause(self.rng.randint(*PAUSE_MS))

    # --- requests -------------------------------------------------------------------------------------------------

    def _asked(
        self, node_id: int, api: ApiKey, version: int, request: Message, code_of: Callable[[Any], int]
    ) -> Script[tuple[ErrorCode, Any]]:
        """Send a request; return the error and the response, if there is one."""
        reply = yield self.request(node_id, api, version, request, "all", QUESTION_MS)
        if isinstance(reply, KafkaError):
            return reply.code, None
        return ErrorCode(code_of(reply)), reply

    def _failed(self, what: str, code: ErrorCode, allowed: set[ErrorCode]) -> Script[None]:
        """Wait a little after an error that may occur; start again after several."""
        self.trace_result(what, code)
        if code not in allowed:
            self.world.violated(f"{self.name} {what}: {code.name}")
        self._failures += 1
        if self._failures > FAILURES_MAX or self.rng.random() < 0.1:
            raise StartAgain
        yield self.pause_after(self._failures)

    def _is_bound(self, node_id: int, topic: str, partition: int) -> bool:
        """Whether a node asked now must know everything that was committed, or not answer as the leader: it is the
        leader, or another one was elected because the controller did not hear from it."""
        image = self.world.newest_image()
        found, machine = image.topics.get(topic), self.world.machines[node_id]
        if found is None or machine.is_leaving or not machine.is_serving:
            return False
        broker = image.brokers.get(node_id)
        return found.partitions[partition].leader == node_id or (broker is not None and broker.fenced)

    def _judge(self, node_id: int, is_bound: bool, what: str) -> None:
        """Check what would make a client begin again at offset 0."""
        self.world.trace(f"{self.name} asks n{node_id}: {what}")
        if is_bound:
            self.world.violated(f"{self.name} asks n{node_id}: {what}")
        raise StartAgain

    # --- the leader -----------------------------------------------------------------------------------------------

    def _find_leader(self) -> Script[None]:
        """Ask any broker for the leader; a client that knows epochs does not go back to an older one."""
        request = MetadataRequest([MetadataRequestTopic(name=self.topic)], allow_auto_topic_creation=False)
        while True:
            node_id = self.some_broker()
            code, reply = yield from self._asked(
                node_id, ApiKey.METADATA, 12, request, lambda reply: reply.topics[0].error_code
            )
            if code is ErrorCode.NONE and self._learn_leader(reply):
                self.world.trace(f"{self.name} hears from n{node_id} that n{self._leader.node_id} leads")
                return
            yield from self._failed("finds no leader", code, TRY_AGAIN | {ErrorCode.NONE})

    def _learn_leader(self, reply: Any) -> bool:
        if reply.brokers:
            self.brokers = {each.node_id: (each.host, each.port) for each in reply.brokers}
        topic = reply.topics[0]
        for each in topic.partitions:
            is_older = self._knows_epochs and each.leader_epoch < self._leader.epoch
            if each.partition_index == self._partition and each.leader_id in self.brokers and not is_older:
                self._leader = Leader(topic.topic_id, each.leader_id, each.leader_epoch)
                return True
        return False

    @property
    def _epoch(self) -> int:
        return self._leader.epoch if self._knows_epochs else NO_EPOCH

    def _validate(self) -> Script[None]:
        """Ask the leader whether the last record before the position exists, as clients do before they fetch."""
        while self._position_epoch != NO_EPOCH:
            leader = self._leader
            is_bound = self._is_bound(leader.node_id, self.topic, self._partition)
            requested = OffsetForLeaderPartition(self._partition, leader.epoch, self._position_epoch)
            request = OffsetForLeaderEpochRequest(-1, [OffsetForLeaderTopic(self.topic, [requested])])
            code, reply = yield from self._asked(
                leader.node_id,
                ApiKey.OFFSET_FOR_LEADER_EPOCH,
                4,
                request,
                lambda reply: reply.topics[0].partitions[0].error_code,
            )
            if code is ErrorCode.NONE:
                found = reply.topics[0].partitions[0]
                if found.leader_epoch < self._position_epoch or found.end_offset < self._position:
                    self._judge(
                        leader.node_id,
                        is_bound,
                        f"epoch {found.leader_epoch} of {self._partition} ends at {found.end_offset} in leader epoch "
                        f"{leader.epoch}; it has read up to {self._position} of epoch {self._position_epoch}",
                    )
                return
            yield from self._failed(f"validates {self._position}", code, TRY_AGAIN)
            yield from self._find_leader()

    # --- reading --------------------------------------------------------------------------------------------------

    def _fetch(self) -> Script[None]:
        leader = self._leader
        is_bound = self._is_bound(leader.node_id, self.topic, self._partition)
        requested = FetchPartition(self._partition, self._epoch, self._position, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=FETCH_WAIT_MS,
            min_bytes=1,
            max_bytes=FETCH_BYTES,
            topics=[FetchTopic(leader.topic_id, "", [requested])],
        )
        code, reply = yield from self._asked(
            leader.node_id,
            ApiKey.FETCH,
            17,
            request,
            lambda reply: reply.error_code or reply.responses[0].partitions[0].error_code,
        )
        if code is ErrorCode.NONE:
            self._failures = 0
            self._read(reply.responses[0].partitions[0])
        elif code is ErrorCode.OFFSET_OUT_OF_RANGE:
            self._judge(leader.node_id, is_bound, f"{self._position} of {self._partition} is out of range")
        else:
            yield from self._failed(f"fetches at {self._position}", code, TRY_AGAIN)
            yield from self._find_leader()

    def _read(self, partition_data: Any) -> None:
        for batch in whole_batches(partition_data.records):
            header = read_header(batch)
            if header.next_offset > self._position:
                self.world.audit.was_read(self.name, self._leader.topic_id, self._partition, header, batch)
                self._position, self._position_epoch = header.next_offset, header.leader_epoch

    def _look_at_end(self) -> Script[None]:
        """Ask how much is left to read, as clients do that report their lag."""
        leader = self._leader
        is_bound = self._is_bound(leader.node_id, self.topic, self._partition)
        requested = ListOffsetsPartition(self._partition, self._epoch, LATEST)
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(self.topic, [requested])])
        code, reply = yield from self._asked(
            leader.node_id,
            ApiKey.LIST_OFFSETS,
            8,
            request,
            lambda reply: reply.topics[0].partitions[0].error_code,
        )
        if code is ErrorCode.NONE:
            end = reply.topics[0].partitions[0].offset
            if end < self._position:
                self._judge(leader.node_id, is_bound, f"{self._partition} ends at {end}, {self._position} is read")
        else:
            yield from self._failed("looks at the end", code, TRY_AGAIN)
            yield from self._find_leader()

    # --- committed offsets ----------------------------------------------------------------------------------------

    def _find_coordinator(self) -> Script[None]:
        request = FindCoordinatorRequest("", 0, [self.group_id])
        while self._coordinator not in self.brokers:
            code, reply = yield from self._asked(
                self.some_broker(),
                ApiKey.FIND_COORDINATOR,
                4,
                request,
                lambda reply: reply.coordinators[0].error_code,
            )
            if code is ErrorCode.NONE:
                found = reply.coordinators[0]
                self._coordinator = found.node_id
                self.brokers.setdefault(found.node_id, (found.host, found.port))
            else:
                yield from self._failed("finds no coordinator", code, COORDINATOR_ERRORS)

    def _is_coordinator_bound(self, node_id: int) -> bool:
        topic = self.world.newest_image().topics.get(CONSUMER_OFFSETS_TOPIC)
        if topic is None:
            return False
        return self._is_bound(node_id, CONSUMER_OFFSETS_TOPIC, java_hash(self.group_id) % len(topic.partitions))

    def _resume(self) -> Script[None]:
        """Continue at the committed offset."""
        while True:
            yield from self._find_coordinator()
            node_id, is_bound = self._coordinator, self._is_coordinator_bound(self._coordinator)
            topics = [OffsetFetchRequestTopics(name=self.topic, partition_indexes=[self._partition])]
            request = OffsetFetchRequest([OffsetFetchRequestGroup(self.group_id, topics=topics)], require_stable=True)
            code, reply = yield from self._asked(
                node_id,
                ApiKey.OFFSET_FETCH,
                9,
                request,
                lambda reply: reply.groups[0].error_code or reply.groups[0].topics[0].partitions[0].error_code,
            )
            if code is ErrorCode.NONE:
                found = reply.groups[0].topics[0].partitions[0]
                self._resume_at(node_id, is_bound, found.committed_offset, found.committed_leader_epoch)
                return
            self._coordinator = NO_NODE
            yield from self._failed("fetches its offset", code, COORDINATOR_ERRORS)

    def _resume_at(self, node_id: int, is_bound: bool, offset: int, epoch: int) -> None:
        self.world.trace(f"{self.name} continues at {offset} of epoch {epoch}, as n{node_id} says")
        if offset != self._acknowledged and offset not in self._doubtful:
            self._judge(
                node_id,
                is_bound,
                f"{offset} is committed; {self._acknowledged} was acknowledged, perhaps one of {list(self._doubtful)}",
            )
        self._position, self._position_epoch = max(0, offset), epoch

    def _commit(self) -> Script[None]:
        offset = self._position
        yield from self._find_coordinator()
        partitions = [OffsetCommitRequestPartition(self._partition, offset, self._position_epoch)]
        request = OffsetCommitRequest(
            self.group_id, topics=[OffsetCommitRequestTopic(name=self.topic, partitions=partitions)]
        )
        was_doubtful = offset in self._doubtful
        self._doubtful[offset] = None  # from now on it may take effect, whatever the response
        code, _ = yield from self._asked(
            self._coordinator,
            ApiKey.OFFSET_COMMIT,
            9,
            request,
            lambda reply: reply.topics[0].partitions[0].error_code,
        )
        if code is ErrorCode.NONE:
            self.world.trace(f"{self.name} has committed {offset}")
            self._acknowledged = offset
            if not was_doubtful:
                del self._doubtful[offset]
        else:
            self._coordinator = NO_NODE
            yield from self._failed(f"commits {offset}", code, COORDINATOR_ERRORS)
