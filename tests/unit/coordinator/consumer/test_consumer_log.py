"""Consumer groups rebuilt from their records, also those of older brokers and of compacted logs, and how they are
described."""

from __future__ import annotations

import pytest
from harness.in_memory_consumer_shard import InMemoryConsumerShard

from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.consumer.describe import describe_group
from moldau.coordinator.group.consumer.member import MemberState
from moldau.coordinator.group.consumer.target import preferred_assignor
from moldau.coordinator.group.subscriptions import metadata_hash
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.wire.codec import decode, encode
from moldau.wire.log_records import offsets as logged
from moldau.wire.messages.consumer_group_describe import ConsumerGroupDescribeResponse
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from moldau.wire.schema import RecordKey, RecordValue

A, B, DELETED = ((number).to_bytes(16) for number in (1, 2, 3))


@pytest.fixture
def shard() -> InMemoryConsumerShard:
    shard = InMemoryConsumerShard()
    shard.create_topic("a", 3)
    shard.create_topic("b", 2)
    return shard


def write(shard: InMemoryConsumerShard, *pairs: tuple[RecordKey, RecordValue | None]) -> None:
    shard.execute(Outcome(None, [CoordinatorRecord(key, value) for key, value in pairs]))


def current_assignment_key(member_id: str = "m") -> logged.ConsumerGroupCurrentMemberAssignmentKey:
    return logged.ConsumerGroupCurrentMemberAssignmentKey("g", member_id)


def current_assignment(epoch: int, *topics: logged.TopicPartitions) -> logged.ConsumerGroupCurrentMemberAssignmentValue:
    return logged.ConsumerGroupCurrentMemberAssignmentValue(epoch, epoch - 1, 0, topics)


@pytest.mark.parametrize(
    ("member_epoch", "epochs", "expected"),
    [(5, [2, 4], {0: 2, 2: 4}), (5, None, {0: 5, 2: 5}), (5, [2], {0: 5, 2: 5}), (-2, None, {0: 0, 2: 0})],
)
def test_partitions_without_epochs_get_the_member_epoch(
    shard: InMemoryConsumerShard, member_epoch: int, epochs: list[int] | None, expected: dict[int, int]
) -> None:
    write(
        shard, (current_assignment_key(), current_assignment(member_epoch, logged.TopicPartitions(A, [0, 2], epochs)))
    )
    assert shard.group().members["m"].assigned == {A: expected}


def test_a_tombstone_for_an_unknown_group_or_member_does_nothing(shard: InMemoryConsumerShard) -> None:
    keys = (
        current_assignment_key(),
        logged.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
        logged.ConsumerGroupTargetAssignmentMetadataKey("g"),
        logged.ConsumerGroupMemberMetadataKey("g", "m"),
        logged.ConsumerGroupRegularExpressionKey("g", "a.*"),
        logged.ConsumerGroupMetadataKey("g"),
    )
    write(shard, *((key, None) for key in keys))
    assert shard.state.groups == {}
    shard.state.groups["g"] = classic = ClassicGroup("g")
    write(shard, *((key, None) for key in keys))
    assert shard.state.groups == {"g": classic}, "tombstones of consumer groups do not remove a classic group"
    write(shard, (logged.ConsumerGroupMetadataKey("g"), logged.ConsumerGroupMetadataValue(4)))
    write(shard, *((key, None) for key in keys[:-1]))
    assert (shard.group().epoch, shard.group().assignment_epoch, shard.group().members) == (4, -1, {})


def test_a_partition_belongs_to_the_member_that_got_it_last(shard: InMemoryConsumerShard) -> None:
    """In a partly compacted log, a member may still have a partition that another got since."""
    write(shard, (current_assignment_key("old"), current_assignment(2, logged.TopicPartitions(A, [0, 1]))))
    write(shard, (current_assignment_key("new"), current_assignment(3, logged.TopicPartitions(A, [1, 2]))))
    write(shard, (current_assignment_key("old"), current_assignment(3, logged.TopicPartitions(A, [0]))))
    assert shard.group().owners == {(A, 0): "old", (A, 1): "new", (A, 2): "new"}
    write(shard, (current_assignment_key("new"), None))
    assert shard.group().owners == {(A, 0): "old"}
    assert shard.group().members["new"].state is MemberState.STABLE


def test_an_instance_id_belongs_to_the_member_that_got_it_last(shard: InMemoryConsumerShard) -> None:
    static = logged.ConsumerGroupMemberMetadataValue(instance_id="one")
    for member_id in ("old", "new"):
        write(shard, (logged.ConsumerGroupMemberMetadataKey("g", member_id), static))
    write(shard, (logged.ConsumerGroupMemberMetadataKey("g", "old"), None))
    assert shard.group().static_members == {"one": "new"}


@pytest.mark.needs_re2
def test_a_pattern_that_was_not_resolved_yet_is_resolved(shard: InMemoryConsumerShard) -> None:
    """Apache Kafka writes the member first and resolves its topics later. The group may have them already."""
    by_name = logged.ConsumerGroupMemberMetadataValue(subscribed_topic_names=["a"], rebalance_timeout_ms=1_000)
    by_pattern = logged.ConsumerGroupMemberMetadataValue(subscribed_topic_regex="a.*", rebalance_timeout_ms=1_000)
    known = logged.ConsumerGroupMetadataValue(3, metadata_hash(["a"], shard.current.image))
    write(
        shard,
        (logged.ConsumerGroupMemberMetadataKey("g", "m1"), by_name),
        (logged.ConsumerGroupMemberMetadataKey("g", "m2"), by_pattern),
        (logged.ConsumerGroupMetadataKey("g"), known),
        (
            logged.ConsumerGroupTargetAssignmentMetadataKey("g"),
            logged.ConsumerGroupTargetAssignmentMetadataValue(3),
        ),
        (current_assignment_key("m1"), current_assignment(3)),
        (current_assignment_key("m2"), current_assignment(3)),
    )
    shard.heartbeat(ConsumerGroupHeartbeatRequest("g", "m1", 3))
    assert (shard.group().epoch, len(shard.group().target_of("m2")[A])) == (4, 1)


