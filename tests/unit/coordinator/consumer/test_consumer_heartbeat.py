"""Heartbeats: refusals, the cost of a steady heartbeat, and other kinds of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from harness.consumer_clients import ConsumerClient
from harness.in_memory_consumer_shard import InMemoryConsumerShard

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.classic.group import ClassicGroup, State
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.migration import Conversion
from moldau.coordinator.group.consumer.validate import owned_partitions
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome
from moldau.metadata.apply import Changes
from moldau.wire.log_records.offsets import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    GroupMetadataKey,
)
from moldau.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
    ResponseTopicPartitions,
)

Request = ConsumerGroupHeartbeatRequest
CLIENT = Client("client", "/127.0.0.1", 1)


def join(member_id: str = "m", **fields: object) -> Request:
    request = Request("g", member_id, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[])
    for name, value in fields.items():
        setattr(request, name, value)
    return request


@pytest.fixture
def shard() -> InMemoryConsumerShard:
    shard = InMemoryConsumerShard()
    shard.create_topic("a", 4)
    return shard


def error_of(shard: InMemoryConsumerShard, request: Request, version: int = 1) -> ErrorCode:
    before = len(shard.log)
    with pytest.raises(KafkaError) as raised:
        shard.heartbeat(request, version)
    assert raised.value.message
    assert len(shard.log) == before
    return raised.value.code


# --- refused requests -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("heartbeat", "version"),
    [
        (join(""), 1),
        (join("", member_epoch=1), 0),
        (join("", member_epoch=-1), 0),
        (join(group_id=""), 1),
        (join(instance_id=""), 1),
        (join(rack_id=""), 1),
        (join(" "), 1),
        (join(group_id=" "), 1),
        (join(instance_id="\t"), 1),
        (join(rack_id=" "), 1),
        (join(rebalance_timeout_ms=-1), 1),
        (join(topic_partitions=None), 1),
        (join(topic_partitions=[RequestTopicPartitions(bytes(16), [0])]), 1),
        (join(subscribed_topic_names=None), 1),
        (join(member_epoch=-2), 1),
        (join(member_epoch=-3, instance_id="i"), 1),
    ],
)
def test_an_invalid_request_is_refused(shard: InMemoryConsumerShard, heartbeat: Request, version: int) -> None:
    assert error_of(shard, heartbeat, version) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("fields", [{"subscribed_topic_names": []}, {"subscribed_topic_regex": ""}])
def test_a_member_may_join_with_an_empty_subscription(shard: InMemoryConsumerShard, fields: dict[str, object]) -> None:
    response, _ = shard.heartbeat(join(**{"subscribed_topic_names": None, **fields}))
    assert (response.member_epoch, response.assignment) == (1, Assignment([]))
    assert shard.group().state_name == "Stable"


def test_an_unknown_assignor_is_refused(shard: InMemoryConsumerShard) -> None:
    assert error_of(shard, join(server_assignor="best")) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_member_ids_chosen_by_the_broker_differ(shard: InMemoryConsumerShard) -> None:
    first, _ = shard.heartbeat(join(""), version=0)
    second, _ = shard.heartbeat(join(""), version=0)
    assert first.member_id
    assert shard.group().members.keys() == {first.member_id, second.member_id}


def test_a_member_in_an_unknown_state_must_join_again(shard: InMemoryConsumerShard) -> None:
    """A newer version of the broker wrote it, so it is unknown which partitions the member may have."""
    shard.heartbeat(join())
    unknown_state = records.member_assignment("g", shard.group().members["m"])
    assert isinstance(unknown_state.value, ConsumerGroupCurrentMemberAssignmentValue)
    unknown_state.value.state = 9
    shard.execute(Outcome(None, [unknown_state]))
    shard.grow_topic("a", 5)
    assert error_of(shard, Request("g", "m", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert shard.group().must_resolve_topics, "a refused heartbeat must not count as having resolved the topics"
    response, _ = shard.heartbeat(join())
    assert response.assignment is not None
    assert [list(topic.partitions) for topic in response.assignment.topic_partitions] == [[0, 1, 2, 3, 4]]


# --- costs, topics and static members ---------------------------------------------------------------------------


class LookupOnlyDict(dict[str, ConsumerMember]):
    """A dict of members that allows only lookups by id."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("the code iterates over all members")

    items = values = keys = __iter__  # type: ignore[assignment]


