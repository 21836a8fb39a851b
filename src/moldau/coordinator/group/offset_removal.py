"""Removes committed offsets from the log: OffsetDelete, a deleted group or topic, and expiration.

A tombstone also removes what open transactions would have committed. Only expiration keeps such partitions and their
groups, unless their topic is deleted: the open transaction shows that the group is still in use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import chain, compress

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID
from moldau.base.steps import Steps, TurnItems, map_in_steps, split
from moldau.base.turns import CHANGES_A_TURN
from moldau.coordinator.group.classic.group import ClassicGroup
from moldau.coordinator.group.group import Group
from moldau.coordinator.group.serde import encode_record
from moldau.coordinator.group.share.group import ShareGroup
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.group.topic_changes import TopicChanges
from moldau.coordinator.group.transactional_offsets import TopicAndPartition
from moldau.coordinator.machine import CoordinatorRecord, MayUseTopic, Outcome
from moldau.wire.log_records.offsets import OffsetCommitKey, OffsetCommitValue
from moldau.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


@dataclass(slots=True)
class DeletionDraft:
    """Offsets to delete for a request, before anything is written."""

    group: Group | None
    """None if the client may read none of the topics."""
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
    """The topics of the response."""
    tombstones: dict[TopicAndPartition, CoordinatorRecord] = field(default_factory=dict)
    """One for each offset, however often the request names its partition."""
    encoded: list[tuple[bytes, bytes | None]] = field(default_factory=list)
    subscribed: dict[str, bool] = field(default_factory=dict)
    """Whether the group reads each topic that the client may read."""


def draft_deletion(
    state: GroupState, request: OffsetDeleteRequest, may_read: MayUseTopic, turn: TurnItems
) -> Steps[DeletionDraft]:
    """Draft the deletion of offsets. If the client may read none of the topics, it does not learn whether the group
    exists."""
    names = list(dict.fromkeys([topic.name for topic in request.topics]))
    may_read_each = yield from map_in_steps(turn, names, may_read)
    allowed = set(compress(names, may_read_each))
    draft = DeletionDraft(None if names and not allowed else _group_to_change(state, request.group_id))
    for topic in request.topics:
        results: list[OffsetDeleteResponsePartition] = []
        for some in split(topic.partitions, turn.items_a_turn):
            indexes = [partition.partition_index for partition in some]
            if draft.group is None or topic.name not in allowed:
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                results += [OffsetDeleteResponsePartition(index, code) for index in indexes]
            else:
                results += _draft_topic(state, draft, draft.group, topic.name, indexes)
            if turn.ends_after(len(some)):
                yield
        draft.topics.append(OffsetDeleteResponseTopic(topic.name, results))
        if turn.ends_after(1):
            yield
    return draft


def _group_to_change(state: GroupState, group_id: str) -> Group:
    group = state.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND)
    if isinstance(group, ShareGroup):
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
    if isinstance(group, ClassicGroup) and not group.is_empty and not group.is_of_consumers:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP)
    return group


def _draft_topic(
    state: GroupState, draft: DeletionDraft, group: Group, name: str, indexes: Sequence[int]
) -> list[OffsetDeleteResponsePartition]:
    image = state.current.image.topics.get(name)
    existing = range(len(image.partitions)) if image is not None else range(0)
    is_subscribed = draft.subscribed.setdefault(name, group.is_subscribed_to(name))
    committed = state.offsets.get(group.group_id, {}).get(name, {})
    unstable = state.transactional_offsets.open_of(group.group_id)
    results = []
    for index in indexes:
        place = (name, index)
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
        if index not in existing:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not is_subscribed and place not in draft.tombstones and (index in committed or place in unstable):
            draft.tombstones[place] = tombstone = CoordinatorRecord(OffsetCommitKey(group.group_id, *place), None)
            draft.encoded.append(encode_record(tombstone))
        results.append(OffsetDeleteResponsePartition(index, code))
    return results


def delete(state: GroupState, draft: DeletionDraft) -> Outcome[OffsetDeleteResponse]:
    """Delete the offsets of a draft. Raise KafkaError if the group was replaced or reads other topics since."""
    response = OffsetDeleteResponse(topics=draft.topics)
    if draft.group is None:
        return Outcome(response)
    group = _group_to_change(state, draft.group.group_id)
    if group is not draft.group or any(
        group.is_subscribed_to(name) is not is_subscribed for name, is_subscribed in draft.subscribed.items()
    ):
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # clients try again
    return Outcome(response, list(draft.tombstones.values()), encoded=draft.encoded, is_divisible=True)


def of_deleted_group(state: GroupState, group_id: str) -> list[CoordinatorRecord]:
    """Return tombstones for all offsets that the group committed, also those in open transactions."""
    committed = state.offsets.get(group_id, {})
    partitions = {(topic, index): None for topic, indexes in committed.items() for index in indexes}
    partitions |= dict.fromkeys(state.transactional_offsets.open_of(group_id))
    return _tombstones(group_id, partitions)


def of_deleted_topics(state: GroupState, changes: TopicChanges, turn: TurnItems) -> Iterator[Outcome[None] | None]:
    """Yield the removal of the offsets of deleted topics in parts, and None where a turn of the loop ends. The offsets
    are looked up in this call: one that is committed later is for a new topic of the same name, and stays.

    A new topic may have the name already, for example when many changes are read at once: then only offsets with the
    old topic's id are removed. If the name is new since these changes, those without an id are removed too."""
    ids, topics = changes.removed_ids, state.current.image.topics

    def is_deleted(name: str, value: OffsetCommitValue | None) -> bool:
        return name not in topics or (ZERO_UUID if value is None else value.topic_id) in ids[name]

    return _removals_of(state, ids.keys(), is_deleted, turn)


