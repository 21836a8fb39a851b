"""Many members of many groups, each with its own connection, served by one thread until every group is stable.

A member does what a client does, without its pauses: it continues as soon as it has a response. Only a member that
waits for others sends heartbeats, every 10 ms where a client takes seconds.
"""

from __future__ import annotations

import selectors
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from enum import Enum
from typing import Protocol

from bench.brokers.connection import TIMEOUT_S, BrokerRefused, Connection
from bench.groups.frames import (
    COMPACT_NULL,
    CONSUMER_ERROR_AT,
    ERROR_AT,
    LEAVING_EPOCH,
    Committer,
    assignment_bytes,
    consumer_heartbeat_frame,
    consumer_join_frame,
    error_of,
    heartbeat_frame,
    join_frame,
    leave_frame,
    read_beat,
    read_joined,
    sync_frame,
)

IDLE_BEAT_S = 0.01
BUFFER_BYTES = 4 << 10
MEMBER_ID_REQUIRED = 79
GO_ON_ANEW = frozenset({22, 27})
"""Another generation, a rebalance in progress: the member joins again."""


class Step(Enum):
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    BEAT = "heartbeat"


class Member:
    """A connection, and the request that it sends next."""

    def __init__(self, group: Group, connection: Connection) -> None:
        self.group = group
        self.connection = connection
        self.member_id = ""
        self.epoch = 0
        """The epoch, or the generation in the classic protocol."""
        self.partitions = 0
        self.step = Step.JOIN
        self.frame = b""

    def send(self) -> None:
        self.connection.socket.sendall(self.frame)

    def refused(self, error: int) -> BrokerRefused:
        return BrokerRefused(f"{self.connection.address}: {self.step.value}: error {error}")


class Group(Protocol):
    error_at: int
    """The position of the error in the reply to a heartbeat."""
    members: Sequence[Member]
    is_stable: bool

    def begin(self) -> None:
        """Give every member its first request."""

    def take(self, member: Member, reply: memoryview) -> Sequence[Member]:
        """Handle a reply; return the members that have something to send now."""

    def idle(self) -> Sequence[Member]:
        """Return the members that can only ask whether something has changed."""

    def leave(self) -> None:
        """Let all members leave, over the connection of the first."""


class ClassicGroup:
    """Members that join, and a leader that assigns the partitions of one topic."""

    error_at = ERROR_AT

    def __init__(self, group_id: str, topic: str, partitions: int, connections: Sequence[Connection]) -> None:
        self.group_id = group_id
        self._topic = topic
        self._partitions = partitions
        self.members: Sequence[Member] = [Member(self, connection) for connection in connections]
        self._quiet: dict[Member, int] = {}
        """The members whose last heartbeat succeeded, with its generation."""
        self.is_stable = False

    def begin(self) -> None:
        self.is_stable = False
        self._quiet.clear()
        for member in self.members:
            member.member_id = ""
            self._join(member)

    def take(self, member: Member, reply: memoryview) -> Sequence[Member]:
        if member.step is Step.JOIN:
            self._joined(member, reply)
        elif (error := error_of(reply)) in GO_ON_ANEW:
            self._join(member)
        elif error:
            raise member.refused(error)
        elif member.step is Step.SYNC:
            member.step = Step.BEAT
            member.frame = heartbeat_frame(self.group_id, member.epoch, member.member_id)
        else:
            self._quiet[member] = member.epoch
            self.is_stable = len(self._quiet) == len(self.members) and len(set(self._quiet.values())) == 1
            return ()
        return (member,)

    def idle(self) -> Sequence[Member]:
        waiting = list(self._quiet)
        self._quiet.clear()
        return waiting

    def leave(self) -> None:
        reply = self.members[0].connection.ask(leave_frame(self.group_id, [each.member_id for each in self.members]))
        if error := error_of(reply):
            raise self.members[0].refused(error)

    def committer(self) -> Committer:
        return Committer(self.group_id, self.members[0].member_id, self.members[0].epoch)

    def _join(self, member: Member) -> None:
        member.step = Step.JOIN
        member.frame = join_frame(self.group_id, member.member_id, self._topic)

    def _joined(self, member: Member, reply: memoryview) -> None:
        joined = read_joined(reply)
        if joined.error == MEMBER_ID_REQUIRED:
            member.member_id = joined.member_id
            self._join(member)
            return
        if joined.error:
            raise member.refused(joined.error)
        member.step, member.epoch = Step.SYNC, joined.generation
        shares = self._shares(joined.member_ids) if joined.leader_id == member.member_id else {}
        member.frame = sync_frame(self.group_id, joined.generation, member.member_id, shares)

    def _shares(self, member_ids: Sequence[str]) -> dict[str, bytes]:
        return {
            member_id: assignment_bytes(self._topic, range(first, self._partitions, len(member_ids)))
            for first, member_id in enumerate(member_ids)
        }


