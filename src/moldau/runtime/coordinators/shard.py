"""One partition of a coordinator's log and the machine over it: the single writer that decides, appends, applies, and
answers when it is committed.

What is decided in one turn of the loop goes to the log as one batch. If the log refuses it, the machine knows things
that never were: it is dropped with all who wait, and another is made from the log. What belongs to a producer's
transaction is a batch of its own, for the log to judge before the machine hears of it.
"""

from __future__ import annotations

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.promise import Promise
from moldau.coordinator.machine import Answer, CoordinatorRecord, Outcome, ProducerIdAndEpoch
from moldau.log.validate import Origin
from moldau.replica.partition import ACKS_ALL, Partition
from moldau.runtime.coordinators.shard_replay import Machine, TransactionalMachine, replayed
from moldau.wire.batch import BATCH_HEADER_BYTES
from moldau.wire.records import IN_LINE, EndTxnMarker, Record, build_batch, end_txn_batch

R = TypeVar("R")
log = logging.getLogger("moldau.coordinator")
RECORD_OVERHEAD_BYTES: Final = 32
"""More than a record's lengths, deltas and attributes can take."""
UNWRITABLE: Final = (struct.error, ValueError, OverflowError)
"""What the codec says to a string that its length field cannot count."""


_FAILURES: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
}
"""What clients are told when the log does not take what was decided."""


