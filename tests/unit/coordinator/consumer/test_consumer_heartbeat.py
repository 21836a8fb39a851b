"""Heartbeats: refusals, the cost of a steady heartbeat, and other kinds of groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from consumer_clients import ConsumerClient
from consumer_rooms import ConsumerRooms

from moldau.base.errors import ErrorCode, KafkaError
from moldau.coordinator.group.classic.group import ClassicGroup, State
from moldau.coordinator.group.consumer import records
from moldau.coordinator.group.consumer.group import ConsumerGroup
from moldau.coordinator.group.consumer.member import ConsumerMember
from moldau.coordinator.group.consumer.migration import Conversion
from moldau.coordinator.group.consumer_records import ClassicMemberMetadata, ConsumerGroupCurrentMemberAssignmentValue
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.records import GroupMetadataKey
from moldau.coordinator.machine import Client, CoordinatorRecord, Outcome
from moldau.metadata.apply import Changes
from moldau.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    RequestTopicPartitions,
)

Ask = ConsumerGroupHeartbeatRequest
SOMEBODY = Client("client", "/127.0.0.1", 1)


def join(member_id: str = "m", **said: object) -> Ask:
    ask = Ask("g", member_id, 0, rebalance_timeout_ms=1_000, subscribed_topic_names=["a"], topic_partitions=[])
    for name, value in said.items():
        setattr(ask, name, value)
    return ask


@pytest.fixture
def rooms() -> ConsumerRooms:
    made = ConsumerRooms()
    made.create_topic("a", 4)
    return made


def refusal(rooms: ConsumerRooms, ask: Ask, version: int = 1) -> ErrorCode:
    before = len(rooms.log)
    with pytest.raises(KafkaError) as refused:
        rooms.beat(ask, version)
    assert refused.value.message
    assert len(rooms.log) == before
    return refused.value.code


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "version"),
    [
        (join(""), 1),
        (join("", member_epoch=1), 0),
        (join("", member_epoch=-1), 0),
        (join(group_id=""), 1),
        (join(instance_id=""), 1),
        (join(rack_id=""), 1),
        (join(rebalance_timeout_ms=-1), 1),
        (join(topic_partitions=None), 1),
        (join(topic_partitions=[RequestTopicPartitions(bytes(16), [0])]), 1),
        (join(subscribed_topic_names=None), 1),
        (join(member_epoch=-2), 1),
        (join(member_epoch=-3, instance_id="i"), 1),
    ],
)
def test_an_invalid_request_is_refused(rooms: ConsumerRooms, ask: Ask, version: int) -> None:
    assert refusal(rooms, ask, version) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("said", [{"subscribed_topic_names": []}, {"subscribed_topic_regex": ""}])
def test_a_member_may_join_with_an_empty_subscription(rooms: ConsumerRooms, said: dict[str, object]) -> None:
    response, _ = rooms.beat(join(**{"subscribed_topic_names": None, **said}))
    assert (response.member_epoch, response.assignment) == (1, Assignment([]))
    assert rooms.group().state_name == "Stable"


def test_an_unknown_assignor_is_refused(rooms: ConsumerRooms) -> None:
    assert refusal(rooms, join(server_assignor="best")) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_member_ids_chosen_by_the_broker_differ(rooms: ConsumerRooms) -> None:
    first, _ = rooms.beat(join(""), version=0)
    second, _ = rooms.beat(join(""), version=0)
    assert first.member_id
    assert rooms.group().members.keys() == {first.member_id, second.member_id}


def test_a_member_in_an_unknown_state_must_join_again(rooms: ConsumerRooms) -> None:
    """A newer version wrote it, so it is unknown what the member may have."""
    rooms.beat(join())
    strange = records.member_assignment("g", rooms.group().members["m"])
    assert isinstance(strange.value, ConsumerGroupCurrentMemberAssignmentValue)
    strange.value.state = 9
    rooms.take(Outcome(None, [strange]))
    rooms.grow_topic("a", 5)
    assert refusal(rooms, Ask("g", "m", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert rooms.group().must_resolve_topics, "a refused heartbeat must not count as having resolved the topics"
    response, _ = rooms.beat(join())
    assert response.assignment is not None
    assert [list(topic.partitions) for topic in response.assignment.topic_partitions] == [[0, 1, 2, 3, 4]]


# --- what it costs ----------------------------------------------------------------------------------------------


class Shy(dict[str, ConsumerMember]):
    """A dict of members that allows only lookups by id."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("somebody looks at all members")

    items = values = keys = __iter__  # type: ignore[assignment]


