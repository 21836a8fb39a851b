"""Verifications under way of whether a partition is part of a producer's transaction (KIP-890).

`TransactionGate` calls `begin` before it asks the coordinator, `check` right before the append, and `finish` after it.
If a marker is written meanwhile, the transaction that is being verified has ended: WriteTxnMarkers removes the guard
(`finish`), and the records that waited are rejected. Otherwise they would open a transaction that nobody ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.base.errors import ErrorCode, KafkaError
from moldau.replica.partition import Partition

FAILED_GUARDS_MAX: Final = 10_000
"""Guards that are kept after their verification failed: clients can invent any number of producers while the
coordinator does not answer."""


@dataclass(slots=True, eq=False)
class Guard:
    """Exists from the first verification request until records or a marker are in the log."""

    epoch: int
    leader_epoch: int
    """In another leader epoch the guard is void: another leader may have appended records meanwhile."""
    lowest_sequence: int
    """The first batch sent must be written first, even if a later request is verified sooner."""
    since_ms: int
    """By the monotonic clock."""


class Verifications:
    """All verifications under way on a node."""

    def __init__(self) -> None:
        self._guards: dict[tuple[Partition, int], dict[str, Guard]] = {}
        """Guards by transactional id: a client that uses another's producer id must not affect that producer."""
        self._failed: dict[tuple[Partition, int, str], None] = {}
        """Guards whose last verification failed, in the order of the failures."""

    def begin(
        self, partition: Partition, producer_id: int, epoch: int, sequence: int, now_ms: int, transactional_id: str = ""
    ) -> Guard | None:
        """Return None if the producer's transaction is already open in this log. Raises KafkaError if the producer is
        fenced, or this node is not the leader.

        A request may arrive late, after its client has sent it again elsewhere and has begun another transaction: what
        the log has already need not be written first."""
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        producers = partition.log.producers
        latest_epoch = producers.epoch_of(producer_id)
        if latest_epoch is not None and epoch < latest_epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {epoch}, but epoch {latest_epoch} has already written.",
            )
        if producers.has_open_transaction(producer_id, epoch):
            return None
        sequence = producers.first_missing(producer_id, epoch, sequence)
        guards = self._guards.setdefault((partition, producer_id), {})
        guard = guards.get(transactional_id)
        self._failed.pop((partition, producer_id, transactional_id), None)
        leader_epoch = partition.state.leader_epoch
        if guard is None or guard.leader_epoch != leader_epoch:
            guard = guards[transactional_id] = Guard(epoch, leader_epoch, sequence, now_ms)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def check(self, partition: Partition, producer_id: int, epoch: int, sequence: int, guard: Guard | None) -> None:
        """Raise KafkaError unless the transaction is open in this log, or was verified since it last ended."""
        if partition.log.producers.has_open_transaction(producer_id, epoch):
            return
        if guard is not None and guard.leader_epoch != partition.state.leader_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if guard is None or guard not in self._guards.get((partition, producer_id), {}).values():
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"The records of producer {producer_id} are not part of a transaction."
            )
        if sequence > guard.lowest_sequence:
            raise KafkaError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {producer_id} sent sequence {sequence}, but {guard.lowest_sequence} must be written first.",
            )

    def finish(self, partition: Partition, producer_id: int) -> None:
        """Remove the guards: records of the producer, or a marker, are in the log."""
        for transactional_id in self._guards.pop((partition, producer_id), ()):
            self._failed.pop((partition, producer_id, transactional_id), None)

    def fail(self, partition: Partition, producer_id: int, transactional_id: str) -> None:
        """Note that a verification failed. The producer may send its records again, so the guard stays: batches that
        it sent after them must not be written first. Only the last ones stay."""
        if transactional_id not in self._guards.get((partition, producer_id), ()):
            return
        failed = (partition, producer_id, transactional_id)
        self._failed.pop(failed, None)
        self._failed[failed] = None
        if len(self._failed) > FAILED_GUARDS_MAX:
            self.forget(*next(iter(self._failed)))

    def forget(self, partition: Partition, producer_id: int, transactional_id: str) -> None:
        """Remove the guard: the transactional id has no such producer."""
        self._failed.pop((partition, producer_id, transactional_id), None)
        guards = self._guards.get((partition, producer_id), {})
        guards.pop(transactional_id, None)
        if not guards:
            self._guards.pop((partition, producer_id), None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Remove guards that are too old or whose partition is closed."""
        for (partition, producer_id), guards in list(self._guards.items()):
            for transactional_id, guard in list(guards.items()):
                if now_ms - guard.since_ms >= expiration_ms or partition.is_closed:
                    self.forget(partition, producer_id, transactional_id)
