"""A member of a share group, written from the description of the protocol (KIP-932): it joins, fetches from the leaders
of its partitions, and acknowledges in all ways, also wrongly.

It has one session at each leader, and one request at a time there. Now and then it holds records until their locks
end, closes a session, or vanishes and comes back as another member.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from cluster.client import NO_NODE
from cluster.consumers import whole_batches
from cluster.scripted import Script, ScriptedClient
from machines.network import SimulatedPeers

from moldau.base.errors import ErrorCode, KafkaError
from moldau.share.ports import ShareKey
from moldau.share.window import ACCEPT, REJECT, RELEASE, RENEW, Acknowledged
from moldau.wire.apis import ApiKey
from moldau.wire.batch import read_header
from moldau.wire.messages import share_acknowledge, share_fetch
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

if TYPE_CHECKING:
    from shares.world import SharesWorld

JOIN, LEAVE = 0, -1
OPEN, CLOSE = 0, -1
"""The epochs of the first and the last request of a session."""
FETCH_WAIT_MS = 300
FETCH_BYTES = 8_192
RECORDS_MAX = 12
SHARE_TIMEOUT_MS = 4_000
BACKOFF_MS = (50, 300)
WORK_MS = (1, 250)
COORDINATOR_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNSUPPORTED_VERSION,  # the client's own error for a node that is no broker any more
}
LOST_MEMBER = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND}
SESSION_ERRORS = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.SHARE_SESSION_NOT_FOUND,
    ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    ErrorCode.UNSUPPORTED_VERSION,
}
PARTITION_ERRORS = {
    ErrorCode.NONE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
REFUSALS = {ErrorCode.INVALID_RECORD_STATE, ErrorCode.INVALID_REQUEST}
"""What a member is told that does not hold the records."""
Said = dict[int, list[Acknowledged]]
"""Acknowledgements by partition."""


@dataclass(slots=True)
class Session:
    """What a member has at one leader."""

    node_id: int
    epoch: int = OPEN
    partitions: set[int] = field(default_factory=set)
    held: dict[tuple[int, int], int] = field(default_factory=dict)
    """Partition and offset of what it has to acknowledge, and when it got that."""


class Member(ScriptedClient):
    def __init__(self, world: SharesWorld, name: str, group_id: str, topic: str, rng: Random) -> None:
        super().__init__(world, name, topic, rng)
        self.shares = world
        self.group_id = group_id
        self.member_id = ""
        self.is_settling = False
        """Whether it makes no mistakes any more, and accepts everything."""
        self._member_epoch = JOIN
        self._coordinator = NO_NODE
        self._assigned: frozenset[int] = frozenset()
        self._sessions: dict[int, Session] = {}
        self._life = 0
        self._begin()

    def _begin(self) -> None:
        """Become another member, with connections of its own."""
        self._life += 1
        self.peers.close()
        self.peers = SimulatedPeers(self.world.network, self.process, self.world.timers.after_ms)
        self.member_id = str(uuid.UUID(bytes=self.rng.randbytes(16), version=4))
        self._member_epoch = JOIN
        self._assigned = frozenset()
        self._sessions = {}
        self.refresh()
        self.play(self._stay(self._life))

    def _vanish(self) -> None:
        self.shares.faults.count("a member of a share group vanishes", self.name)
        self._begin()

    def topic_changed(self) -> None:
        self._assigned = frozenset()
        self._sessions = {}
        self._member_epoch = JOIN  # to get the assignment, of which it may have ignored this topic

    def leaders_known(self) -> None:
        """Work at each leader that is new."""
        for node_id in sorted({self.leaders[index].node_id for index in self._assigned if index in self.leaders}):
            if node_id in self.brokers and node_id not in self._sessions:
                session = self._sessions[node_id] = Session(node_id)
                self.play(self._work(self._life, session))

    def _key(self, partition: int) -> ShareKey:
        assert self.topic_id is not None
        return ShareKey(self.group_id, self.topic_id, partition)

    def _end(self, partition: int) -> int:
        """Return the end of what the audit has seen of a partition."""
        return self.world.audit.ledger(self.topic_id or b"", partition).end

    # --- membership -----------------------------------------------------------------------------------------------

    def _stay(self, life: int) -> Script[None]:
        """Send heartbeats."""
        while self._life == life:
            if self._coordinator not in self.brokers:
                yield from self._find_coordinator()
                continue
            names = [self.topic] if self._member_epoch == JOIN else None
            request = ShareGroupHeartbeatRequest(self.group_id, self.member_id, self._member_epoch, None, names)
            reply = yield self.request(self._coordinator, ApiKey.SHARE_GROUP_HEARTBEAT, 1, request, "group")
            if self._life == life:
                yield self.pause(self._on_heartbeat(reply))

    def _on_heartbeat(self, reply: Any) -> int:
        """Return when to send the next one."""
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.error_code)
        if code in LOST_MEMBER:
            self.trace_result("heartbeat", code)
            self._member_epoch = JOIN
        elif code is not ErrorCode.NONE:
            self._lost_coordinator("heartbeat", code)
        else:
            self._member_epoch = reply.member_epoch
            if reply.assignment is not None:
                self._assigned = frozenset(
                    index
                    for topic in reply.assignment.topic_partitions
                    if topic.topic_id == self.topic_id
                    for index in topic.partitions
                )
                self.world.trace(f"{self.name} is assigned {sorted(self._assigned)}")
                self.leaders_known()
            return int(reply.heartbeat_interval_ms)
        return self.rng.randint(*BACKOFF_MS)

    def _find_coordinator(self) -> Script[None]:
        request = FindCoordinatorRequest("", 0, [self.group_id])
        reply = yield self.request(self.some_broker(), ApiKey.FIND_COORDINATOR, 4, request, "metadata")
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.coordinators[0].error_code)
        if code is not ErrorCode.NONE:
            self._lost_coordinator("finds no coordinator", code)
            yield self.pause(self.rng.randint(*BACKOFF_MS))
            return
        found = reply.coordinators[0]
        self._coordinator = found.node_id
        self.brokers[found.node_id] = (found.host, found.port)

    def _lost_coordinator(self, what: str, code: ErrorCode) -> None:
        self.trace_result(what, code)
        if code not in COORDINATOR_ERRORS:
            self.world.violated(f"{self.name} {what}: {code.name}")
        self._coordinator = NO_NODE

    # --- what it does at a leader ---------------------------------------------------------------------------------

    def _is_over(self, life: int, session: Session) -> bool:
        return self._life != life or self._sessions.get(session.node_id) is not session

    def _work(self, life: int, session: Session) -> Script[None]:
        """Fetch and acknowledge until this node leads nothing more, or the member vanishes."""
        while not self._is_over(life, session):
            partitions = self._partitions_at(session.node_id)
            if session.node_id not in self.brokers or not (partitions or session.partitions):
                del self._sessions[session.node_id]
                return
            chance = 1.0 if self.is_settling else self.rng.random()
            if chance < 0.01:
                self._vanish()
                return
            if chance < 0.03 and session.epoch != OPEN:
                yield from self._close(session)
            elif chance < 0.06 and session.epoch != OPEN:
                yield from self._acknowledge_in_old_epoch(session)
            elif chance < 0.10 and session.epoch != OPEN:
                yield from self._acknowledge(session, self._wrong(session))
            elif chance < 0.16 and session.held and session.epoch != OPEN:
                yield from self._renew(session)
            elif chance < 0.40 and session.held and session.epoch != OPEN:
                yield from self._acknowledge(session, self._decide(session))
            else:
                yield from self._fetch(session, partitions)
            is_stalling = not self.is_settling and self.rng.random() < 0.01
            yield self.pause(self.shares.lock_ms * 3 // 2 if is_stalling else self.rng.randint(*WORK_MS))

    def _partitions_at(self, node_id: int) -> set[int]:
        return {index for index in self._assigned if index in self.leaders and self.leaders[index].node_id == node_id}

    # --- requests -------------------------------------------------------------------------------------------------

    def _fetch(self, session: Session, partitions: set[int]) -> Script[None]:
        said: Said = {}
        if session.epoch != OPEN and session.held and (self.is_settling or self.rng.random() < 0.6):
            said = self._decide(session)
        added = partitions if session.epoch == OPEN else partitions - session.partitions
        topic_id = self.topic_id or b""
        named = [share_fetch.FetchPartition(each, _batches(said.get(each, ()))) for each in sorted(added | said.keys())]
        forgotten = sorted(session.partitions - partitions)
        records = self.rng.randint(1, RECORDS_MAX)
        request = share_fetch.ShareFetchRequest(
            self.group_id, self.member_id, session.epoch, FETCH_WAIT_MS, 1, FETCH_BYTES, records, records,
            share_acquire_mode=self.rng.randint(0, 1),
            topics=[share_fetch.FetchTopic(topic_id, named)] if named else [],
            forgotten_topics_data=[share_fetch.ForgottenTopic(topic_id, forgotten)] if forgotten else [],
        )  # fmt: skip
        session.partitions = set(partitions)
        yield from self._ask(session, ApiKey.SHARE_FETCH, request, said)

    def _renew(self, session: Session) -> Script[None]:
        some = self.rng.sample(sorted(session.held), self.rng.randint(1, len(session.held)))
        yield from self._acknowledge(session, _said(dict.fromkeys(some, RENEW)), is_renewal=True)

    def _acknowledge(self, session: Session, said: Said, *, is_renewal: bool = False) -> Script[None]:
        yield from self._ask(session, ApiKey.SHARE_ACKNOWLEDGE, self._request(session.epoch, said, is_renewal), said)

    def _request(self, epoch: int, said: Said, is_renewal: bool = False) -> share_acknowledge.ShareAcknowledgeRequest:
        partitions = [
            share_acknowledge.AcknowledgePartition(
                index,
                [
                    share_acknowledge.AcknowledgementBatch(each.first_offset, each.last_offset, each.types)
                    for each in batches
                ],
            )
            for index, batches in said.items()
        ]
        topics = [share_acknowledge.AcknowledgeTopic(self.topic_id or b"", partitions)] if partitions else []
        return share_acknowledge.ShareAcknowledgeRequest(self.group_id, self.member_id, epoch, is_renewal, topics)

    def _close(self, session: Session) -> Script[None]:
        self.world.trace(f"{self.name} closes its session at n{session.node_id}")
        said = self._decide(session)
        yield from self._ask(session, ApiKey.SHARE_ACKNOWLEDGE, self._request(CLOSE, said), said)
        self._reset(session)

    def _acknowledge_in_old_epoch(self, session: Session) -> Script[None]:
        """A request that the broker must refuse."""
        said = _said({place: self.rng.choice((ACCEPT, RELEASE, REJECT)) for place in session.held})
        request = self._request(session.epoch - 1 or 7, said)
        version = 2
        reply = yield self.request(
            session.node_id, ApiKey.SHARE_ACKNOWLEDGE, version, request, "share", SHARE_TIMEOUT_MS
        )
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.error_code)
        self.trace_result("acknowledges in an old epoch", code)
        if code not in SESSION_ERRORS:
            self.world.violated(f"{self.name} acknowledges in an old epoch: {code.name}")
        if code is not ErrorCode.INVALID_SHARE_SESSION_EPOCH:
            self._reset(session)

    def _ask(self, session: Session, api: ApiKey, request: Any, said: Said) -> Script[None]:
        life, topic_id, sent_ms = self._life, self.topic_id, self.world.elapsed_ms
        epoch = request.share_session_epoch
        reply = yield self.request(session.node_id, api, 2, request, "share", SHARE_TIMEOUT_MS)
        if self._is_over(life, session) or self.topic_id != topic_id:
            return
        code = reply.code if isinstance(reply, KafkaError) else ErrorCode(reply.error_code)
        if code is not ErrorCode.NONE:
            self.trace_result(f"{api.name} at n{session.node_id} in epoch {epoch}", code)
            if code not in SESSION_ERRORS:
                self.world.violated(f"{self.name} {api.name}: {code.name}")
            self._reset(session)
            self.refresh()
            return
        session.epoch = epoch + 1
        answered: set[int] = set()
        for topic in reply.responses:
            for each in topic.partitions:
                answered.add(each.partition_index)
                if api is ApiKey.SHARE_FETCH:
                    self._on_records(session, each, sent_ms)
                error = each.acknowledge_error_code if api is ApiKey.SHARE_FETCH else each.error_code
                self._on_said(each.partition_index, said.get(each.partition_index, ()), ErrorCode(error))
        if not said.keys() <= answered:
            self.world.violated(f"{self.name}: {api.name} has no answer for {sorted(said.keys() - answered)}")

    def _reset(self, session: Session) -> None:
        """Begin another session. What was held is released, or not, if the broker did not notice it."""
        session.epoch = OPEN
        session.partitions = set()
        if self.rng.random() < 0.7:
            session.held.clear()

    # --- responses ------------------------------------------------------------------------------------------------

    def _on_records(self, session: Session, data: Any, sent_ms: int) -> None:
        code = ErrorCode(data.error_code)
        if code is not ErrorCode.NONE:
            self.trace_result(f"fetches {data.partition_index}", code)
            if code not in PARTITION_ERRORS:
                self.world.violated(f"{self.name} fetches {data.partition_index}: {code.name} {data.error_message}")
            self.refresh()
        found: set[int] = set()
        for batch in whole_batches(data.records):
            header = read_header(batch)
            if header.base_offset <= self._end(data.partition_index):  # of later ones the audit has seen nothing yet
                self.world.audit.was_read(self.name, self.topic_id or b"", data.partition_index, header, batch)
            found.update(range(header.base_offset, header.next_offset))
        for each in data.acquired_records:
            offsets = f"{each.first_offset}-{each.last_offset}"
            self.world.trace(f"{self.name} gets {data.partition_index}@{offsets} ({each.delivery_count})")
            for offset in range(each.first_offset, each.last_offset + 1):
                if offset not in found:
                    self.world.violated(f"{self.name} gets {offset} of {data.partition_index} without its record")
                session.held[data.partition_index, offset] = sent_ms

    def _on_said(self, partition: int, said: Sequence[Acknowledged], code: ErrorCode) -> None:
        if not said:
            return
        shown = " ".join(f"{each.first_offset}-{each.last_offset}:{''.join(map(str, each.types))}" for each in said)
        self.trace_result(f"says of {partition} {shown}", code)
        if code is ErrorCode.NONE:
            self.shares.share_ledger.confirmed(self.member_id, self._key(partition), said)
        elif code is ErrorCode.UNKNOWN_SERVER_ERROR and self.topic_id not in self.world.newest_image().topic_names:
            pass  # as with Kafka: the topic and its state were deleted meanwhile
        elif code not in PARTITION_ERRORS | REFUSALS:
            self.world.violated(f"{self.name} says of {partition} {shown}: {code.name}")
        if code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.refresh()

    # --- what it says ---------------------------------------------------------------------------------------------

    def _decide(self, session: Session) -> Said:
        """Say something of what is held, or of a part of it. Some records are forgotten: their locks end."""
        if self.is_settling:
            kinds = dict.fromkeys(session.held, ACCEPT)
            session.held.clear()
            return _said(kinds)
        kinds = {}
        for place in list(session.held):
            chance = self.rng.random()
            if chance < 0.1:
                continue
            del session.held[place]
            if chance > 0.13:
                kinds[place] = self.rng.choices((ACCEPT, RELEASE, REJECT), (14, 4, 1))[0]
        return _said(kinds)

    def _wrong(self, session: Session) -> Said:
        """Say something of records that others hold, or perhaps nobody."""
        partition = self.rng.choice(sorted(session.partitions or self.leaders))
        others = self.shares.share_ledger.held_by_others(self._key(partition), self.member_id)
        first = self.rng.choice(others) if others else self.rng.randint(0, self._end(partition))
        offsets = range(first, first + self.rng.randint(1, 4))
        kind = self.rng.choice((ACCEPT, RELEASE, REJECT))
        for offset in offsets:
            session.held.pop((partition, offset), None)
        return _said({(partition, offset): kind for offset in offsets})


def _said(kinds: dict[tuple[int, int], int]) -> Said:
    """Return acknowledgements in ranges of offsets that follow each other."""
    said: Said = {}
    for partition, offset in sorted(kinds):
        kind = kinds[partition, offset]
        batches = said.setdefault(partition, [])
        if batches and batches[-1].last_offset + 1 == offset:
            last = batches[-1]
            batches[-1] = Acknowledged(last.first_offset, offset, [*last.types, kind])
        else:
            batches.append(Acknowledged(offset, offset, [kind]))
    return said


def _batches(said: Sequence[Acknowledged]) -> list[share_fetch.AcknowledgementBatch]:
    return [share_fetch.AcknowledgementBatch(each.first_offset, each.last_offset, each.types) for each in said]