def test_a_steady_heartbeat_reads_no_other_member_and_writes_nothing(rooms: ConsumerRooms) -> None:
    clients = [ConsumerClient(rooms, f"m{number}", ["a"]) for number in range(6)]
    while sum(client.beat() + client.react() for client in clients):
        pass
    group = rooms.group()
    assert not group.must_resolve_topics
    group.members = Shy(group.members)
    for client in clients:
        response, written = rooms.beat(Ask("g", client.member_id, client.epoch))
        assert (response.member_epoch, response.assignment, list(written)) == (client.epoch, None, [])


def test_topics_are_resolved_again_after_the_log_refused_the_records(rooms: ConsumerRooms) -> None:
    rooms.beat(join())
    rooms.grow_topic("a", 5)
    outcome = rooms.groups.heartbeat(Ask("g", "m", 2), SOMEBODY)
    too_large = KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
    assert outcome.on_refused is not None
    with pytest.raises(KafkaError) as told:
        outcome.on_refused(too_large)
    assert told.value is too_large
    response, written = rooms.beat(Ask("g", "m", 2))
    assert (response.member_epoch, bool(written)) == (3, True)


@pytest.mark.needs_re2
def test_a_topic_change_affects_only_groups_that_read_it(rooms: ConsumerRooms) -> None:
    rooms.create_topic("b", 1)
    rooms.beat(join(group_id="of a"))
    rooms.beat(join(group_id="of b", subscribed_topic_names=["b"]))
    rooms.beat(join(group_id="of all", subscribed_topic_names=[], subscribed_topic_regex=".*"))
    rooms.beat(join(group_id="of x", subscribed_topic_names=[], subscribed_topic_regex="x.*"))

    def concerned() -> set[str]:
        found = {group_id for group_id in rooms.state.groups if rooms.group(group_id).must_resolve_topics}
        for group_id in found:
            rooms.group(group_id).must_resolve_topics = False
        return found

    # A group that was just made looks once more.
    assert concerned() == {"of a", "of b", "of all", "of x"}
    rooms.grow_topic("a", 6)
    assert concerned() == {"of a", "of all"}
    rooms.create_topic("y", 1)
    assert concerned() == {"of all"}
    rooms.create_topic("x1", 1)
    assert concerned() == {"of all", "of x"}
    for group_id in ("of all", "of x"):
        rooms.group(group_id).must_resolve_topics = True
        rooms.beat(Ask(group_id, "m", 2))
    rooms.delete_topic("x1")
    assert concerned() == {"of all", "of x"}
    rooms.delete_topic("b")
    assert concerned() == {"of b", "of all"}
    rooms.groups.on_image(rooms.current.image, Changes())
    assert concerned() == set()


def test_a_returning_static_member_gets_its_old_partitions_first(rooms: ConsumerRooms) -> None:
    rooms.create_topic("b", 4)
    first, second = (ConsumerClient(rooms, f"m{number}", ["a", "b"], instance_id=str(number)) for number in (1, 2))
    while first.beat() + second.beat() + first.react() + second.react():
        pass
    had = second.owned
    second.leave(-2)
    rooms.grow_topic("a", 8)
    back = ConsumerClient(rooms, "m3", ["a", "b"], instance_id="2")
    back.beat()
    assert had < back.desired


def test_a_changed_assignor_is_no_longer_counted(rooms: ConsumerRooms) -> None:
    """`range` gives the first of two members the larger half of every topic."""
    for name in ("b", "c"):
        rooms.create_topic(name, 3)
    reads = ["b", "c"]
    rooms.beat(join("m1", server_assignor="uniform"))
    rooms.beat(join("m2", subscribed_topic_names=reads))
    rooms.beat(Ask("g", "m1", 2, subscribed_topic_names=reads, server_assignor="range"))
    assert [len(found) for found in rooms.group().target_of("m1").values()] == [2, 2]
    rooms.beat(Ask("g", "m1", 2, subscribed_topic_names=["a", *reads], server_assignor="uniform"))
    assert sum(len(found) for found in rooms.group().target_of("m2").values()) == 5


def test_a_member_that_left_has_no_deadlines(rooms: ConsumerRooms) -> None:
    rooms.beat(join("m1"))
    rooms.beat(join("m2"))
    rooms.beat(Ask("g", "m1", 2))
    keys = [("session", "g", "m1"), ("rebalance", "g", "m1")]
    assert all(key in rooms.state.deadlines for key in keys)
    rooms.beat(Ask("g", "m1", -1))
    assert not any(key in rooms.state.deadlines for key in keys)


def test_a_static_member_that_is_away_need_not_revoke_anything(rooms: ConsumerRooms) -> None:
    """It may come back within its session timeout, however short its rebalance timeout."""
    rooms.beat(join("m1", instance_id="one"))
    rooms.beat(join("m2"))
    rooms.beat(Ask("g", "m1", 2, instance_id="one"))
    rooms.beat(Ask("g", "m1", -2, instance_id="one"))
    assert rooms.advance(44_999) == []
    assert rooms.advance(1)


