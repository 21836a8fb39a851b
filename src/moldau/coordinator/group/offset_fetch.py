"""Reads committed offsets, in steps: OffsetFetch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.steps import Steps, TurnItems, map_in_steps, split
from moldau.coordinator.group.state import GroupState
from moldau.coordinator.machine import Client, MayUseTopic
from moldau.wire.log_records.offsets import OffsetCommitValue
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

TOPIC_ID_MIN_VERSION: Final = 10
"""From this version on, OffsetCommit and OffsetFetch use topic ids."""
NO_OFFSET: Final = -1
TOPIC_COST: Final = 10
"""Looking up a topic, and whether the client may describe it, takes about as long as so many offsets."""


def fetch(
    state: GroupState,
    request: OffsetFetchRequestGroup,
    client: Client,
    require_stable: bool,
    may_describe: MayUseTopic,
    turn: TurnItems,
) -> Steps[OffsetFetchResponseGroup]:
    """Return committed offsets. Commits between two steps show in the later ones. With `require_stable`, a partition
    whose offset an open transaction may change gets UNSTABLE_OFFSET_COMMIT instead of its last committed offset."""
    group = state.groups.get(request.group_id)
    if group is not None:
        group.check_fetch(request.member_id, request.member_epoch)
    reader = _Reader(state, request.group_id, require_stable)
    if request.topics is None:
        topics = yield from _fetch_all(reader, client, may_describe, turn)
    else:
        topics = yield from _fetch_named(reader, request.topics, client, may_describe, turn)
    return OffsetFetchResponseGroup(request.group_id, topics)


class _Reader(NamedTuple):
    """Reads the offsets of one group. Nothing is kept from step to step: requests in between may change all of it."""

    state: GroupState
    group_id: str
    require_stable: bool

    def committed(self) -> Mapping[str, Mapping[int, OffsetCommitValue]]:
        """Return the offsets by topic and partition."""
        return self.state.offsets.get(self.group_id, {})

    def read(
        self, name: str, indexes: Sequence[int], turn: TurnItems, accepted_topic_ids: tuple[Uuid, Uuid] | None = None
    ) -> Steps[list[OffsetFetchResponsePartitions]]:
        results: list[OffsetFetchResponsePartitions] = []
        for some in split(indexes, turn.items_a_turn):
            partitions = self.committed().get(name, {})
            unstable = self.state.transactional_offsets.open_of(self.group_id) if self.require_stable else ()
            results += [
                _unstable(index)
                if (name, index) in unstable
                else _fetched(index, _of_topic(partitions.get(index), accepted_topic_ids))
                for index in some
            ]
            if turn.ends_after(len(some)):
                yield
        return results


def _fetch_all(
    reader: _Reader, client: Client, may_describe: MayUseTopic, turn: TurnItems
) -> Steps[list[OffsetFetchResponseTopics]]:
    """Return all topics with committed offsets that the client may describe. A partition whose only commit is in an
    open transaction is left out."""
    topics: list[OffsetFetchResponseTopics] = []
    for name in list(reader.committed()):
        if turn.ends_after(TOPIC_COST):
            yield
        if not may_describe(name):
            continue
        topic = reader.state.current.image.topics.get(name)
        if client.version >= TOPIC_ID_MIN_VERSION and topic is None:
            continue  # the topic is deleted, so there is no topic id for the response
        topic_id = topic.id if topic is not None else ZERO_UUID
        results = yield from reader.read(name, list(reader.committed().get(name, ())), turn)
        topics.append(OffsetFetchResponseTopics(topic_id, name, results))
    return topics


def _fetch_named(
    reader: _Reader,
    named: Sequence[OffsetFetchRequestTopics],
    client: Client,
    may_describe: MayUseTopic,
    turn: TurnItems,
) -> Steps[list[OffsetFetchResponseTopics]]:
    """Return the topics that the request names. A partition that is named often is read once: its metadata may have
    kilobytes."""
    topics: list[OffsetFetchResponseTopics] = []
    seen: dict[str, set[int]] = {}
    for topic in named:
        if turn.ends_after(TOPIC_COST):
            yield
        name, code = topic.name, ErrorCode.NONE
        if client.version >= TOPIC_ID_MIN_VERSION:
            image = reader.state.current.image.topic_by_id(topic.topic_id)
            name, code = ("", ErrorCode.UNKNOWN_TOPIC_ID) if image is None else (image.name, code)
        if not code and not may_describe(name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if code:
            errors = yield from map_in_steps(turn, topic.partition_indexes, partial(_fetched, value=None, code=code))
            topics.append(OffsetFetchResponseTopics(topic.topic_id, topic.name, errors))
            continue
        indexes = list(dict.fromkeys(topic.partition_indexes))
        if name in seen:
            indexes = [index for index in indexes if index not in seen[name]]
        seen.setdefault(name, set()).update(indexes)
        accepted_topic_ids = (ZERO_UUID, topic.topic_id) if topic.topic_id != ZERO_UUID else None
        results = yield from reader.read(name, indexes, turn, accepted_topic_ids)
        topics.append(OffsetFetchResponseTopics(topic.topic_id, name, results))
    return topics


def _of_topic(
    value: OffsetCommitValue | None, accepted_topic_ids: tuple[Uuid, Uuid] | None
) -> OffsetCommitValue | None:
    """Return the committed value, or None if it belongs to an earlier topic of the same name."""
    if value is not None and accepted_topic_ids is not None and value.topic_id not in accepted_topic_ids:
        return None
    return value


def _fetched(
    index: int, value: OffsetCommitValue | None, code: ErrorCode = ErrorCode.NONE
) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(index, NO_OFFSET, -1, "", code)
    return OffsetFetchResponsePartitions(index, value.offset, value.leader_epoch, value.metadata)


def _unstable(index: int) -> OffsetFetchResponsePartitions:
    return _fetched(index, None, ErrorCode.UNSTABLE_OFFSET_COMMIT)