class ConsumerGroup:
    """Members of the consumer protocol (KIP-848), which send heartbeats together, and again when all are answered.

    A group is stable when all members have their partitions, in one epoch, and the last heartbeats brought nothing new.
    """

    error_at = CONSUMER_ERROR_AT

    def __init__(self, group_id: str, topic: str, partitions: int, connections: Sequence[Connection]) -> None:
        self.group_id = group_id
        self._topic = topic
        self._share = partitions // len(connections)
        self.members: Sequence[Member] = [Member(self, connection) for connection in connections]
        self._to_come = 0
        self._has_changed = False
        self.is_stable = False

    def begin(self) -> None:
        self.is_stable = self._has_changed = False
        self._to_come = len(self.members)
        for member in self.members:
            member.member_id = str(uuid.uuid4())
            member.step, member.epoch, member.partitions = Step.BEAT, 0, 0
            member.frame = consumer_join_frame(self.group_id, member.member_id, self._topic)

    def take(self, member: Member, reply: memoryview) -> Sequence[Member]:
        beat = read_beat(reply)
        if beat.error:
            raise member.refused(beat.error)
        if beat.assigned is not None:
            member.partitions = beat.partitions
        self._has_changed |= beat.assigned is not None or beat.epoch != member.epoch
        member.epoch = beat.epoch
        owned = COMPACT_NULL if beat.assigned is None else beat.assigned
        member.frame = consumer_heartbeat_frame(self.group_id, member.member_id, beat.epoch, owned)
        self._to_come -= 1
        if self._to_come:
            return ()
        if self._has_changed:
            self._has_changed = False
            return self.idle()
        are_even = all(each.partitions == self._share for each in self.members)
        self.is_stable = are_even and len({each.epoch for each in self.members}) == 1
        return ()

    def idle(self) -> Sequence[Member]:
        if self._to_come:
            return ()
        self._to_come = len(self.members)
        return self.members

    def leave(self) -> None:
        for member in self.members:
            frame = consumer_heartbeat_frame(self.group_id, member.member_id, LEAVING_EPOCH)
            if error := read_beat(self.members[0].connection.ask(frame)).error:
                raise member.refused(error)


class Crowd:
    """All groups, and one thread that serves whichever connection has a reply."""

    def __init__(self, groups: Sequence[Group], cleanup: ExitStack) -> None:
        self.groups = groups
        self.members = [member for group in groups for member in group.members]
        self._ready = cleanup.enter_context(selectors.DefaultSelector())
        for member in self.members:
            self._ready.register(member.connection.socket, selectors.EVENT_READ, member)

    def settle(self) -> None:
        """Let all join at once; return when every group is stable."""
        for group in self.groups:
            group.begin()
        for member in self.members:
            member.send()
        unsettled = set(self.groups)
        deadline = time.perf_counter() + TIMEOUT_S
        next_beat = time.perf_counter() + IDLE_BEAT_S
        while unsettled:
            for key, _ in self._ready.select(IDLE_BEAT_S):
                self._go_on(key.data, unsettled)
            if time.perf_counter() > next_beat:
                next_beat = self._beat(unsettled)
            if next_beat > deadline:
                raise BrokerRefused(f"{len(unsettled)} groups are not stable after {TIMEOUT_S} s")

    def _go_on(self, member: Member, unsettled: set[Group]) -> None:
        group = member.group
        for each in group.take(member, member.connection.receive_reply()):
            each.send()
        if group.is_stable:
            unsettled.discard(group)

    def _beat(self, groups: set[Group]) -> float:
        for group in groups:
            for member in group.idle():
                member.send()
        return time.perf_counter() + IDLE_BEAT_S

    def first_heartbeats(self) -> dict[Member, bytes]:
        """Return the heartbeat reply of each stable member; it stays the same as long as nothing changes."""
        replies = {}
        for member in self.members:
            reply = member.connection.ask(member.frame)
            if error := error_of(reply, member.group.error_at):
                raise member.refused(error)
            replies[member] = bytes(reply)
        return replies

    def heartbeats(self, count: int, replies: Mapping[Member, bytes]) -> None:
        """Send `count` heartbeats, each member with one in flight; every reply must equal the member's first."""
        for member in self.members[:count]:
            member.send()
        to_send, to_come = count - len(self.members), count
        while to_come:
            if not (ready := self._ready.select(TIMEOUT_S)):
                raise BrokerRefused(f"{to_come} heartbeats are not answered after {TIMEOUT_S} s")
            for key, _ in ready:
                member = key.data
                if member.connection.receive_reply() != replies[member]:
                    raise BrokerRefused(f"{member.connection.address}: a heartbeat was answered differently")
                to_come -= 1
                to_send -= 1
                if to_send >= 0:
                    member.send()

    def leave(self) -> None:
        for group in self.groups:
            group.leave()