# --- other kinds of groups --------------------------------------------------------------------------------------


def test_an_empty_classic_group_is_replaced(rooms: ConsumerRooms) -> None:
    rooms.state.groups["g"] = ClassicGroup("g")
    assert refusal(rooms, Ask("g", "m", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    outcome = rooms.groups.heartbeat(join(), SOMEBODY)
    assert outcome.records[0] == CoordinatorRecord(GroupMetadataKey("g"), None)
    for record in outcome.records[1:]:
        rooms.groups.apply(*record)
    assert rooms.group().state_name == "Stable"


def test_a_classic_group_with_members_is_not_replaced(rooms: ConsumerRooms) -> None:
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    assert refusal(rooms, join()) is ErrorCode.GROUP_ID_NOT_FOUND
    assert refusal(rooms, Ask("g", "m", -1)) is ErrorCode.GROUP_ID_NOT_FOUND


class Migration:
    """A classic group of one static member that reads `a`, and a consumer group that none but it is left in."""

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
        made = ConsumerGroup("g")
        made.epoch = made.assignment_epoch = 7
        made.put(old)
        made.targets["old"] = {(1).to_bytes(16): frozenset(range(4))}
        written = [
            records.member_metadata("g", old),
            records.group_epoch("g", 7, 0),
            records.member_target("g", "old", made.targets["old"]),
            records.target_epoch("g", 7, 0),
            records.member_assignment("g", old),
        ]
        return made, Conversion(written)

    def downgrade(self, group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> Conversion | None:
        self.left += [member.member_id for member in leaving]
        return (
            Conversion(group.tombstones()) if group.classic_member_count == len(group.members) - len(leaving) else None
        )


def test_a_group_can_change_its_protocol_with_a_migration() -> None:
    migration = Migration()
    rooms = ConsumerRooms(migration=migration)
    rooms.create_topic("a", 4)
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    response, _ = rooms.beat(join())
    assert (response.member_epoch, response.assignment) == (8, Assignment([]))
    group = rooms.group()
    assert (group.classic_member_count, group.members["m"].is_classic, group.state_name) == (1, False, "Reconciling")
    rooms.beat(Ask("g", "m", -1))
    assert (migration.left, "g" in rooms.state.groups) == (["m"], False)


def test_a_classic_member_that_sends_a_consumer_heartbeat_is_no_longer_classic() -> None:
    rooms = ConsumerRooms(migration=Migration())
    rooms.create_topic("a", 4)
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    rooms.beat(join("old"))
    group = rooms.group()
    assert (group.classic_member_count, group.members["old"].is_classic) == (0, False)


def test_a_classic_static_member_is_replaced_without_having_left() -> None:
    """As in classic groups: its instance comes back with the new protocol."""
    rooms = ConsumerRooms(migration=Migration())
    rooms.create_topic("a", 4)
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    response, _ = rooms.beat(join("new", instance_id="one"))
    assert response.assignment is not None
    assert [list(topic.partitions) for topic in response.assignment.topic_partitions] == [[0, 1, 2, 3]]
    assert rooms.group().members.keys() == {"new"}


def test_commits_of_classic_members_go_by_generations() -> None:
    rooms = ConsumerRooms(migration=Migration())
    rooms.create_topic("a", 4)
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    rooms.beat(join())
    group = rooms.group()
    group.check_commit("old", None, 7, 2)
    group.check_fetch("old", 7)
    group.check_fetch(None, -1)
    for check in (lambda: group.check_commit("old", None, 8, 9), lambda: group.check_fetch("old", 6)):
        with pytest.raises(KafkaError) as refused:
            check()
        assert refused.value.code is ErrorCode.ILLEGAL_GENERATION


def test_any_client_may_commit_for_an_empty_group(rooms: ConsumerRooms) -> None:
    rooms.beat(join())
    rooms.beat(Ask("g", "m", -1))
    rooms.group().check_commit("", None, -1, 9)
    with pytest.raises(KafkaError) as refused:
        rooms.group().check_commit("m", None, 2, 9)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_may_commit_for_partitions_of_that_epoch(rooms: ConsumerRooms) -> None:
    rooms.beat(join())
    rooms.grow_topic("a", 5)
    rooms.beat(Ask("g", "m", 2))
    group, topic_id = rooms.group(), rooms.current.image.topics["a"].id
    assert group.check_commit("m", None, 3, 9) is None
    check = group.check_commit("m", None, 2, 9)
    assert check is not None
    check(topic_id, 3)
    for partition in (4, 5):
        with pytest.raises(KafkaError) as refused:
            check(topic_id, partition)
        assert refused.value.code is ErrorCode.STALE_MEMBER_EPOCH
