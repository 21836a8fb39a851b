"""The transactions of one shard, with a log and a clock in memory.

Every outcome with records is a batch. It is committed at once, unless `is_committing` is false: then responses are
promises until `commit`, and `fail` drops the uncommitted batches and loads a new machine from the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.coordinator.machine import Answer, Client, Outcome, ProducerIdAndEpoch
from moldau.coordinator.transaction.markers import TransactionMarkers
from moldau.coordinator.transaction.serde import decode_record
from moldau.coordinator.transaction.settings import TransactionSettings
from moldau.coordinator.transaction.transaction import Transaction, transaction_of
from moldau.coordinator.transaction.transactions import Transactions
from moldau.testing.clock import FakeClock
from moldau.wire.messages.end_txn import EndTxnRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest

FIRST_PRODUCER_ID = 1_000
NO_PRODUCER = ProducerIdAndEpoch(-1, -1)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Batch(NamedTuple):
    records: list[tuple[bytes, bytes | None]]
    answers: list[Answer]


class InMemoryTransactionShard:
    def __init__(self, version: int = 2, settings: TransactionSettings | None = None) -> None:
        self.clock = FakeClock()
        self.version = version
        self.coordinator_epoch = 1
        self.log: list[tuple[bytes, bytes | None]] = []
        """The committed batches."""
        self.sent: list[TransactionMarkers] = []
        """All markers that this machine or an earlier one sent."""
        self.producer_ids: Any = count(FIRST_PRODUCER_ID)
        self.is_committing = True
        self.has_producer_ids = True
        self._settings = settings or TransactionSettings()
        self._batches: deque[Batch] = deque()
        self.machine = self._new()

    def _new(self) -> Transactions:
        return Transactions(
            self._settings,
            self.clock,
            lambda: self.coordinator_epoch,
            lambda: self.version,
            self._take_producer_id,
            self.sent.append,
        )

    def _take_producer_id(self) -> int:
        if not self.has_producer_ids:
            raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return next(self.producer_ids)

    def __getitem__(self, transactional_id: str) -> Transaction:
        return self.machine.transactions[transactional_id]

    # --- requests -----------------------------------------------------------------------------------------------

    def init(
        self,
        transactional_id: str | None = "x",
        timeout_ms: int = 60_000,
        expected: ProducerIdAndEpoch = NO_PRODUCER,
        version: int = 6,
        **flags: bool,
    ) -> Any:
        request = InitProducerIdRequest(transactional_id, timeout_ms, *expected, **flags)
        return self.execute(self.machine.init_producer_id(request, Client("c", "/h", version)))

    def producer(self, transactional_id: str = "x") -> ProducerIdAndEpoch:
        """Initialize a new producer, which fences the one before."""
        answer = self.init(transactional_id)
        assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
        return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)

    def add(
        self,
        producer: ProducerIdAndEpoch,
        partitions: Sequence[TopicPartition] = (T0,),
        client_transaction_version: int = 2,
        transactional_id: str = "x",
    ) -> Any:
        return self.execute(
            self.machine.add_partitions(transactional_id, *producer, partitions, client_transaction_version)
        )

    def verify(
        self, producer: ProducerIdAndEpoch, partitions: Sequence[TopicPartition] = (T0,), transactional_id: str = "x"
    ) -> Any:
        return self.execute(self.machine.verify_partitions(transactional_id, *producer, partitions))

    def end(
        self, producer: ProducerIdAndEpoch, committed: bool = True, version: int = 5, transactional_id: str = "x"
    ) -> Any:
        request = EndTxnRequest(transactional_id, *producer, committed)
        return self.execute(self.machine.end(request, Client("c", "/h", version)))

    def written(self, markers: TransactionMarkers | None = None) -> None:
        """Report markers as written to all their partitions; the last ones by default."""
        self.execute(self.machine.markers_written(markers or self.sent[-1]))

    # --- time ---------------------------------------------------------------------------------------------------

    def advance(self, by_ms: int) -> None:
        """Advance the time, stopping at every deadline, as a timer would."""
        end_ms = self.clock.monotonic_ms() + by_ms
        while (due_ms := self.machine.deadlines.next_ms()) is not None and due_ms <= end_ms:
            self.clock.move(max(due_ms - self.clock.monotonic_ms(), 0))
            for action in self.machine.deadlines.due(self.clock.monotonic_ms()):
                self.execute(action())
        self.clock.move(end_ms - self.clock.monotonic_ms())

    def expire(self) -> None:
        for outcome in self.machine.expire(self.clock.now_ms()):
            if outcome is not None:
                self.execute(outcome)

    # --- the log ------------------------------------------------------------------------------------------------

    def execute(self, outcome: Outcome[Any]) -> Any:
        """Return the response or the promise of it."""
        if outcome.records:
            self._batches.append(Batch([self.machine.encode(record) for record in outcome.records], []))
            for record in outcome.records:
                self.machine.apply(record)
            if outcome.on_applied is not None:
                outcome.on_applied()
        else:
            assert not outcome.answers
        if not self._batches:
            return outcome.response
        waiting: Promise[Any] = Promise()
        self._batches[-1].answers.extend([*outcome.answers, Answer(waiting, outcome.response)])
        if not self.is_committing:
            return waiting
        self.commit()
        return waiting.value()

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
        self.coordinator_epoch += 1
        self.reload()

    def reload(self) -> None:
        self.machine = self.replayed()
        self.machine.loaded()

    def replayed(self) -> Transactions:
        """Return another coordinator that has replayed the log but not begun yet."""
        machine = self._new()
        for key, value in self.log:
            machine.replay(key, value)
        return machine

    def as_logged(self, transaction: Transaction) -> Transaction:
        """Return the transaction without the fields that are not written to the log."""
        logged = replace(transaction, last_producer_epoch=-1)
        is_flexible = self.version >= 1 or transaction.client_transaction_version >= 2
        return logged if is_flexible else replace(logged, previous_producer_id=-1)

    def history(self, transactional_id: str = "x") -> list[Transaction]:
        """Return all states of the transaction, decoded from the log."""
        read = [decode_record(key, value) for key, value in self.log]
        return [
            transaction_of(transactional_id, each.value)  # type: ignore[arg-type]
            for each in read
            if each is not None and each.value is not None and each.key.transactional_id == transactional_id  # type: ignore[attr-defined]
        ]
