"""The gate before a partition's log for records of a transaction: verified first, appended then (KIP-890).

What clients do in one request is verified in one question. Clients up to a certain version said beforehand which
partitions they write to, and are checked; later ones add a partition by writing to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.replica.partition import Partition
from moldau.replica.verification import Guard, Verifications
from moldau.runtime.coordinators.transaction_verifier import Codes, InTransaction, TransactionVerifier

Wanted = Sequence[tuple[Partition, int]]


class Passed(NamedTuple):
    """What came of it: guards for those that may be appended if nothing has happened meanwhile, and who may not."""

    guards: Mapping[TopicPartition, Guard]
    refused: Mapping[TopicPartition, KafkaError]


NOTHING = Passed({}, {})
STRANGERS = frozenset({ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_REQUEST})
FIRST_RETRY_MS = 1
"""Markers mostly take less than the whole time between two looks: the first ones follow each other sooner."""


@dataclass(slots=True, eq=False)
class _InLine:
    """A write that waits until its partitions are known to be part of the transaction."""

    transaction: InTransaction
    wanted: Wanted
    knows_abortable: bool
    give_up_ms: int
    wait_ms: int
    """Before the next question, if there has to be one."""
    answer: Promise[Passed] = field(default_factory=Promise)
    passed: Passed | None = None
    """What came of it, while others go first."""


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
        self._lines: dict[InTransaction, deque[_InLine]] = {}
        """Those who wait. Nobody of the same transaction goes first: what a producer sent first is written first."""

    def pass_through(
        self, transaction: InTransaction, wanted: Wanted, knows_abortable: bool
    ) -> Passed | Promise[Passed]:
        """`wanted` are partitions with the first sequence that is to be written; `knows_abortable` says whether the
        client has heard of TRANSACTION_ABORTABLE."""
        if not transaction.adds and not self._verifies():
            return NOTHING
        guards, refused = self._begin(transaction, wanted)
        if not guards and transaction not in self._lines:
            return Passed(guards, refused)
        patience = self._patience
        give_up_ms = self._clock.elapsed_ms() + patience.retry_max_ms
        wait_ms = min(FIRST_RETRY_MS, patience.retry_ms)
        place = _InLine(transaction, wanted, knows_abortable, give_up_ms, wait_ms)
        self._lines.setdefault(transaction, deque()).append(place)
        self._ask(place, Passed(guards, refused))
        return place.answer

    def _ask(self, place: _InLine, begun: Passed) -> None:
        if begun.guards:
            self._verifier.verify(place.transaction, begun.guards).then(partial(self._settle, place, begun))
        else:
            self._pass(place, begun)

    def _ask_anew(self, place: _InLine) -> None:
        self._ask(place, Passed(*self._begin(place.transaction, place.wanted)))

    def _settle(self, place: _InLine, begun: Passed, codes: Codes) -> None:
        transaction, wanted = place.transaction, place.wanted
        # The marker of the transaction before may not be here yet, which clients of version 2 need not know of.
        # It voids the guards: they are taken anew, also if it came between the question and the answer.
        is_early = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values() and self._clock.elapsed_ms() < place.give_up_ms
        is_void = not codes and self._are_void(transaction, wanted, begun.guards)
        if transaction.adds and (is_early or is_void):
            self._timers.after_ms(place.wait_ms, partial(self._ask_anew, place))
            place.wait_ms = min(2 * place.wait_ms, self._patience.retry_ms)
            return
        self._forget_strangers(transaction, wanted, codes)
        told = {name: KafkaError(_error_for_client(code, place.knows_abortable)) for name, code in codes.items()}
        self._pass(place, Passed(begun.guards, {**begun.refused, **told}))

    def _pass(self, place: _InLine, passed: Passed) -> None:
        place.passed = passed
        transaction = place.transaction
        line = self._lines[transaction]
        while line and (first := line[0]).passed is not None:
            line.popleft()
            if not line:
                del self._lines[transaction]
            first.answer.complete(first.passed)

    def _forget_strangers(self, transaction: InTransaction, wanted: Wanted, codes: Codes) -> None:
        """Anybody can make up producers: of those that their coordinator does not know, nothing is kept."""
        for partition, _ in wanted:
            if codes.get(partition.name) in STRANGERS:
                self._verifications.forget(partition, transaction.producer_id, transaction.transactional_id)

    def _are_void(self, transaction: InTransaction, wanted: Wanted, guards: Mapping[TopicPartition, Guard]) -> bool:
        """Whether a marker has come where nothing of the transaction was written yet."""
        anew, _ = self._begin(transaction, wanted)
        return any(guards.get(name) is not guard for name, guard in anew.items())

    def _begin(
        self, transaction: InTransaction, wanted: Wanted
    ) -> tuple[dict[TopicPartition, Guard], dict[TopicPartition, KafkaError]]:
        guards: dict[TopicPartition, Guard] = {}
        refused: dict[TopicPartition, KafkaError] = {}
        now_ms = self._clock.elapsed_ms()
        for partition, sequence in wanted:
            try:
                guard = self._verifications.begin(
                    partition,
                    transaction.producer_id,
                    transaction.producer_epoch,
                    sequence,
                    now_ms,
                    transaction.transactional_id,
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
        self._verifications.finish(partition, transaction.producer_id)


def _error_for_client(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code
