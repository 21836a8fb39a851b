"""Consumer groups on the wire: a group with an unused name, and members with a connection each.

It has `Group` (requests of an outsider), `ClassicMember` (JoinGroup and related requests), `ConsumerMember`
(ConsumerGroupHeartbeat), and the two structures that clients put into the classic protocol's bytes. A JoinGroup that
waits blocks its connection, hence one connection per member. It contains no expectations.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self
from uuid import UUID

from harness.patience import PATIENCE_S, wait_until
from kio.schema.errors import ErrorCode
from wire_client import Wire, message

JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, LEAVE_VERSION = 9, 5, 4, 5
COMMIT_VERSION, FETCH_VERSION = 9, 9
SESSION_TIMEOUT_MS = REBALANCE_TIMEOUT_MS = max(6000, int(2000 * PATIENCE_S))
"""Twice as long as a connection waits for a response: a response that comes has another cause than a timeout."""
GROUP_RESOURCE = 32
Protocols = Sequence[tuple[str, bytes]]
Owned = dict[UUID, set[int]]


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def partitions_of(topic: str, partitions: Sequence[int]) -> bytes:
    return text(topic) + struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)


def subscription(*topics: str, owned: Sequence[int] = ()) -> bytes:
    """Return what a consumer sends to its leader in JoinGroup: version 1 of the structure, without user data.

    The owned partitions, if any, are of the first topic.
    """
    encoded = struct.pack(">hi", 1, len(topics)) + b"".join(map(text, topics)) + struct.pack(">i", -1)
    return encoded + (struct.pack(">i", 1) + partitions_of(topics[0], owned) if owned else struct.pack(">i", 0))


def assignment(topic: str, *partitions: int) -> bytes:
    """Return what a leader sends to a consumer in SyncGroup: version 1 of the structure, one topic, no user data."""
    return struct.pack(">hi", 1, 1) + partitions_of(topic, partitions) + struct.pack(">i", -1)


def read_assignment(data: bytes) -> dict[str, set[int]]:
    """Return the partitions by topic in a SyncGroup assignment."""
    (_version, topics), at, found = struct.unpack_from(">hi", data), 6, {}
    for _ in range(topics):
        (size,) = struct.unpack_from(">h", data, at)
        name, at = data[at + 2 : at + 2 + size].decode(), at + 2 + size
        (count,) = struct.unpack_from(">i", data, at)
        found[name], at = set(struct.unpack_from(f">{count}i", data, at + 4)), at + 4 + 4 * count
    return found


def until(condition: Callable[[], Any], what: str) -> Any:
    """Repeat until the condition holds and return its value. Each attempt is a round trip; the pause spares the CPU."""
    return wait_until(condition, what)


class Group:
    """An unused group, requests about it from outside, and a factory of its members."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.id = f"it-group-{uuid.uuid4().hex[:12]}"
        self.wire = Wire(bootstrap)
        self.connections = [self.wire]

    def __enter__(self) -> Self:
        try:
            self.await_coordinator()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self.connections:
            connection.socket.close()

    def assign_at_once(self) -> None:
        """Avoid the second that a broker may wait before it assigns again, where it has such a setting."""
        config = {"name": "consumer.assignment.interval.ms", "config_operation": 0, "value": "0"}
        resource = {"resource_type": GROUP_RESOURCE, "resource_name": self.id, "configs": [config]}
        self.ask("incremental_alter_configs", 1, resources=[resource], validate_only=False)

    def await_coordinator(self) -> None:
        """The first group of a new cluster has to wait for its coordinator."""
        requested = {"key_type": 0, "coordinator_keys": [self.id]}
        until(
            lambda: self.ask("find_coordinator", 4, **requested).coordinators[0].error_code == 0,
            "there is a coordinator",
        )
        until(lambda: self.describe().error_code == 0, "the coordinator serves")

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        return self.wire.ask(message(api, version, **fields))

    def connect(self) -> Wire:
        self.connections.append(Wire(self.bootstrap))
        return self.connections[-1]

    def member(self, **fields: Any) -> ClassicMember:
        return ClassicMember(self, self.connect(), **fields)

    def consumer(self, topics: Sequence[str] | None = None, **fields: Any) -> ConsumerMember:
        return ConsumerMember(self, self.connect(), topics, **fields)

    def join_members(self, count: int = 1, topic: str = "t", **fields: Any) -> list[ClassicMember]:
        """Let so many classic members join, until the group is Stable. Return them, the leader first; member n owns
        partition n."""
        members = [self.member(**fields) for _ in range(count)]
        self.rebalance(*members, topic=topic)
        return members

    def rebalance(self, leader: ClassicMember, *newcomers: ClassicMember, topic: str = "t") -> None:
        """Let all members join and the leader assign. The leader is the only member, or the first of the newcomers."""
        if not leader.id:
            leader.join()
        for member in newcomers:
            member.post_join()
        if newcomers:
            self.await_members(1 + len(newcomers))
            leader.post_join()
            for member in (leader, *newcomers):
                member.collect_join()
        self.assign(leader, *newcomers, topic=topic)

    def assign(self, *members: ClassicMember, topic: str = "t") -> None:
        made = {member.id: assignment(topic, place) for place, member in enumerate(members)}
        for member in members[1:]:
            member.post_sync()
        assert members[0].sync(made).error_code == 0
        for member in members[1:]:
            assert member.wire.collect().error_code == 0

    def describe(self, version: int = 5) -> Any:
        more = {"include_authorized_operations": False} if version >= 3 else {}
        (shown,) = self.ask("describe_groups", version, groups=[self.id], **more).groups
        return shown

    def state(self) -> str:
        return str(self.describe().group_state)

    def await_state(self, state: str) -> None:
        until(lambda: self.state() == state, f"{self.id} is {state}")

    def await_members(self, count: int) -> None:
        until(lambda: len(self.describe().members) == count, f"{self.id} has {count} members")

    def described_consumers(self, version: int = 1) -> Any:
        requested = {"group_ids": [self.id], "include_authorized_operations": False}
        (shown,) = self.ask("consumer_group_describe", version, **requested).groups
        return shown

    def listed(self, version: int = 5, **filters: Any) -> Any | None:
        """Return the group as ListGroups shows it, or None."""
        answer = self.ask("list_groups", version, **filters)
        assert answer.error_code == 0
        return next((group for group in answer.groups if group.group_id == self.id), None)

    def listed_type(self) -> str:
        """Return the type in ListGroups: classic or consumer."""
        shown = self.listed()
        assert shown is not None
        return str(shown.group_type)

    def delete(self, version: int = 2) -> int:
        (result,) = self.ask("delete_groups", version, groups_names=[self.id]).results
        assert result.group_id == self.id
        return int(result.error_code)

    def commit(self, topic: Any, offset: int, **fields: Any) -> int:
        """Commit as an outsider, unless the fields name a member."""
        return commit(self.wire, self.id, topic, offset, **fields)

    def committed(self, topic: str, partition: int = 0) -> int:
        """Return the committed offset, -1 for none."""
        topics = [{"name": topic, "partition_indexes": [partition]}]
        answer = self.ask("offset_fetch", 8, groups=[{"group_id": self.id, "topics": topics}])
        (found,) = answer.groups[0].topics[0].partitions
        assert (answer.groups[0].error_code, found.error_code) == (0, 0)
        return int(found.committed_offset)