class Shard:
    """`machine` is what requests are put to, by way of `submit`. `on_failed` is called once, if the log refuses."""

    def __init__(
        self,
        partition: Partition,
        machine: Machine,
        clock: Clock,
        timers: Timers,
        on_failed: Callable[[Shard], None],
    ) -> None:
        self.partition = partition
        self._machine = machine
        self._transactional = machine if isinstance(machine, TransactionalMachine) else None
        self._clock = clock
        self._timers = timers
        self._on_failed = on_failed
        self._refusal: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._records: list[Record] = []
        self._bytes = BATCH_HEADER_BYTES
        self._answers: list[Answer] = []
        """Those of this turn."""
        self._unacknowledged: deque[list[Answer]] = deque()
        """Those of turns that are written and not committed yet."""
        self._is_failed = False
        self._timer: Timer | None = None
        self._timer_ms = 0

    @property
    def is_ready(self) -> bool:
        return self._refusal is None

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(self, decide: Callable[[], Outcome[R]]) -> R | Promise[R]:
        """The answer, or a promise of it. Raises KafkaError, and a promise may come to one instead of its answer."""
        if self._refusal is not None:
            raise KafkaError(self._refusal)
        outcome: Outcome[Any] = decide()
        if outcome.records:
            try:
                outcome = self._take(outcome)
            except KafkaError as refused:
                _tell([Answer(each.waiting, refused) for each in outcome.answers])
                raise
        answer: R | Promise[R] = self._park(outcome)
        self._arm()
        return answer

    def _take(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Makes the outcome's records facts, to be written at the end of this turn; all of them or none."""
        try:
            records = [self._encoded(record) for record in outcome.records]
            size = max(map(_size, records)) if outcome.is_divisible else sum(map(_size, records))
            if BATCH_HEADER_BYTES + size + outcome.spare_bytes > self.partition.log.config.max_message_bytes:
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
        except (KafkaError, *UNWRITABLE) as error:
            refusal = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
            if outcome.refused is None:
                raise refusal from error
            told = outcome.refused(refusal)
            taken = self._take(told) if told.records else told
            return Outcome(outcome.response, taken.records, taken.answers)
        if outcome.producer is not None:
            self._write_transactional(outcome.producer, outcome.records, records)
        elif outcome.is_divisible:
            for record, encoded in zip(outcome.records, records, strict=True):
                self._note([record], [encoded])
        else:
            self._note(outcome.records, records)
        if outcome.applied is not None:
            outcome.applied()
        return outcome

    def _note(self, records: Sequence[CoordinatorRecord], encoded: list[Record]) -> None:
        """Applies records that go into one batch. If this turn's has no room for them, that is written first."""
        size = sum(map(_size, encoded))
        if self._bytes + size > self.partition.log.config.max_message_bytes:
            self._write()
        if self._refusal is not None:
            raise KafkaError(self._refusal)  # the log refused, and this machine is no more
        for record in records:
            self._machine.apply(record)
        if not self._records:
            self._timers.soon(self._write)
        self._records += encoded
        self._bytes += size

    def _encoded(self, record: CoordinatorRecord) -> Record:
        key, value = self._machine.encode(record)
        return Record(IN_LINE, self._clock.now_ms(), key, value)

    def _park(self, outcome: Outcome[Any]) -> Any:
        """Nobody is told what rests on records that are not committed, be they their own or others'."""
        response = outcome.response
        if not self._records and not self._unacknowledged:
            _tell(outcome.answers)
            return response
        turn = self._answers if self._records else self._unacknowledged[-1]
        turn += outcome.answers
        if isinstance(response, Promise):
            return response
        waiting: Promise[Any] = Promise()
        turn.append(Answer(waiting, response))
        return waiting

    # --- the log ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if not self._records:
            return
        records, self._records = self._records, []
        answers, self._answers = self._answers, []
        self._bytes = BATCH_HEADER_BYTES
        try:
            last_offset = self._append(build_batch(records))
        except KafkaError as refused:
            self._unacknowledged.append(answers)
            self._fail(refused)
            return
        self._await_commit(last_offset, answers)

    def _append(self, batch: bytearray, transaction_version: int = 0) -> int:
        appended = self.partition.append(
            memoryview(batch),
            ACKS_ALL,
            self._clock.now_ms(),
            Origin.COORDINATOR,
            transaction_version=transaction_version,
        )
        return appended.last_offset

    def _await_commit(self, last_offset: int, answers: list[Answer]) -> None:
        self._unacknowledged.append(answers)
        promise = self.partition.acknowledged(last_offset)
        if promise is None:
            self._acknowledged(ErrorCode.NONE)
        else:
            promise.then(self._acknowledged)

    def _write_transactional(
        self, producer: ProducerIdAndEpoch, records: Sequence[CoordinatorRecord], encoded: list[Record]
    ) -> None:
        """Records of a producer's transaction: written at once, and facts only if the log takes them. A producer that
        was fenced is refused there."""
        machine = self._transactional_machine()
        batch = build_batch(
            encoded,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            is_transactional=True,
        )
        last_offset = self._append_for_producer(batch)
        for record in records:
            machine.apply_transactional(producer.producer_id, record)
        self._await_commit(last_offset, [])

    def end_transaction(
        self, producer: ProducerIdAndEpoch, marker: EndTxnMarker, transaction_version: int
    ) -> Promise[ErrorCode]:
        """Writes the marker that decides a producer's transaction. KafkaError if the log does not take it; the promise
        is of its commit, and may come to a KafkaError instead."""
        if self._refusal is not None:
            raise KafkaError(self._refusal)
        machine = self._transactional_machine()
        batch = end_txn_batch(marker, self._clock.now_ms(), *producer)
        last_offset = self._append_for_producer(batch, transaction_version)
        machine.end_transaction(producer.producer_id, marker.committed)
        written: Promise[ErrorCode] = Promise()
        self._await_commit(last_offset, [Answer(written, ErrorCode.NONE)])
        return written

    def _append_for_producer(self, batch: bytearray, transaction_version: int = 0) -> int:
        """Behind what was decided in this turn so far: order in the log is order here."""
        self._write()
        if self._refusal is not None:
            raise KafkaError(self._refusal)
        try:
            return self._append(batch, transaction_version)
        except KafkaError as refused:
            if refused.code in _FAILURES:
                self._fail(refused)
                raise KafkaError(_FAILURES[refused.code]) from refused
            raise

    def _transactional_machine(self) -> TransactionalMachine:
        assert self._transactional is not None, "only some coordinators take part in transactions"
        return self._transactional

    def _acknowledged(self, code: ErrorCode) -> None:
        if self._is_failed:
            return
        if code is ErrorCode.NONE:
            _tell(self._unacknowledged.popleft())
        else:
            self._fail(KafkaError(code))

    def _fail(self, error: KafkaError) -> None:
        log.warning("%s: %s; what was not committed is forgotten", self.partition.name, error)
        self.close(_FAILURES.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._on_failed(self)

    def close(self, code: ErrorCode) -> None:
        """Nothing more is decided here; all who wait are told why."""
        self._refusal = code
        self._is_failed = True
        if self._timer is not None:
            self._timer.cancel()
        told = [answer.waiting for turn in (*self._unacknowledged, self._answers) for answer in turn]
        told += self._machine.waiting()
        self._unacknowledged.clear()
        self._records, self._answers = [], []
        _tell([Answer(waiting, KafkaError(code)) for waiting in told])

    # --- loading ------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Replays the log, a piece in each turn of the loop."""
        self._load_on(replayed(self.partition, self._machine))

    def _load_on(self, steps: Iterator[None]) -> None:
        if self._is_failed:
            return
        try:
            next(steps)
        except StopIteration:
            self._wait_for_commit()
        except StorageFault as fault:
            self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)))
        else:
            self._timers.soon(lambda: self._load_on(steps))

    def _wait_for_commit(self) -> None:
        """What was replayed may not be committed yet, as after an append that the disk refused while it was slow with
        the one before: until it is, nobody is told."""
        promise = self.partition.acknowledged(self.partition.log.end_offset - 1)
        if promise is None:
            self._begin(ErrorCode.NONE)
        else:
            promise.then(self._begin)

    def _begin(self, code: ErrorCode) -> None:
        if self._is_failed:
            return
        if code is not ErrorCode.NONE:
            self._fail(KafkaError(code))
            return
        self._refusal = None
        self._machine.loaded()
        self._arm()

    # --- time ---------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """Sees to it that the next deadline is not missed."""
        due_ms = self._machine.next_deadline_ms()
        if due_ms is None or self._is_failed or (self._timer is not None and self._timer_ms <= due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = due_ms
        self._timer = self._timers.after_ms(max(due_ms - self._clock.elapsed_ms(), 0), self._beat)

    def _beat(self) -> None:
        self._timer = None
        try:
            for action in self._machine.due(self._clock.elapsed_ms()):
                if self._is_failed:
                    return
                self.submit(action)
        finally:
            self._arm()


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES


def _tell(answers: Sequence[Answer]) -> None:
    """The last first: of several replies to one connection the first comes to its turn last, and takes the others,
    which are ready by then, along in one send."""
    for waiting, response in reversed(answers):
        waiting.complete(response)
