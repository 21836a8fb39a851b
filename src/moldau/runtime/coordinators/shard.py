"""One partition of a coordinator's topic with its state machine: the single writer that decides, applies and appends,
and responds when the records are committed.

The records of one turn of the loop become one batch. If the log refuses it, the machine has applied records that do
not exist: it is dropped, its waiting requests fail, and a new machine is loaded from the log. Records of a producer's
transaction are a batch of their own, which the log must accept before the machine applies it.

While the partition has too few in-sync replicas, requests that would write are refused before anything is applied, and
deadlines wait: the machine keeps its state. While another node may lead the partition (`Partition.is_withheld`), all
requests are refused.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock, Timer
from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.long_work import LongWork, Soon
from moldau.base.promise import Promise
from moldau.base.steps import Steps
from moldau.base.turns import CALLS_A_TURN
from moldau.coordinator.machine import UNWRITABLE, Answer, CoordinatorRecord, Outcome, ProducerIdAndEpoch
from moldau.log.validate import Origin
from moldau.replica.partition import ACKS_ALL, ACKS_LEADER, Partition
from moldau.runtime.coordinators.shard_replay import Machine, TransactionalMachine, replay_log
from moldau.runtime.internal_errors import complete_alone, end_alone
from moldau.runtime.own_work import OwnWork
from moldau.wire.batch import BATCH_HEADER_BYTES
from moldau.wire.records import NEXT_OFFSET, EndTxnMarker, Record, build_batch, end_txn_batch, new_record

R = TypeVar("R")
log = logging.getLogger("moldau.coordinator")
RECORD_OVERHEAD_BYTES: Final = 32
"""An upper bound for a record's lengths, deltas and attributes."""
DEADLINE_RETRY_MS: Final = 500
"""How long deadlines that are due wait while the partition has too few in-sync replicas."""


_CODES_ON_FAILURE: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_COORDINATOR,
}
"""The error code for clients when the log refuses a batch, by the log's error code."""