def commit(wire: Wire, group_id: str, topic: Any, offset: int, version: int = COMMIT_VERSION, **fields: Any) -> int:
    """Commit for one partition and return its error code; without member and generation, as an outsider does."""
    keys = {"partition": "partition_index", "leader_epoch": "committed_leader_epoch", "metadata": "committed_metadata"}
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    partition |= {field: fields.pop(key) for key, field in keys.items() if key in fields}
    name = "topic_id" if version >= 10 else "name"
    request: dict[str, Any] = {
        "group_id": group_id,
        "member_id": "",
        "topics": [{name: topic, "partitions": [partition]}],
    }
    answer = wire.ask(message("offset_commit", version, **(request | fields)))
    (shown,) = answer.topics
    assert getattr(shown, name) == topic
    (found,) = shown.partitions
    assert found.partition_index == partition["partition_index"]
    return int(found.error_code)


class ClassicMember:
    """A member by JoinGroup, SyncGroup and Heartbeat. It remembers its id and generation as a client would."""

    def __init__(self, group: Group, wire: Wire, instance: str | None = None, **fields: Any) -> None:
        self.group, self.wire, self.instance = group, wire, instance
        self.protocols: Protocols = fields.pop("protocols", [("range", subscription("t"))])
        self.version: int = fields.pop("version", JOIN_VERSION)
        self.fields = {"session_timeout": SESSION_TIMEOUT_MS, "rebalance_timeout": REBALANCE_TIMEOUT_MS} | fields
        self.id, self.generation, self.protocol = "", -1, ""

    def join_request(self, **changes: Any) -> Any:
        protocols = [
            {"name": name, "metadata": metadata} for name, metadata in changes.pop("protocols", self.protocols)
        ]
        version = changes.pop("version", self.version)
        fields: dict[str, Any] = {"group_id": self.group.id, "member_id": self.id, "protocols": protocols}
        fields |= {"protocol_type": "consumer"} | self.fields
        if version < 1:
            del fields["rebalance_timeout"]
        if version >= 5:
            fields["group_instance_id"] = self.instance
        return message("join_group", version, **(fields | changes))

    def ask_join(self, **changes: Any) -> Any:
        """Send one JoinGroup and return the response; remember nothing."""
        return self.wire.ask(self.join_request(**changes))

    def post_join(self) -> None:
        """Send a JoinGroup as a client does, after asking for an id where one is needed, without waiting for the
        rebalance."""
        if not self.id and self.instance is None and self.version >= 4:
            answer = self.ask_join()
            assert answer.error_code == ErrorCode.member_id_required
            self.id = answer.member_id
        self.wire.post(self.join_request())

    def collect_join(self) -> Any:
        answer = self.wire.collect()
        assert answer.error_code == 0, answer
        self.id, self.generation, self.protocol = answer.member_id, answer.generation_id, answer.protocol_name
        return answer

    def join(self) -> Any:
        self.post_join()
        return self.collect_join()

    def sync_request(self, made: dict[str, bytes] | None = None, **changes: Any) -> Any:
        version = changes.pop("version", SYNC_VERSION)
        assignments = [{"member_id": member, "assignment": data} for member, data in (made or {}).items()]
        fields: dict[str, Any] = {"group_id": self.group.id, "generation_id": self.generation, "member_id": self.id}
        fields["assignments"] = assignments
        if version >= 3:
            fields["group_instance_id"] = self.instance
        if version >= 5:
            fields |= {"protocol_type": "consumer", "protocol_name": self.protocol}
        return message("sync_group", version, **(fields | changes))

    def post_sync(self, made: dict[str, bytes] | None = None, **changes: Any) -> None:
        self.wire.post(self.sync_request(made, **changes))

    def sync(self, made: dict[str, bytes] | None = None, **changes: Any) -> Any:
        return self.wire.ask(self.sync_request(made, **changes))

    def heartbeat(self, version: int = HEARTBEAT_VERSION, **changes: Any) -> int:
        fields: dict[str, Any] = {"group_id": self.group.id, "generation_id": self.generation, "member_id": self.id}
        if version >= 3:
            fields["group_instance_id"] = self.instance
        return int(self.wire.ask(message("heartbeat", version, **(fields | changes))).error_code)

    def leave(self, version: int = LEAVE_VERSION) -> int:
        fields: dict[str, Any] = {"group_id": self.group.id}
        if version < 3:
            return int(self.wire.ask(message("leave_group", version, **fields, member_id=self.id)).error_code)
        identity = {"member_id": self.id, "group_instance_id": self.instance}
        answer = self.wire.ask(message("leave_group", version, **fields, members=[identity]))
        assert answer.error_code == 0
        return int(answer.members[0].error_code)

    def commit(self, topic: Any, offset: int, **fields: Any) -> int:
        mine: dict[str, Any] = {"member_id": self.id}
        mine["generation_id_or_member_epoch"] = fields.pop("generation", self.generation)
        if fields.get("version", COMMIT_VERSION) >= 7:
            mine["group_instance_id"] = self.instance
        return commit(self.wire, self.group.id, topic, offset, **(mine | fields))


