"""Groups that change between the classic and the consumer protocol: their members keep their state, and nothing of the
old group remains."""

from __future__ import annotations

from typing import Any

import pytest
from harness.in_memory_group_shard import InMemoryGroupShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.classic.group import ClassicGroup, ClassicMember, Protocol, State
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.migration.assignment_codec import by_topic_id
from moldau.coordinator.group.migration.upgrade import consumer_group_of
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Client
from moldau.wire.consumer_protocol import read, write
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions
from moldau.wire.log_records.offsets import ClassicMemberMetadata, ClassicProtocol
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

OLD = Client("old client", "/10.0.0.1", 9)
SUBSCRIPTION = write(Subscription(["a", "gone"], None, (), 1, "rack"), 3)
TOPIC_A = (1).to_bytes(16)


@pytest.fixture
def shard() -> InMemoryGroupShard:
    shard = InMemoryGroupShard(GroupSettings(initial_rebalance_delay_ms=0))
    shard.create_topic("a", 2)
    shard.create_topic("b", 1)
    return shard


def join_request(
    member_id: str, instance_id: str | None = None, subscription: bytes = SUBSCRIPTION
) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", subscription), JoinGroupRequestProtocol("other", b"")]
    return JoinGroupRequest("g", 8_000, 20_000, member_id, instance_id, "consumer", protocols)


def sync_request(generation: int, member_id: str, assignments: Any = ()) -> SyncGroupRequest:
    return SyncGroupRequest("g", generation, member_id, None, "consumer", "range", assignments)


def create_classic_group(shard: InMemoryGroupShard, subscription: bytes = SUBSCRIPTION) -> str:
    """Create a stable classic group of one member, and return the member id."""
    request = join_request("", None, subscription)
    member_id: str = shard.submit(lambda groups: groups.join(request, OLD)).value().member_id
    request.member_id = member_id
    shard.submit(lambda groups: groups.join(request, OLD))
    shard.advance(0)
    topics = [TopicPartitions("a", [0, 1]), TopicPartitions("gone", [7]), TopicPartitions("b", [])]
    assignments = [SyncGroupRequestAssignment(member_id, write(Assignment(topics), 3))]
    shard.submit(lambda groups: groups.sync(sync_request(1, member_id, assignments), OLD))
    return member_id


def join_as_consumer(shard: InMemoryGroupShard, member_id: str = "new") -> None:
    request = ConsumerGroupHeartbeatRequest("g", member_id, 0, None, None, 30_000, ["a"])
    request.topic_partitions = []
    shard.heartbeat(request)


def leave(shard: InMemoryGroupShard, member_id: str = "new") -> None:
    shard.heartbeat(ConsumerGroupHeartbeatRequest("g", member_id, -1))


def consumer_group(shard: InMemoryGroupShard) -> ConsumerGroup:
    group = shard.groups.state.groups["g"]
    assert isinstance(group, ConsumerGroup)
    return group


def classic_group(shard: InMemoryGroupShard) -> ClassicGroup:
    group = shard.groups.state.groups["g"]
    assert isinstance(group, ClassicGroup)
    return group


