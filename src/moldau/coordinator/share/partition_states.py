"""The state machine of the share coordinator: the states of all partitions of share groups in one shard.

Every request is about one partition, and its checks are in Kafka's order. A change writes an update, and the whole
state once there are enough updates since the last snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Final

from moldau.base.buffers import Buffer
from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid, uuid_text
from moldau.base.promise import Promise
from moldau.base.steps import split
from moldau.base.turns import CHANGES_A_TURN
from moldau.coordinator.machine import CoordinatorRecord, Deadlines, Outcome
from moldau.coordinator.share import serde
from moldau.coordinator.share.batches import NO_START_OFFSET, merge
from moldau.coordinator.share.settings import ShareCoordinatorSettings
from moldau.coordinator.share.state import (
    NO_EPOCH,
    UNINITIALIZED_EPOCH,
    UNKNOWN_COUNT,
    UNKNOWN_STATE,
    ShareState,
    StateChange,
    after_snapshot,
    after_update,
    batches_of,
    snapshot_record,
    tombstone,
    update_record,
)
from moldau.share.ports import ShareKey
from moldau.wire.log_records.share_states import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from moldau.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

BATCHES_MAX: Final = 20_000
"""State batches of one partition. A group holds at most 10,000 records of a partition, so it never has that many; a
snapshot of so many fits into a record."""


class PartitionStates:
    """`partition_count` returns how many partitions the topic of an id has, 0 if there is none. `log_end` returns the
    offset of the next record."""

    def __init__(
        self,
        settings: ShareCoordinatorSettings,
        clock: Clock,
        partition_count: Callable[[Uuid], int],
        log_end: Callable[[], int],
    ) -> None:
        self.states: dict[ShareKey, ShareState] = {}
        """In the order of their last snapshots, so that the first one says what is needed of the log."""
        self.deadlines = Deadlines()
        self._settings = settings
        self._clock = clock
        self._partition_count = partition_count
        self._log_end = log_end
        self._is_loaded = False
        self._cold = 0
        """States whose last snapshot is a cold one."""

    # --- requests -----------------------------------------------------------------------------------------------

    def initialize(
        self, key: ShareKey, data: initialize_share_group_state.PartitionData
    ) -> Outcome[initialize_share_group_state.PartitionResult]:
        """Make a state, or make it anew. A request that comes late, when a leader has begun to use the state that it
        asked for, changes nothing: Kafka would forget what members have acknowledged since."""
        result = initialize_share_group_state.PartitionResult
        before = self.states.get(key)
        if before is not None and data.start_offset == NO_START_OFFSET and before.was_begun_in(data.state_epoch):
            return Outcome(result(key.partition))
        try:
            return Outcome(result(key.partition), [self._initialized(key, data.state_epoch, data.start_offset)])
        except KafkaError as error:
            return Outcome(result(key.partition, error.code, error.message))

    def read(
        self, key: ShareKey, data: read_share_group_state.PartitionData
    ) -> Outcome[read_share_group_state.PartitionResult]:
        """Return the state, and note the epoch of the leader that reads it: earlier ones can no longer write."""
        try:
            state = self._checked(key, data.leader_epoch, NO_EPOCH)
        except KafkaError as error:
            return Outcome(read_share_group_state.PartitionResult(key.partition, error.code, error.message))
        result = read_share_group_state.PartitionResult(
            key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=[read_share_group_state.StateBatch(*batch) for batch in state.batches],
        )
        if data.leader_epoch in (NO_EPOCH, state.highest_leader_epoch):
            return Outcome(result)
        unchanged = StateChange(state.start_offset, state.delivery_complete_count, ())
        return Outcome(result, [self._changed(key, state, unchanged, data.leader_epoch)])

    def write(
        self, key: ShareKey, data: write_share_group_state.PartitionData
    ) -> Outcome[write_share_group_state.PartitionResult]:
        result = write_share_group_state.PartitionResult
        try:
            state = self._checked(key, data.leader_epoch, data.state_epoch)
            change = _change(state, data)
        except KafkaError as error:
            return Outcome(result(key.partition, error.code, error.message))
        return Outcome(result(key.partition), [self._changed(key, state, change, state.leader_epoch)])

    def delete(
        self, key: ShareKey, data: delete_share_group_state.PartitionData
    ) -> Outcome[delete_share_group_state.PartitionResult]:
        result = delete_share_group_state.PartitionResult
        try:
            _check_index(key)
            self._check_topic(key)
        except KafkaError as error:
            return Outcome(result(key.partition, error.code, error.message))
        return Outcome(result(key.partition), [tombstone(key)] if key in self.states else [])

    def read_summary(
        self, key: ShareKey, data: read_share_group_state_summary.PartitionData
    ) -> Outcome[read_share_group_state_summary.PartitionResult]:
        """Return the state without its batches. As in Kafka, the leader epoch of the request is not checked."""
        result = read_share_group_state_summary.PartitionResult
        try:
            _check_index(key)
            self._check_topic(key)
        except KafkaError as error:
            return Outcome(result(key.partition, error.code, error.message))
        state = self.states.get(key)
        if state is None:
            return Outcome(
                result(
                    key.partition,
                    state_epoch=UNINITIALIZED_EPOCH,
                    leader_epoch=UNINITIALIZED_EPOCH,
                    start_offset=NO_START_OFFSET,
                    delivery_complete_count=UNKNOWN_COUNT,
                )
            )
        return Outcome(
            result(
                key.partition,
                state_epoch=state.state_epoch,
                leader_epoch=state.leader_epoch,
                start_offset=state.start_offset,
                delivery_complete_count=state.delivery_complete_count,
            )
        )

    # --- checks -------------------------------------------------------------------------------------------------

    def _checked(self, key: ShareKey, leader_epoch: int, state_epoch: int) -> ShareState:
        """Return the state of a partition. Raise KafkaError if it has none, or if an epoch is too low."""
        _check_index(key)
        state = self.states.get(key)
        if state is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "the share partition is not initialized: InitializeShareGroupState comes first",
            )
        if NO_EPOCH != leader_epoch < state.highest_leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"a leader of epoch {state.highest_leader_epoch} has read the state since",
            )
        _check_state_epoch(state, state_epoch)
        self._check_topic(key)
        return state

    def _check_topic(self, key: ShareKey) -> None:
        if key.partition >= self._partition_count(key.topic_id):
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no partition {key.partition} of a topic with id {uuid_text(key.topic_id)}",
            )

    # --- records ------------------------------------------------------------------------------------------------

    def _initialized(self, key: ShareKey, state_epoch: int, start_offset: int) -> CoordinatorRecord:
        """Return the first snapshot of a partition, or one that begins anew."""
        _check_index(key)
        before = self.states.get(key)
        if before is not None:
            _check_state_epoch(before, state_epoch)
        self._check_topic(key)
        _check_start_offset(start_offset)
        now_ms = self._clock.now_ms()
        state = ShareState(
            snapshot_epoch=0 if before is None else before.snapshot_epoch + 1,
            state_epoch=state_epoch,
            leader_epoch=UNINITIALIZED_EPOCH,
            start_offset=start_offset,
            delivery_complete_count=UNKNOWN_COUNT if start_offset == NO_START_OFFSET else 0,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
        )
        return snapshot_record(key, state)

    def _changed(self, key: ShareKey, state: ShareState, change: StateChange, leader_epoch: int) -> CoordinatorRecord:
        if state.updates < self._settings.updates_per_snapshot:
            return update_record(key, state, change, leader_epoch)
        now_ms = self._clock.now_ms()
        start_offset = state.start_offset if change.start_offset == NO_START_OFFSET else change.start_offset
        snapshot = state._replace(
            snapshot_epoch=state.snapshot_epoch + 1,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=change.delivery_complete_count,
            create_timestamp=now_ms,
            write_timestamp=now_ms,
            batches=merge(state.batches, change.batches, start_offset),
        )
        return snapshot_record(key, snapshot)

    # --- what is done without a request -------------------------------------------------------------------------

    def snapshot_cold(self, now_ms: int) -> Iterator[Outcome[None] | None]:
        """Yield snapshots of states whose last one is old, and None where a turn of the loop ends. If all last ones
        are cold, nothing has been written since that the log could lose: then yield none. Each outcome must be
        submitted before the next one is asked for."""
        if self._cold == len(self.states):
            return
        oldest_ms = now_ms - self._settings.cold_snapshot_interval_ms
        cold = takewhile(lambda item: item[1].write_timestamp <= oldest_ms, self.states.items())
        for some in split([key for key, _ in cold], CHANGES_A_TURN):
            records = [
                snapshot_record(key, state._replace(snapshot_epoch=state.snapshot_epoch + 1, write_timestamp=now_ms))
                for key in some
                if (state := self.states.get(key)) is not None and state.write_timestamp <= oldest_ms
            ]
            if records:
                yield Outcome(None, records, is_divisible=True)
            yield None

    def remove_unknown_topics(self) -> Iterator[Outcome[None] | None]:
        """Yield the removal of the states of topics that do not exist, and None where a turn of the loop ends."""
        for some in split(list(self.states), CHANGES_A_TURN):
            tombstones = [
                tombstone(key) for key in some if key in self.states and not self._partition_count(key.topic_id)
            ]
            if tombstones:
                yield Outcome(None, tombstones, is_divisible=True)
            yield None

    def needed_from(self) -> int:
        """Return an offset below which no record of the log is needed."""
        return next((state.needed_from for state in self.states.values()), self._log_end())

    def waiting(self) -> Iterator[Promise[Any]]:
        """Return no promises: each request is answered when its own records are committed."""
        return iter(())

    # --- the log ------------------------------------------------------------------------------------------------

    def encode(self, record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        return serde.encode_record(record)

    def replay(self, key: Buffer, value: Buffer | None) -> None:
        record = serde.decode_record(key, value)
        if record is not None:
            self.apply(record)

    def apply_all(self, records: Sequence[CoordinatorRecord]) -> None:
        for record in records:
            self.apply(record)

    def apply(self, record: CoordinatorRecord) -> None:
        key, value = record
        assert isinstance(key, ShareSnapshotKey | ShareUpdateKey)
        share_key = ShareKey(key.group_id, key.topic_id, key.partition)
        before = self.states.get(share_key)
        if isinstance(value, ShareUpdateValue):
            # Without a snapshot: it is deleted, as the next one or a tombstone will show, or its record was damaged.
            self.states[share_key] = after_update(
                before or UNKNOWN_STATE._replace(snapshot_epoch=value.snapshot_epoch), value
            )
            return
        if before is not None:
            del self.states[share_key]
            self._cold -= before.is_cold
        if isinstance(value, ShareSnapshotValue):
            state = after_snapshot(before, value, self._log_end() if self._is_loaded else 0)
            self.states[share_key] = state
            self._cold += state.is_cold

    def loaded(self) -> None:
        """Called when the whole log was replayed: from now on, the log tells where a record will be."""
        self._is_loaded = True


def _check_index(key: ShareKey) -> None:
    if key.partition < 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{key.partition} is not a partition: the first one is 0")


def _check_state_epoch(state: ShareState, state_epoch: int) -> None:
    if NO_EPOCH != state_epoch < state.highest_state_epoch:
        raise KafkaError(
            ErrorCode.FENCED_STATE_EPOCH,
            f"the state was initialized again since, with epoch {state.highest_state_epoch}",
        )


def _check_start_offset(start_offset: int) -> None:
    if start_offset < NO_START_OFFSET:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{start_offset} is not a start offset: expected 0 or more, or -1")


def _change(state: ShareState, data: write_share_group_state.PartitionData) -> StateChange:
    """Return what a request writes. Raise KafkaError if its offsets are invalid, or too many batches would be the
    result. Kafka checks neither."""
    _check_start_offset(data.start_offset)
    batches = batches_of(data.state_batches)
    wrong = next((each for each in batches if not 0 <= each.first_offset <= each.last_offset), None)
    if wrong is not None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"{wrong.first_offset} to {wrong.last_offset} is not a range of offsets"
        )
    # A batch can split another one, so it adds two at most.
    if (
        len(state.batches) + 2 * len(batches) > BATCHES_MAX
        and len(merge(state.batches, batches, data.start_offset)) > BATCHES_MAX
    ):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"the partition would have more than {BATCHES_MAX} state batches in the group"
        )
    if NO_START_OFFSET != data.start_offset < state.start_offset:
        # It was overtaken by a later one: leaders never move the start back. What lies before it is forgotten already,
        # and would be available again. In Kafka it is.
        return StateChange(state.start_offset, state.delivery_complete_count, batches)
    return StateChange(data.start_offset, data.delivery_complete_count, batches)
