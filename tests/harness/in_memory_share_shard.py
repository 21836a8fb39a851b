"""The share coordinator's states of one shard, with a log and a clock in memory.

Every outcome with records is a batch. It is committed at once, unless `is_committing` is false: then responses are
promises until `commit`, and `fail` drops the uncommitted batches and loads a new machine from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.coordinator.machine import Answer, Outcome
from moldau.coordinator.share.partition_states import PartitionStates
from moldau.coordinator.share.settings import ShareCoordinatorSettings
from moldau.coordinator.share.state import ShareState
from moldau.share.ports import ShareKey
from moldau.testing.clock import FakeClock

TOPIC: Uuid = b"t" * 16


class Batch(NamedTuple):
    records: list[tuple[bytes, bytes | None]]
    answers: list[Answer]


class InMemoryShareShard:
    def __init__(self, settings: ShareCoordinatorSettings | None = None) -> None:
        self.clock = FakeClock()
        self.partition_counts: dict[Uuid, int] = {TOPIC: 3}
        self.log: list[tuple[bytes, bytes | None]] = []
        """The committed records; each at its offset."""
        self.start_offset = 0
        """Earlier records are deleted."""
        self.is_committing = True
        self._settings = settings or ShareCoordinatorSettings()
        self._batches: deque[Batch] = deque()
        self.machine = self._new()
        self.machine.loaded()

    def _new(self) -> PartitionStates:
        return PartitionStates(
            self._settings, self.clock, lambda topic_id: self.partition_counts.get(topic_id, 0), self._end_offset
        )

    def _end_offset(self) -> int:
        return len(self.log) + sum(len(batch.records) for batch in self._batches)

    def execute(self, outcome: Outcome[Any]) -> Any:
        if outcome.records:
            encoded = [self.machine.encode(record) for record in outcome.records]
            self.machine.apply_all(outcome.records)
            self._batches.append(Batch(encoded, []))
        if not self._batches:
            return outcome.response
        waiting: Promise[Any] = Promise()
        self._batches[-1].answers.append(Answer(waiting, outcome.response))
        if not self.is_committing:
            return waiting
        self.commit()
        return waiting.value()

    def execute_all(self, outcomes: Iterable[Outcome[None] | None]) -> None:
        for outcome in outcomes:
            if outcome is not None:
                self.execute(outcome)

    def commit(self) -> None:
        while self._batches:
            records, answers = self._batches.popleft()
            self.log += records
            for waiting, response in answers:
                waiting.complete(response)

    def fail(self, kept: int = 0) -> None:
        """Let another coordinator take over, which finds `kept` of the uncommitted batches in the log."""
        lost, self._batches = self._batches, deque()
        for records, answers in lost:
            if kept > 0:
                self.log += records
            kept -= 1
            for waiting, _ in answers:
                waiting.complete(KafkaError(ErrorCode.NOT_COORDINATOR))
        self.machine = self.replayed()
        self.machine.loaded()

    def prune(self) -> None:
        self.start_offset = max(self.start_offset, min(self.machine.needed_from(), len(self.log)))

    def replayed(self) -> PartitionStates:
        """Return another coordinator that has replayed what is left of the log, but not begun yet."""
        machine = self._new()
        for key, value in self.log[self.start_offset :]:
            machine.replay(key, value)
        return machine


def without_places(machine: PartitionStates) -> dict[ShareKey, ShareState]:
    """Return the states without what only a live machine knows: where the snapshots are in the log, and the epochs of
    earlier initializations."""
    return {
        key: state._replace(needed_from=0, highest_leader_epoch=0, highest_state_epoch=0)
        for key, state in machine.states.items()
    }
