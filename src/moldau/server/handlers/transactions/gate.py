"""The gate before a partition's log for records of a transaction: verified first, appended then (KIP-890).

What clients do in one request is verified in one question. Clients up to a certain version said beforehand which
partitions they write to, and are checked; later ones add a partition by writing to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.later import Later
from moldau.replica.partition import Partition
from moldau.replica.verification import Guard, Verifications
from moldau.runtime.transaction_verifier import Codes, InTransaction, TransactionVerifier

Wanted = Sequence[tuple[Partition, int]]


class Passed(NamedTuple):
    """What came of it: guards for those that may be appended if nothing has happened meanwhile, and who may not."""

    guards: Mapping[TopicPartition, Guard]
    refused: Mapping[TopicPartition, KafkaError]


NOTHING = Passed({}, {})
FIRST_RETRY_MS = 1
"""Markers mostly take less than the whole time between two looks: the first ones follow each other sooner."""


class Patience(NamedTuple):
    """How long a write waits for the transaction before it to end, and how often it looks."""

    retry_ms: int
    retry_max_ms: int


class TransactionGate:
    """`verifies` is whether what clients said beforehand is checked at all."""

    def __init__(
        self,
        verifications: Verifications,
        verifier: TransactionVerifier,
        clock: Clock,
        timers: Timers,
        patience: Patience,
        verifies: Callable[[], bool],
    ) -> None:
        self._verifications = verifications
        self._verifier = verifier
        self._clock = clock
        self._timers = timers
        self._patience = patience
        self._verifies = verifies
        self._early: dict[InTransaction, list[Callable[[], None]]] = {}
        """Those who wait for the transaction before theirs to end; nobody of the same one goes before them: what a
        producer sent first must be written first."""

    def pass_through(self, transaction: InTransaction, wanted: Wanted, knows_abortable: bool) -> Passed | Later[Passed]:
        """`wanted` are partitions with the first sequence that is to be written; `knows_abortable` says whether the
        client has heard of TRANSACTION_ABORTABLE."""
        if not transaction.adds and not self._verifies():
            return NOTHING
        guards, refused = self._begin(transaction, wanted)
        if not guards:
            return Passed(guards, refused)
        answer: Later[Passed] = Later()
        give_up_ms = self._clock.elapsed_ms() + self._patience.retry_max_ms

        def ask(
            guards: Mapping[TopicPartition, Guard], refused: Mapping[TopicPartition, KafkaError], wait_ms: int
        ) -> None:
            if guards:
                self._verifier.verify(transaction, guards).then(partial(settle, guards, refused, wait_ms))
            else:
                answer.complete(Passed(guards, refused))

        def ask_anew(wait_ms: int) -> None:
            ask(*self._begin(transaction, wanted), wait_ms)

        def settle(
            guards: Mapping[TopicPartition, Guard],
            refused: Mapping[TopicPartition, KafkaError],
            wait_ms: int,
            codes: Codes,
        ) -> None:
            # The marker of the transaction before may not be here yet, which clients of version 2 need not know of.
            # It voids the guards: they are taken anew, also if it came between the question and the answer.
            if transaction.adds and self._clock.elapsed_ms() < give_up_ms:
                if transaction in self._early or ErrorCode.CONCURRENT_TRANSACTIONS in codes.values():
                    longer_ms = min(2 * wait_ms, self._patience.retry_ms)
                    self._wait(transaction, wait_ms, lambda: ask_anew(longer_ms))
                    return
                if not codes and self._are_void(transaction, wanted, guards):
                    ask_anew(wait_ms)
                    return
            told = {name: KafkaError(_told(code, knows_abortable)) for name, code in codes.items()}
            answer.complete(Passed(guards, {**refused, **told}))

        first_ms = min(FIRST_RETRY_MS, self._patience.retry_ms)
        if transaction in self._early:
            self._early[transaction].append(lambda: ask_anew(first_ms))
        else:
            ask(guards, refused, first_ms)
        return answer

    def _wait(self, transaction: InTransaction, wait_ms: int, then: Callable[[], None]) -> None:
        if transaction not in self._early:
            self._early[transaction] = []
            self._timers.after_ms(wait_ms, lambda: self._go_on(transaction))
        self._early[transaction].append(then)

    def _go_on(self, transaction: InTransaction) -> None:
        for each in self._early.pop(transaction):
            each()

    def _are_void(self, transaction: InTransaction, wanted: Wanted, guards: Mapping[TopicPartition, Guard]) -> bool:
        """Whether a marker has come where nothing of the transaction was written yet."""
        anew, _ = self._begin(transaction, wanted)
        return any(guards.get(name) is not guard for name, guard in anew.items())

    def _begin(
        self, transaction: InTransaction, wanted: Wanted
    ) -> tuple[dict[TopicPartition, Guard], dict[TopicPartition, KafkaError]]:
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
        return guards, refused

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