def of_unknown_topics(state: GroupState, turn: TurnItems) -> Iterator[Outcome[None] | None]:
    """Yield the removal of the offsets of topics that do not exist, as `of_deleted_topics` does: whoever had to remove
    them may have failed before. Then look for offsets with the id of an earlier topic of the same name."""
    names = {partition[0] for _, partition, _ in state.transactional_offsets}.union(*state.offsets.values())
    topics = state.current.image.topics
    unknown = dict.fromkeys(sorted(name for name in names if name not in topics)).keys()
    return chain(_removals_of(state, unknown, lambda *_: True, turn), _of_earlier_topics(state, turn))


def _removals_of(
    state: GroupState,
    names: AbstractSet[str],
    is_deleted: Callable[[str, OffsetCommitValue | None], bool],
    turn: TurnItems,
) -> Iterator[Outcome[None] | None]:
    """Look up the offsets of these topics that are deleted, and yield their removal."""
    if not names:
        return iter(())
    topics = state.current.image.topics
    committed = [
        (
            group_id,
            name,
            # Most often there is no new topic: a copy costs little.
            {index: value for index, value in by_topic[name].items() if is_deleted(name, value)}
            if name in topics
            else by_topic[name].copy(),
        )
        for group_id, by_topic in state.offsets.items()
        for name in (names if len(names) < len(by_topic) else by_topic)
        if name in names and name in by_topic
    ]
    unstable: dict[tuple[str, TopicAndPartition], list[OffsetCommitValue | None]] = {}
    for group_id, partition, value in state.transactional_offsets:
        if partition[0] in names and is_deleted(partition[0], value):
            unstable.setdefault((group_id, partition), []).append(value)
    return _removals(state, committed, unstable, turn)


def _of_earlier_topics(state: GroupState, turn: TurnItems) -> Iterator[Outcome[None] | None]:
    for group_id in list(state.offsets):
        for topic, values in list(state.offsets.get(group_id, {}).items()):
            # Most clients send no id.
            with_id = [index for index, value in values.items() if value.topic_id != ZERO_UUID]
            for indexes in split(with_id, turn.items_a_turn):
                if deleted := _deleted(state, group_id, topic, indexes):
                    yield Outcome(None, _tombstones(group_id, deleted), is_divisible=True)
                if turn.ends_after(len(indexes)):
                    yield None
            if turn.ends_after(len(values) - len(with_id)):
                yield None


def _deleted(state: GroupState, group_id: str, topic: str, indexes: Sequence[int]) -> list[TopicAndPartition]:
    """Return those of the partitions whose offset is of a deleted topic. Not those for which an open transaction has
    committed another one since a new topic has the name."""
    committed, image = _committed(state, group_id, topic), state.current.image.topics.get(topic)
    if image is None:
        return [(topic, index) for index in indexes if index in committed]
    ids, unstable = (ZERO_UUID, image.id), state.transactional_offsets.open_of(group_id)
    return [
        (topic, index)
        for index in indexes
        if index in committed and committed[index].topic_id not in ids and (topic, index) not in unstable
    ]


