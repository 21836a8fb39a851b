"""The state of a partition after a metadata record."""

from __future__ import annotations

from moldau.metadata.image import PartitionState
from moldau.metadata.records import LEADER_UNCHANGED, RECOVERY_STATE_UNCHANGED
from moldau.wire.log_records.metadata import PartitionChangeRecord, PartitionRecord


def new_partition(record: PartitionRecord) -> PartitionState:
    return PartitionState(
        tuple(record.replicas),
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        tuple(record.directories),
        record.leader_recovery_state,
    )


def changed_partition(old: PartitionState, record: PartitionChangeRecord) -> PartitionState:
    """Return the partition's state after this record. A response may need it before the record is applied."""
    is_elected = record.leader != LEADER_UNCHANGED
    return PartitionState(
        old.replicas if record.replicas is None else tuple(record.replicas),
        old.isr if record.isr is None else tuple(record.isr),
        record.leader if is_elected else old.leader,
        old.leader_epoch + 1 if is_elected else old.leader_epoch,
        old.partition_epoch + 1,
        old.removing_replicas if record.removing_replicas is None else tuple(record.removing_replicas),
        old.adding_replicas if record.adding_replicas is None else tuple(record.adding_replicas),
        old.directories if record.directories is None else tuple(record.directories),
        old.leader_recovery_state
        if record.leader_recovery_state == RECOVERY_STATE_UNCHANGED
        else record.leader_recovery_state,
    )


def changed_indexes(before: tuple[PartitionState, ...], now: tuple[PartitionState, ...]) -> set[int]:
    """Return the indexes of the partitions that are new or changed."""
    return {index for index, state in enumerate(now) if index >= len(before) or before[index] is not state}
