"""What members keep when their group changes its protocol, and that nothing of the old group is left."""

from __future__ import annotations

from typing import Any

import pytest
from migration_rooms import MigrationRooms

from moldau.base.errors import ErrorCode
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer_records import ClassicMemberMetadata, ClassicProtocol
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Client
from moldau.wire.consumer_protocol import Assignment, Subscription, TopicPartitions, read, write
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

OLD = Client("old client", "/10.0.0.1", 9)
SUBSCRIPTION = write(Subscription(["a", "gone"], None, (), 1, "rack"), 3)
TOPIC_A = (1).to_bytes(16)


@pytest.fixture
def rooms() -> MigrationRooms:
    rooms = MigrationRooms(GroupSettings(initial_rebalance_delay_ms=0))
    rooms.create_topic("a", 2)
    rooms.create_topic("b", 1)
    return rooms


def join_request(
    member_id: str, instance_id: str | None = None, subscription: bytes = SUBSCRIPTION
) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", subscription), JoinGroupRequestProtocol("other", b"")]
    return JoinGroupRequest("g", 8_000, 20_000, member_id, instance_id, "consumer", protocols)


def sync_request(generation: int, member_id: str, shares: Any = ()) -> SyncGroupRequest:
    return SyncGroupRequest("g", generation, member_id, None, "consumer", "range", shares)


def classic(rooms: MigrationRooms, subscription: bytes = SUBSCRIPTION) -> str:
    """Create a stable classic group of one member, and return the member id."""
    request = join_request("", None, subscription)
    member_id: str = rooms.ask(lambda groups: groups.join(request, OLD)).value().member_id
    request.member_id = member_id
    rooms.ask(lambda groups: groups.join(request, OLD))
    rooms.advance(0)
    topics = [TopicPartitions("a", [0, 1]), TopicPartitions("gone", [7]), TopicPartitions("b", [])]
    shares = [SyncGroupRequestAssignment(member_id, write(Assignment(topics), 3))]
    rooms.ask(lambda groups: groups.sync(sync_request(1, member_id, shares), OLD))
    return member_id


def enter(rooms: MigrationRooms, member_id: str = "new") -> None:
    request = ConsumerGroupHeartbeatRequest("g", member_id, 0, None, None, 30_000, ["a"])
    request.topic_partitions = []
    rooms.beat(request)


def leave(rooms: MigrationRooms, member_id: str = "new") -> None:
    rooms.beat(ConsumerGroupHeartbeatRequest("g", member_id, -1))


def consumer_group(rooms: MigrationRooms) -> ConsumerGroup:
    group = rooms.groups.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def classic_group(rooms: MigrationRooms) -> ClassicGroup:
    group = rooms.groups.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def test_a_classic_member_keeps_everything_in_an_upgrade(rooms: MigrationRooms) -> None:
    member_id = classic(rooms)
    enter(rooms)
    known = [ClassicProtocol("range", SUBSCRIPTION), ClassicProtocol("other", b"")]
    assert consumer_group(rooms).members[member_id] == ConsumerMember(
        member_id=member_id,
        member_epoch=1,
        previous_member_epoch=1,
        rack_id="rack",
        client_id="old client",
        client_host="/10.0.0.1",
        rebalance_timeout_ms=20_000,
        topic_names=frozenset({"a", "gone"}),
        assigned={TOPIC_A: {0: 1, 1: 1}},
        classic_member_metadata=ClassicMemberMetadata(8_000, known),
    )


def test_the_empty_rack_of_librdkafka_is_none(rooms: MigrationRooms) -> None:
    member_id = classic(rooms, write(Subscription(["a"], None, (), 1, ""), 3))
    enter(rooms)
    assert consumer_group(rooms).members[member_id].rack_id is None


def test_a_joining_classic_member_sets_all_its_metadata(rooms: MigrationRooms) -> None:
    enter(rooms)
    answer = rooms.ask(lambda groups: groups.join(join_request("made-up", "one"), OLD)).value()
    assert answer.code is ErrorCode.UNKNOWN_MEMBER_ID, "a static member cannot choose its own id"
    answer = rooms.ask(lambda groups: groups.join(join_request("", "one"), OLD)).value()
    member = consumer_group(rooms).members[answer.member_id]
    assert (answer.protocol_type, answer.protocol_name, answer.generation_id) == ("consumer", "range", 3)
    assert (member.instance_id, member.rack_id, member.rebalance_timeout_ms) == ("one", "rack", 20_000)
    assert (member.client_id, member.client_host) == ("old client", "/10.0.0.1")
    no_rack = write(Subscription(["a"]), 3)
    rooms.ask(lambda groups: groups.join(join_request(answer.member_id, None, no_rack), OLD))
    again = consumer_group(rooms).members[answer.member_id]
    assert (again.instance_id, again.rack_id) == ("one", "rack"), "what it does not send stays"


def test_the_sync_response_repeats_the_protocol_of_the_request(rooms: MigrationRooms) -> None:
    member_id = classic(rooms)
    enter(rooms)
    rooms.ask(lambda groups: groups.join(join_request(member_id), OLD))
    told = rooms.ask(lambda groups: groups.sync(sync_request(2, member_id), OLD)).value()
    assert (told.error_code, told.protocol_type, told.protocol_name) == (0, "consumer", "range")
    share, version = read(Assignment, told.assignment)
    assert (share.assigned_partitions, version) == ([TopicPartitions("a", [0])], 3)


def test_a_classic_member_keeps_everything_in_a_downgrade(rooms: MigrationRooms) -> None:
    member_id = classic(rooms)
    before = classic_group(rooms).members[member_id]
    enter(rooms)
    leave(rooms)
    group = classic_group(rooms)
    after = group.members[member_id]
    assert group.state_timestamp_ms == rooms.clock.now_ms()
    for name in ("instance_id", "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms", "protocols"):
        assert getattr(after, name) == getattr(before, name), name
    share, version = read(Assignment, after.assignment)
    assert (share.assigned_partitions, version) == ([TopicPartitions("a", [0, 1])], 3)


def test_a_member_waiting_for_a_rebalance_gets_its_id_again(rooms: MigrationRooms) -> None:
    first = classic(rooms)
    waiting = rooms.ask(lambda groups: groups.join(join_request(first), OLD._replace(version=3)))
    assert waiting.done, "it is alone"
    second = rooms.ask(lambda groups: groups.join(join_request(""), OLD._replace(version=3)))
    assert not second.done
    enter(rooms)
    answer = second.value()
    assert answer.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert answer.member_id in consumer_group(rooms).members


def test_a_conversion_leaves_no_deadlines_of_the_old_kind(rooms: MigrationRooms) -> None:
    member_id = classic(rooms)
    deadlines = rooms.groups.state.deadlines
    pending = rooms.ask(lambda groups: groups.join(join_request(""), OLD)).value().member_id
    rooms.ask(lambda groups: groups.join(join_request(member_id), OLD))
    assert ("join", "g") in deadlines
    enter(rooms)
    left = [("join", "g"), ("sync", "g"), ("session", "g", pending)]
    assert not any(key in deadlines for key in left)
    rooms.ask(lambda groups: groups.heartbeat(HeartbeatRequest("g", 1, member_id), OLD))
    assert ("join", "g", member_id) in deadlines
    leave(rooms)
    left = [(what, "g", each) for what in ("join", "sync", "rebalance") for each in (member_id, "new")]
    assert not any(key in deadlines for key in [*left, ("session", "g", "new")])
    assert ("session", "g", member_id) in deadlines
