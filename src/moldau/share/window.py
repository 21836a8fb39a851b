"""The records of a partition that a share group has begun and not finished, as a state machine.

    start_offset                              end_offset
    ↓                                         ↓
    | done | acquired | available | acquired |  never delivered ...

Offsets below `start_offset` are done for good. The window gets longer when records are acquired for the first time, and
shorter when all records at its beginning are done. Acknowledgements take effect in two steps: `acknowledge` checks them
and returns a `Change`, and `complete` applies it when it is written, or takes it back.

Limits, errors and their messages are those of Apache Kafka (KIP-932, KIP-1222), as is which records a fetch gets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import groupby
from operator import attrgetter
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.share.dead_letters import DELIVERED_TOO_OFTEN, REJECTED, DeadLetter
from moldau.share.limits import ShareLimits
from moldau.share.runs import Batch, Change, RecordState, Run

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_STATE_AFTER: Final = {
    GAP: RecordState.ARCHIVED,
    ACCEPT: RecordState.ACKNOWLEDGED,
    RELEASE: RecordState.AVAILABLE,
    REJECT: RecordState.ARCHIVING,
}
_FIRST_OFFSET: Final = attrgetter("first")
_LOCKS_MAX: Final = 1_000
_LEAST_SLOWED_DELIVERIES: Final = 2


class RecordBatch(NamedTuple):
    """A batch of the log, as far as acquiring its records needs it."""

    base_offset: int
    last_offset: int
    is_aborted: bool = False
    """Whether its transaction was aborted, for groups that read committed records."""


class Acquired(NamedTuple):
    first_offset: int
    last_offset: int
    delivery_count: int


class Acknowledged(NamedTuple):
    """What a member says about records: one type for all, or one for each offset."""

    first_offset: int
    last_offset: int
    types: Sequence[int]


class Written(NamedTuple):
    """What is written about some records."""

    first_offset: int
    last_offset: int
    state: RecordState
    delivery_count: int


class Wanted(NamedTuple):
    """What a fetch may have of a partition."""

    member_id: str
    max_records: int
    batch_size: int
    """New records are acquired in pieces of at least so many, where a batch of the log ends."""
    is_exact: bool
    """Whether `max_records` is a limit, and not rounded up to the end of a batch."""


class Window:
    def __init__(self, start_offset: int, limits: ShareLimits) -> None:
        self.start_offset = start_offset
        self.end_offset = start_offset
        self.limits = limits
        self._batches: list[Batch] = []
        self._locks: list[tuple[int, int, int]] = []
        """When a lock ends, and the first and last offset: a heap. An entry may be out of date."""
        self._locks_max = _LOCKS_MAX
        """With more entries, those that are out of date are removed."""
        self._may_have_available = False
        self._may_have_dead_letters = False

    def restore(self, written: Iterable[Written]) -> None:
        """Fill an empty window with what was written, ordered by offset. Records in between were acquired, and nobody
        knows by whom: they are available. Raise ValueError for what cannot have been written."""
        for first, last, state, delivery_count in written:
            if not self.end_offset <= first <= last:
                raise ValueError(f"the state of {first} to {last} is not after {self.end_offset}")
            if state is RecordState.ACQUIRED:
                raise ValueError(f"the state of {first} to {last} is ACQUIRED")
            self._append_unknown(first - 1, RecordState.AVAILABLE)
            self._append(Batch(Run(first, last, state, delivery_count)))
        self._may_have_available = self._may_have_dead_letters = True
        self._move_start()

    # --- what is there ------------------------------------------------------------------------------------------

    @property
    def next_fetch_offset(self) -> int:
        """Where a fetch begins to read: at the first record that is available again, or after all others."""
        if self._may_have_available:
            for batch in self._batches:
                for run in batch.runs:
                    if run.is_available:
                        return run.first
            self._may_have_available = False
        return self.end_offset

    @property
    def can_acquire(self) -> bool:
        in_flight = self.end_offset - self.start_offset
        return in_flight < self.limits.partition_max_record_locks or self.next_fetch_offset < self.end_offset

    @property
    def done_count(self) -> int:
        """How many records from the start offset on are done, or will be when what is being written is."""
        return sum([run.last - run.first + 1 for batch in self._batches for run in batch.runs if run.will_be_done])

    def counts(self) -> Counter[RecordState]:
        """Return how many records of the window are in each state."""
        counts: Counter[RecordState] = Counter()
        for run in self._runs():
            counts[run.state] += len(run)
        return counts

    def _runs(self) -> Iterator[Run]:
        for batch in self._batches:
            yield from batch.runs

    def last_wanted(self, wanted: Wanted) -> int:
        """Return the last offset that `acquire` can need of the log."""
        left = wanted.max_records
        for batch in self._batches:
            for run in batch.runs:
                if run.is_available:
                    left -= len(run)
                    if left <= 0:
                        return batch.last
        return self.end_offset + left - 1

    # --- acquiring ----------------------------------------------------------------------------------------------

    def acquire(self, wanted: Wanted, fetch_offset: int, batches: Sequence[RecordBatch], now_ms: int) -> list[Acquired]:
        """Give a member records of these batches, which were read from `fetch_offset` on."""
        last = batches[-1].last_offset if batches else -1
        room, last = self._room(wanted.max_records, fetch_offset, last)
        if last < self.start_offset or room <= 0:
            return []
        base = batches[0].base_offset
        self._archive_missing(fetch_offset, base)
        acquired, room = self._acquire_again(wanted, room, batches, last, now_ms)
        room -= _count(acquired)
        if room > 0 and self.end_offset <= last:
            self._append_unknown(base - 1, RecordState.ARCHIVED)
            pieces = _pieces(wanted, room, batches, self.end_offset, last)
            for each in pieces:
                self._append(each)
            acquired += self._acquire_pieces(wanted, room, pieces, now_ms)
        aborted = [each for each in batches if each.is_aborted]
        return self._without_aborted(acquired, aborted) if aborted else acquired

    def _room(self, max_records: int, fetch_offset: int, last: int) -> tuple[int, int]:
        """Return how many records may be acquired, and up to where. With too many in flight already, those among them
        that are available may still be."""
        room = min(max_records, self.limits.partition_max_record_locks - (self.end_offset - self.start_offset))
        if room <= 0 and fetch_offset < self.end_offset:
            return min(max_records, self.end_offset - fetch_offset), min(last, self.end_offset - 1)
        return room, last

    def _archive_missing(self, fetch_offset: int, base: int) -> None:
        """Archive what is available and no longer in the log."""
        for batch in list(self._overlapping(fetch_offset, base - 1)):
            for run in batch.cut_out(fetch_offset, base - 1):
                if run.is_available:
                    run.state = RecordState.ARCHIVED
            if batch.was_acquired:
                batch.join_runs()
            else:
                self._split(batch)
        self._move_start()

    def _acquire_again(
        self, wanted: Wanted, room: int, batches: Sequence[RecordBatch], last: int, now_ms: int
    ) -> tuple[list[Acquired], int]:
        """Acquire records of the window. Return also how many records may be acquired in all: no others beside those
        that are delivered slowly."""
        first = batches[0].base_offset
        slowed_from = max(_LEAST_SLOWED_DELIVERIES, (self.limits.delivery_count_limit + 1) // 2)
        acquired: list[Acquired] = []
        taken = 0
        for batch in list(self._overlapping(first, last)):
            if taken >= room:
                break
            available = [run for run in batch.overlapping(first, last) if run.is_available]
            if not available:
                continue
            is_slowed = max([run.delivery_count for run in available]) >= slowed_from
            if is_slowed and taken:
                return acquired, taken
            if batch.was_acquired:
                left = room - taken if wanted.is_exact else len(batch)
                pieces = self._available_part(batch, available, left, max(first, batch.first), last, slowed_from)
                found = _joined([self._give(run, wanted.member_id, now_ms) for run in pieces])
                batch.join_runs()
            else:
                found = self._acquire_unknown(wanted, room - taken, batch, batches, last, now_ms)
            acquired += found
            taken += _count(found)
            if is_slowed:
                return acquired, taken
        return acquired, room

    def _available_part(
        self, batch: Batch, available: Sequence[Run], left: int, first: int, last: int, slowed_from: int
    ) -> list[Run]:
        """Return what is to be given of these runs. Records before their last delivery come alone; those that were
        delivered `slowed_from` times, in half of the batch, then a quarter and so on, to find those that fail."""
        limit = self.limits.delivery_count_limit
        pieces: list[Run] = []
        taken = 0
        is_slowed = False
        for run in available:
            is_last_try = limit > _LEAST_SLOWED_DELIVERIES and run.delivery_count == limit - 1
            if is_last_try and pieces:
                break
            if run.delivery_count >= slowed_from and not is_slowed:
                is_slowed = True
                slow_limit = max(1, batch.size >> (run.delivery_count - slowed_from + 1))
                # Like Apache Kafka: records before the slow ones use up the limit, but do not exceed it.
                left = min(left, slow_limit - taken) if taken < slow_limit else left
            begin, end = max(run.first, first), min(run.last, last)
            count = 1 if is_last_try else min(end - begin + 1, left)
            pieces += [run] if count == len(run) else batch.cut_out(begin, begin + count - 1)
            taken += count
            left -= count
            if is_last_try or left <= 0:
                break
        return pieces

    def _give(self, run: Run, member_id: str, now_ms: int) -> Acquired:
        run.state = RecordState.ACQUIRED
        run.delivery_count += 1
        run.member_id = member_id
        self._lock(run, now_ms)
        return Acquired(run.first, run.last, run.delivery_count)

    def _lock(self, run: Run, now_ms: int) -> None:
        run.lock_ends_ms = now_ms + self.limits.record_lock_duration_ms
        heappush(self._locks, (run.lock_ends_ms, run.first, run.last))
        if len(self._locks) > self._locks_max:
            held = [each for each in self._runs() if each.state is RecordState.ACQUIRED]
            self._locks = sorted((each.lock_ends_ms, each.first, each.last) for each in held)
            self._locks_max = max(_LOCKS_MAX, 2 * len(held))

    def _acquire_unknown(
        self, wanted: Wanted, room: int, batch: Batch, batches: Sequence[RecordBatch], last: int, now_ms: int
    ) -> list[Acquired]:
        """Acquire records of which nothing is known, like new ones, if they are in the log."""
        if not batch.runs[0].is_available:
            return []
        first = max(batch.first, batches[0].base_offset)
        pieces = _pieces(wanted, room, batches, first, min(batch.last, last))
        for each in pieces:
            batch.cut_out(each.first, each.last)
        rest = [Batch(run, was_acquired=False) for run in batch.runs]
        place = self._batches.index(batch)
        self._batches[place : place + 1] = [
            *(each for each in rest if each.last < first),
            *pieces,
            *(each for each in rest if each.first > pieces[-1].last),
        ]
        return self._acquire_pieces(wanted, room, pieces, now_ms)

    def _acquire_pieces(self, wanted: Wanted, room: int, pieces: Sequence[Batch], now_ms: int) -> list[Acquired]:
        """Acquire batches of new records. What exceeds a record limit is available."""
        if wanted.is_exact and len(pieces[0]) > room:
            self._may_have_available = True
            first = pieces[0].first
            return [self._give(pieces[0].cut_out(first, first + room - 1)[0], wanted.member_id, now_ms)]
        return [self._give(each.runs[0], wanted.member_id, now_ms) for each in pieces]

    def _without_aborted(self, acquired: Sequence[Acquired], aborted: Sequence[RecordBatch]) -> list[Acquired]:
        """Archive records of aborted transactions among those just acquired; return the others."""
        for refused in aborted:
            for batch in list(self._overlapping(refused.base_offset, refused.last_offset)):
                for run in batch.cut_out(refused.base_offset, refused.last_offset):
                    if run.state is RecordState.ACQUIRED and run.change is None:
                        self._set_free(run, RecordState.ARCHIVED)
                batch.join_runs()
        self._move_start()
        return [part for each in acquired for part in _parts_outside(each, aborted)]

    # --- acknowledging ------------------------------------------------------------------------------------------

    def acknowledge(
        self, member_id: str, acknowledged: Sequence[Acknowledged], now_ms: int
    ) -> tuple[Change, list[Written]]:
        """Check what a member says, all or nothing. Return the change, and what is to be written for it."""
        change = Change()
        written: list[Written] = []
        renewed: list[tuple[int, int]] = []
        try:
            for each in acknowledged:
                if each.last_offset >= self.start_offset:
                    self._acknowledge(member_id, each, change, written, renewed)
        except KafkaError:
            # Locks that have ended stay: `end_locks` returns what is to be written of them.
            for run, _ in self._end(change):
                run.is_rejected = False
            _join_runs(batch for first, last in renewed for batch in self._overlapping(first, last))
            raise
        self._renew(renewed, now_ms)
        return change, written

    def _acknowledge(
        self,
        member_id: str,
        said: Acknowledged,
        change: Change,
        written: list[Written],
        renewed: list[tuple[int, int]],
    ) -> None:
        first, last = said.first_offset, said.last_offset
        batches = list(self._overlapping(first, last))
        self._check_range(first, last, batches)
        for batch in batches:
            if batch.is_missing:
                continue
            for run in batch.overlapping(first, last):
                _check_owner(run, member_id, is_whole=len(batch.runs) == 1)
            parts = list(_by_type(said, max(first, batch.first), min(last, batch.last)))
            for run, kind in batch.cut_out_parts(parts):
                if kind == RENEW:
                    renewed.append((run.first, run.last))
                else:
                    run.is_rejected = kind == REJECT
                    written.append(self._begin_change(run, _STATE_AFTER[kind], change))
        if renewed and not self.limits.allows_renewal:
            raise _wrong_state("Renewing acquisition locks is not enabled for the group.")

    def _renew(self, ranges: Sequence[tuple[int, int]], now_ms: int) -> None:
        batches: list[Batch] = []
        for first, last in ranges:
            for batch in self._overlapping(first, last):
                for run in batch.cut_out(first, last):
                    self._lock(run, now_ms)
                batches.append(batch)
        _join_runs(batches)

    def _check_range(self, first: int, last: int, batches: Sequence[Batch]) -> None:
        """Raise KafkaError if these batches of the window do not have the offsets."""
        if not self._batches:
            raise _wrong_state("Batch record not found. The request batch offsets are not found in the cache.")
        end = batches[-1].first if batches and batches[-1].is_missing else self.end_offset
        for name, offset in ("first", first), ("last", last):
            if offset >= end:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"Batch record not found. The {name} offset in request is past acquired records.",
                )

    def _begin_change(self, run: Run, state: RecordState, change: Change) -> Written:
        state = self._state_after(run, state)
        run.change, run.becomes = change, state
        change.add(run.first, run.last)
        return Written(run.first, run.last, state, run.delivery_count)

    def _state_after(self, run: Run, state: RecordState) -> RecordState:
        """A record that was delivered as often as it may be is given up, like one that is rejected."""
        if state is RecordState.AVAILABLE and run.delivery_count >= self.limits.delivery_count_limit:
            state = RecordState.ARCHIVING
        if state is RecordState.ARCHIVING and not self.limits.dead_letter_topic:
            return RecordState.ARCHIVED
        return state

    def release(self, member_id: str) -> tuple[Change, list[Written]]:
        """Make all records available that a member holds."""
        change = Change()
        held = [
            run
            for run in self._runs()
            if run.state is RecordState.ACQUIRED and run.change is None and run.member_id == member_id
        ]
        return change, [self._begin_change(run, RecordState.AVAILABLE, change) for run in held]

    def complete(self, change: Change, *, is_written: bool, now_ms: int) -> None:
        """Apply a change, or take it back: then a lock that has ended meanwhile does so now."""
        for run, state in self._end(change):
            if is_written:
                self._set_free(run, state)
                continue
            run.is_rejected = False
            if run.lock_ends_ms <= now_ms:
                self._set_free(run, self._state_after(run, RecordState.AVAILABLE))
        self._move_start()

    def _end(self, change: Change) -> Iterator[tuple[Run, RecordState]]:
        """Yield the runs of a change, which they do not have any more, and what it makes of them."""
        batches: list[Batch] = []
        for first, last in change.ranges:
            for batch in self._overlapping(first, last):
                for run in batch.overlapping(first, last):
                    if run.change is change and run.becomes is not None:
                        state, run.change, run.becomes = run.becomes, None, None
                        yield run, state
                batches.append(batch)
        _join_runs(batches)

    def _set_free(self, run: Run, state: RecordState) -> None:
        run.state, run.member_id, run.lock_ends_ms = state, "", 0
        if state is RecordState.AVAILABLE:
            self._may_have_available = True
        elif state is RecordState.ARCHIVING:
            self._may_have_dead_letters = True

    def bury(self) -> tuple[Change, list[DeadLetter], list[Written]]:
        """Return the dead letters to write, and the change for when they are."""
        change = Change()
        letters: list[DeadLetter] = []
        written: list[Written] = []
        if self._may_have_dead_letters:
            self._may_have_dead_letters = False
            for run in self._runs():
                if run.state is RecordState.ARCHIVING and run.change is None:
                    too_often = not run.is_rejected and run.delivery_count >= self.limits.delivery_count_limit
                    reason = DELIVERED_TOO_OFTEN if too_often else REJECTED
                    letters.append(DeadLetter(run.first, run.last, run.delivery_count, reason))
                    written.append(self._begin_change(run, RecordState.ARCHIVED, change))
        return change, letters, written

    # --- time and retention -------------------------------------------------------------------------------------

    @property
    def next_lock_end_ms(self) -> int | None:
        return self._locks[0][0] if self._locks else None

    def end_locks(self, now_ms: int) -> list[Written]:
        """Take records away from members that did not acknowledge them in time. Return what is to be written."""
        written: list[Written] = []
        batches: list[Batch] = []
        while self._locks and self._locks[0][0] <= now_ms:
            _, first, last = heappop(self._locks)
            for batch in self._overlapping(first, last):
                for run in batch.overlapping(first, last):
                    if run.state is RecordState.ACQUIRED and run.change is None and run.lock_ends_ms <= now_ms:
                        self._set_free(run, self._state_after(run, RecordState.AVAILABLE))
                        written.append(Written(run.first, run.last, run.state, run.delivery_count))
                batches.append(batch)
        _join_runs(batches)
        if written:
            self._move_start()
        return written

    def cut_off(self, log_end_offset: int) -> None:
        """Forget records that the log has lost: others will get their offsets."""
        while self._batches and self._batches[-1].first >= log_end_offset:
            self._batches.pop()
        if self._batches and self._batches[-1].last >= log_end_offset:
            self._batches[-1].drop_from(log_end_offset)
        self.end_offset = min(self.end_offset, log_end_offset)
        self.start_offset = min(self.start_offset, log_end_offset)

    def move_to_log_start(self, log_start_offset: int) -> bool:
        """Forget records that the log has deleted, whoever holds them. Return whether there were any."""
        if log_start_offset <= self.start_offset:
            return False
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._drop_done()
        self._move_start()
        return True

    # --- the batches --------------------------------------------------------------------------------------------

    def _append(self, batch: Batch) -> None:
        self._batches.append(batch)
        self.end_offset = batch.last + 1

    def _append_unknown(self, last: int, state: RecordState) -> None:
        """Go on after offsets up to `last`, if they are not in the window."""
        if last < self.end_offset:
            return
        if self._batches or state is RecordState.AVAILABLE:
            self._append(Batch(Run(self.end_offset, last, state, 0), was_acquired=False))
        else:
            self.start_offset = self.end_offset = last + 1

    def _split(self, batch: Batch) -> None:
        """Make a batch of each run of one of which nothing is known."""
        place = self._batches.index(batch)
        self._batches[place : place + 1] = [Batch(run, was_acquired=False) for run in batch.runs]

    def _overlapping(self, first: int, last: int) -> Iterator[Batch]:
        batches = self._batches
        if first > last or not batches:
            return
        for place in range(max(0, bisect_right(batches, first, key=_FIRST_OFFSET) - 1), len(batches)):
            batch = batches[place]
            if batch.first > last:
                break
            if batch.last >= first:
                yield batch

    def _move_start(self) -> None:
        """Move the start over all that is done."""
        for run in self._runs():
            if not run.is_done:
                break
            self.start_offset = run.last + 1
        self._drop_done()

    def _drop_done(self) -> None:
        count = 0
        for batch in self._batches:
            if batch.last >= self.start_offset:
                break
            count += 1
        del self._batches[:count]
        if self._batches and self._batches[0].first < self.start_offset:
            self._batches[0].drop_before(self.start_offset)


def _join_runs(batches: Iterable[Batch]) -> None:
    """Join the runs of each batch once: there may be as many as runs."""
    for batch in {id(each): each for each in batches}.values():
        batch.join_runs()


def _check_owner(run: Run, member_id: str, *, is_whole: bool) -> None:
    """Raise KafkaError if the member may not acknowledge the records."""
    if run.state is not RecordState.ACQUIRED or run.change is not None:
        if is_whole:
            raise _wrong_state("The batch cannot be acknowledged. The batch is not in the acquired state.")
        raise _wrong_state("The offset cannot be acknowledged. The offset is not acquired.")
    if run.member_id != member_id:
        raise _wrong_state(f"Member is not the owner of {'batch record' if is_whole else 'offset'}")


def _wrong_state(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_RECORD_STATE, message)


def _by_type(said: Acknowledged, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield first..last in parts of one type each."""
    if len(said.types) == 1:
        yield first, last, said.types[0]
        return
    begin = first
    for kind, same in groupby(said.types[first - said.first_offset : last - said.first_offset + 1]):
        end = begin + sum(1 for _ in same)
        yield begin, end - 1, kind
        begin = end


