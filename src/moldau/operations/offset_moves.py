"""The plan of a reset: which offsets a group without members would move to.

For a share group they are start offsets: before them nothing is delivered again, from them on all is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.client.admin.group_values import SHARE, Committed, CommittedOffsets, DescribedGroup, holds_micro_batch_ids
from moldau.client.cluster import EARLIEST, Cluster
from moldau.operations import offsets
from moldau.operations.failures import NotFound, OperationFailed, kafka_failure
from moldau.operations.groups import GroupConnection, is_unknown, require_no_members
from moldau.operations.micro_batch_ids import STORES_MICRO_BATCH_IDS
from moldau.operations.next_steps import NextStep
from moldau.operations.offset_targets import Kind, Target, resolve


class Move(NamedTuple):
    """The change of a group's offset in one partition. `old_offset` is None if the group has committed none there."""

    partition: TopicPartition
    old_offset: int | None
    new_offset: int
    log_end_offset: int


class ResetGroup(NamedTuple):
    """A group that can be reset, and its offsets now: what it has committed, or the start offsets of a share group."""

    group_id: str
    is_share_group: bool
    offsets: CommittedOffsets


def group_to_reset(connection: GroupConnection, group_id: str, new: bool) -> ResetGroup:
    """Fail if the group has members, if it does not exist although `new` is false, or if its offsets are no offsets. A
    group that does not exist yet is one of consumers."""
    description = connection.described([group_id])[group_id]
    if isinstance(description, KafkaError) and not is_unknown(description):
        raise kafka_failure(description, f"group {group_id}") from description
    if not is_unknown(description):
        assert isinstance(description, DescribedGroup)
        require_no_members(description)
        if description.type == SHARE:
            return ResetGroup(group_id, True, start_offsets(connection, group_id))
    elif not new:
        raise NotFound(f"group {group_id} does not exist", NextStep.MAKE_GROUP)
    committed = connection.groups.committed([group_id])[group_id]
    _refuse_micro_batch_ids(group_id, committed)
    return ResetGroup(group_id, False, committed)


def start_offsets(connection: GroupConnection, group_id: str) -> CommittedOffsets:
    """Return the start offsets of a share group, where it has them; fail if its coordinator does not know one."""
    offsets: dict[TopicPartition, Committed] = {}
    for partition, offset in connection.share.offsets(group_id).items():
        if isinstance(offset, KafkaError):
            raise kafka_failure(offset, f"group {group_id}: {partition}") from offset
        if offset is not None:
            offsets[partition] = Committed(offset.start_offset, offset.leader_epoch)
    return offsets


def select_partitions(
    cluster: Cluster, selections: Sequence[tuple[str, list[int]]], group: ResetGroup
) -> list[TopicPartition]:
    """Return the selected partitions. Without a selection, return all partitions in which the group has an offset.

    A selection is a topic and partition indexes; no indexes select all partitions of the topic.
    """
    if not selections:
        if not group.offsets:
            raise OperationFailed(f"group {group.group_id} has no offsets yet", NextStep.NAME_TOPICS)
        return sorted(group.offsets)
    partitions: set[TopicPartition] = set()
    for topic, indexes in selections:
        indexes_of_topic = partition_indexes(cluster, topic)
        missing = [index for index in indexes if index not in indexes_of_topic]
        if missing:
            listed = ", ".join(map(str, missing))
            raise OperationFailed(f"{topic} has no partition {listed}; it has 0 to {len(indexes_of_topic) - 1}")
        partitions.update(TopicPartition(topic, index) for index in indexes or indexes_of_topic)
    return sorted(partitions)


def partition_indexes(cluster: Cluster, topic: str) -> set[int]:
    try:
        return set(cluster.topic(topic).leaders)
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise OperationFailed(f"topic {topic} does not exist", NextStep.SEE_TOPICS, error=error) from error
        raise


def moves_to_target(
    cluster: Cluster, partitions: Sequence[TopicPartition], target: Target, committed: CommittedOffsets
) -> list[Move]:
    """Return the moves to this position. Fail at a partition where +N or -N has no offset to count from."""
    bounds = bounds_of(cluster, partitions, [target.value] if target.kind is Kind.TIME else [])
    moves = []
    for partition in partitions:
        old_offset = committed_offset(committed, partition)
        new_offset = resolve(target, old_offset, bounds[partition])
        if new_offset is None:
            raise OperationFailed(
                f"{partition.topic} partition {partition.partition} has no committed offset to count from",
                NextStep.CHOOSE_WITH_OFFSETS,
            )
        moves.append(Move(partition, old_offset, new_offset, bounds[partition].end))
    return moves


def moves_to_offsets(cluster: Cluster, group: ResetGroup, wanted: Mapping[TopicPartition, int]) -> list[Move]:
    """Return the moves to these offsets. One outside the log becomes its start or end."""
    # select_partitions fails if one of the partitions does not exist.
    selections = [(partition.topic, [partition.partition]) for partition in wanted]
    bounds = bounds_of(cluster, select_partitions(cluster, selections, group))
    return [
        Move(
            partition,
            committed_offset(group.offsets, partition),
            min(max(offset, bounds[partition].start), bounds[partition].end),
            bounds[partition].end,
        )
        for partition, offset in sorted(wanted.items())
    ]


def commit_moves(connection: GroupConnection, group: ResetGroup, moves: Sequence[Move]) -> None:
    subject = f"group {group.group_id}"
    offsets = {move.partition: move.new_offset for move in moves}
    try:
        if not group.is_share_group:
            connection.groups.commit(group.group_id, offsets)
            return
        errors = connection.share.alter_offsets(group.group_id, offsets)
    except KafkaError as error:
        raise kafka_failure(error, subject) from error
    for partition, partition_error in sorted(errors.items()):
        if partition_error is not None:
            raise kafka_failure(partition_error, f"{subject}: {partition}") from partition_error


def committed_offset(committed: CommittedOffsets, partition: TopicPartition) -> int | None:
    return committed[partition].offset if partition in committed else None


def bounds_of(
    cluster: Cluster, partitions: Iterable[TopicPartition], times: Iterable[int] = ()
) -> dict[TopicPartition, offsets.PartitionBounds]:
    """Return the log start offset and the log end offset of each partition, and the offset at each of the times."""
    partitions = list(partitions)
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.latest(partitions)
    bounds = {partition: offsets.PartitionBounds(starts[partition], ends[partition], {}) for partition in partitions}
    for time_ms in times:
        for partition, offset in cluster.list_offsets(dict.fromkeys(partitions, time_ms)).items():
            if offset >= 0:  # A broker answers -1 if all records are older.
                bounds[partition].at_time[time_ms] = offset
    return bounds


def _refuse_micro_batch_ids(group_id: str, committed: CommittedOffsets) -> None:
    if holds_micro_batch_ids(committed):
        raise OperationFailed(
            f"group {group_id} cannot be reset: it {STORES_MICRO_BATCH_IDS},"
            " and with other ids the query would write micro-batches twice or skip them"
        )
