"""The gate before a partition's log for records of a transaction: verified first, appended then (KIP-890).

What clients do in one request is verified in one question. Clients up to a certain version said beforehand which
partitions they write to, and are checked; later ones add a partition by writing to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later
from moldau.replica.partition import Partition
from moldau.replica.verification import Guard, Verifications
from moldau.runtime.transaction_verifier import Codes, InTransaction, TransactionVerifier


class Passed(NamedTuple):
    """What came of it: guards for those that may be appended if nothing has happened meanwhile, and who may not."""

    guards: Mapping[TopicPartition, Guard]
    refused: Mapping[TopicPartition, KafkaError]


NOTHING = Passed({}, {})


class TransactionGate:
    """`verifies` is whether what clients said beforehand is checked at all."""

    def __init__(
        self,
        verifications: Verifications,
        verifier: TransactionVerifier,
        clock: Clock,
        verifies: Callable[[], bool],
    ) -> None:
        self._verifications = verifications
        self._verifier = verifier
        self._clock = clock
        self._verifies = verifies

    def pass_through(
        self, transaction: InTransaction, wanted: list[tuple[Partition, int]], knows_abortable: bool
    ) -> Passed | Later[Passed]:
        """`wanted` are partitions with the first sequence that is to be written; `knows_abortable` says whether the
        client has heard of TRANSACTION_ABORTABLE."""
        if not transaction.adds and not self._verifies():
            return NOTHING
        guards: dict[TopicPartition, Guard] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        now_ms = self._clock.now_ms()
        for partition, sequence in wanted:
            try:
                guard = self._verifications.begin(
                    partition, transaction.producer_id, transaction.producer_epoch, sequence, now_ms
                )
            except KafkaError as fenced:
                refused[partition.name] = fenced
                continue
            if guard is not None:
                guards[partition.name] = guard
        if not guards:
            return Passed(guards, refused)

        def verified(codes: Codes) -> Passed:
            errors = {name: KafkaError(_told(code, knows_abortable)) for name, code in codes.items()}
            return Passed(guards, refused | errors)

        return self._verifier.verify(transaction, guards).map(verified)

    def check(self, partition: Partition, transaction: InTransaction, sequence: int, passed: Passed) -> None:
        """Right before the append. KafkaError if it must not be."""
        refused = passed.refused.get(partition.name)
        if refused is not None:
            raise refused
        if not transaction.adds and not self._verifies():
            return
        guard = passed.guards.get(partition.name)
        self._verifications.check(partition, transaction.producer_id, transaction.producer_epoch, sequence, guard)

    def appended(self, partition: Partition, transaction: InTransaction) -> None:
        self._verifications.over(partition, transaction.producer_id)


def _told(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