def test_a_steady_heartbeat_reads_no_other_member_and_writes_nothing(shard: InMemoryConsumerShard) -> None:
    clients = [ConsumerClient(shard, f"m{number}", ["a"]) for number in range(6)]
    while sum(client.send_request() + client.react() for client in clients):
        pass
    group = shard.group()
    assert not group.must_resolve_topics
    group.members = LookupOnlyDict(group.members)
    for client in clients:
        response, written = shard.heartbeat(Request("g", client.member_id, client.epoch))
        assert (response.member_epoch, response.assignment, list(written)) == (client.epoch, None, [])


def test_an_assignment_whose_response_was_lost_comes_again_until_the_member_confirms_it(
    shard: InMemoryConsumerShard,
) -> None:
    """Not every client asks for it: librdkafka repeats a heartbeat that timed out as it was."""
    first, second = ConsumerClient(shard, "first", ["a"]), ConsumerClient(shard, "second", ["a"])
    for client in (first, second):
        while client.send_request() + client.react():
            pass
    assert len(first.owned) == 4

    _, lost = shard.heartbeat(Request("g", "first", first.epoch))
    assert lost, "it must revoke partitions now"
    for _ in range(2):
        response, _ = shard.heartbeat(Request("g", "first", first.epoch))
        assert response.assignment == assignment_of(shard, "first")
    first.epoch = response.member_epoch
    first.owned = first.assigned = frozenset((topic_id, index) for topic_id, index in first.owned if index < 2)
    first.send_request()
    assert shard.heartbeat(Request("g", "first", first.epoch))[0].assignment is None

    _, lost = shard.heartbeat(Request("g", "second", second.epoch))
    assert lost, "it gets what the first one revoked"
    for _ in range(2):
        response, written = shard.heartbeat(Request("g", "second", second.epoch))
        assert (response.assignment, list(written)) == (assignment_of(shard, "second"), [])
    while second.send_request() + second.react():
        pass
    assert len(second.owned) == 2
    assert shard.heartbeat(Request("g", "second", second.epoch))[0].assignment is None
    assert not shard.group().unconfirmed


def assignment_of(shard: InMemoryConsumerShard, member_id: str) -> Assignment:
    assigned = shard.group().members[member_id].assigned
    return Assignment([ResponseTopicPartitions(topic_id, sorted(epochs)) for topic_id, epochs in assigned.items()])


def test_topics_are_resolved_again_after_the_log_refused_the_records(shard: InMemoryConsumerShard) -> None:
    shard.heartbeat(join())
    shard.grow_topic("a", 5)
    outcome = shard.groups.heartbeat(Request("g", "m", 2), CLIENT)
    too_large = KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
    assert outcome.on_refused is not None
    with pytest.raises(KafkaError) as raised:
        outcome.on_refused(too_large)
    assert raised.value is too_large
    response, written = shard.heartbeat(Request("g", "m", 2))
    assert (response.member_epoch, bool(written)) == (3, True)


def test_a_member_whose_leave_was_refused_still_times_out(shard: InMemoryConsumerShard) -> None:
    shard.heartbeat(join())
    outcome = shard.groups.heartbeat(Request("g", "m", -1), CLIENT)
    assert outcome.records, "this test ignores them, as if the log had refused them"
    shard.advance(45_000)
    assert not shard.group().members


@pytest.mark.needs_re2
def test_a_topic_change_affects_only_groups_that_read_it(shard: InMemoryConsumerShard) -> None:
    shard.create_topic("b", 1)
    shard.heartbeat(join(group_id="of a"))
    shard.heartbeat(join(group_id="of b", subscribed_topic_names=["b"]))
    shard.heartbeat(join(group_id="of all", subscribed_topic_names=[], subscribed_topic_regex=".*"))
    shard.heartbeat(join(group_id="of x", subscribed_topic_names=[], subscribed_topic_regex="x.*"))

    def groups_to_resolve() -> set[str]:
        found = {group_id for group_id in shard.state.groups if shard.group(group_id).must_resolve_topics}
        for group_id in found:
            shard.group(group_id).must_resolve_topics = False
        return found

    assert groups_to_resolve() == set(), "a new group has just resolved its topics"
    shard.grow_topic("a", 6)
    assert groups_to_resolve() == {"of a", "of all"}
    shard.create_topic("y", 1)
    assert groups_to_resolve() == {"of all"}
    shard.create_topic("x1", 1)
    assert groups_to_resolve() == {"of all", "of x"}
    for group_id in ("of all", "of x"):
        shard.group(group_id).must_resolve_topics = True
        shard.heartbeat(Request(group_id, "m", 2))
    shard.delete_topic("x1")
    assert groups_to_resolve() == {"of all", "of x"}
    shard.delete_topic("b")
    assert groups_to_resolve() == {"of b", "of all"}
    shard.groups.topics_changed(TopicChanges.of(shard.current.image, Changes()))
    assert groups_to_resolve() == set()