class Shard:
    """`submit` passes requests to `machine`. `on_failed` is called once, if the log cannot be loaded, or refuses or
    loses a batch."""

    def __init__(
        self,
        partition: Partition,
        machine: Machine,
        clock: Clock,
        own_work: OwnWork,
        on_failed: Callable[[Shard], None],
    ) -> None:
        self.partition = partition
        self._machine = machine
        self._transactional = machine if isinstance(machine, TransactionalMachine) else None
        self._clock = clock
        self._own_work = own_work
        self._on_failed = on_failed
        self._on_ready: Callable[[], None] = _do_nothing
        self._error: ErrorCode | None = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        """The error for all requests: the shard is loading, has failed or is closed. None if it is ready."""
        self._records: list[Record] = []
        self._bytes = BATCH_HEADER_BYTES
        self._answers: list[Answer] = []
        """The answers that wait for the records of this turn."""
        self._unacknowledged: deque[list[Answer]] = deque()
        """The answers of turns that are appended but not committed yet."""
        self._is_closed = False
        self._deadlines = machine.deadlines
        self._timer: Timer | None = None
        self._timer_ms = 0
        self._loading: LongWork[None] | None = None

    @property
    def is_ready(self) -> bool:
        return self._error is None

    def check_ready(self) -> None:
        """Raise KafkaError if the shard accepts no requests."""
        if self._error is not None or not self.partition.is_leader:
            raise KafkaError(self._error or ErrorCode.COORDINATOR_NOT_AVAILABLE)

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(self, decide: Callable[..., Outcome[R]], *arguments: Any) -> R | Promise[R]:
        """Call `decide(*arguments)` and return the response or a promise of it. Raise KafkaError if the shard is not
        ready or the records are refused; the promise may also be completed with a KafkaError."""
        if self._error is not None or not self.partition.is_leader:
            self.check_ready()
        outcome: Outcome[Any] = decide(*arguments)
        if not (outcome.records or outcome.answers or self._records or self._unacknowledged):
            # Nothing to write or to wait for, as with nearly all heartbeats.
            if self._deadlines.has_earlier:
                self._set_timer()
            return outcome.response
        if outcome.records:
            try:
                outcome = self._apply_outcome(outcome)
            except KafkaError as error:
                # If the log failed, `close` has completed some of these promises already.
                _complete([Answer(answer.waiting, error) for answer in outcome.answers if not answer.waiting.done])
                raise
        response: R | Promise[R] = self._respond_when_committed(outcome)
        if self._deadlines.has_earlier:
            self._set_timer()
        return response

    def _apply_outcome(self, outcome: Outcome[Any]) -> Outcome[Any]:
        """Apply the outcome's records, all or none unless they are divisible; they are appended at the end of this turn
        of the loop. Return the outcome or, with the same response, the records and answers of `on_refused` if the
        records are too large or the partition has too few in-sync replicas."""
        try:
            if not self.partition.has_enough_replicas:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{self.partition.name} has too few in-sync replicas"
                )
            encode, now_ms = self._machine.encode, self._clock.now_ms()
            pairs = map(encode, outcome.records) if outcome.encoded is None else outcome.encoded
            records = [new_record((NEXT_OFFSET, now_ms, key, value, ())) for key, value in pairs]
            size = max(map(_size, records)) if outcome.is_divisible else _total_size(records)
            if BATCH_HEADER_BYTES + size + outcome.spare_bytes > self.partition.log.config.max_message_bytes:
                raise KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
        except (KafkaError, *UNWRITABLE) as error:
            refusal = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.RECORD_LIST_TOO_LARGE)
            if outcome.on_refused is None:
                raise refusal from error
            fallback = outcome.on_refused(refusal)
            applied = self._apply_outcome(fallback) if fallback.records else fallback
            return Outcome(outcome.response, applied.records, applied.answers)
        if outcome.producer is not None:
            self._write_transactional(outcome.producer, outcome.records, records)
        elif outcome.is_divisible:
            for record, encoded in zip(outcome.records, records, strict=True):
                self._apply_and_queue([record], [encoded], _size(encoded))
        else:
            self._apply_and_queue(outcome.records, records, size)
        if outcome.on_applied is not None:
            outcome.on_applied()
        return outcome

    def _apply_and_queue(self, records: Sequence[CoordinatorRecord], encoded: list[Record], size: int) -> None:
        """Apply records that must be in one batch, and queue them for the log. If the batch of this turn is full,
        append it first."""
        if self._bytes + size > self.partition.log.config.max_message_bytes:
            self._write()
        if self._error is not None:
            raise KafkaError(self._error)  # the log refused that batch, so this machine is dropped
        self._machine.apply_all(records)
        if not self._records:
            self._own_work.timers.soon(self._write)
        self._records += encoded
        self._bytes += size

    def _respond_when_committed(self, outcome: Outcome[Any]) -> Any:
        """Return the response, or a promise of it if records are not committed yet: the decision may depend on them,
        also if another request wrote them."""
        response = outcome.response
        if not self._records and not self._unacknowledged:
            _complete(outcome.answers)
            return response
        answers_of_turn = self._answers if self._records else self._unacknowledged[-1]
        answers_of_turn += outcome.answers
        if isinstance(response, Promise):
            return response
        waiting: Promise[Any] = Promise()
        answers_of_turn.append(Answer(waiting, response))
        return waiting

    # --- the log ------------------------------------------------------------------------------------------------

    def _write(self) -> None:
        if not self._records:
            return
        records, self._records = self._records, []
        answers, self._answers = self._answers, []
        self._bytes = BATCH_HEADER_BYTES
        try:
            # ACKS_LEADER, so that an in-sync set which shrank since cannot refuse applied records; their responses wait
            # until it grows.
            last_offset = self._append(build_batch(records), ACKS_LEADER)
        except KafkaError as refused:
            self._unacknowledged.append(answers)
            self._fail(refused)
            return
        except Exception as fault:
            self._unacknowledged.append(answers)
            self.close(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._own_work.on_fault(fault)
            return
        self._await_commit(last_offset, answers)

    def _append(self, batch: bytearray, acks: int, transaction_version: int = 0) -> int:
        appended = self.partition.append(
            memoryview(batch),
            acks,
            self._clock.now_ms(),
            Origin.COORDINATOR,
            transaction_version=transaction_version,
        )
        return appended.last_offset

    def _await_commit(self, last_offset: int, answers: list[Answer]) -> None:
        self._unacknowledged.append(answers)
        promise = self.partition.acknowledged(last_offset)
        if promise is None:
            # Not at once: whoever gets an answer may send the next request to this shard, while this one is decided.
            self._own_work.timers.soon(partial(self._on_committed, ErrorCode.NONE))
        else:
            promise.then(self._on_committed)

    def _write_transactional(
        self, producer: ProducerIdAndEpoch, records: Sequence[CoordinatorRecord], encoded: list[Record]
    ) -> None:
        """Append records of a producer's transaction at once, and apply them only if the log accepts them: it refuses a
        fenced producer."""
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
        """Append the marker that ends a producer's transaction. Raise KafkaError if the log refuses it. The promise is
        completed when the marker is committed, or with a KafkaError."""
        self.check_ready()
        machine = self._transactional_machine()
        batch = end_txn_batch(marker, self._clock.now_ms(), *producer)
        last_offset = self._append_for_producer(batch, transaction_version)
        machine.end_transaction(producer.producer_id, marker.committed)
        written: Promise[ErrorCode] = Promise()
        self._await_commit(last_offset, [Answer(written, ErrorCode.NONE)])
        if self._deadlines.has_earlier:
            self._set_timer()
        return written

    def _append_for_producer(self, batch: bytearray, transaction_version: int = 0) -> int:
        """Append a batch after the records of this turn, so that the log has the order of the decisions."""
        self._write()
        self.check_ready()
        try:
            return self._append(batch, ACKS_ALL, transaction_version)
        except KafkaError as refused:
            if refused.code in _CODES_ON_FAILURE:
                self._fail(refused)
                raise KafkaError(_CODES_ON_FAILURE[refused.code]) from refused
            raise

    def _transactional_machine(self) -> TransactionalMachine:
        assert self._transactional is not None, "this coordinator's machine does not support transactions"
        return self._transactional

    def _on_committed(self, code: ErrorCode) -> None:
        if self._is_closed:
            return
        try:
            if code is ErrorCode.NONE:
                _complete(self._unacknowledged.popleft())
            else:
                self._fail(KafkaError(code))
        except Exception as fault:
            self._own_work.on_fault(fault)

    def _fail(self, error: KafkaError) -> None:
        level = logging.INFO if error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER else logging.WARNING
        log.log(level, "%s: coordinator state dropped, uncommitted requests fail: %s", self.partition.name, error)
        self.close(_CODES_ON_FAILURE.get(error.code, ErrorCode.COORDINATOR_NOT_AVAILABLE))
        self._on_failed(self)

    def close(self, code: ErrorCode) -> None:
        """Refuse all further requests with `code`, and complete all waiting ones with it."""
        self._error = code
        if self._is_closed:
            return  # it failed before
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._loading is not None:
            self._loading.cancel()
        waiting = [
            answer.waiting for answers_of_turn in (*self._unacknowledged, self._answers) for answer in answers_of_turn
        ]
        waiting += self._machine.waiting()
        self._unacknowledged.clear()
        self._records, self._answers = [], []
        for promise in reversed(waiting):
            if not promise.done:  # the machine knows the promises of some answers too
                complete_alone(promise, KafkaError(code), log, "its coordinator")

    # --- loading ------------------------------------------------------------------------------------------------

    def load(self, soon: Soon, on_ready: Callable[[], None]) -> None:
        """Replay the log, a part in each call that `soon` makes; at once if it is empty. `on_ready` is called before
        the shard handles its first request."""
        self._on_ready = on_ready
        self._loading = self._own_work.long_work(self._load(), soon=soon)
        if self.partition.log.end_offset == self.partition.log.segments.first.base_offset:
            self._loading()
        else:
            soon(self._loading)

    def _load(self) -> Steps[None]:
        try:
            yield from replay_log(self.partition, self._machine)
        except StorageFault as fault:
            self._fail(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(fault)))
        else:
            self._wait_for_commit()

    def _wait_for_commit(self) -> None:
        """Accept requests only when all replayed records are committed. They may not be yet: for example, the disk was
        slow with one append and refused the next, which made this shard reload."""
        promise = self.partition.acknowledged(self.partition.log.end_offset - 1)
        if promise is None:
            self._become_ready(ErrorCode.NONE)
        else:
            promise.then(self._own_work.guard(self._become_ready))

    def _become_ready(self, code: ErrorCode) -> None:
        if self._is_closed:
            return
        if code is not ErrorCode.NONE:
            self._fail(KafkaError(code))
            return
        self._error = None
        self._machine.loaded()
        self._set_timer()
        self._on_ready()

    # --- time ---------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set the timer to the machine's next deadline, unless it is already set to that or an earlier time."""
        self._deadlines.has_earlier = False
        deadline_ms = self._deadlines.next_ms()
        if deadline_ms is None or self._is_closed or (self._timer is not None and self._timer_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ms = deadline_ms
        self._timer = self._own_work.after_ms(max(deadline_ms - self._clock.monotonic_ms(), 0), self._run_due)

    def _run_due(self) -> None:
        self._timer = None
        if not self.partition.has_enough_replicas or self.partition.is_withheld:
            # An action whose records are refused would be lost, so all wait. Time 0 is before every deadline, so that
            # requests leave this timer alone.
            self._timer_ms = 0
            self._timer = self._own_work.after_ms(DEADLINE_RETRY_MS, self._run_due)
            return
        try:
            for action in islice(self._deadlines.due(self._clock.monotonic_ms()), CALLS_A_TURN):
                if self._is_closed:
                    return
                try:
                    self.submit(action)
                except KafkaError as error:
                    log.warning("%s: the records of a timer were refused: %s", self.partition.name, error)
        finally:
            self._set_timer()


def _do_nothing() -> None:
    pass


def _size(record: Record) -> int:
    return len(record.key or b"") + len(record.value or b"") + RECORD_OVERHEAD_BYTES


def _total_size(records: Sequence[Record]) -> int:
    total = len(records) * RECORD_OVERHEAD_BYTES
    for _, _, key, value, _ in records:
        total += len(key or b"") + len(value or b"")
    return total


def _complete(answers: Sequence[Answer]) -> None:
    """Complete the last promise first: of several responses to one connection, the first is then completed last, and
    one send takes all of them."""
    for waiting, response in reversed(answers):
        try:  # every commit comes here: `complete_alone` is written out
            waiting.complete(response)
        except Exception as fault:
            end_alone(fault, log, "its coordinator")
