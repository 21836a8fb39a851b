"""Requests of group members: join, heartbeat, commit, share. Each in several sizes, to see what grows.

A series is one workload in its sizes, from small to large; where a unit of work costs the same in all of them, the
broker is linear. Group ids have one length, so that the frames do too.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from bench.brokers.connection import TIMEOUT_S, BrokerRefused, Connection, Exchanging, all_together
from bench.brokers.raw_workloads import seconds_of
from bench.brokers.servers import Server
from bench.brokers.topics import new_topic
from bench.groups.frames import (
    Committer,
    commit_frame,
    committed_reply,
    error_of,
    find_coordinator_frame,
    offset_fetch_frame,
    read_fetched_offset,
)
from bench.groups.members import BUFFER_BYTES, ClassicGroup, ConsumerGroup, Crowd, Group
from bench.groups.shares import share
from bench.measuring.results import Quantity
from bench.measuring.rounds import Measured, Turn, Workload

JOINING = (250, 500, 1_000, 2_000)
BEATING = 1_000
GROUP_MEMBERS = 10
GROUP_PARTITIONS = 20
COMMITTED_GROUPS = (10, 1_000)
COMMITS = 100_000
HEARTBEATS = 100_000
CONNECTIONS = 10
IN_FLIGHT = 5
COMMITTED_PARTITIONS = 10
SHARED_RECORDS = 500_000
SHARING_MEMBERS = (1, 8)
NOT_YET = frozenset({14, 15, 16})
"""The coordinator is loading, not available, or on another node: temporary errors of new groups."""
LOOK_AGAIN_S = 0.002

MakeGroup = Callable[[str, str, int, Sequence[Connection]], Group]
PROTOCOLS: Mapping[str, MakeGroup] = {"classic": ClassicGroup, "consumer": ConsumerGroup}


@dataclass(frozen=True)
class Series:
    """Workloads that differ only in their size."""

    name: str
    sized_in: str
    workloads: Mapping[int, Workload]

    def unit_cost(self, size: int, value: float) -> float:
        """Return the cost of one unit of work, in any unit: only its ratios have a meaning."""
        quantity = self.workloads[size].quantities[0]
        return 1 / value if quantity.higher_is_better else value / size


def group_series(scale: float) -> Iterator[Series]:
    """At scale 1.0 a turn takes some seconds; a smaller one has fewer members, groups, commits and heartbeats."""

    def times(count: int, least: int = GROUP_MEMBERS) -> int:
        return max(least, int(count * scale) // least * least)

    for protocol in PROTOCOLS:
        sizes = dict.fromkeys(map(times, JOINING))
        yield Series(f"join, {protocol}", "members", {size: join(protocol, size) for size in sizes})
    for protocol in PROTOCOLS:
        beat = heartbeat(protocol, times(BEATING), times(HEARTBEATS))
        yield Series(f"heartbeat, {protocol}", "members", {times(BEATING): beat})
    for offsets in (1, COMMITTED_PARTITIONS):
        commits = times(COMMITS // offsets, CONNECTIONS)
        sizes = dict.fromkeys(times(groups, CONNECTIONS) for groups in COMMITTED_GROUPS)
        yield Series(
            f"commit {_of_offsets(offsets)}", "groups", {size: commit(size, offsets, commits) for size in sizes}
        )
    yield Series(
        "share fetch and accept",
        "members",
        {members: share(members, times(SHARED_RECORDS, 1_000)) for members in SHARING_MEMBERS},
    )
    yield Series("commit by members", "groups", {CONNECTIONS: commit_by_members(times(COMMITS, CONNECTIONS))})


def join(protocol: str, members: int) -> Workload:
    """Let all members of all groups join at once, until every group is stable; leaving is not measured."""
    quantity = Quantity(f"join, {protocol}, {members:,} members", "s", higher_is_better=False, work_unit="member")

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        crowd = make_crowd(server, protocol, members, GROUP_MEMBERS, cleanup)
        return lambda: Measured((seconds_of(crowd.settle),), members, crowd.leave)

    return Workload((quantity,), prepare)


def heartbeat(protocol: str, members: int, heartbeats: int) -> Workload:
    """Send heartbeats of stable members, each over its own connection and one at a time."""
    name = f"heartbeat, {protocol}, {members:,} members"

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        crowd = make_crowd(server, protocol, members, GROUP_MEMBERS, cleanup)
        crowd.settle()
        cleanup.callback(crowd.leave)
        replies = crowd.first_heartbeats()
        beat = partial(crowd.heartbeats, heartbeats, replies)
        return lambda: Measured((heartbeats / seconds_of(beat),), heartbeats)

    return Workload((Quantity(name, "per s", work_unit="heartbeat"),), prepare)


def commit(groups: int, offsets: int, commits: int) -> Workload:
    """Commits from outside, 10 connections with 5 requests in flight each, which mostly are of one group: what is
    decided at once goes to the log at once, and that saving must not be mistaken for a cost of having many groups."""
    quantity = Quantity(f"commit {_of_offsets(offsets)}, {groups:,} groups", "per s", work_unit="commit")

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, COMMITTED_PARTITIONS, cleanup)
        group_ids = new_group_ids(groups)
        await_groups(server, group_ids, topic)
        return _commit_turn(server, topic, [Committer(each) for each in group_ids], offsets, commits, cleanup)

    return Workload((quantity,), prepare)


def commit_by_members(commits: int) -> Workload:
    """The same, one offset each, from the only member of each of ten groups: every commit also renews its session."""
    quantity = Quantity(f"commit one offset by members, {CONNECTIONS} groups", "per s", work_unit="commit")

    def prepare(server: Server, cleanup: ExitStack) -> Turn:
        topic = new_topic(server.address, COMMITTED_PARTITIONS, cleanup)
        crowd = make_crowd(server, "classic", CONNECTIONS, 1, cleanup)
        crowd.settle()
        cleanup.callback(crowd.leave)
        committers = [group.committer() for group in crowd.groups if isinstance(group, ClassicGroup)]
        return _commit_turn(server, topic, committers, 1, commits, cleanup)

    return Workload((quantity,), prepare)


def _of_offsets(offsets: int) -> str:
    return "one offset" if offsets == 1 else f"{offsets} offsets"


def _commit_turn(
    server: Server, topic: str, committers: Sequence[Committer], offsets: int, commits: int, cleanup: ExitStack
) -> Turn:
    reply = committed_reply(topic, range(offsets))
    clients = []
    for first in range(CONNECTIONS):
        served = [who for who in committers[first::CONNECTIONS] for _ in range(IN_FLIGHT)]
        frames = [commit_frame(who, topic, dict.fromkeys(range(offsets), 1)) for who in served]
        connection = cleanup.enter_context(Connection(server.address))
        clients.append(Exchanging(connection, frames, reply, IN_FLIGHT))
    each = commits // CONNECTIONS
    return lambda: Measured((commits / seconds_of(lambda: all_together(clients, each)),), commits)


def make_crowd(server: Server, protocol: str, members: int, group_members: int, cleanup: ExitStack) -> Crowd:
    """Return members with open connections that have not joined yet, in groups that the broker is ready for."""
    topic = new_topic(server.address, GROUP_PARTITIONS, cleanup)
    group_ids = new_group_ids(members // group_members)
    await_groups(server, group_ids, topic)
    groups = [
        PROTOCOLS[protocol](
            group_id,
            topic,
            GROUP_PARTITIONS,
            [cleanup.enter_context(Connection(server.address, BUFFER_BYTES)) for _ in range(group_members)],
        )
        for group_id in group_ids
    ]
    return Crowd(groups, cleanup)


def new_group_ids(count: int) -> list[str]:
    mark = uuid.uuid4().hex[:8]
    return [f"bench-{mark}-{number:05d}" for number in range(count)]


def await_groups(server: Server, group_ids: Sequence[str], topic: str, partition: int = 0) -> list[int]:
    """Return when an offset of each group can be fetched, with those offsets; -1 where none is committed."""
    offsets: dict[str, int] = {}
    deadline = time.perf_counter() + TIMEOUT_S
    with Connection(server.address) as connection:
        while error_of(connection.ask(find_coordinator_frame(group_ids[0]))) in NOT_YET:
            _wait(deadline, server, "finds no coordinator")
        while unready := [group_id for group_id in group_ids if group_id not in offsets]:
            offsets |= _ready_offsets(connection, unready, topic, partition)
            if len(offsets) < len(group_ids):
                _wait(deadline, server, f"does not serve {len(group_ids) - len(offsets)} groups")
    return [offsets[group_id] for group_id in group_ids]


def _ready_offsets(connection: Connection, group_ids: Sequence[str], topic: str, partition: int) -> dict[str, int]:
    """Request one group at a time and stop where the broker is not ready, to leave it the CPU."""
    offsets = {}
    for group_id in group_ids:
        error, offset = read_fetched_offset(connection.ask(offset_fetch_frame(group_id, topic, partition)))
        if error in NOT_YET:
            break
        if error:
            raise BrokerRefused(f"{connection.address}: OffsetFetch: error {error}")
        offsets[group_id] = offset
    return offsets


def _wait(deadline: float, server: Server, what: str) -> None:
    if time.perf_counter() > deadline:
        raise BrokerRefused(f"{server.name} {what} after {TIMEOUT_S} s")
    time.sleep(LOOK_AGAIN_S)
