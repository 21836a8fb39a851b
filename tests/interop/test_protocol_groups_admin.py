"""FindCoordinator, DescribeGroups, ListGroups, DeleteGroups and OffsetDelete: groups as an administrator sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from group_members import Group, assignment, subscription, until
from kio.schema.errors import ErrorCode
from protocol_requests import metadata
from wire_client import Wire, message

CreateTopic = Callable[..., str]
NO_OPERATIONS_REQUESTED = -(2**31)
GROUP, TRANSACTION, SHARE = 0, 1, 2


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        yield made


# ---- FindCoordinator


def broker(wire: Wire) -> tuple[int, str, int]:
    (shown,) = metadata(wire, []).brokers
    return int(shown.node_id), str(shown.host), int(shown.port)


@pytest.mark.parametrize("version", range(4))
def test_the_coordinator_of_one_group(group: Group, version: int) -> None:
    kind = {"key_type": GROUP} if version >= 1 else {}
    answer = group.ask("find_coordinator", version, key=group.id, **kind)
    assert answer.error_code == 0
    assert (answer.node_id, answer.host, answer.port) == broker(group.wire)


@pytest.mark.parametrize("version", range(4, 7))
def test_the_coordinators_of_many_groups(group: Group, version: int) -> None:
    names = [group.id, f"{group.id}-other", ""]
    answer = group.ask("find_coordinator", version, key_type=GROUP, coordinator_keys=names)
    assert [shown.key for shown in answer.coordinators] == names
    assert {int(shown.error_code) for shown in answer.coordinators} == {0}
    assert {(shown.node_id, shown.host, shown.port) for shown in answer.coordinators} == {broker(group.wire)}


@pytest.mark.parametrize("kind", [3, 9, -1])
def test_an_unknown_coordinator_type_is_refused(wire: Wire, kind: int) -> None:
    single = wire.ask(message("find_coordinator", 3, key="x", key_type=kind))
    assert (single.error_code, single.node_id, single.port) == (ErrorCode.invalid_request, -1, -1)
    for version in (4, 6):
        answer = wire.ask(message("find_coordinator", version, key_type=kind, coordinator_keys=["x", "y"]))
        assert [int(shown.error_code) for shown in answer.coordinators] == [42, 42]


@pytest.mark.parametrize("version", [3, 5])
def test_old_versions_refuse_share_coordinators(wire: Wire, version: int) -> None:
    names: dict[str, Any] = {"key": "x"} if version < 4 else {"coordinator_keys": ["x"]}
    answer = wire.ask(message("find_coordinator", version, key_type=SHARE, **names))
    found = answer.error_code if version < 4 else answer.coordinators[0].error_code
    assert found == ErrorCode.invalid_request


# ---- DescribeGroups


def facts(shown: Any) -> tuple[int, str, str, str]:
    return int(shown.error_code), shown.group_state, shown.protocol_type, shown.protocol_data


@pytest.mark.parametrize("version", range(7))
def test_an_unknown_group_is_dead(group: Group, version: int) -> None:
    shown = group.describe(version)
    expected = ErrorCode.group_id_not_found if version >= 6 else 0
    assert (shown.group_id, shown.members, facts(shown)) == (group.id, (), (expected, "Dead", "", ""))


@pytest.mark.parametrize("version", range(7))
def test_a_stable_group_in_every_version(group: Group, version: int) -> None:
    leader, follower = group.member(), group.member(instance="one")
    group.rebalance(leader, follower)
    shown = group.describe(version)
    assert facts(shown) == (0, "Stable", "consumer", "range")
    members = {member.member_id: member for member in shown.members}
    assert members.keys() == {leader.id, follower.id}
    for place, who in enumerate((leader, follower)):
        member = members[who.id]
        assert (member.client_id, member.client_host) == ("interop", "/127.0.0.1")
        assert member.member_metadata == subscription("t")
        assert member.member_assignment == assignment("t", place)
        if version >= 4:
            assert member.group_instance_id == who.instance
    if version >= 3:
        assert shown.authorized_operations == NO_OPERATIONS_REQUESTED


def test_the_states_of_a_group(group: Group) -> None:
    leader = group.member()
    leader.ask_join()
    assert facts(group.describe(6)) == (0, "Empty", "", "")
    leader.join()
    completing = group.describe(6)
    assert facts(completing) == (0, "CompletingRebalance", "consumer", "")
    assert [(member.member_metadata, member.member_assignment) for member in completing.members] == [(b"", b"")]
    group.assign(leader)
    assert facts(group.describe(6)) == (0, "Stable", "consumer", "range")
    group.member().post_join()
    group.await_members(2)
    assert facts(group.describe(6)) == (0, "PreparingRebalance", "consumer", "")


def test_an_emptied_group_keeps_its_protocol_type(group: Group) -> None:
    (member,) = group.join_members()
    assert member.leave() == 0
    assert facts(group.describe(6)) == (0, "Empty", "consumer", "")


def test_a_group_that_only_commits_is_empty(group: Group, create_topic: CreateTopic) -> None:
    assert group.commit(create_topic(), 3) == 0
    assert facts(group.describe(6)) == (0, "Empty", "", "")


def test_many_groups_are_described_at_once(group: Group) -> None:
    group.join_members()
    names = [group.id, f"{group.id}-other"]
    answer = group.ask("describe_groups", 6, groups=names, include_authorized_operations=False)
    found = {shown.group_id: (shown.group_state, int(shown.error_code)) for shown in answer.groups}
    assert found == {names[0]: ("Stable", 0), names[1]: ("Dead", 69)}


def test_authorized_operations_are_returned_on_request(group: Group) -> None:
    """Bits of the operations on a group: read 3, delete 6, describe 8, and those of its configs (10, 11)."""
    group.join_members()
    answer = group.ask("describe_groups", 6, groups=[group.id], include_authorized_operations=True)
    assert answer.groups[0].authorized_operations & (1 << 3 | 1 << 6 | 1 << 8) == (1 << 3 | 1 << 6 | 1 << 8)


# ---- ListGroups


@pytest.mark.parametrize("version", range(6))
def test_a_group_is_listed_in_every_version(group: Group, version: int) -> None:
    assert group.listed(version) is None
    group.join_members()
    shown = group.listed(version)
    assert shown is not None
    assert shown.protocol_type == "consumer"
    if version >= 4:
        assert shown.group_state == "Stable"
    if version >= 5:
        assert shown.group_type == "classic"


def test_groups_are_listed_by_state(group: Group, create_topic: CreateTopic) -> None:
    group.join_members()
    assert group.listed(4, states_filter=["Stable"]) is not None
    assert group.listed(4, states_filter=["sTABLE", "Dead"]) is not None
    assert group.listed(4, states_filter=["Empty", "PreparingRebalance", "CompletingRebalance"]) is None
    assert group.listed(4, states_filter=["no such state"]) is None
    with Group(group.bootstrap) as other:
        other.commit(create_topic(), 1)
        shown = other.listed(4, states_filter=["Empty"])
        assert shown is not None
        assert (shown.protocol_type, shown.group_state) == ("", "Empty")


def test_groups_are_listed_by_type(group: Group, create_topic: CreateTopic) -> None:
    group.join_members()
    assert group.listed(types_filter=["classic"]) is not None
    assert group.listed(types_filter=["CLASSIC", "consumer"]) is not None
    assert group.listed(types_filter=["consumer"]) is None
    assert group.listed(types_filter=["no such type"]) is None
    assert group.listed(states_filter=["Stable"], types_filter=["classic"]) is not None
    assert group.listed(states_filter=["Empty"], types_filter=["classic"]) is None
    with Group(group.bootstrap) as other:
        other.consumer([create_topic()]).join()
        shown = until(lambda: other.listed(types_filter=["consumer"]), "the consumer group is listed")
        assert (shown.protocol_type, shown.group_type) == ("consumer", "consumer")
        assert other.listed(types_filter=["classic"]) is None


# ---- DeleteGroups


@pytest.mark.parametrize("version", range(3))
def test_a_group_is_deleted_once_it_is_empty(group: Group, create_topic: CreateTopic, version: int) -> None:
    name = create_topic()
    (member,) = group.join_members(topic=name)
    assert member.commit(name, 5) == 0
    assert group.delete(version) == ErrorCode.non_empty_group
    assert group.committed(name) == 5
    assert member.leave() == 0
    assert group.delete(version) == 0
    assert (group.state(), group.committed(name), group.listed()) == ("Dead", -1, None)
    assert group.delete(version) == ErrorCode.group_id_not_found


def test_many_groups_are_deleted_at_once(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic()
    with Group(group.bootstrap) as other:
        group.join_members(topic=name)
        other.commit(name, 5)
        names = [group.id, other.id, f"{other.id}-none"]
        results = group.ask("delete_groups", 2, groups_names=names).results
        found = {result.group_id: int(result.error_code) for result in results}
        assert found == {names[0]: 68, names[1]: 0, names[2]: 69}
        assert other.committed(name) == -1


def test_a_deleted_group_restarts_at_generation_1(group: Group) -> None:
    (member,) = group.join_members()
    assert (member.leave(), group.delete()) == (0, 0)
    assert group.member().join().generation_id == 1


def test_an_empty_consumer_group_is_deleted(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic()
    consumer = group.consumer([name])
    consumer.join()
    assert consumer.commit(name, 7) == 0
    assert group.delete() == ErrorCode.non_empty_group
    assert consumer.leave().error_code == 0
    assert (group.delete(), group.committed(name)) == (0, -1)


# ---- OffsetDelete


def delete_offsets(group: Group, partitions: dict[str, list[int]]) -> tuple[int, dict[tuple[str, int], int]]:
    topics = [
        {"name": name, "partitions": [{"partition_index": index} for index in indexes]}
        for name, indexes in partitions.items()
    ]
    answer = group.ask("offset_delete", 0, group_id=group.id, topics=topics)
    found = {(topic.name, p.partition_index): int(p.error_code) for topic in answer.topics for p in topic.partitions}
    return int(answer.error_code), found


def test_offsets_of_an_empty_group_are_deleted(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic(partitions=2)
    for partition in (0, 1):
        assert group.commit(name, 5, partition=partition) == 0
    assert delete_offsets(group, {name: [1]}) == (0, {(name, 1): 0})
    assert (group.committed(name, 0), group.committed(name, 1)) == (5, -1)
    assert delete_offsets(group, {name: [1]}) == (0, {(name, 1): 0}), "nothing to delete is no error"


def test_deleting_offsets_of_unknown_partitions_is_refused(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic()
    group.commit(name, 5)
    code, found = delete_offsets(group, {name: [0, 7], f"{name}-none": [0]})
    assert (code, found) == (0, {(name, 0): 0, (name, 7): 3, (f"{name}-none", 0): 3})


def test_deleting_offsets_of_unknown_groups_is_refused(group: Group, create_topic: CreateTopic) -> None:
    name = create_topic()
    assert delete_offsets(group, {name: [0]}) == (ErrorCode.group_id_not_found, {})
    topics = [{"name": name, "partitions": [{"partition_index": 0}]}]
    assert group.ask("offset_delete", 0, group_id="", topics=topics).error_code == ErrorCode.invalid_group_id


def test_offsets_of_subscribed_topics_are_not_deleted(group: Group, create_topic: CreateTopic) -> None:
    subscribed, former = create_topic(), create_topic()
    assert group.commit(former, 5) == 0
    (member,) = group.join_members(topic=subscribed, protocols=[("range", subscription(subscribed))])
    assert member.commit(subscribed, 6) == 0
    code, found = delete_offsets(group, {subscribed: [0], former: [0]})
    assert (code, found) == (0, {(subscribed, 0): ErrorCode.group_subscribed_to_topic, (former, 0): 0})
    assert (group.committed(subscribed), group.committed(former)) == (6, -1)


def test_offsets_of_an_active_connect_group_are_not_deleted(group: Group, create_topic: CreateTopic) -> None:
    """Only consumers report which topics they read: the broker cannot know which a Connect group still needs."""
    name = create_topic()
    member = group.member(protocols=[("compatible", b"")], protocol_type="connect")
    member.id = member.ask_join().member_id
    assert member.ask_join().error_code == 0
    assert delete_offsets(group, {name: [0]}) == (ErrorCode.non_empty_group, {})


def test_offsets_of_topics_no_longer_subscribed_are_deleted(group: Group, create_topic: CreateTopic) -> None:
    first, second, third = create_topic(), create_topic(), create_topic()
    leaving, changing = group.consumer([first]), group.consumer([second])
    for member in (leaving, changing):
        member.join()
    assert delete_offsets(group, {first: [0], second: [0]})[1] == {(first, 0): 86, (second, 0): 86}
    assert leaving.leave().error_code == 0
    changing.heartbeat(subscribed_topic_names=[third])
    code, found = delete_offsets(group, {first: [0], second: [0], third: [0]})
    assert (code, found) == (0, {(first, 0): 0, (second, 0): 0, (third, 0): ErrorCode.group_subscribed_to_topic})


def test_offsets_of_topics_subscribed_by_a_consumer_group_are_not_deleted(
    group: Group, create_topic: CreateTopic
) -> None:
    subscribed, former = create_topic(), create_topic()
    assert group.commit(former, 5) == 0
    consumer = group.consumer([subscribed])
    consumer.join()
    assert consumer.commit(subscribed, 6) == 0
    code, found = delete_offsets(group, {subscribed: [0], former: [0]})
    assert (code, found) == (0, {(subscribed, 0): ErrorCode.group_subscribed_to_topic, (former, 0): 0})
