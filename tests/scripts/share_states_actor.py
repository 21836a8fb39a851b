"""Runs scripts about the share coordinator.

    initialize epoch=1 start=5              InitializeShareGroupState
    read leader=3                           ReadShareGroupState, by a leader of this epoch
    write 5-9:2/1 12:0/3 start=7 count=4    WriteShareGroupState: offsets, delivery state and count of each batch
    write 5-9:2/1 state=1 leader=3          the same with the epochs, which are not checked without them
    delete, summary                         DeleteShareGroupState, ReadShareGroupStateSummary
    partitions n=3                          the topic has so many partitions; 0: it is deleted
    remove-unknown                          the removal of states of deleted topics
    advance ms=500, snapshot-cold           lets time pass; snapshots of states whose last one is old
    prune                                   deletes the records that no state needs; shows the log start offset
    states                                  all states, in the order of their snapshots
    hold, release                           the log does not commit yet; it commits
    fail kept=1                             the coordinator fails: so many uncommitted batches are kept
    takeover                                another coordinator takes over and replays the log

The group is `g` and the partition 0 by default (group=h partition=1). Two updates are written between snapshots, and a
snapshot is old after 10 s. The last line has the records written to the log.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from harness.in_memory_share_shard import TOPIC, InMemoryShareShard, without_places
from script import Command, error_name

from moldau.base.errors import KafkaError
from moldau.base.promise import Promise
from moldau.coordinator.machine import CoordinatorRecord, Outcome
from moldau.coordinator.share.settings import ShareCoordinatorSettings
from moldau.coordinator.share.state import ShareState
from moldau.share.ports import ShareKey
from moldau.wire.log_records.share_states import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateValue
from moldau.wire.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

SETTINGS = ShareCoordinatorSettings(updates_per_snapshot=2, cold_snapshot_interval_ms=10_000)
BATCH = re.compile(r"(-?\d+)(?:-(-?\d+))?:(\d+)/(\d+)")


class ShareStatesActor(InMemoryShareShard):
    def __init__(self) -> None:
        super().__init__(SETTINGS)
        self._happened: list[str] = []
        self._written: list[str] = []

    def answer(self, command: Command) -> str:
        self._happened, self._written = [], []
        answer = getattr(self, "_do_" + command.name.replace("-", "_"))(command)
        wrote = ["wrote " + ", ".join(self._written)] if self._written else []
        assert without_places(self.replayed()) == without_places(self.machine) or self._batches
        return "\n".join([*([answer] if answer else []), *self._happened, *wrote]) or "ok"

    def execute(self, outcome: Outcome[Any]) -> Any:
        self._written += map(_record_text, outcome.records)
        return super().execute(outcome)

    # --- requests -----------------------------------------------------------------------------------------------

    def _do_initialize(self, command: Command) -> None:
        key = _key(command)
        data = initialize_share_group_state.PartitionData(
            key.partition, command.number("epoch", 0), command.number("start", -1)
        )
        self._show(command, self.execute(self.machine.initialize(key, data)))

    def _do_read(self, command: Command) -> None:
        key = _key(command)
        data = read_share_group_state.PartitionData(key.partition, command.number("leader", -1))
        self._show(
            command,
            self.execute(self.machine.read(key, data)),
            lambda each: f"state epoch {each.state_epoch}, start {each.start_offset}{_batches(each.state_batches)}",
        )

    def _do_write(self, command: Command) -> None:
        key = _key(command)
        data = write_share_group_state.PartitionData(
            key.partition,
            command.number("state", -1),
            command.number("leader", -1),
            command.number("start", -1),
            command.number("count", -1),
            [_batch(word) for word in command.words],
        )
        self._show(command, self.execute(self.machine.write(key, data)))

    def _do_delete(self, command: Command) -> None:
        key = _key(command)
        data = delete_share_group_state.PartitionData(key.partition)
        self._show(command, self.execute(self.machine.delete(key, data)))

    def _do_summary(self, command: Command) -> None:
        key = _key(command)
        data = read_share_group_state_summary.PartitionData(key.partition, command.number("leader", -1))
        self._show(
            command,
            self.execute(self.machine.read_summary(key, data)),
            lambda each: (
                f"state epoch {each.state_epoch}, leader epoch {each.leader_epoch}, start {each.start_offset},"
                f" count {each.delivery_complete_count}"
            ),
        )

    def _show(self, command: Command, answer: Any, describe: Any = lambda _: "ok") -> None:
        def on_response(value: Any) -> None:
            if isinstance(value, KafkaError):
                text = value.code.name
            else:
                text = error_name(value.error_code) if value.error_code else describe(value)
            self._happened.append(f"{command.name}: {text}" if isinstance(answer, Promise) else text)

        if not isinstance(answer, Promise):
            on_response(answer)
            return
        answer.then(on_response)
        if not answer.done:
            self._happened.append("waits")

    # --- what is done without a request -------------------------------------------------------------------------

    def _do_partitions(self, command: Command) -> None:
        self.partition_counts[TOPIC] = command.number("n", 3)

    def _do_remove_unknown(self, command: Command) -> None:
        self.execute_all(self.machine.remove_unknown_topics())

    def _do_snapshot_cold(self, command: Command) -> None:
        self.execute_all(self.machine.snapshot_cold(self.clock.now_ms()))

    def _do_advance(self, command: Command) -> None:
        self.clock.move(command.number("ms", 0))

    def _do_prune(self, command: Command) -> str:
        self.prune()
        return f"{self.start_offset} of {len(self.log)}"

    def _do_states(self, command: Command) -> str:
        return "\n".join(_state_text(key, state) for key, state in self.machine.states.items()) or "none"

    # --- the log --------------------------------------------------------------------------------------------------

    def _do_hold(self, command: Command) -> None:
        self.is_committing = False

    def _do_release(self, command: Command) -> None:
        self.is_committing = True
        self.commit()

    def _do_fail(self, command: Command) -> None:
        self.is_committing = True
        self.fail(command.number("kept", 0))

    def _do_takeover(self, command: Command) -> None:
        self.fail()


def _key(command: Command) -> ShareKey:
    return ShareKey(command.values.get("group", "g"), TOPIC, command.number("partition", 0))


def _batch(word: str) -> write_share_group_state.StateBatch:
    found = BATCH.fullmatch(word)
    assert found is not None, f"{word!r} is not a batch such as 5-9:2/1"
    first, last, state, count = found.groups()
    return write_share_group_state.StateBatch(int(first), int(last or first), int(state), int(count))


def _batches(batches: Iterable[Any]) -> str:
    return "".join(
        f" {each.first_offset}-{each.last_offset}:{each.delivery_state}/{each.delivery_count}" for each in batches
    )


def _state_text(key: ShareKey, state: ShareState) -> str:
    return (
        f"{key.group_id}-{key.partition} snapshot {state.snapshot_epoch} + {state.updates}, start {state.start_offset},"
        f" epochs {state.state_epoch}/{state.leader_epoch}{_batches(state.batches)}"
    )


def _record_text(record: CoordinatorRecord) -> str:
    key, value = record
    if isinstance(value, ShareSnapshotValue):
        kind = "cold snapshot" if value.create_timestamp != value.write_timestamp else "snapshot"
        epochs = f"epochs {value.state_epoch}/{value.leader_epoch}"
    elif isinstance(value, ShareUpdateValue):
        kind, epochs = "update", f"leader epoch {value.leader_epoch}"
    else:
        assert isinstance(key, ShareSnapshotKey)
        return f"tombstone {key.group_id}-{key.partition}"
    count = f" count {value.delivery_complete_count}" if value.delivery_complete_count >= 0 else ""
    return (
        f"{kind} {value.snapshot_epoch} of {key.group_id}-{key.partition}:"  # type: ignore[attr-defined]
        f" start {value.start_offset}{count} ({epochs}){_batches(value.state_batches)}"
    )
