"""Offsets that expire, or whose topic is deleted, while others change the groups."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import NoReturn

from harness.operations import operations_of

from moldau.base.steps import TurnItems
from moldau.base.turns import LISTED_A_TURN
from moldau.coordinator.group import listing
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage, PartitionState, TopicImage
from moldau.testing.clock import FakeClock
from moldau.wire.log_records.offsets import OffsetCommitKey, OffsetCommitValue

NEVER_MS = 2**50
ONE = PartitionState((1,), (1,), 1, 0, 0)
COUNT = 2 * LISTED_A_TURN + 1


def groups_with_offsets() -> Groups:
    """Return groups with one group, whose offsets take three turns to expire."""
    current = CurrentImage()
    current.image = MetadataImage(topics={"t": TopicImage("t", b"t".ljust(16), (ONE,) * COUNT)})
    groups = Groups(GroupSettings(), current, FakeClock(), Random(0))
    for index in range(COUNT):
        commit(groups, index, 1)
    return groups


def commit(groups: Groups, index: int, timestamp_ms: int) -> None:
    value = OffsetCommitValue(7, -1, "", timestamp_ms, -1)
    groups.apply(CoordinatorRecord(OffsetCommitKey("g", "t", index), value))


def test_a_group_expires_in_turns_and_is_removed_with_its_last_offset() -> None:
    groups = groups_with_offsets()
    removed = []
    for outcome in groups.expire(NEVER_MS):
        removed.append(None if outcome is None else len(outcome.records))
        if outcome is not None:
            groups.apply_all(outcome.records)
    assert removed == [LISTED_A_TURN, None, LISTED_A_TURN, None, 1, 1]
    assert not groups.state.groups
    assert not groups.state.offsets


def test_an_offset_committed_between_two_turns_keeps_its_group() -> None:
    groups = groups_with_offsets()
    for number, outcome in enumerate(groups.expire(NEVER_MS)):
        if outcome is not None:
            groups.apply_all(outcome.records)
        elif number == 1:
            commit(groups, 0, NEVER_MS)
            commit(groups, COUNT - 1, NEVER_MS)
    assert list(groups.state.offsets["g"]["t"]) == [COUNT - 1, 0]
    assert list(groups.state.groups) == ["g"]


def test_the_offsets_of_a_group_that_replaced_another_between_two_turns_stay() -> None:
    groups = groups_with_offsets()
    expiration = groups.expire(NEVER_MS)
    for outcome in expiration:
        if outcome is None:
            break
        groups.apply_all(outcome.records)
    groups.apply_all(listing.delete(groups.state, "g").records)
    groups.state.groups["g"] = again = ClassicGroup("g")
    commit(groups, COUNT - 1, 1)
    assert [outcome for outcome in expiration if outcome is not None] == []
    assert groups.state.groups == {"g": again}


def test_a_group_stays_if_the_removal_of_its_offsets_is_refused() -> None:
    groups = groups_with_offsets()
    assert sum(len(outcome.records) for outcome in groups.expire(NEVER_MS) if outcome is not None) == COUNT


def delete_topic(groups: Groups) -> Iterator[Outcome[None] | None]:
    current = groups.state.current
    removed = current.image.topics["t"]
    current.image = MetadataImage()
    return groups.topics_changed(TopicChanges.of(current.image, Changes(removed=[removed])), TurnItems(LISTED_A_TURN))


def test_the_offsets_of_a_deleted_topic_are_removed_in_turns() -> None:
    groups = groups_with_offsets()
    removed = []
    for outcome in delete_topic(groups):
        removed.append(None if outcome is None else len(outcome.records))
        if outcome is not None:
            groups.apply_all(outcome.records)
    assert removed == [LISTED_A_TURN, None, LISTED_A_TURN, None, 1]
    assert not groups.state.offsets


def test_offsets_of_a_new_topic_that_are_committed_between_two_turns_stay() -> None:
    groups = groups_with_offsets()
    for number, outcome in enumerate(delete_topic(groups)):
        if outcome is not None:
            groups.apply_all(outcome.records)
        elif number == 1:
            commit(groups, 0, 2)
            commit(groups, COUNT - 1, 2)
    assert sorted(groups.state.offsets["g"]["t"]) == [0, COUNT - 1]


def test_offsets_of_a_topic_created_again_stay_when_its_deletion_is_learned_late() -> None:
    old, new = (TopicImage("t", letter * 16, ()) for letter in (b"o", b"n"))
    groups = groups_with_offsets()
    groups.state.current.image = MetadataImage(topics={"t": new})
    for index, topic in ((0, old), (1, new)):
        groups.state.offsets["g"]["t"][index] = OffsetCommitValue(5, topic_id=topic.id)
    changes = TopicChanges.of(groups.state.current.image, Changes(removed=[old]))
    for outcome in groups.topics_changed(changes, TurnItems(COUNT)):
        if outcome is not None:
            groups.apply_all(outcome.records)
    assert 0 not in groups.state.offsets["g"]["t"]
    assert groups.state.offsets["g"]["t"][1].offset == 5


class UnreadableOffsets(dict[str, dict[str, dict[int, OffsetCommitValue]]]):
    def items(self) -> NoReturn:
        raise AssertionError("all offsets are read")


class UnreadableTopics(dict[str, dict[int, OffsetCommitValue]]):
    def __iter__(self) -> NoReturn:
        raise AssertionError("all topics of a group are read")

    items = __iter__  # type: ignore[assignment]


def test_the_removal_of_a_topic_does_not_read_all_topics_of_each_group() -> None:
    groups = groups_with_offsets()
    others: dict[str, dict[int, OffsetCommitValue]] = {f"other-{number}": {} for number in range(10)}
    groups.state.offsets["g"] = UnreadableTopics(groups.state.offsets["g"] | others)
    assert sum(len(outcome.records) for outcome in delete_topic(groups) if outcome is not None) == COUNT


def test_a_change_that_removes_no_topic_reads_no_offsets() -> None:
    groups = groups_with_offsets()
    groups.state.offsets = UnreadableOffsets(groups.state.offsets)
    image = groups.state.current.image
    assert list(groups.topics_changed(TopicChanges.of(image, Changes({"t": {0}})), TurnItems(1))) == []


def test_a_shard_does_not_look_at_thousands_of_deleted_topics_that_its_groups_do_not_use() -> None:
    """A node has fifty shards, and all of them learn of the change in the same turn."""
    groups = groups_with_offsets()
    image = groups.state.current.image
    removed = [TopicImage(f"other-{number}", b"%016d" % number, (ONE,)) for number in range(1_000)]
    changes = TopicChanges.of(image, Changes(removed=removed))
    assert operations_of(lambda: list(groups.topics_changed(changes, TurnItems(1)))) < 100