def test_records_replace_a_group_that_has_only_offsets(shard: InMemoryConsumerShard) -> None:
    shard.state.groups["g"] = ClassicGroup("g")
    write(shard, (current_assignment_key(), current_assignment(2)))
    assert shard.group().members.keys() == {"m"}


def test_a_deleted_group_is_not_affected_by_topic_changes(shard: InMemoryConsumerShard) -> None:
    member = logged.ConsumerGroupMemberMetadataValue(subscribed_topic_names=["a"], subscribed_topic_regex="b.*")
    write(
        shard,
        (logged.ConsumerGroupMemberMetadataKey("g", "m"), member),
        (logged.ConsumerGroupRegularExpressionKey("g", "b.*"), logged.ConsumerGroupRegularExpressionValue(["b"])),
    )
    subscribed_groups = shard.groups._subscribed_groups
    assert (subscribed_groups.by_topic, subscribed_groups.by_pattern) == ({"a": {"g"}, "b": {"g"}}, {"b.*": {"g"}})
    assert shard.group().is_subscribed_to("b")
    write(shard, (logged.ConsumerGroupMetadataKey("g"), None))
    assert (subscribed_groups.by_topic, subscribed_groups.by_pattern) == ({}, {})


def test_a_group_is_described(shard: InMemoryConsumerShard) -> None:
    """Partitions to be revoked are still listed; a deleted topic has no name and is left out."""
    classic = logged.ClassicMemberMetadata(45_000, [])
    write(
        shard,
        (
            logged.ConsumerGroupMemberMetadataKey("g", "m"),
            logged.ConsumerGroupMemberMetadataValue(
                "i", "r", "c", "/h", ["b", "a"], "x.*", server_assignor="range", classic_member_metadata=classic
            ),
        ),
        (logged.ConsumerGroupMetadataKey("g"), logged.ConsumerGroupMetadataValue(5)),
        (
            logged.ConsumerGroupTargetAssignmentMemberKey("g", "m"),
            logged.ConsumerGroupTargetAssignmentMemberValue([logged.TopicPartition(B, [1])]),
        ),
        (
            logged.ConsumerGroupTargetAssignmentMetadataKey("g"),
            logged.ConsumerGroupTargetAssignmentMetadataValue(5, 77),
        ),
        (
            current_assignment_key(),
            logged.ConsumerGroupCurrentMemberAssignmentValue(
                4,
                3,
                1,
                [logged.TopicPartitions(A, [2]), logged.TopicPartitions(DELETED, [0])],
                [logged.TopicPartitions(A, [0])],
            ),
        ),
    )
    response = ConsumerGroupDescribeResponse(
        groups=[describe_group(shard.group(), shard.current.image, ("uniform", "range"))]
    )
    for version in (0, 1):
        encoded = bytearray()
        encode(response, version, encoded)
        shown = decode(ConsumerGroupDescribeResponse, bytes(encoded), version).groups[0]
        assert (shown.group_state, shown.group_epoch, shown.assignment_epoch) == ("Reconciling", 5, 5)
        assert (shown.assignor_name, shown.error_code) == ("range", 0)
        (member,) = shown.members
        assert (member.instance_id, member.rack_id, member.client_id, member.client_host) == ("i", "r", "c", "/h")
        assert (member.member_epoch, list(member.subscribed_topic_names)) == (4, ["a", "b"])
        assert (member.subscribed_topic_regex, member.member_type) == ("x.*", 0 if version else -1)
        for assignment, expected in ((member.assignment, [("a", [0, 2])]), (member.target_assignment, [("b", [1])])):
            assert [(each.topic_name, list(each.partitions)) for each in assignment.topic_partitions] == expected


def test_the_metadata_hash_differs_for_different_topics(shard: InMemoryConsumerShard) -> None:
    def hash_of(*names: str) -> int:
        return metadata_hash(names, shard.current.image)

    assert hash_of() == hash_of("nowhere") == 0
    seen = [hash_of("a"), hash_of("b"), hash_of("a", "b")]
    assert hash_of("b", "nowhere", "a") == seen[2]
    shard.grow_topic("a", 4)
    seen.append(hash_of("a"))
    shard.delete_topic("a")
    shard.create_topic("a", 4)
    seen.append(hash_of("a"))
    assert len(set(seen)) == len(seen)
    assert all(-(2**63) <= each < 2**63 for each in seen)


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({}, "uniform"),
        ({"range": 1}, "range"),
        ({"range": 1, "uniform": 1}, "uniform"),
        ({"range": 2, "uniform": 1}, "range"),
        ({"unheard-of": 9, "range": 1}, "range"),
    ],
)
def test_the_assignor_that_most_members_ask_for_is_used(counts: dict[str, int], expected: str) -> None:
    assert preferred_assignor(counts, ("uniform", "range")) == expected
