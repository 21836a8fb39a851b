"""Fetches of share groups: they read the log where their groups go on, acquire what they read, and wait if there is
nothing.

Nobody else reads for a share partition while a fetch does: what it reads may be available to one member only. Only the
headers of batches are read here; the records leave their file when the response is sent.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

from moldau.base.clock import Timer, Timers
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.long_work import LongWork, begin
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.base.steps import TurnItems, WaitingSteps
from moldau.base.turns import ITEMS_A_TURN
from moldau.log.reading import Slice, new_slice, whole_batches
from moldau.log.txn_index import AbortedTxn
from moldau.replica.partition import Partition
from moldau.runtime.internal_errors import closing_error
from moldau.runtime.share.partitions import LocalSharePartition, SharePartitions
from moldau.runtime.thread_work import in_thread
from moldau.share.ports import ShareKey
from moldau.share.sessions import Place, ShareSession
from moldau.share.window import Acquired, RecordBatch, Wanted
from moldau.wire.batch import BatchHeader


class SharesToFetch(NamedTuple):
    """What a request asks for."""

    group_id: str
    places: Sequence[Place]
    wanted: Wanted
    min_bytes: int
    max_bytes: int
    max_wait_ms: int


class Fetched(NamedTuple):
    """What a fetch got of a partition: records, of which some are acquired, or an error."""

    records: Slice | None = None
    acquired: Sequence[Acquired] = ()
    error: KafkaError | None = None


class _Read(NamedTuple):
    place: Place
    local: LocalSharePartition
    offset: int
    piece: Slice
    aborted: Sequence[AbortedTxn]


Results = dict[Place, Fetched]


class ShareFetches:
    """All fetches that wait, so that each gets a response when the server stops."""

    def __init__(self, shares: SharePartitions, timers: Timers, run_in_thread: RunInThread) -> None:
        self.shares = shares
        self.timers = timers
        self.run_in_thread = run_in_thread
        self._waiting: dict[WaitingFetch, None] = {}

    def fetch(self, request: SharesToFetch) -> Promise[Results]:
        waiting = WaitingFetch(self, request)
        self._waiting[waiting] = None
        waiting.begin()
        return waiting.results

    def done(self, fetch: WaitingFetch) -> None:
        self._waiting.pop(fetch, None)

    def connection_gone(self, address: str) -> None:
        """End the session of a connection. Its fetches acquire nothing more: nobody would acknowledge it."""
        session = self.shares.sessions.at(address)
        if session is not None:
            for fetch in [each for each in self._waiting if each.is_of(session)]:
                fetch.cancel()
            self.shares.end_session(session)

    def release_all(self) -> None:
        for fetch in list(self._waiting):
            fetch.expire()


class WaitingFetch:
    """One fetch. It is tried at once, and again whenever one of its partitions may have something."""

    def __init__(self, fetches: ShareFetches, request: SharesToFetch) -> None:
        self._fetches = fetches
        self._request = request
        self.results: Promise[Results] = Promise()
        self._errors: Results = {}
        self._local: dict[Place, LocalSharePartition] = {}
        self._timer: Timer | None = None
        self._trying: LongWork[Results | None] | None = None
        self._is_woken = False
        self._is_expired = request.max_wait_ms <= 0

    def begin(self) -> None:
        self._is_woken = True
        self._try()
        if not self.results.done and not self._is_expired:
            self._timer = self._fetches.timers.after_ms(self._request.max_wait_ms, self.expire)

    def is_of(self, session: ShareSession) -> bool:
        asked = self._request
        return asked.group_id == session.group_id and asked.wanted.member_id == session.member_id

    def cancel(self) -> None:
        if self._trying is not None:
            self._trying.cancel()
        if not self.results.done:
            self._finish({})

    def expire(self) -> None:
        self._is_expired = True
        self._try()

    # --- being woken --------------------------------------------------------------------------------------------

    def high_watermark_moved(self, partition: Partition, size: int) -> None:
        self.wake()

    def readable(self, partition: Partition, size: int) -> None:
        self.wake()

    def metadata_changed(self, partition: Partition) -> None:
        """This concerns followers."""

    def wake(self) -> None:
        """Try again in a later turn of the loop, once for all that happens before."""
        if not self._is_woken:
            self._is_woken = True
            self._fetches.timers.soon(self._try)

    def _watch(self, local: LocalSharePartition) -> None:
        local.waiting[self.wake] = None
        local.partition.watchers.consumers[self] = None

    def _unwatch(self, local: LocalSharePartition) -> None:
        local.waiting.pop(self.wake, None)
        local.partition.watchers.remove(self)

    # --- trying -------------------------------------------------------------------------------------------------

    def _try(self) -> None:
        if self.results.done or (self._trying is not None and self._trying.is_running):
            return  # `_on_tried` tries again if it was woken meanwhile
        self._is_woken = False
        self._trying = begin(self._fetches.timers.soon, self._attempt(), self._on_tried, self._on_fault)

    def _on_tried(self, results: Results | None) -> None:
        if results is not None:
            self._finish(results)
        elif self._is_woken or self._is_expired:
            self._fetches.timers.soon(self._try)

    def _on_fault(self, fault: Exception) -> None:
        self._finish(closing_error(fault, "a waiting fetch of a share group failed"))

    def _finish(self, results: Any) -> None:
        self._fetches.done(self)
        if self._timer is not None:
            self._timer.cancel()
        for local in self._local.values():
            self._unwatch(local)
        self.results.complete(results)

    def _attempt(self) -> WaitingSteps[Results | None]:
        """Return what was read and acquired; None if there is too little, and time to wait for more."""
        yield from self._find_partitions()
        reads: list[_Read] = []
        results = dict(self._errors)
        ready = [each for each in self._local.items() if self._begin_reading(*each)]
        for place, local in ready:
            found = self._read(place, local, self._request.max_bytes // len(ready))
            if isinstance(found, _Read):
                reads.append(found)
            else:
                local.end_reading()
                if found is not None:
                    results[place] = found
        try:
            if not self._has_enough(reads, results):
                return None
            yield from self._acquire_all(reads, results)
        finally:
            for read in reads:
                read.local.end_reading()
        if len(results) == len(self._errors) < len(self._request.places) and not self._is_expired:
            return None
        for place, _ in ready:
            results.setdefault(place, Fetched())
        return results

    def _has_enough(self, reads: Sequence[_Read], results: Results) -> bool:
        """Kafka too lets a fetch wait for records although some of its partitions cannot be read."""
        has_failed = len(results) > len(self._errors) or len(self._errors) == len(self._request.places)
        size = sum(read.piece.length for read in reads)
        return has_failed or self._is_expired or (bool(reads) and size >= self._request.min_bytes)

    def _find_partitions(self) -> WaitingSteps[None]:
        """Find the share partitions, which begin to load if they are new."""
        turn = TurnItems(ITEMS_A_TURN)
        for place in self._request.places:
            local = self._local.get(place)
            if place in self._errors or (local is not None and local.share.failure is None and local.is_led_here):
                continue
            if local is not None:
                self._unwatch(local)
                self._errors[place] = Fetched(error=local.share.failure or _not_leader())
                continue
            try:
                local = self._fetches.shares.get(ShareKey(self._request.group_id, *place))
            except KafkaError as error:
                self._errors[place] = Fetched(error=error)
            else:
                self._local[place] = local
                self._watch(local)
            if turn.ends_after(1):
                yield None

    def _begin_reading(self, place: Place, local: LocalSharePartition) -> bool:
        share = local.share
        is_readable = place not in self._errors and share.is_ready and share.begin_use().can_acquire
        return is_readable and local.begin_reading(self.wake)

    def _read(self, place: Place, local: LocalSharePartition, max_bytes: int) -> _Read | Fetched | None:
        """Return what is to be acquired, an error, or None if there is nothing."""
        partition, window = local.partition, local.share.window
        partition.traffic.fetches += 1
        try:
            partition.check_certain()
            log, up_to = partition.log, partition.high_watermark
            if window.limits.is_read_committed:
                up_to = partition.last_stable_offset
            window.move_to_log_start(log.start_offset)
            window.cut_off(log.end_offset)
            offset = window.next_fetch_offset
            piece = log.read(offset, max_bytes, up_to)
            if piece is None:
                return None
            aborted = log.aborted_in(piece, offset, up_to) if window.limits.is_read_committed else ()
            return _Read(place, local, offset, piece, aborted)
        except (KafkaError, StorageFault) as error:
            return Fetched(error=_error_of(partition, error))

    def _acquire_all(self, reads: Sequence[_Read], results: Results) -> WaitingSteps[None]:
        left = self._request.wanted.max_records
        for read in reads:
            wanted = self._request.wanted._replace(max_records=left)
            if left <= 0:
                break
            fetched = yield from self._acquire(read, wanted)
            if fetched is not None:
                results[read.place] = fetched
                left -= sum(each.last_offset - each.first_offset + 1 for each in fetched.acquired)

    def _acquire(self, read: _Read, wanted: Wanted) -> WaitingSteps[Fetched | None]:
        local, piece = read.local, read.piece
        walk = partial(whole_batches, piece, local.share.window.last_wanted(wanted) + 1)
        try:
            found = walk() if piece.is_hot else (yield from in_thread(self._fetches.run_in_thread, walk))
        except (MalformedData, StorageFault) as error:
            return Fetched(error=_error_of(local.partition, error))
        if not local.share.is_ready or not local.is_led_here:
            return Fetched(error=local.share.failure or _not_leader())
        batches = [_record_batch(header, read.aborted) for _, header in found]
        acquired = local.share.acquire(wanted, read.offset, batches)
        if not acquired:
            if local.share.window.next_fetch_offset != read.offset:
                self.wake()  # none of these records can be delivered, but there may be others behind them
            return None
        records = _part_with(piece, found, acquired[0].first_offset, acquired[-1].last_offset)
        local.partition.traffic.bytes_out += records.length
        return Fetched(records, acquired)


def _record_batch(header: BatchHeader, aborted: Sequence[AbortedTxn]) -> RecordBatch:
    is_aborted = (
        header.is_transactional
        and not header.is_control
        and any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
        )
    )
    return RecordBatch(header.base_offset, header.last_offset, is_aborted)


def _part_with(piece: Slice, batches: Sequence[tuple[int, BatchHeader]], first: int, last: int) -> Slice:
    """Return the part of a slice with the batches that have these offsets; the last one if they are in none."""
    kept = [each for each in batches if each[1].last_offset >= first and each[1].base_offset <= last] or batches[-1:]
    begin, (end, header) = kept[0][0], kept[-1]
    return new_slice((piece.file, begin, end + header.size_in_bytes - begin, piece.is_hot))


def _not_leader() -> KafkaError:
    return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def _error_of(partition: Partition, error: KafkaError | MalformedData | StorageFault) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    partition.traffic.failed_fetches += 1
    if isinstance(error, StorageFault):
        partition.report_fault(f"{partition.name}: records cannot be read", error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error))