def test_a_returning_static_member_gets_its_old_partitions_first(shard: InMemoryConsumerShard) -> None:
    shard.create_topic("b", 4)
    first, second = (ConsumerClient(shard, f"m{number}", ["a", "b"], instance_id=str(number)) for number in (1, 2))
    while first.send_request() + second.send_request() + first.react() + second.react():
        pass
    had = second.owned
    second.leave(-2)
    shard.grow_topic("a", 8)
    back = ConsumerClient(shard, "m3", ["a", "b"], instance_id="2")
    back.send_request()
    assert had < back.assigned


def test_the_former_assignor_of_a_member_is_not_counted(shard: InMemoryConsumerShard) -> None:
    """`range` gives the first of two members the larger half of every topic."""
    for name in ("b", "c"):
        shard.create_topic(name, 3)
    reads = ["b", "c"]
    shard.heartbeat(join("m1", server_assignor="uniform"))
    shard.heartbeat(join("m2", subscribed_topic_names=reads))
    shard.heartbeat(Request("g", "m1", 2, subscribed_topic_names=reads, server_assignor="range"))
    assert [len(found) for found in shard.group().target_of("m1").values()] == [2, 2]
    shard.heartbeat(Request("g", "m1", 2, subscribed_topic_names=["a", *reads], server_assignor="uniform"))
    assert sum(len(found) for found in shard.group().target_of("m2").values()) == 5


def test_a_member_that_left_has_no_deadlines(shard: InMemoryConsumerShard) -> None:
    shard.heartbeat(join("m1"))
    shard.heartbeat(join("m2"))
    shard.heartbeat(Request("g", "m1", 2))
    keys = [("session", "g", "m1"), ("rebalance", "g", "m1")]
    assert all(key in shard.state.deadlines for key in keys)
    shard.heartbeat(Request("g", "m1", -1))
    assert not any(key in shard.state.deadlines for key in keys)


def test_a_static_member_that_left_temporarily_need_not_revoke_anything(shard: InMemoryConsumerShard) -> None:
    """It may come back within its session timeout, however short its rebalance timeout."""
    shard.heartbeat(join("m1", instance_id="one"))
    shard.heartbeat(join("m2"))
    shard.heartbeat(Request("g", "m1", 2, instance_id="one"))
    shard.heartbeat(Request("g", "m1", -2, instance_id="one"))
    assert shard.advance(44_999) == []
    assert shard.advance(1)


# --- other kinds of groups --------------------------------------------------------------------------------------