def test_a_classic_member_keeps_everything_in_an_upgrade(shard: InMemoryGroupShard) -> None:
    member_id = create_classic_group(shard)
    join_as_consumer(shard)
    known = [ClassicProtocol("range", SUBSCRIPTION), ClassicProtocol("other", b"")]
    assert consumer_group(shard).members[member_id] == ConsumerMember(
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


@pytest.mark.parametrize(
    "generations", [{"first": 1, "second": 2}, {"first": 2, "second": 1}, {"first": 2, "second": -1}]
)
def test_of_two_claims_to_a_partition_the_higher_generation_wins(
    shard: InMemoryGroupShard, generations: dict[str, int]
) -> None:
    group = ClassicGroup("g", State.STABLE, generation=3, protocol_name="cooperative-sticky")
    claims = {"first": [0], "second": [0, 1]}
    for member_id, generation in generations.items():
        owned = [TopicPartitions("a", claims[member_id])]
        protocol = Protocol("cooperative-sticky", write(Subscription(["a"], None, owned, generation), 3))
        member = ClassicMember(member_id, None, "client", "/here", 20_000, 8_000, (protocol,))
        member.assignment = write(Assignment([]), 3)
        group.add(member)
    converted = consumer_group_of(group, shard.groups.state.current.image)
    owners = {
        index: member.member_id for member in converted.members.values() for index in member.assigned.get(TOPIC_A, ())
    }
    assert owners == {0: max(generations, key=generations.__getitem__), 1: "second"}
    assert list(converted.members) == ["first", "second"], "in the order in which they joined"


def test_the_empty_rack_of_librdkafka_becomes_none(shard: InMemoryGroupShard) -> None:
    member_id = create_classic_group(shard, write(Subscription(["a"], None, (), 1, ""), 3))
    join_as_consumer(shard)
    assert consumer_group(shard).members[member_id].rack_id is None


def test_a_joining_classic_member_sets_all_its_metadata(shard: InMemoryGroupShard) -> None:
    join_as_consumer(shard)
    response = shard.submit(lambda groups: groups.join(join_request("made-up", "one"), OLD)).value()
    assert response.code is ErrorCode.UNKNOWN_MEMBER_ID, "a static member cannot choose its own id"
    response = shard.submit(lambda groups: groups.join(join_request("", "one"), OLD)).value()
    member = consumer_group(shard).members[response.member_id]
    assert (response.protocol_type, response.protocol_name, response.generation_id) == ("consumer", "range", 3)
    assert (member.instance_id, member.rack_id, member.rebalance_timeout_ms) == ("one", "rack", 20_000)
    assert (member.client_id, member.client_host) == ("old client", "/10.0.0.1")
    no_rack = write(Subscription(["a"]), 3)
    shard.submit(lambda groups: groups.join(join_request(response.member_id, None, no_rack), OLD))
    again = consumer_group(shard).members[response.member_id]
    assert (again.instance_id, again.rack_id) == ("one", "rack"), "fields that it does not send stay"


def test_the_sync_response_repeats_the_protocol_of_the_request(shard: InMemoryGroupShard) -> None:
    member_id = create_classic_group(shard)
    join_as_consumer(shard)
    shard.submit(lambda groups: groups.join(join_request(member_id), OLD))
    response = shard.submit(lambda groups: groups.sync(sync_request(2, member_id), OLD)).value()
    assert (response.error_code, response.protocol_type, response.protocol_name) == (0, "consumer", "range")
    share, version = read(Assignment, response.assignment)
    assert (share.assigned_partitions, version) == ([TopicPartitions("a", [0])], 3)


def test_a_classic_member_keeps_everything_in_a_downgrade(shard: InMemoryGroupShard) -> None:
    member_id = create_classic_group(shard)
    before = classic_group(shard).members[member_id]
    join_as_consumer(shard)
    leave(shard)
    group = classic_group(shard)
    after = group.members[member_id]
    assert group.state_timestamp_ms == shard.clock.now_ms()
    for name in ("instance_id", "client_id", "client_host", "rebalance_timeout_ms", "session_timeout_ms", "protocols"):
        assert getattr(after, name) == getattr(before, name), name
    share, version = read(Assignment, after.assignment)
    assert (share.assigned_partitions, version) == ([TopicPartitions("a", [0, 1])], 3)


def test_an_upgrade_answers_a_waiting_member_with_its_id(shard: InMemoryGroupShard) -> None:
    first = create_classic_group(shard)
    waiting = shard.submit(lambda groups: groups.join(join_request(first), OLD._replace(version=3)))
    assert waiting.done, "it is alone"
    second = shard.submit(lambda groups: groups.join(join_request(""), OLD._replace(version=3)))
    assert not second.done
    join_as_consumer(shard)
    response = second.value()
    assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert response.member_id in consumer_group(shard).members


def test_a_refused_upgrade_does_not_answer_waiting_members(shard: InMemoryGroupShard) -> None:
    first, old = create_classic_group(shard), OLD._replace(version=3)
    waiting = shard.submit(lambda groups: groups.join(join_request(""), old))
    shard.refuses_next_records = True
    with pytest.raises(KafkaError):
        join_as_consumer(shard)
    assert not waiting.done
    joined = shard.submit(lambda groups: groups.join(join_request(first), old))
    assert [response.value().error_code for response in (joined, waiting)] == [ErrorCode.NONE] * 2


def test_after_a_refused_upgrade_a_static_member_that_waited_longer_than_its_session_times_out(
    shard: InMemoryGroupShard,
) -> None:
    first, second = (shard.submit(lambda groups, i=i: groups.join(join_request("", i), OLD)) for i in ("one", "two"))
    shard.advance(0)
    shard.submit(lambda groups: groups.sync(sync_request(1, first.value().member_id), OLD))
    shard.submit(lambda groups: groups.sync(sync_request(1, second.value().member_id), OLD))
    shard.submit(lambda groups: groups.join(join_request(first.value().member_id), OLD))
    for _ in range(2):
        shard.advance(5_000)
        shard.submit(lambda groups: groups.heartbeat(HeartbeatRequest("g", 1, second.value().member_id), OLD))
    shard.refuses_next_records = True
    with pytest.raises(KafkaError):
        join_as_consumer(shard)
    assert len(classic_group(shard).members) == 2
    shard.advance(60_000)
    assert not classic_group(shard).members


def test_after_a_refused_upgrade_by_its_own_id_a_classic_member_still_times_out(shard: InMemoryGroupShard) -> None:
    member_id = create_classic_group(shard)
    shard.refuses_next_records = True
    with pytest.raises(KafkaError):
        join_as_consumer(shard, member_id)
    assert list(classic_group(shard).members) == [member_id]
    shard.advance(60_000)
    assert not classic_group(shard).members


def test_a_consumer_that_joins_with_the_id_of_a_pending_member_has_a_session(shard: InMemoryGroupShard) -> None:
    create_classic_group(shard)
    pending = shard.submit(lambda groups: groups.join(join_request(""), OLD)).value().member_id
    join_as_consumer(shard, pending)
    assert ("session", "g", pending) in shard.groups.state.deadlines


def test_a_conversion_leaves_no_deadlines_of_the_old_kind(shard: InMemoryGroupShard) -> None:
    member_id = create_classic_group(shard)
    deadlines = shard.groups.state.deadlines
    pending = shard.submit(lambda groups: groups.join(join_request(""), OLD)).value().member_id
    shard.submit(lambda groups: groups.join(join_request(member_id), OLD))
    assert ("join", "g") in deadlines
    join_as_consumer(shard)
    forbidden = [("join", "g"), ("sync", "g"), ("session", "g", pending)]
    assert not any(key in deadlines for key in forbidden)
    shard.submit(lambda groups: groups.heartbeat(HeartbeatRequest("g", 1, member_id), OLD))
    assert ("join", "g", member_id) in deadlines
    leave(shard)
    forbidden = [(what, "g", each) for what in ("join", "sync", "rebalance") for each in (member_id, "new")]
    assert not any(key in deadlines for key in [*forbidden, ("session", "g", "new")])
    assert ("session", "g", member_id) in deadlines


def test_a_group_with_offsets_exists_after_a_replay_though_its_classic_member_never_joined(
    shard: InMemoryGroupShard,
) -> None:
    join_as_consumer(shard)
    leave(shard)
    topics = [OffsetCommitRequestTopic(name="a", partitions=[OffsetCommitRequestPartition(0, 7)])]
    commit = OffsetCommitRequest("g", topics=topics)
    committed = shard.submit(lambda groups: groups.offsets.commit(commit, OLD)).value()
    assert committed.topics[0].partitions[0].error_code == 0
    pending = shard.submit(lambda groups: groups.join(join_request(""), OLD)).value()
    assert pending.error_code == ErrorCode.MEMBER_ID_REQUIRED
    shard.replay()
    assert classic_group(shard).is_empty
    for outcome in shard.groups.expire(2**50):
        if outcome is not None:
            shard.execute(outcome)
    assert (shard.groups.state.offsets, shard.groups.state.groups) == ({}, {})


def test_a_refused_classic_join_leaves_the_empty_consumer_group(shard: InMemoryGroupShard) -> None:
    join_as_consumer(shard)
    leave(shard)
    group = consumer_group(shard)
    for version in (3, 9):
        shard.refuses_next_records = True
        refused = shard.submit(lambda groups, v=version: groups.join(join_request(""), OLD._replace(version=v)))
        assert refused.value().code == ErrorCode.RECORD_LIST_TOO_LARGE
        assert consumer_group(shard) is group
    shard.submit(lambda groups: groups.join(join_request(""), OLD))
    shard.advance(0)  # the refused join had begun a rebalance
    assert classic_group(shard).is_empty
    shard.check_replay()


@pytest.mark.parametrize("does_leave", [False, True])
def test_the_last_consumer_is_removed_though_the_classic_group_would_be_too_large(
    shard: InMemoryGroupShard, does_leave: bool
) -> None:
    shard.broker_configs["group.consumer.session.timeout.ms"] = "5000"
    member_id = create_classic_group(shard)
    join_as_consumer(shard)
    shard.refuses_next_records = True
    if does_leave:
        leave(shard)
    else:
        shard.advance(5_000)
    assert list(consumer_group(shard).members) == [member_id]
    assert ("session", "g", "new") not in shard.groups.deadlines
    assert ("session", "g", member_id) in shard.groups.deadlines
    shard.check_replay()
    shard.advance(10_000)
    assert not consumer_group(shard).members


@pytest.mark.parametrize("topic", ["a", "b"])
def test_the_last_consumer_rejoins_as_classic_though_the_classic_group_would_be_too_large(
    shard: InMemoryGroupShard, topic: str
) -> None:
    request = ConsumerGroupHeartbeatRequest("g", "new", 0, "one", None, 30_000, ["a"])
    request.topic_partitions = []
    shard.heartbeat(request)
    shard.refuses_next_records = True
    returned = join_request("", "one", write(Subscription([topic]), 3))
    joined = shard.submit(lambda groups: groups.join(returned, OLD)).value()
    assert list(consumer_group(shard).members) == [joined.member_id]
    assert ("session", "g", joined.member_id) in shard.groups.deadlines
    shard.check_replay()
    sync = SyncGroupRequest("g", joined.generation_id, joined.member_id, "one", "consumer", joined.protocol_name)
    synced = shard.submit(lambda groups: groups.sync(sync, OLD)).value()
    share, _ = read(Assignment, synced.assignment)
    assert [each.topic for each in share.assigned_partitions] == [topic]


def test_partitions_of_a_topic_in_many_entries_are_collected_only_once(shard: InMemoryGroupShard) -> None:
    """A copy for every entry would take minutes."""
    many = [TopicPartitions("a", range(first, first + 50_000)) for first in range(0, 1_800_000, 50_000)]
    few = [TopicPartitions("a", [index]) for index in range(9_900)]
    assert by_topic_id([*many, *few], shard.current.image) == {TOPIC_A: frozenset(range(1_800_000))}
