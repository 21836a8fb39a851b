"""The plan of a reset: which offsets a group without members would move to. `moldau group reset` and the console make
it here; each shows it in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.cli import offsets
from moldau.cli.cluster.connect import HINT_GROUPS, HINT_TOPICS, kafka_failure
from moldau.cli.connect import CommandFailed, NotFound
from moldau.cli.group.connect import GroupConnection, is_unknown, require_no_members
from moldau.cli.group.micro_batch_ids import STORES_MICRO_BATCH_IDS
from moldau.cli.group.targets import Kind, Target, resolve
from moldau.client.admin.group_values import CommittedOffsets, holds_micro_batch_ids
from moldau.client.cluster import EARLIEST, Cluster


class Move(NamedTuple):
    """The change of a group's offset in one partition. `old_offset` is None if the group has committed none there."""

    partition: TopicPartition
    old_offset: int | None
    new_offset: int
    log_end_offset: int


def check_group(connection: GroupConnection, group_id: str, new: bool) -> None:
    """Fail if the group has members, or if it does not exist although `new` is false."""
    description = connection.groups.described([group_id])[group_id]
    if is_unknown(description):
        if not new:
            raise NotFound(
                f"group {group_id} does not exist; {HINT_GROUPS},"
                " and --new sets the offsets of a group before it exists"
            )
    elif isinstance(description, KafkaError):
        raise kafka_failure(description, f"group {group_id}") from description
    else:
        require_no_members(description)


def select_partitions(
    cluster: Cluster, selections: Sequence[tuple[str, list[int]]], committed: CommittedOffsets, group_id: str
) -> list[TopicPartition]:
    """Return the selected partitions. Without a selection, return all partitions in which the group has an offset.

    A selection is a topic and partition indexes; no indexes select all partitions of the topic.
    """
    if not selections:
        if not committed:
            raise CommandFailed(f"group {group_id} has no offsets yet; name the topics to set offsets in with --topic")
        return sorted(committed)
    partitions: set[TopicPartition] = set()
    for topic, indexes in selections:
        indexes_of_topic = partition_indexes(cluster, topic)
        missing = [index for index in indexes if index not in indexes_of_topic]
        if missing:
            listed = ", ".join(map(str, missing))
            raise CommandFailed(f"{topic} has no partition {listed}; it has 0 to {len(indexes_of_topic) - 1}")
        partitions.update(TopicPartition(topic, index) for index in indexes or indexes_of_topic)
    return sorted(partitions)


def partition_indexes(cluster: Cluster, topic: str) -> set[int]:
    try:
        return set(cluster.topic(topic).leaders)
    except KafkaError as error:
        if error.code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION):
            raise CommandFailed(f"topic {topic} does not exist; {HINT_TOPICS}") from error
        raise


def moves_to_target(
    cluster: Cluster, partitions: Sequence[TopicPartition], target: Target, committed: CommittedOffsets
) -> list[Move]:
    """Return the moves to the position of --to. Fail at a partition where +N or -N has no offset to count from."""
    bounds = bounds_of(cluster, partitions, target)
    moves = []
    for partition in partitions:
        old_offset = committed_offset(committed, partition)
        new_offset = resolve(target, old_offset, bounds[partition])
        if new_offset is None:
            raise CommandFailed(
                f"{partition.topic} partition {partition.partition} has no committed offset to count from;"
                " select other partitions with --topic, or use --to N"
            )
        moves.append(Move(partition, old_offset, new_offset, bounds[partition].end))
    return moves


def committed_offset(committed: CommittedOffsets, partition: TopicPartition) -> int | None:
    return committed[partition].offset if partition in committed else None


def bounds_of(
    cluster: Cluster, partitions: Iterable[TopicPartition], target: Target | None
) -> dict[TopicPartition, offsets.PartitionBounds]:
    """Return the log start offset and the log end offset of each partition, and the offset at the target's time."""
    partitions = list(partitions)
    starts = cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))
    ends = cluster.latest(partitions)
    bounds = {partition: offsets.PartitionBounds(starts[partition], ends[partition], {}) for partition in partitions}
    if target is not None and target.kind is Kind.TIME:
        for partition, offset in cluster.list_offsets(dict.fromkeys(partitions, target.value)).items():
            if offset >= 0:  # A broker answers -1 if all records are older.
                bounds[partition].at_time[target.value] = offset
    return bounds


def refuse_micro_batch_ids(group_id: str, committed: CommittedOffsets) -> None:
    if holds_micro_batch_ids(committed):
        raise CommandFailed(
            f"group {group_id} cannot be reset: it {STORES_MICRO_BATCH_IDS},"
            " and with other ids the query would write micro-batches twice or skip them"
        )
