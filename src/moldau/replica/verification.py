"""Producers whose partition is just being verified as part of a transaction (KIP-890), and what may then be appended.

A marker that is written meanwhile ends the transaction that was asked about: the guard is gone, and the records that
waited for the answer are refused. Otherwise they would open a transaction that nobody will ever end.
"""

from __future__ import annotations

from dataclasses import dataclass

from moldau.base.errors import ErrorCode, KafkaError
from moldau.replica.partition import Partition


@dataclass(slots=True, eq=False)
class Guard:
    """Stands from the first question until records or a marker are in the log."""

    epoch: int
    leader_epoch: int
    """In another one others have led meanwhile, and taken who knows what."""
    lowest_sequence: int
    """What a producer sent first must be written first, also if the answer to a later request comes sooner."""
    since_ms: int
    """By the clock that never goes back."""


class Verifications:
    """All that are under way on a node."""

    def __init__(self) -> None:
        self._guards: dict[tuple[Partition, int], dict[str, Guard]] = {}
        """By transactional id: who names a producer that is another's has no say in what that one may write."""

    def begin(
        self, partition: Partition, producer_id: int, epoch: int, sequence: int, now_ms: int, transactional_id: str = ""
    ) -> Guard | None:
        """None if the producer's transaction is open here already. KafkaError if the producer was fenced, or this is
        not the leader."""
        if not partition.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        producers = partition.log.producers
        known = producers.epoch_of(producer_id)
        if known is not None and epoch < known:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Producer {producer_id} has epoch {epoch}, but epoch {known} has written already.",
            )
        if producers.has_open_transaction(producer_id, epoch):
            return None
        guards = self._guards.setdefault((partition, producer_id), {})
        guard = guards.get(transactional_id)
        leader_epoch = partition.state.leader_epoch
        if guard is None or guard.leader_epoch != leader_epoch:
            guard = guards[transactional_id] = Guard(epoch, leader_epoch, sequence, now_ms)
        elif epoch > guard.epoch:
            guard.epoch, guard.lowest_sequence = epoch, sequence
        elif epoch == guard.epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def check(self, partition: Partition, producer_id: int, epoch: int, sequence: int, guard: Guard | None) -> None:
        """Raises KafkaError for records of a transaction that is not open here, nor verified since its last end."""
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
                f"Producer {producer_id} sent sequence {sequence}, an earlier one has yet to come.",
            )

    def over(self, partition: Partition, producer_id: int) -> None:
        """Records of the producer, or a marker, are in the log."""
        self._guards.pop((partition, producer_id), None)

    def forget(self, partition: Partition, producer_id: int, transactional_id: str) -> None:
        """The transactional id has no such producer: nothing will come of it."""
        guards = self._guards.get((partition, producer_id), {})
        guards.pop(transactional_id, None)
        if not guards:
            self._guards.pop((partition, producer_id), None)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forgets those of which nothing came."""
        for (partition, producer_id), guards in list(self._guards.items()):
            for transactional_id, guard in list(guards.items()):
                if now_ms - guard.since_ms >= expiration_ms or partition.is_closed:
                    self.forget(partition, producer_id, transactional_id)