class ConsumerMember:
    """A member by ConsumerGroupHeartbeat. It remembers its epoch and assignment, and owns that at once."""

    def __init__(self, group: Group, wire: Wire, topics: Sequence[str] | None = None, **fields: Any) -> None:
        self.group, self.wire = group, wire
        self.version: int = fields.pop("version", 1)
        self.id: str = fields.pop("member_id", str(uuid.uuid4()) if self.version >= 1 else "")
        self.instance: str | None = fields.pop("instance", None)
        self.subscribed: dict[str, Any] = {"subscribed_topic_names": topics} | fields
        self.epoch = 0
        self.owned: Owned = {}

    def request(self, **changes: Any) -> Any:
        fields: dict[str, Any] = {"group_id": self.group.id, "member_id": self.id, "member_epoch": self.epoch}
        fields |= {"instance_id": self.instance, "topic_partitions": None}
        return message("consumer_group_heartbeat", self.version, **(fields | changes))

    def ask(self, **changes: Any) -> Any:
        """Send one heartbeat and return the response; remember nothing."""
        return self.wire.ask(self.request(**changes))

    def code(self, **changes: Any) -> int:
        return int(self.ask(**changes).error_code)

    def full(self, **changes: Any) -> dict[str, Any]:
        """Return all fields, as the first heartbeat and one after an error has them."""
        return (
            {"rebalance_timeout": REBALANCE_TIMEOUT_MS, "topic_partitions": owned_topics({})}
            | self.subscribed
            | changes
        )

    def join(self, **changes: Any) -> Any:
        self.epoch, self.owned = 0, {}
        return self.remember(self.ask(**self.full(**changes)))

    def heartbeat(self, **changes: Any) -> Any:
        """Send a heartbeat with the owned partitions, as a client does whenever these changed."""
        return self.remember(self.ask(**({"topic_partitions": owned_topics(self.owned)} | changes)))

    def remember(self, answer: Any) -> Any:
        assert answer.error_code == 0, answer
        self.id, self.epoch = answer.member_id, answer.member_epoch
        if answer.assignment is not None:
            self.owned = {shown.topic_id: set(shown.partitions) for shown in answer.assignment.topic_partitions}
        return answer

    def partitions(self) -> set[int]:
        """The owned partitions, where there is only one topic."""
        assert len(self.owned) <= 1
        return set().union(*self.owned.values())

    def leave(self, epoch: int = -1) -> Any:
        return self.ask(member_epoch=epoch)

    def commit(self, topic: Any, offset: int, **fields: Any) -> int:
        epoch = fields.pop("epoch", self.epoch)
        mine = {"member_id": self.id, "generation_id_or_member_epoch": epoch}
        return commit(self.wire, self.group.id, topic, offset, **(mine | fields))


def owned_topics(owned: Owned) -> list[dict[str, Any]]:
    return [{"topic_id": topic, "partitions": sorted(partitions)} for topic, partitions in owned.items()]


def settle(condition: Callable[[], Any], *members: ConsumerMember) -> None:
    """Let all members send heartbeats in turn until the condition holds: a broker may take a second to assign again."""

    def heartbeat() -> bool:
        for member in members:
            member.heartbeat()
        return bool(condition())

    until(heartbeat, "the members own what they should")


def join_alone(member: ConsumerMember, partitions: int) -> int:
    """Join and own all partitions; return the epoch. A coordinator may learn of a topic a moment after others."""
    member.join()
    settle(lambda: spread([member]) == [partitions], member)
    return member.epoch


def spread(members: Iterable[ConsumerMember]) -> list[int]:
    """Return how many partitions each member owns, in descending order."""
    return sorted((sum(map(len, member.owned.values())) for member in members), reverse=True)