def _joined(found: Sequence[Acquired]) -> list[Acquired]:
    """Make one of neighbours that were delivered equally often."""
    joined: list[Acquired] = []
    for each in found:
        if joined and joined[-1].last_offset + 1 == each.first_offset and joined[-1].delivery_count == each[2]:
            joined[-1] = joined[-1]._replace(last_offset=each.last_offset)
        else:
            joined.append(each)
    return joined


def _count(acquired: Sequence[Acquired]) -> int:
    return sum(each.last_offset - each.first_offset + 1 for each in acquired)


def _pieces(wanted: Wanted, room: int, batches: Sequence[RecordBatch], first: int, last: int) -> list[Batch]:
    """Divide new records into batches of at least `batch_size`, where a batch of the log begins. If there are more than
    `room`, they end with the batch of the log that has the last of these."""
    if room < last - first + 1:
        limit = first + room - 1
        last = min(
            last, next((each.last_offset for each in batches if each.base_offset <= limit <= each.last_offset), limit)
        )
    begins = [first]
    if not wanted.is_exact and last - first + 1 > wanted.batch_size:
        for each in batches:
            if each.base_offset <= last and each.base_offset - begins[-1] >= wanted.batch_size:
                begins.append(each.base_offset)
    ends = [*(begin - 1 for begin in begins[1:]), last]
    return [Batch(Run(begin, end, RecordState.AVAILABLE, 0)) for begin, end in zip(begins, ends, strict=True)]


def _parts_outside(acquired: Acquired, refused: Sequence[RecordBatch]) -> Iterator[Acquired]:
    """Yield what is left of acquired records without these batches."""
    first = acquired.first_offset
    for batch in refused:
        if batch.last_offset >= first and batch.base_offset <= acquired.last_offset:
            if first < batch.base_offset:
                yield acquired._replace(first_offset=first, last_offset=batch.base_offset - 1)
            first = batch.last_offset + 1
    if first <= acquired.last_offset:
        yield acquired._replace(first_offset=first)
