"""A partition as one share group reads it, at the partition's leader: its window, and what of it is written.

It is loaded from the share coordinator, and what members acknowledge takes effect when the share coordinator has
written it. Another leader, or an administrator who resets the group's offsets, ends it: then the coordinator refuses
what it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.promise import Promise, resolved
from moldau.share.dead_letters import DeadLetter
from moldau.share.limits import ShareLimits
from moldau.share.ports import ShareKey, ShareStates
from moldau.share.runs import Change, RecordState
from moldau.share.traffic import ShareTraffic
from moldau.share.window import Acknowledged, Acquired, RecordBatch, Wanted, Window, Written
from moldau.wire.messages.read_share_group_state import PartitionResult
from moldau.wire.messages.write_share_group_state import PartitionData, StateBatch

NO_START_OFFSET: Final = -1
"""The start offset of a group that has not read the partition yet."""
_PASSING: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)
"""Kafka reports the last three, if they last, as UNKNOWN_SERVER_ERROR."""
_FENCED: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_GONE: Final = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
FindStart = Callable[[ShareLimits], Promise[int | KafkaError]]
"""Finds the offset at which a group begins that has not read the partition yet."""


class SharePartition:
    """`limits` returns those that hold now. `on_free` is called when records may have become available, something is
    written, or it has ended; `on_end` when it has."""

    def __init__(
        self,
        key: ShareKey,
        leader_epoch: int,
        states: ShareStates,
        limits: Callable[[], ShareLimits],
        clock: Clock,
        timers: Timers,
        traffic: ShareTraffic,
        write_dead_letters: Callable[[Sequence[DeadLetter]], Promise[None]],
        on_free: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        self.key = key
        self.leader_epoch = leader_epoch
        self.failure: KafkaError | None = None
        """Why it has ended. A new one may be made then."""
        self._window: Window | None = None
        self._state_epoch = 0
        self._states = states
        self._limits = limits
        self._clock = clock
        self._timers = timers
        self._traffic = traffic
        self._write_dead_letters = write_dead_letters
        self._on_free = on_free
        self._on_end = on_end
        self._timer: Timer | None = None
        self._timer_due_ms = 0
        self._writes_in_flight = 0

    # --- loading and ending -------------------------------------------------------------------------------------

    def load(self, find_start: FindStart) -> None:
        self._states.read(self.key, self.leader_epoch).then(lambda state: self._on_read(state, find_start))

    def _on_read(self, state: PartitionResult, find_start: FindStart) -> None:
        if self.failure is not None:
            return
        if state.error_code:
            self.end(_error_of(ErrorCode(state.error_code)))
        elif state.start_offset == NO_START_OFFSET:
            find_start(self._limits()).then(lambda start: self._begin(state, start))
        else:
            self._begin(state, state.start_offset)

    def _begin(self, state: PartitionResult, start: int | KafkaError) -> None:
        if self.failure is not None:
            return
        if isinstance(start, KafkaError):
            self.end(start)
            return
        window = Window(start, self._limits())
        try:
            window.restore(
                Written(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
                for each in state.state_batches
            )
        except ValueError as error:
            self.end(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The state of {self.key} is damaged: {error}."))
            return
        self._state_epoch = state.state_epoch
        self._window = window
        self._bury()
        self._on_free()

    def end(self, failure: KafkaError) -> None:
        """Stop: the node no longer leads the partition, or the state belongs to somebody else."""
        if self.failure is None:
            self.failure = failure
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            self._on_end()
            self._on_free()

    @property
    def is_ready(self) -> bool:
        return self._window is not None and self.failure is None

    @property
    def window(self) -> Window:
        """The window of one that is ready."""
        assert self._window is not None
        return self._window

    def begin_use(self) -> Window:
        """Return the window with the limits that hold now."""
        window = self.window
        window.limits = self._limits()
        return window

    @property
    def is_writing(self) -> bool:
        """Whether something is being written: who read the state now would perhaps not find it."""
        return self._writes_in_flight > 0

    # --- records ------------------------------------------------------------------------------------------------

    def acquire(self, wanted: Wanted, fetch_offset: int, batches: Sequence[RecordBatch]) -> list[Acquired]:
        acquired = self.begin_use().acquire(wanted, fetch_offset, batches, self._clock.monotonic_ms())
        self._traffic.acquired += sum(each.last_offset - each.first_offset + 1 for each in acquired)
        self._set_timer()
        return acquired

    def acknowledge(self, member_id: str, acknowledged: Sequence[Acknowledged]) -> Promise[KafkaError | None]:
        """Return a promise of the error, None if what the member says is written."""
        if not self.is_ready:
            return resolved(self.failure or KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        try:
            change, written = self.begin_use().acknowledge(member_id, acknowledged, self._clock.monotonic_ms())
        except KafkaError as error:
            return resolved(error)
        self._set_timer()
        if not written and any(each.first_offset < self.window.start_offset for each in acknowledged):
            return self._write_start()
        return self._write(change, written).map(partial(self._count, acknowledged))

    def _write_start(self) -> Promise[KafkaError | None]:
        """Answer who speaks of records that are done already. Those were perhaps given up when their locks ended, which
        need not be written yet: without it another leader would deliver them again."""
        return self._send(()).map(self._on_start_written)

    def _on_start_written(self, code: ErrorCode) -> KafkaError | None:
        self._on_sent_alone(code)
        return _error_of(code) if code else None

    def _count(self, acknowledged: Sequence[Acknowledged], error: KafkaError | None) -> KafkaError | None:
        if error is None:
            self._traffic.count_acknowledged(acknowledged)
        return error

    def release(self, member_id: str) -> Promise[KafkaError | None]:
        """Make all records available that a member holds."""
        return self._write(*self.begin_use().release(member_id)) if self.is_ready else resolved(None)

    def _write(self, change: Change, written: Sequence[Written]) -> Promise[KafkaError | None]:
        if not written:
            return resolved(None)
        return self._send(written).map(lambda code: self._on_written(change, code))

    def _send(self, written: Sequence[Written]) -> Promise[ErrorCode]:
        self._writes_in_flight += 1
        return self._states.write(self.key, self._data(written)).map(self._on_sent)

    def _on_sent(self, code: ErrorCode) -> ErrorCode:
        self._writes_in_flight -= 1
        return code

    def _on_written(self, change: Change, code: ErrorCode) -> KafkaError | None:
        self.window.complete(change, is_written=not code, now_ms=self._clock.monotonic_ms())
        self._set_timer()
        self._end_if_lost(code)
        if self.failure is None:
            self._bury()
            self._on_free()
        return _error_of(code) if code else None

    def _data(self, written: Sequence[Written]) -> PartitionData:
        window = self.window
        batches = [StateBatch(*each) for each in written]
        return PartitionData(
            self.key.partition,
            self._state_epoch,
            self.leader_epoch,
            window.start_offset,
            window.done_count,
            batches,
        )

    def _on_sent_alone(self, code: ErrorCode) -> None:
        """Called when something is written for which nobody waits."""
        self._end_if_lost(code)
        if self.failure is None:
            self._on_free()

    def _end_if_lost(self, code: ErrorCode) -> None:
        if code in _FENCED or code in _GONE:
            self.end(_error_of(code))

    # --- locks --------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """Set it for the next lock that ends: that may be a new one, if the duration of locks is shorter now."""
        ends_ms = self.window.next_lock_end_ms
        if self.failure is not None or ends_ms is None:
            return
        if self._timer is not None:
            if self._timer_due_ms <= ends_ms:
                return
            self._timer.cancel()
        self._timer = self._timers.after_ms(max(0, ends_ms - self._clock.monotonic_ms()), self._end_locks)
        self._timer_due_ms = ends_ms

    def _end_locks(self) -> None:
        """Take records back from members that did not acknowledge them in time. Members need not wait until that is
        written: without it the records are available at the next leader too."""
        self._timer = None
        written = self.begin_use().end_locks(self._clock.monotonic_ms())
        self._set_timer()
        if written:
            self._traffic.timed_out += sum(each.last_offset - each.first_offset + 1 for each in written)
            self._send(written).then(self._on_sent_alone)
            self._bury()
            self._on_free()

    # --- dead letters -------------------------------------------------------------------------------------------

    def _bury(self) -> None:
        """Write the dead letters of records that were given up. These are done when that has been tried."""
        change, letters, written = self.window.bury()
        if letters:
            self._traffic.dead_letters += sum(each.last_offset - each.first_offset + 1 for each in letters)
            self._write_dead_letters(letters).then(lambda _: self._on_buried(change, written))

    def _on_buried(self, change: Change, written: Sequence[Written]) -> None:
        self.window.complete(change, is_written=True, now_ms=self._clock.monotonic_ms())
        if self.failure is None:
            self._send(written).then(self._on_sent_alone)
            self._on_free()


def _error_of(code: ErrorCode) -> KafkaError:
    """Return what a client is told if its coordinator refuses."""
    if code in _PASSING:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    return KafkaError(code if code in _GONE else ErrorCode.UNKNOWN_SERVER_ERROR)