def _removals(
    state: GroupState,
    committed: Sequence[tuple[str, str, Mapping[int, OffsetCommitValue]]],
    unstable: Mapping[tuple[str, TopicAndPartition], Sequence[OffsetCommitValue | None]],
    turn: TurnItems,
) -> Iterator[Outcome[None] | None]:
    """Yield the removal of committed offsets, by group and topic, and of offsets in open transactions. One that was
    committed since they were looked up keeps its partition from being removed, in an open transaction until that
    ends."""
    for group_id, topic, values in committed:
        for some in split(list(values.items()), turn.items_a_turn):
            unchanged = []
            for index, value in some:
                place = (topic, index)
                if _has_only(state, group_id, place, [value, *unstable.get((group_id, place), ())]):
                    unchanged.append(place)
                elif _committed(state, group_id, topic).get(index) is value:
                    state.postponed_removals[group_id, place] = value
            if unchanged:
                yield Outcome(None, _tombstones(group_id, unchanged), is_divisible=True)
            if turn.ends_after(len(some)):
                yield None
    for (group_id, partition), open_values in unstable.items():
        if _has_only(state, group_id, partition, open_values):
            yield Outcome(None, _tombstones(group_id, [partition]))
        if turn.ends_after(1):
            yield None


def _has_only(
    state: GroupState, group_id: str, partition: TopicAndPartition, known: Sequence[OffsetCommitValue | None]
) -> bool:
    """Return whether the partition has an offset, committed or in an open transaction, and only known ones."""
    topic, index = partition
    committed = _committed(state, group_id, topic).get(index)
    open_values = state.transactional_offsets.groups.get(group_id, {}).get(partition)
    if committed is None and open_values is None:
        return False
    present = (committed, *(open_values or {}).values())
    return all(value is None or any(value is each for each in known) for value in present)


def of_postponed(state: GroupState) -> Outcome[None]:
    """Remove some of the offsets whose removal had to wait, if no transaction keeps them from it any more."""
    postponed, tombstones = state.postponed_removals, []
    for (group_id, place), value in list(postponed.items()):
        if _committed(state, group_id, place[0]).get(place[1]) is value:
            if place in state.transactional_offsets.open_of(group_id):
                continue
            tombstones += _tombstones(group_id, [place])
        del postponed[group_id, place]
        if len(tombstones) == CHANGES_A_TURN:
            break
    return Outcome(None, tombstones, is_divisible=True)


def of_expired(state: GroupState, group: Group, now_ms: int, turn: TurnItems) -> Iterator[Outcome[None] | None]:
    """Yield the removal of the group's expired offsets in parts, and None where a turn of the loop ends; commits may
    come there. Offsets of deleted topics that could not be removed before are removed as well. Stop if the group is
    deleted or replaced meanwhile."""
    for topic in list(state.offsets.get(group.group_id, ())):
        for indexes in split(list(_committed(state, group.group_id, topic)), turn.items_a_turn):
            if state.groups.get(group.group_id) is not group:
                return
            expired = _expired(state, group, topic, indexes, now_ms)
            if expired:
                yield _removal(group, expired)
            if turn.ends_after(len(indexes)):
                yield None
    for some in split(list(state.transactional_offsets.open_of(group.group_id)), turn.items_a_turn):
        if state.groups.get(group.group_id) is not group:
            return
        unstable, topics = state.transactional_offsets.open_of(group.group_id), state.current.image.topics
        deleted = [place for place in some if place[0] not in topics and place in unstable]
        if deleted:
            yield _removal(group, deleted)
        if turn.ends_after(len(some)):
            yield None


def _committed(state: GroupState, group_id: str, topic: str) -> Mapping[int, OffsetCommitValue]:
    return state.offsets.get(group_id, {}).get(topic, {})


def _expired(
    state: GroupState, group: Group, topic: str, indexes: Sequence[int], now_ms: int
) -> list[TopicAndPartition]:
    """Return those of the partitions whose offset is expired, or whose topic is deleted."""
    deleted = _deleted(state, group.group_id, topic, indexes)
    if topic not in state.current.image.topics or group.is_subscribed_to(topic):
        return deleted
    committed = _committed(state, group.group_id, topic)
    unstable, gone = state.transactional_offsets.open_of(group.group_id), set(deleted)
    places = [(topic, index) for index in indexes if index in committed]
    return deleted + [
        place
        for place in places
        if place not in unstable and place not in gone and _is_expired(state, group, committed[place[1]], now_ms)
    ]


def _removal(group: Group, partitions: Iterable[TopicAndPartition]) -> Outcome[None]:
    return Outcome(None, _tombstones(group.group_id, partitions), is_divisible=True)


def _is_expired(state: GroupState, group: Group, value: OffsetCommitValue, now_ms: int) -> bool:
    since_ms = group.retention_counts_from_ms(value.commit_timestamp)
    if since_ms is None:
        return False
    if value.expire_timestamp >= 0:
        return now_ms >= value.expire_timestamp
    return now_ms - since_ms >= state.settings.offsets_retention_ms


def _tombstones(group_id: str, partitions: Iterable[TopicAndPartition]) -> list[CoordinatorRecord]:
    return [CoordinatorRecord(OffsetCommitKey(group_id, topic, index), None) for topic, index in partitions]
