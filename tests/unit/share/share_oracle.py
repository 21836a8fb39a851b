"""A share partition by the rules of Apache Kafka 4.3.1's SharePartition.java, with a state for each offset.

Written for clarity: nothing is shared with the window, and an offset that is being written has its new state already
and remembers the old one, as there. It differs from Apache Kafka where the window means to:

- The start moves over all that is done at once, not when the next write succeeds. Offsets below it are forgotten.
- Offsets that are not in the log are done, and count as such. Apache Kafka knows nothing of them.
- Offsets of which nothing is known after a load are in a set, not in a range of which only the beginning moves.
- Records that are not in the log any more are archived if nothing is being written about them.
- A request that is refused renews nothing.
- With a topic for dead letters, records that are given up are archived when these are written (KIP-1191).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.share.limits import ShareLimits

AVAILABLE, ACQUIRED, ACKNOWLEDGED, ARCHIVING, ARCHIVED = range(5)
NOBODY = ""
TOO_OFTEN, REJECTED = "Offset delivery count exceeded the threshold.", "Offset rejected by client."
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
STATE_OF_TYPE = {GAP: ARCHIVED, ACCEPT: ACKNOWLEDGED, RELEASE: AVAILABLE, REJECT: ARCHIVING}

Range = tuple[int, int, int]
"""First and last offset, and the number of deliveries."""
WrittenOffsets = dict[int, tuple[int, int]]
"""State and number of deliveries of each offset."""


class LogBatch(NamedTuple):
    base: int
    last: int
    is_aborted: bool = False


class Refused(Exception):
    """The name of the error code."""


@dataclass
class Offset:
    state: int
    count: int
    member: str = NOBODY
    lock_ends_ms: int = 0
    before: tuple[int, str] | None = None
    """State and member before what is being written."""
    is_rejected: bool = False

    @property
    def is_done(self) -> bool:
        return self.state in (ACKNOWLEDGED, ARCHIVED)

    @property
    def can_be_acquired(self) -> bool:
        return self.state == AVAILABLE and self.before is None


@dataclass
class InFlightBatch:
    first: int
    last: int
    offsets: dict[int, Offset]
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = self.last - self.first + 1

    def between(self, first: int, last: int) -> Iterator[tuple[int, Offset]]:
        return ((number, each) for number, each in sorted(self.offsets.items()) if first <= number <= last)


class ShareOracle:
    def __init__(self, start: int, limits: ShareLimits) -> None:
        self.limits = limits
        self.start = start
        self.end = start
        """The first offset that was never acquired."""
        self.cache: list[InFlightBatch] = []
        """Ordered by offset."""
        self.unknown: set[int] = set()
        """Offsets below the end of which nothing was written before the load."""

    def restore(self, written: Sequence[tuple[int, int, int, int]]) -> None:
        for first, last, state, count in written:
            self.unknown.update(range(self.end, first))
            self.cache.append(_in_flight(first, last, state, count))
            self.end = last + 1
        self._settle()

    # --- what is there ------------------------------------------------------------------------------------------

    def offsets(self) -> dict[int, Offset]:
        """All offsets of in-flight batches, from the start on."""
        found = {number: each for batch in self.cache for number, each in batch.offsets.items()}
        return {number: each for number, each in found.items() if number >= self.start}

    @property
    def next_fetch_offset(self) -> int:
        known = {number for number, each in self.offsets().items() if each.can_be_acquired}
        return min(known | self.unknown, default=self.end)

    @property
    def can_acquire(self) -> bool:
        return self.next_fetch_offset != self.end or self.end - self.start < self.limits.partition_max_record_locks

    @property
    def done_count(self) -> int:
        offsets = self.offsets()
        missing = set(range(self.start, self.end)) - offsets.keys() - self.unknown
        return len(missing) + sum(each.is_done for each in offsets.values())

    # --- acquiring ----------------------------------------------------------------------------------------------

    def acquire(
        self,
        member: str,
        most: int,
        batch_size: int,
        is_exact: bool,
        fetch_offset: int,
        log: Sequence[LogBatch],
        now_ms: int,
    ) -> list[Range]:
        if not log or log[-1].last < self.start:
            return []
        last = log[-1].last
        room = min(most, self.limits.partition_max_record_locks - (self.end - self.start))
        if room <= 0 and fetch_offset < self.end:
            room = min(most, self.end - fetch_offset)
            last = min(last, self.end - 1)
        if room <= 0:
            return []
        base = log[0].base
        self._archive_stale(fetch_offset, base)
        fetch = _Fetch(self, member, batch_size, is_exact, log, base, last, room, now_ms)
        fetch.acquire()
        ranges = self._without_aborted(fetch.ranges, [each for each in log if each.is_aborted])
        self._settle()
        return ranges

    def _archive_stale(self, fetch_offset: int, base: int) -> None:
        self.unknown -= set(range(fetch_offset, base))
        for number, each in self.offsets().items():
            if fetch_offset <= number < base and each.can_be_acquired:
                each.state = ARCHIVED
        self._settle()

    def _without_aborted(self, ranges: Sequence[Range], aborted: Sequence[LogBatch]) -> list[Range]:
        """Archive what is acquired of aborted batches. Divide the ranges around all of these offsets."""
        refused = {number for each in aborted for number in range(each.base, each.last + 1)}
        for number, offset in self.offsets().items():
            if number in refused and offset.state == ACQUIRED:
                offset.state, offset.member = ARCHIVED, NOBODY
        left: list[Range] = []
        for first, last, count in ranges:
            kept = [number for number in range(first, last + 1) if number not in refused]
            left += _ranges_of((number, count) for number in kept)
        return left

    # --- acknowledging ------------------------------------------------------------------------------------------

    def acknowledge(
        self, member: str, said: Sequence[tuple[int, int, Sequence[int]]], now_ms: int
    ) -> tuple[list[Offset], WrittenOffsets]:
        """Return the offsets that are being written, and what. Raise Refused, and take back what was begun."""
        begun: list[Offset] = []
        written: WrittenOffsets = {}
        renewed: list[Offset] = []
        try:
            for first, last, types in said:
                if last >= self.start:
                    self._acknowledge(member, first, last, types, begun, written, renewed)
        except Refused:
            for offset in begun:
                self._take_back(offset)
            raise
        for offset in renewed:
            offset.lock_ends_ms = now_ms + self.limits.record_lock_duration_ms
        return begun, written

    def _acknowledge(
        self,
        member: str,
        first: int,
        last: int,
        types: Sequence[int],
        begun: list[Offset],
        written: WrittenOffsets,
        renewed: list[Offset],
    ) -> None:
        offsets = self.offsets()
        held = offsets.keys() | self.unknown
        if not held:
            raise Refused("INVALID_RECORD_STATE")
        if last not in held:
            raise Refused("INVALID_REQUEST")
        for number in range(max(first, self.start), last + 1):
            if number not in held:
                continue
            offset = offsets.get(number)
            if offset is None or offset.state != ACQUIRED or offset.member != member:
                raise Refused("INVALID_RECORD_STATE")
            kind = types[number - first] if len(types) > 1 else types[0]
            if kind == RENEW:
                if not self.limits.allows_renewal:
                    raise Refused("INVALID_RECORD_STATE")
                renewed.append(offset)
            else:
                self._begin(number, offset, STATE_OF_TYPE[kind], begun, written)

    def _begin(self, number: int, offset: Offset, state: int, begun: list[Offset], written: WrittenOffsets) -> None:
        offset.before = offset.state, offset.member
        offset.state, offset.member = self._state_after(offset, state), NOBODY
        offset.is_rejected = state == ARCHIVING
        begun.append(offset)
        written[number] = offset.state, offset.count

    def _state_after(self, offset: Offset, state: int) -> int:
        is_last = state == AVAILABLE and offset.count >= self.limits.delivery_count_limit
        if is_last or state == ARCHIVING:
            return ARCHIVING if self.limits.dead_letter_topic else ARCHIVED
        return state

    def release(self, member: str) -> tuple[list[Offset], WrittenOffsets]:
        begun: list[Offset] = []
        written: WrittenOffsets = {}
        for number, offset in self.offsets().items():
            if offset.state == ACQUIRED and offset.member == member:
                self._begin(number, offset, AVAILABLE, begun, written)
        return begun, written

    def complete(self, begun: Sequence[Offset], *, is_written: bool, now_ms: int) -> None:
        for offset in begun:
            if not is_written:
                self._take_back(offset)
                if offset.lock_ends_ms <= now_ms:
                    offset.state, offset.member = self._state_after(offset, AVAILABLE), NOBODY
            offset.before = None
        self._settle()

    def bury(self) -> tuple[list[Offset], dict[int, tuple[int, str]]]:
        """Return the offsets that get a dead letter, and deliveries and reason of each."""
        begun: list[Offset] = []
        letters: dict[int, tuple[int, str]] = {}
        for number, offset in self.offsets().items():
            if offset.state == ARCHIVING and offset.before is None:
                is_last = offset.count >= self.limits.delivery_count_limit and not offset.is_rejected
                letters[number] = offset.count, TOO_OFTEN if is_last else REJECTED
                offset.before, offset.state = (ARCHIVING, NOBODY), ARCHIVED
                begun.append(offset)
        return begun, letters

    def _take_back(self, offset: Offset) -> None:
        assert offset.before is not None
        offset.is_rejected = False
        offset.state, offset.member = offset.before
        offset.before = None

    # --- time and the log ---------------------------------------------------------------------------------------

    def end_locks(self, now_ms: int) -> WrittenOffsets:
        written: WrittenOffsets = {}
        for number, offset in self.offsets().items():
            if offset.state == ACQUIRED and offset.lock_ends_ms <= now_ms:
                offset.state, offset.member = self._state_after(offset, AVAILABLE), NOBODY
                written[number] = offset.state, offset.count
        self._settle()
        return written

    def move_to_log_start(self, log_start: int) -> None:
        if log_start > self.start:
            self.start = log_start
            self.end = max(self.end, log_start)
            self._settle()

    def cut_off(self, log_end: int) -> None:
        """Apache Kafka has nothing like it."""
        self.start, self.end = min(self.start, log_end), min(self.end, log_end)
        for batch in self.cache:
            batch.offsets = {number: each for number, each in batch.offsets.items() if number < log_end}
            batch.last = min(batch.last, log_end - 1)
        self.cache = [batch for batch in self.cache if batch.offsets]
        self._settle(moves=False)

    def _settle(self, *, moves: bool = True) -> None:
        """Move the start over all that is done, and forget what lies below."""
        while moves and self.start < self.end and self.start not in self.unknown:
            offset = self.offsets().get(self.start)
            if offset is not None and not (offset.is_done and offset.before is None):
                break
            self.start += 1
        self.unknown = {number for number in self.unknown if self.start <= number < self.end}
        self.cache = [batch for batch in self.cache if batch.last >= self.start]


@dataclass
class _Fetch:
    """One call of Apache Kafka's `acquire`, after its checks."""

    oracle: ShareOracle
    member: str
    batch_size: int
    is_exact: bool
    log: Sequence[LogBatch]
    base: int
    last: int
    room: int
    now_ms: int
    ranges: list[Range] = field(default_factory=list)
    count: int = 0

    def acquire(self) -> None:
        oracle = self.oracle
        entries = [batch for batch in oracle.cache if batch.first <= self.last and batch.last >= self.base]
        for batch in entries:
            self._acquire_unknown(batch.first - 1)
            if self.count >= self.room:
                return
            is_throttled = self._is_throttled(batch)
            if is_throttled and self.count > 0:
                return
            self._acquire_part(batch)
            if is_throttled:
                return
        self._acquire_unknown(self.last)
        if self.count < self.room and oracle.end <= self.last:
            self._acquire_new(max(self.base, oracle.end), self.last)

    def _acquire_unknown(self, last: int) -> None:
        """Acquire what nothing is known of up to this offset, in ranges without a break."""
        unknown = sorted(number for number in self.oracle.unknown if self.base <= number <= min(last, self.last))
        for first, end, _ in _ranges_of((number, 0) for number in unknown):
            if self.count < self.room:
                self._acquire_new(first, end)

    def _acquire_new(self, first: int, last: int) -> None:
        oracle, room = self.oracle, self.room - self.count
        if room < last - first + 1:
            limit = first + room - 1
            ends = [each.last for each in self.log if each.base <= limit <= each.last]
            last = min(last, ends[0] if ends else limit)
        pieces: list[tuple[int, int]] = []
        begin = first
        if not self.is_exact and last - first + 1 > self.batch_size:
            for each in self.log:
                if each.base <= last and each.base - begin >= self.batch_size:
                    pieces.append((begin, each.base - 1))
                    begin = each.base
        pieces.append((begin, last))
        for begin, end in pieces:
            batch = _in_flight(begin, end, AVAILABLE, 0)
            given_last = min(end, begin + room - 1) if self.is_exact else end
            for number in range(begin, given_last + 1):
                self._give(batch.offsets[number])
            oracle.cache = sorted([*oracle.cache, batch], key=lambda each: each.first)
            self._add((begin, given_last, 1))
        oracle.unknown -= set(range(first, last + 1))
        if oracle.start == oracle.end and not oracle.unknown and len(oracle.cache) == len(pieces):
            oracle.start = first
        oracle.end = max(oracle.end, last + 1)

    def _is_throttled(self, batch: InFlightBatch) -> bool:
        counts = [each.count for _, each in self._wanted_of(batch) if each.can_be_acquired]
        return max(counts, default=0) >= self._throttled_from

    @property
    def _throttled_from(self) -> int:
        return max(2, -(-self.oracle.limits.delivery_count_limit // 2))

    def _wanted_of(self, batch: InFlightBatch) -> Iterator[tuple[int, Offset]]:
        return batch.between(max(self.base, self.oracle.start), self.last)

    def _acquire_part(self, batch: InFlightBatch) -> None:
        limit = self.oracle.limits.delivery_count_limit
        given: list[tuple[int, int]] = []
        most_throttled = None
        for number, offset in self._wanted_of(batch):
            if not offset.can_be_acquired:
                continue
            is_last_delivery = limit > 2 and offset.count == limit - 1
            if is_last_delivery and given:
                break
            if offset.count >= self._throttled_from and most_throttled is None:
                most_throttled = max(1, batch.size >> (offset.count - self._throttled_from + 1))
            self._give(offset)
            given.append((number, offset.count))
            is_full = self.is_exact and len(given) == self.room - self.count
            if is_last_delivery or is_full or len(given) == most_throttled:
                break
        for each in _ranges_of(given):
            self._add(each)

    def _give(self, offset: Offset) -> None:
        offset.state, offset.member = ACQUIRED, self.member
        offset.count += 1
        offset.lock_ends_ms = self.now_ms + self.oracle.limits.record_lock_duration_ms

    def _add(self, each: Range) -> None:
        self.ranges.append(each)
        self.count += each[1] - each[0] + 1


def _in_flight(first: int, last: int, state: int, count: int) -> InFlightBatch:
    return InFlightBatch(first, last, {number: Offset(state, count) for number in range(first, last + 1)})


def _ranges_of(numbers: Iterator[tuple[int, int]] | Sequence[tuple[int, int]]) -> list[Range]:
    """Join offsets that follow each other and were delivered equally often."""
    ranges: list[Range] = []
    for number, count in numbers:
        if ranges and ranges[-1][1] == number - 1 and ranges[-1][2] == count:
            ranges[-1] = ranges[-1][0], number, count
        else:
            ranges.append((number, number, count))
    return ranges
