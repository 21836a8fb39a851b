"""Heartbeats: what is refused and how, what a steady one costs, and where other kinds of groups come in."""

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
def test_a_request_that_makes_no_sense_is_refused_as_such(rooms: ConsumerRooms, ask: Ask, version: int) -> None:
    assert refusal(rooms, ask, version) is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("said", [{"subscribed_topic_names": []}, {"subscribed_topic_regex": ""}])
def test_whoever_joins_may_read_nothing_if_it_says_so(rooms: ConsumerRooms, said: dict[str, object]) -> None:
    response, _ = rooms.beat(join(**{"subscribed_topic_names": None, **said}))
    assert (response.member_epoch, response.assignment) == (1, Assignment([]))
    assert rooms.group().state_name == "Stable"


def test_an_assignor_nobody_knows_is_told_as_such(rooms: ConsumerRooms) -> None:
    assert refusal(rooms, join(server_assignor="best")) is ErrorCode.UNSUPPORTED_ASSIGNOR


def test_ids_given_by_the_broker_differ(rooms: ConsumerRooms) -> None:
    first, _ = rooms.beat(join(""), version=0)
    second, _ = rooms.beat(join(""), version=0)
    assert first.member_id
    assert rooms.group().members.keys() == {first.member_id, second.member_id}


def test_a_member_of_a_state_that_is_not_known_begins_anew(rooms: ConsumerRooms) -> None:
    """Something younger wrote it; nobody can tell what the member may have."""
    rooms.beat(join())
    strange = records.member_assignment("g", rooms.group().members["m"])
    assert isinstance(strange.value, ConsumerGroupCurrentMemberAssignmentValue)
    strange.value.state = 9
    rooms.take(Outcome(None, [strange]))
    rooms.grow_topic("a", 5)
    assert refusal(rooms, Ask("g", "m", 2)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert rooms.group().must_resolve_topics, "what a refused heartbeat saw is seen by nobody"
    response, _ = rooms.beat(join())
    assert response.assignment is not None
    assert [list(topic.partitions) for topic in response.assignment.topic_partitions] == [[0, 1, 2, 3, 4]]


# --- what it costs ----------------------------------------------------------------------------------------------


class Shy(dict[str, ConsumerMember]):
    """Members that may be asked for by name only."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("somebody looks at all members")

    items = values = keys = __iter__  # type: ignore[assignment]


def test_a_heartbeat_with_nothing_new_looks_at_nobody_else_and_writes_nothing(rooms: ConsumerRooms) -> None:
    clients = [ConsumerClient(rooms, f"m{number}", ["a"]) for number in range(6)]
    while sum(client.beat() + client.react() for client in clients):
        pass
    group = rooms.group()
    assert not group.must_resolve_topics
    group.members = Shy(group.members)
    for client in clients:
        response, written = rooms.beat(Ask("g", client.member_id, client.epoch))
        assert (response.member_epoch, response.assignment, list(written)) == (client.epoch, None, [])


def test_what_the_log_would_not_take_is_looked_for_again(rooms: ConsumerRooms) -> None:
    rooms.beat(join())
    rooms.grow_topic("a", 5)
    outcome = rooms.groups.heartbeat(Ask("g", "m", 2), SOMEBODY)
    too_large = KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
    assert outcome.refused is not None
    with pytest.raises(KafkaError) as told:
        outcome.refused(too_large)
    assert told.value is too_large
    response, written = rooms.beat(Ask("g", "m", 2))
    assert (response.member_epoch, bool(written)) == (3, True)


@pytest.mark.needs_re2
def test_topics_concern_those_who_read_them(rooms: ConsumerRooms) -> None:
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


def test_a_static_member_gets_its_own_again_although_there_is_more_to_have_by_now(rooms: ConsumerRooms) -> None:
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


def test_an_assignor_is_not_counted_for_those_who_ask_for_another_now(rooms: ConsumerRooms) -> None:
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


def test_nothing_is_expected_of_a_member_that_left(rooms: ConsumerRooms) -> None:
    rooms.beat(join("m1"))
    rooms.beat(join("m2"))
    rooms.beat(Ask("g", "m1", 2))
    keys = [("session", "g", "m1"), ("rebalance", "g", "m1")]
    assert all(key in rooms.state.deadlines for key in keys)
    rooms.beat(Ask("g", "m1", -1))
    assert not any(key in rooms.state.deadlines for key in keys)


def test_a_member_that_is_away_is_not_asked_to_give_anything_up(rooms: ConsumerRooms) -> None:
    """It has its session's time to be back, however short its rebalance timeout."""
    rooms.beat(join("m1", instance_id="one"))
    rooms.beat(join("m2"))
    rooms.beat(Ask("g", "m1", 2, instance_id="one"))
    rooms.beat(Ask("g", "m1", -2, instance_id="one"))
    assert rooms.advance(44_999) == []
    assert rooms.advance(1)


# --- other kinds of groups --------------------------------------------------------------------------------------


def test_an_empty_classic_group_makes_way(rooms: ConsumerRooms) -> None:
    rooms.state.groups["g"] = ClassicGroup("g")
    assert refusal(rooms, Ask("g", "m", 1)) is ErrorCode.GROUP_ID_NOT_FOUND
    outcome = rooms.groups.heartbeat(join(), SOMEBODY)
    assert outcome.records[0] == CoordinatorRecord(GroupMetadataKey("g"), None)
    for record in outcome.records[1:]:
        rooms.groups.apply(*record)
    assert rooms.group().state_name == "Stable"


def test_a_classic_group_with_members_does_not(rooms: ConsumerRooms) -> None:
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
        return Conversion(group.tombstones()) if group.classic_members == len(group.members) - len(leaving) else None


def test_a_group_can_change_its_protocol_where_somebody_knows_how() -> None:
    migration = Migration()
    rooms = ConsumerRooms(migration=migration)
    rooms.create_topic("a", 4)
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    response, _ = rooms.beat(join())
    assert (response.member_epoch, response.assignment) == (8, Assignment([]))
    group = rooms.group()
    assert (group.classic_members, group.members["m"].is_classic, group.state_name) == (1, False, "Reconciling")
    rooms.beat(Ask("g", "m", -1))
    assert (migration.left, "g" in rooms.state.groups) == (["m"], False)


def test_a_classic_member_that_heartbeats_here_is_none_any_more() -> None:
    rooms = ConsumerRooms(migration=Migration())
    rooms.create_topic("a", 4)
    rooms.state.groups["g"] = ClassicGroup("g", state=State.STABLE)
    rooms.beat(join("old"))
    group = rooms.group()
    assert (group.classic_members, group.members["old"].is_classic) == (0, False)


def test_a_classic_static_member_is_replaced_without_its_leave() -> None:
    """As in classic groups: its instance comes back, speaking the new protocol."""
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


def test_anybody_may_commit_for_an_empty_group(rooms: ConsumerRooms) -> None:
    rooms.beat(join())
    rooms.beat(Ask("g", "m", -1))
    rooms.group().check_commit("", None, -1, 9)
    with pytest.raises(KafkaError) as refused:
        rooms.group().check_commit("m", None, 2, 9)
    assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID


def test_an_older_epoch_commits_for_what_the_member_had_then(rooms: ConsumerRooms) -> None:
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
