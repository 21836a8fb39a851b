"""The state of one partition for one share group, and its records: a snapshot is the whole state, an update what has
changed since. Both carry the epoch of the snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from moldau.coordinator.machine import CoordinatorRecord
from moldau.coordinator.share.batches import NO_START_OFFSET, Batch, merge
from moldau.share.ports import ShareKey
from moldau.wire.log_records.share_states import (
    ShareSnapshotKey,
    ShareSnapshotValue,
    ShareUpdateKey,
    ShareUpdateValue,
    StateBatch,
)

NO_EPOCH: Final = -1
"""In a request: no check of the epoch."""
UNINITIALIZED_EPOCH: Final = 0
UNKNOWN_COUNT: Final = -1
"""The count of completed deliveries before anybody has read the partition."""


class StateChange(NamedTuple):
    """What a write changes. Its batches may overlap."""

    start_offset: int
    delivery_complete_count: int
    batches: Iterable[Batch]


class ShareState(NamedTuple):
    snapshot_epoch: int
    state_epoch: int
    leader_epoch: int
    start_offset: int
    delivery_complete_count: int
    create_timestamp: int
    write_timestamp: int
    """When the last snapshot was written. It is later than `create_timestamp` if nothing but time required it."""
    batches: tuple[Batch, ...] = ()
    highest_state_epoch: int = 0
    highest_leader_epoch: int = 0
    """The highest epochs of all records: a lower one is fenced, also if the state was initialized again since."""
    updates: int = 0
    """Updates since the last snapshot."""
    needed_from: int = 0
    """An offset of the log that is not above the last snapshot."""

    @property
    def is_cold(self) -> bool:
        """Whether the last snapshot was written only because the one before was old."""
        return self.create_timestamp != self.write_timestamp

    def was_begun_in(self, state_epoch: int) -> bool:
        """Return whether a leader has written the state since it was initialized in this epoch."""
        is_written = self.updates > 0 or self.leader_epoch != UNINITIALIZED_EPOCH or bool(self.batches)
        return is_written and self.start_offset != NO_START_OFFSET and self.state_epoch == state_epoch


UNKNOWN_STATE: Final = ShareState(0, UNINITIALIZED_EPOCH, UNINITIALIZED_EPOCH, NO_START_OFFSET, UNKNOWN_COUNT, 0, 0)


def after_snapshot(before: ShareState | None, value: ShareSnapshotValue, needed_from: int) -> ShareState:
    return ShareState(
        value.snapshot_epoch,
        value.state_epoch,
        value.leader_epoch,
        value.start_offset,
        value.delivery_complete_count,
        value.create_timestamp,
        value.write_timestamp,
        merge((), batches_of(value.state_batches), value.start_offset),
        value.state_epoch if before is None else max(before.highest_state_epoch, value.state_epoch),
        value.leader_epoch if before is None else max(before.highest_leader_epoch, value.leader_epoch),
        updates=0,
        needed_from=needed_from,
    )


def after_update(before: ShareState, value: ShareUpdateValue) -> ShareState:
    start_offset = before.start_offset if value.start_offset == NO_START_OFFSET else value.start_offset
    return before._replace(
        leader_epoch=before.leader_epoch if value.leader_epoch == NO_EPOCH else value.leader_epoch,
        start_offset=start_offset,
        delivery_complete_count=value.delivery_complete_count,
        batches=merge(before.batches, batches_of(value.state_batches), start_offset),
        highest_leader_epoch=max(before.highest_leader_epoch, value.leader_epoch),
        updates=before.updates + 1,
    )


def snapshot_record(key: ShareKey, state: ShareState) -> CoordinatorRecord:
    value = ShareSnapshotValue(
        state.snapshot_epoch,
        state.state_epoch,
        state.leader_epoch,
        state.start_offset,
        state.delivery_complete_count,
        state.create_timestamp,
        state.write_timestamp,
        [StateBatch(*batch) for batch in state.batches],
    )
    return CoordinatorRecord(ShareSnapshotKey(*key), value)


def update_record(key: ShareKey, state: ShareState, change: StateChange, leader_epoch: int) -> CoordinatorRecord:
    value = ShareUpdateValue(
        state.snapshot_epoch,
        leader_epoch,
        change.start_offset,
        change.delivery_complete_count,
        [StateBatch(*batch) for batch in merge((), change.batches, change.start_offset)],
    )
    return CoordinatorRecord(ShareUpdateKey(*key), value)


def tombstone(key: ShareKey) -> CoordinatorRecord:
    return CoordinatorRecord(ShareSnapshotKey(*key), None)


class _StateBatch(Protocol):
    """A state batch of any message or record."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def batches_of(batches: Iterable[_StateBatch]) -> list[Batch]:
    return [Batch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches]
