"""OffsetCommit and OffsetFetch: who may commit and when, what is returned, and when offsets are removed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID, uuid4

import pytest
from group_members import ClassicMember, Group, commit, until
from kio.schema.errors import ErrorCode
from protocol_requests import by_name, topic_id
from wire_client import message

CreateTopic = Callable[..., str]
NOTHING = (-1, -1, "", 0)
METADATA_MAX_LENGTH = 4096


@pytest.fixture
def group(bootstrap: str) -> Iterator[Group]:
    with Group(bootstrap) as made:
        yield made


@pytest.fixture
def name(create_topic: CreateTopic) -> str:
    return create_topic(partitions=2)


@pytest.fixture
def two_members(group: Group) -> tuple[ClassicMember, ClassicMember]:
    leader, follower = group.join_members(2)
    return leader, follower


def shown(partition: Any) -> tuple[int, int, str, int]:
    """Return offset, leader epoch, metadata and error; versions before 5 have no epoch."""
    epoch = getattr(partition, "committed_leader_epoch", -1)
    return partition.committed_offset, epoch, partition.metadata, int(partition.error_code)


def fetched(group: Group, topics: list[dict[str, Any]] | None, version: int = 9, **fields: Any) -> dict[Any, Any]:
    """Return the OffsetFetch results of the one group, by (topic, partition). All other error codes must be 0."""
    if version < 8:
        answer = found = group.ask("offset_fetch", version, group_id=group.id, topics=topics, **fields)
    else:
        answer = group.ask("offset_fetch", version, groups=[{"group_id": group.id, "topics": topics}], **fields)
        (found,) = answer.groups
        assert found.group_id == group.id
    assert getattr(found, "error_code", 0) == 0
    key = "topic_id" if version >= 10 else "name"
    return {(getattr(t, key), p.partition_index): shown(p) for t in found.topics for p in t.partitions}


def requested(topic: Any, *partitions: int) -> list[dict[str, Any]]:
    return [{"topic_id" if isinstance(topic, UUID) else "name": topic, "partition_indexes": list(partitions)}]


# ---- round trips


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_of_every_version_can_be_fetched(group: Group, name: str, version: int) -> None:
    topic: Any = topic_id(group.wire, name) if version >= 10 else name
    epoch: dict[str, Any] = {"leader_epoch": 4} if version >= 6 else {}
    assert group.commit(topic, 42, version=version, metadata="mine", **epoch) == 0
    assert fetched(group, requested(name, 0)) == {(name, 0): (42, 4 if epoch else -1, "mine", 0)}


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch(group: Group, name: str, version: int) -> None:
    topic: Any = topic_id(group.wire, name) if version >= 10 else name
    assert group.commit(name, 42, leader_epoch=4, metadata="mine", partition=1) == 0
    expected = (42, 4 if version >= 5 else -1, "mine", 0)
    assert fetched(group, requested(topic, 1, 0), version) == {(topic, 1): expected, (topic, 0): NOTHING}
    if version >= 7:
        assert fetched(group, requested(topic, 1), version, require_stable=True) == {(topic, 1): expected}


@pytest.mark.parametrize("version", range(2, 11))
def test_all_offsets_of_a_group(group: Group, name: str, create_topic: CreateTopic, version: int) -> None:
    other = create_topic()
    assert fetched(group, None, version) == {}
    assert [group.commit(name, 1), group.commit(name, 2, partition=1), group.commit(other, 3)] == [0, 0, 0]
    names: Any = {each: topic_id(group.wire, each) if version >= 10 else each for each in (name, other)}
    expected = {(names[name], 0): 1, (names[name], 1): 2, (names[other], 0): 3}
    assert {where: what[0] for where, what in fetched(group, None, version).items()} == expected


@pytest.mark.parametrize("version", [1, 8, 9])
def test_an_empty_topic_list_fetches_no_offsets(group: Group, name: str, version: int) -> None:
    assert group.commit(name, 1) == 0
    assert fetched(group, [], version) == {}


def test_the_last_commit_is_kept(group: Group, name: str) -> None:
    for offset in (5, 9, 3):
        assert group.commit(name, offset, metadata=f"at {offset}", leader_epoch=offset) == 0
    assert fetched(group, requested(name, 0)) == {(name, 0): (3, 3, "at 3", 0)}
    assert group.commit(name, 4) == 0
    assert fetched(group, requested(name, 0)) == {(name, 0): (4, -1, "", 0)}


def test_offsets_of_several_groups_are_fetched_in_one_request(group: Group, name: str) -> None:
    with Group(group.bootstrap) as other:
        assert [group.commit(name, 1), other.commit(name, 2)] == [0, 0]
        wanted: list[dict[str, Any]] = [
            {"group_id": group.id, "topics": requested(name, 0)},
            {"group_id": other.id, "topics": None},
            {"group_id": f"{other.id}-none", "topics": requested(name, 0)},
            {"group_id": f"{other.id}-none-either", "topics": None},
        ]
        answer = group.ask("offset_fetch", 9, groups=wanted)
        found = {
            shown_group.group_id: [p.committed_offset for t in shown_group.topics for p in t.partitions]
            for shown_group in answer.groups
        }
        assert list(found) == [each["group_id"] for each in wanted]
        assert list(found.values()) == [[1], [2], [-1], []]
        assert {int(shown_group.error_code) for shown_group in answer.groups} == {0}


@pytest.mark.parametrize("text", ["", "ž" * METADATA_MAX_LENGTH, '{"a": 1}\n\0'])
def test_metadata_is_returned_unchanged(group: Group, name: str, text: str) -> None:
    assert group.commit(name, 1, metadata=text) == 0
    assert fetched(group, requested(name, 0)) == {(name, 0): (1, -1, text, 0)}


def test_null_metadata_is_returned_as_empty(group: Group, name: str) -> None:
    assert group.commit(name, 1, metadata=None) == 0
    assert fetched(group, requested(name, 0)) == {(name, 0): (1, -1, "", 0)}


def test_metadata_that_is_too_long_is_refused(group: Group, name: str) -> None:
    assert group.commit(name, 1, metadata="x" * (METADATA_MAX_LENGTH + 1)) == ErrorCode.offset_metadata_too_large
    assert fetched(group, requested(name, 0)) == {(name, 0): NOTHING}
    assert group.commit(name, 1, metadata="x" * METADATA_MAX_LENGTH) == 0


def test_commits_with_an_empty_group_id_are_accepted(group: Group, name: str) -> None:
    assert commit(group.wire, "", name, 7) == 0
    (found,) = group.ask("offset_fetch", 9, groups=[{"group_id": "", "topics": requested(name, 0)}]).groups
    assert (found.error_code, shown(found.topics[0].partitions[0])) == (0, (7, -1, "", 0))
    assert group.ask("delete_groups", 2, groups_names=[""]).results[0].error_code == 0


# ---- topics and partitions that do not exist


def commit_many(
    group: Group, version: int, offsets: dict[tuple[Any, int], int], **fields: Any
) -> dict[tuple[Any, int], int]:
    key = "topic_id" if version >= 10 else "name"
    topics = [
        {key: topic, "partitions": [{"partition_index": index, "committed_offset": at, "committed_metadata": ""}]}
        for (topic, index), at in offsets.items()
    ]
    answer = group.ask("offset_commit", version, **({"group_id": group.id, "member_id": "", "topics": topics} | fields))
    return {(getattr(t, key), p.partition_index): int(p.error_code) for t in answer.topics for p in t.partitions}


def test_unknown_partitions_do_not_fail_the_other_commits(group: Group, name: str) -> None:
    found = commit_many(group, 9, {(name, 0): 5, (f"{name}-none", 0): 6, (name, 7): 7, (name, -1): 8})
    assert found == {(name, 0): 0, (f"{name}-none", 0): 3, (name, 7): 3, (name, -1): 3}
    assert fetched(group, None) == {(name, 0): (5, -1, "", 0)}


def test_unknown_topic_ids_are_refused(group: Group, name: str) -> None:
    identity, stranger = topic_id(group.wire, name), uuid4()
    assert commit_many(group, 10, {(identity, 0): 5, (stranger, 0): 6, (identity, 7): 7}) == {
        (identity, 0): 0,
        (stranger, 0): ErrorCode.unknown_topic_id,
        (identity, 7): ErrorCode.unknown_topic_or_partition,
    }
    wanted = requested(stranger, 0, 1) + requested(identity, 0)
    unknown = (-1, -1, "", ErrorCode.unknown_topic_id)
    expected = {(stranger, 0): unknown, (stranger, 1): unknown, (identity, 0): (5, -1, "", 0)}
    assert fetched(group, wanted, 10) == expected


def test_fetching_offsets_of_unknown_names_is_no_error(group: Group, name: str) -> None:
    wanted = requested(f"{name}-none", 0) + requested(name, 99)
    assert fetched(group, wanted) == {(f"{name}-none", 0): NOTHING, (name, 99): NOTHING}


def test_an_unknown_topic_is_reported_before_a_wrong_generation(
    two_members: tuple[ClassicMember, ClassicMember],
) -> None:
    leader, _ = two_members
    assert leader.commit("no-such-topic", 1, generation=77) == ErrorCode.unknown_topic_or_partition


def test_a_refused_commit_still_reports_unknown_partitions(group: Group, name: str) -> None:
    stranger = {"generation_id_or_member_epoch": 3, "member_id": "stranger"}
    found = commit_many(group, 9, {(name, 0): 5, (f"{name}-none", 0): 6, (name, 7): 7}, **stranger)
    assert found == {(name, 0): ErrorCode.group_id_not_found, (f"{name}-none", 0): 3, (name, 7): 3}


def test_offsets_of_a_deleted_topic_are_removed(group: Group, name: str, create_topic: CreateTopic) -> None:
    kept = create_topic()
    assert [group.commit(name, 1), group.commit(kept, 2)] == [0, 0]
    group.wire.ask(message("delete_topics", 6, topics=[by_name(name)], timeout=10_000))
    until(lambda: (name, 0) not in fetched(group, None), "the offsets of the deleted topic are removed")
    assert fetched(group, None) == {(kept, 0): (2, -1, "", 0)}


# ---- who may commit


@pytest.mark.parametrize("version", range(2, 11))
def test_only_members_of_the_current_generation_may_commit(
    two_members: tuple[ClassicMember, ClassicMember], name: str, version: int
) -> None:
    _, member = two_members
    topic: Any = topic_id(member.group.wire, name) if version >= 10 else name
    assert member.commit(topic, 5, version=version) == 0
    assert member.commit(topic, 6, version=version, generation=1) == ErrorCode.illegal_generation
    assert member.commit(topic, 7, version=version, generation=3) == ErrorCode.illegal_generation
    assert member.commit(topic, 8, version=version, generation=-1) == ErrorCode.illegal_generation
    assert member.commit(topic, 9, version=version, member_id="made-up") == ErrorCode.unknown_member_id
    assert member.commit(topic, 10, version=version, member_id="") == ErrorCode.unknown_member_id
    assert member.group.committed(name) == 5


@pytest.mark.parametrize("version", range(2, 10))
def test_an_outsider_may_commit_while_the_group_is_empty(group: Group, name: str, version: int) -> None:
    assert group.commit(name, 5, version=version) == 0
    (member,) = group.join_members()
    assert group.commit(name, 6, version=version) == ErrorCode.unknown_member_id
    assert member.leave() == 0
    assert group.commit(name, 7, version=version) == 0
    assert group.committed(name) == 7


@pytest.mark.parametrize(("version", "expected"), [(2, 22), (8, 22), (9, 69), (10, 69)])
def test_a_commit_with_a_generation_to_an_unknown_group_is_refused(
    group: Group, name: str, version: int, expected: int
) -> None:
    topic: Any = topic_id(group.wire, name) if version >= 10 else name
    assert group.commit(topic, 5, version=version, generation_id_or_member_epoch=1, member_id="x") == expected
    assert group.state() == "Dead"


def test_a_commit_with_a_generation_to_an_empty_group_is_refused(group: Group, name: str) -> None:
    assert group.commit(name, 5) == 0
    mine: dict[str, Any] = {"generation_id_or_member_epoch": 1, "member_id": "made-up"}
    assert group.commit(name, 6, **mine) == ErrorCode.unknown_member_id


def test_the_instance_id_of_a_commit_is_checked(group: Group, name: str) -> None:
    member = group.member(instance="one")
    group.rebalance(member)
    assert member.commit(name, 5) == 0
    assert member.commit(name, 6, group_instance_id=None) == 0, "the member id alone identifies the member"
    assert member.commit(name, 7, group_instance_id="nobody") == ErrorCode.unknown_member_id
    assert member.commit(name, 8, member_id="made-up") == ErrorCode.fenced_instance_id
    assert member.group.committed(name) == 6


def test_commits_while_the_group_rebalances(two_members: tuple[ClassicMember, ClassicMember], name: str) -> None:
    """Until all have joined, members may commit what they had; after that they must first learn their assignment."""
    leader, follower = two_members
    leader.post_join()
    leader.group.await_state("PreparingRebalance")
    assert follower.commit(name, 5) == 0
    follower.join()
    leader.collect_join()
    assert follower.commit(name, 6) == ErrorCode.rebalance_in_progress
    assert follower.commit(name, 6, generation=2) == ErrorCode.illegal_generation
    follower.group.assign(leader, follower)
    assert follower.commit(name, 7) == 0
    assert follower.group.committed(name) == 7


def test_offsets_outlive_the_members(group: Group, name: str) -> None:
    (member,) = group.join_members()
    assert [member.commit(name, 5), member.leave()] == [0, 0]
    group.join_members()
    assert group.committed(name) == 5


# ---- who may fetch


def test_a_classic_group_does_not_check_members_on_offset_fetch(
    two_members: tuple[ClassicMember, ClassicMember], name: str
) -> None:
    leader, _ = two_members
    assert leader.commit(name, 5) == 0
    wanted = {"group_id": leader.group.id, "member_id": "made-up", "member_epoch": 9, "topics": requested(name, 0)}
    (found,) = leader.group.ask("offset_fetch", 9, groups=[wanted]).groups
    assert (found.error_code, found.topics[0].partitions[0].committed_offset) == (0, 5)


def test_a_consumer_group_checks_members_on_offset_fetch(group: Group, name: str) -> None:
    consumer = group.consumer([name])
    consumer.join()
    assert consumer.commit(name, 5) == 0

    def ask(**member: Any) -> tuple[int, list[int]]:
        (found,) = group.ask(
            "offset_fetch", 9, groups=[{"group_id": group.id, "topics": requested(name, 0)} | member]
        ).groups
        return int(found.error_code), [p.committed_offset for t in found.topics for p in t.partitions]

    assert ask() == (0, [5]), "administrators send no member id"
    assert ask(member_id=consumer.id, member_epoch=consumer.epoch) == (0, [5])
    assert ask(member_id="made-up", member_epoch=consumer.epoch) == (ErrorCode.unknown_member_id, [])
    assert ask(member_id=consumer.id, member_epoch=consumer.epoch + 1) == (ErrorCode.stale_member_epoch, [])