def test_an_empty_classic_group_is_replaced(shard: InMemoryConsumerShard) -> None:
    shard.state.groups["g"] = ClassicGroup("g")
    assert error_of(shard, Request("g", "m", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    outcome = shard.groups.heartbeat(join(), CLIENT)
    assert outcome.records[0] == CoordinatorRecord(GroupMetadataKey("g"), None)
    for record in outcome.records[1:]:
        shard.groups.apply(*record)
    assert shard.group().state_name == "Stable"


def test_a_classic_group_with_members_is_not_replaced(shard: InMemoryConsumerShard) -> None:
    shard.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    assert error_of(shard, join()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert error_of(shard, Request("g", "m", -1)) is ErrorCode.GROUP_ID_NOT_FOUND


class Migration:
    """Upgrades a classic group to one with a static classic member that reads `a`, and downgrades a group when only
    classic members are left."""

    def __init__(self) -> None:
        self.left: list[str] = []

    def upgrade(self, group: Group) -> tuple[ConsumerGroup, Conversion]:
        old = ConsumerMember(
            member_id="old",
            member_epoch=7,
            instance_id="one",
            topic_names=frozenset("a"),
            assigned={(1).to_bytes(16): dict.fromkeys(range(4), 7)},
            classic_member_metadata=ClassicMemberMetadata(10_000),
        )
        upgraded = ConsumerGroup("g")
        upgraded.epoch = upgraded.assignment_epoch = 7
        upgraded.put(old)
        upgraded.targets["old"] = {(1).to_bytes(16): frozenset(range(4))}
        written = [
            records.member_metadata("g", old),
            records.group_epoch("g", 7, 0),
            records.member_target("g", "old", upgraded.targets["old"]),
            records.target_epoch("g", 7, 0),
            records.member_assignment("g", old),
        ]
        return upgraded, Conversion(written)

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        self.left += [member.member_id for member in leaving]
        return (
            Conversion(group.tombstones()) if group.classic_member_count == len(group.members) - len(leaving) else None
        )


def test_a_group_can_change_its_protocol_with_a_migration() -> None:
    migration = Migration()
    shard = InMemoryConsumerShard(migration=migration)
    shard.create_topic("a", 4)
    shard.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    response, _ = shard.heartbeat(join())
    assert (response.member_epoch, response.assignment) == (8, Assignment([]))
    group = shard.group()
    assert (group.classic_member_count, group.members["m"].is_classic, group.state_name) == (1, False, "Reconciling")
    shard.heartbeat(Request("g", "m", -1))
    assert (migration.left, "g" in shard.state.groups) == (["m"], False)


def test_a_classic_member_that_sends_a_consumer_heartbeat_is_no_longer_classic() -> None:
    shard = InMemoryConsumerShard(migration=Migration())
    shard.create_topic("a", 4)
    shard.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    shard.heartbeat(join("old"))
    group = shard.group()
    assert (group.classic_member_count, group.members["old"].is_classic) == (0, False)


def test_a_classic_static_member_is_replaced_without_having_left() -> None:
    """As in classic groups: its instance comes back with the new protocol."""
    shard = InMemoryConsumerShard(migration=Migration())
    shard.create_topic("a", 4)
    shard.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    response, _ = shard.heartbeat(join("new", instance_id="one"))
    assert response.assignment is not None
    assert [list(topic.partitions) for topic in response.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert shard.group().members.keys() == {"new"}


def test_classic_members_commit_and_fetch_offsets_with_their_generation() -> None:
    shard = InMemoryConsumerShard(migration=Migration())
    shard.create_topic("a", 4)
    shard.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    shard.heartbeat(join())
    group = shard.group()
    group.check_commit("old", None, 7, 2)
    group.check_fetch("old", 7)
    group.check_fetch(None, -1)
    for check in (lambda: group.check_commit("old", None, 8, 9), lambda: group.check_fetch("old", 6)):
        with pytest.raises(KafkaError) as raised:
            check()
        assert raised.value.code is ErrorCode.ILLEGAL_GENERATION


def test_any_client_may_commit_for_an_empty_group(shard: InMemoryConsumerShard) -> None:
    shard.heartbeat(join())
    shard.heartbeat(Request("g", "m", -1))
    shard.group().check_commit("", None, -1, 9)
    with pytest.raises(KafkaError) as raised:
        shard.group().check_commit("m", None, 2, 9)
    assert raised.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_may_commit_for_partitions_of_that_epoch(shard: InMemoryConsumerShard) -> None:
    shard.heartbeat(join())
    shard.grow_topic("a", 5)
    shard.heartbeat(Request("g", "m", 2))
    group, topic_id = shard.group(), shard.current.image.topics["a"].id
    assert group.check_commit("m", None, 3, 9) is None
    check = group.check_commit("m", None, 2, 9)
    assert check is not None
    check(topic_id, 3)
    for partition in (4, 5):
        with pytest.raises(KafkaError) as raised:
            check(topic_id, partition)
        assert raised.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_partitions_of_a_topic_in_many_entries_are_collected_only_once() -> None:
    """A copy for every entry would take minutes."""
    many = [RequestTopicPartitions(b"a" * 16, range(first, first + 50_000)) for first in range(0, 1_800_000, 50_000)]
    few = [RequestTopicPartitions(b"a" * 16, [index]) for index in range(9_900)]
    owned = owned_partitions(join(topic_partitions=[*many, *few]))
    assert owned == {b"a" * 16: frozenset(range(1_800_000))}
