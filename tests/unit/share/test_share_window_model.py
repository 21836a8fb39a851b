"""Random conversations of members with a share partition: its window, compared with one that keeps a state per offset.

What is written goes into a model of the share coordinator, from which another leader begins.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

import pytest
from harness.depth import deep
from share_oracle import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    NOBODY,
    LogBatch,
    Offset,
    Refused,
    ShareOracle,
    WrittenOffsets,
)

from moldau.base.errors import KafkaError
from moldau.share import window
from moldau.share.limits import ShareLimits
from moldau.share.runs import Change, RecordState, Run
from moldau.share.window import ACCEPT, GAP, REJECT, RELEASE, RENEW, Acknowledged, RecordBatch, Wanted, Window, Written

STEPS = 150
MEMBERS = ("a", "b", "c")
TYPES = (ACCEPT, ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, GAP, RENEW)
FAILING_TYPES = (ACCEPT, REJECT, RENEW, *[RELEASE] * 12)
LOCK_MS = 100
LOCKS_MAX = 20
WEIGHTS: Final = {
    "append": 8,
    "append_aborted": 2,
    "fetch": 12,
    "begin_reading": 4,
    "acquire": 8,
    "acknowledge": 16,
    "acknowledge_anything": 3,
    "release": 3,
    "complete": 12,
    "bury": 4,
    "complete_letters": 4,
    "time_passes": 2,
    "end_locks": 4,
    "compact": 2,
    "delete_records": 1,
    "lose_the_end": 0.5,
    "change_limits": 0.5,
    "change_leader": 0.7,
}
ESSENTIAL: Final = ("append", "fetch", "acknowledge", "complete")
Said = tuple[int, int, list[int]]
State = tuple[int, int, str, int, bool]
"""State, deliveries, member, end of the lock, and whether it is being written."""


class Writing(NamedTuple):
    """A change that the coordinator was asked to write."""

    change: Change
    begun: list[Offset]
    start: int
    written: WrittenOffsets


class Read(NamedTuple):
    offset: int
    log: list[LogBatch]


class Conversation:
    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.weights = {
            name: weight if name in ESSENTIAL else weight * random.choice([0, 0.5, 1, 1, 3])
            for name, weight in WEIGHTS.items()
        }
        self.limits = ShareLimits(
            LOCK_MS,
            delivery_count_limit=random.choice([1, 2, 3, 4, 5, 6, 10]),
            partition_max_record_locks=random.choice([4, 15, 40, 100]),
            allows_renewal=random.random() < 0.8,
            dead_letter_topic=random.choice(["", "dead-letters"]),
        )
        self.types = random.choice([TYPES, FAILING_TYPES])
        self.members = MEMBERS[: random.randint(1, 3)]
        self.batch_records_max = random.choice([1, 3, 12])
        start = random.choice([0, 0, 5])
        self.window, self.oracle = Window(start, self.limits), ShareOracle(start, self.limits)
        self.log: list[LogBatch] = []
        self.log_start = self.log_end = self.now_ms = 0
        self.reading: Read | None = None
        self.writing: list[Writing] = []
        self.burying: list[Writing] = []
        self.kept: WrittenOffsets = {}
        """What the coordinator has."""
        self.kept_start = self.passed = start
        self.done: set[int] = set()
        """Offsets of which a final state was written."""
        self.deliveries: dict[int, int] = {}
        """How often an offset was delivered, as this leader says."""
        self.held_max = 0

    def step(self) -> None:
        name = self.random.choices(list(self.weights), list(self.weights.values()))[0]
        print(name)  # what happened before a failure
        getattr(self, name)()
        self.equals_the_oracle()
        self.runs_follow_each_other()
        self.locks_are_bounded_and_complete()
        self.nothing_is_lost()

    # --- the log ------------------------------------------------------------------------------------------------

    def append(self, *, is_aborted: bool = False) -> None:
        for _ in range(self.random.randint(1, 4)):
            self.log_end += self.random.choice([0, 0, 0, 0, 2])
            size = self.random.randint(1, self.batch_records_max)
            self.log.append(LogBatch(self.log_end, self.log_end + size - 1, is_aborted))
            self.log_end += size

    def append_aborted(self) -> None:
        self.append(is_aborted=True)

    def compact(self) -> None:
        """Remove a batch, though never the last one."""
        if len(self.log) > 1:
            del self.log[self.random.randrange(len(self.log) - 1)]

    def delete_records(self) -> None:
        start = max(self.log_start, self.window.start_offset) + self.random.randint(1, 8)
        self.log_start = max(self.log_start, min(self.log_end, start))
        self.log = [each for each in self.log if each.last >= self.log_start]

    def lose_the_end(self) -> None:
        """Other records get the offsets: forget what the test knows of these."""
        end = self.log_end = max(self.log_start, self.log_end - self.random.randint(1, 6))
        self.log = [each for each in self.log if each.last < end]
        self.reading = None
        self.window.cut_off(end)
        self.oracle.cut_off(end)
        self.passed, self.kept_start = min(self.passed, end), min(self.kept_start, end)
        self.done = {offset for offset in self.done if offset < end}
        self.kept = _below(end, self.kept)
        self.writing = [each._replace(written=_below(end, each.written)) for each in self.writing]
        self.burying = [each._replace(written=_below(end, each.written)) for each in self.burying]

    # --- fetches ------------------------------------------------------------------------------------------------

    def fetch(self) -> None:
        self.begin_reading()
        self.acquire()

    def begin_reading(self) -> None:
        self.window.move_to_log_start(self.log_start)
        self.oracle.move_to_log_start(self.log_start)
        offset = self.window.next_fetch_offset
        assert offset == self.oracle.next_fetch_offset
        if self.reading is None and self.window.can_acquire:
            found = [each for each in self.log if each.last >= offset]
            self.reading = Read(offset, found[: self.random.choice([1, 3, 6, 100])])

    def acquire(self) -> None:
        if self.reading is None:
            return
        offset, log = self.reading
        self.reading = None
        member, is_exact = self.random.choice(self.members), self.random.random() < 0.3
        wanted = Wanted(member, self.random.randint(1, 30), self.random.choice([1, 3, 8, 100]), is_exact)
        acquired = self.window.acquire(wanted, offset, [RecordBatch(*each) for each in log], self.now_ms)
        print(wanted, offset, log, acquired)
        assert acquired == self.oracle.acquire(*wanted, offset, log, self.now_ms)
        for first, last, count in acquired:
            assert 1 <= count <= self.limits.delivery_count_limit
            for delivered in range(first, last + 1):
                assert delivered not in self.done
                self.deliveries[delivered] = count
        if is_exact:
            assert sum(last - first + 1 for first, last, _ in acquired) <= wanted.max_records

    # --- acknowledgements ---------------------------------------------------------------------------------------

    def acknowledge(self) -> None:
        """Acknowledge parts of what the member holds, in order and each offset once."""
        member = self.random.choice(self.members)
        held = [number for number, each in self.oracle.offsets().items() if each.member == member]
        said: list[Said] = []
        for _ in range(self.random.choice([1, 1, 3])):
            begin = self.random.randrange(len(held) + 1) if self.random.random() < 0.5 else 0
            part, held = held[begin : begin + self.random.choice([1, 5, 50])], held[begin + 50 :]
            said += [(first, last, self._types(last - first + 1)) for first, last in _ranges(part)]
        self._acknowledge(member, said)

    def acknowledge_anything(self) -> None:
        """Acknowledge any offsets, after some of its own."""
        member = self.random.choice(MEMBERS)
        first = max(0, self.window.start_offset + self.random.randint(-5, 40))
        last = first + self.random.choice([0, 0, 5, 20])
        own = [number for number, each in self.oracle.offsets().items() if each.member == member and number < first]
        said = [(own[0], own[0], [self.random.choice(self.types)])] if own else []
        self._acknowledge(member, [*said, (first, last, self._types(last - first + 1))])

    def _types(self, count: int) -> list[int]:
        return [self.random.choice(self.types) for _ in range(self.random.choice([1, count]))]

    def _acknowledge(self, member: str, said: list[Said]) -> None:
        print(member, said)
        start = self.window.start_offset
        acknowledged = [Acknowledged(*each) for each in said]
        try:
            begun, expected = self.oracle.acknowledge(member, said, self.now_ms)
        except Refused as refused:
            code = str(refused)
        else:
            change, written = self.window.acknowledge(member, acknowledged, self.now_ms)
            assert _per_offset(written) == expected
            self.writing.append(Writing(change, begun, start, expected))
            return
        with pytest.raises(KafkaError) as raised:
            self.window.acknowledge(member, acknowledged, self.now_ms)
        assert raised.value.code.name == code

    def release(self) -> None:
        member = self.random.choice(self.members)
        change, written = self.window.release(member)
        begun, expected = self.oracle.release(member)
        assert _per_offset(written) == expected
        self.writing.append(Writing(change, begun, self.window.start_offset, expected))

    def complete(self) -> None:
        if not self.writing:
            return
        writing = self.writing.pop(self.random.randrange(len(self.writing)))
        is_written = self.random.random() < 0.8
        if is_written:
            self._keep(writing.start, writing.written)
        self.window.complete(writing.change, is_written=is_written, now_ms=self.now_ms)
        self.oracle.complete(writing.begun, is_written=is_written, now_ms=self.now_ms)

    def bury(self) -> None:
        change, letters, written = self.window.bury()
        begun, expected = self.oracle.bury()
        found = [(n, (each.delivery_count, each.reason)) for each in letters for n in range(each[0], each[1] + 1)]
        assert dict(found) == expected
        assert len(found) == len(expected)
        assert _per_offset(written) == {number: (ARCHIVED, count) for number, (count, _) in expected.items()}
        self.burying.append(Writing(change, begun, 0, _per_offset(written)))

    def complete_letters(self) -> None:
        """Dead letters are written, or cannot be: their records are archived. That is written afterwards."""
        if self.burying:
            burying = self.burying.pop(self.random.randrange(len(self.burying)))
            self.window.complete(burying.change, is_written=True, now_ms=self.now_ms)
            self.oracle.complete(burying.begun, is_written=True, now_ms=self.now_ms)
            self._keep(self.window.start_offset, burying.written)

    def _keep(self, start: int, written: WrittenOffsets) -> None:
        """Do as the coordinator does."""
        self.kept_start = max(self.kept_start, start)
        self.kept = {number: state for number, state in (self.kept | written).items() if number >= self.kept_start}
        self.done |= {number for number, (state, _) in written.items() if state in (ACKNOWLEDGED, ARCHIVED)}

    # --- time, limits, and another leader -----------------------------------------------------------------------

    def time_passes(self) -> None:
        self.now_ms += self.random.choice([1, LOCK_MS // 3, LOCK_MS])

    def end_locks(self) -> None:
        self.time_passes()
        start = self.window.start_offset
        written = _per_offset(self.window.end_locks(self.now_ms))
        assert written == self.oracle.end_locks(self.now_ms)
        self._keep(start, written)

    def change_limits(self) -> None:
        self.limits = self.limits._replace(
            record_lock_duration_ms=self.random.choice([10, LOCK_MS, 3 * LOCK_MS]),
            partition_max_record_locks=self.random.randint(1, 60),
        )
        self.window.limits = self.oracle.limits = self.limits

    def change_leader(self) -> None:
        """What was being written may have arrived."""
        for each in self.writing if self.random.random() < 0.5 else []:
            self._keep(each.start, each.written)
        self.reading, self.writing, self.burying, self.deliveries = None, [], [], {}
        self.window, self.oracle = Window(self.kept_start, self.limits), ShareOracle(self.kept_start, self.limits)
        self.passed = self.kept_start
        written = [(first, last, *self.kept[first]) for first, last in _ranges(sorted(self.kept), self.kept)]
        print(self.kept_start, written)
        self.window.restore(Written(first, last, RecordState(state), count) for first, last, state, count in written)
        self.oracle.restore(written)

    # --- what always holds --------------------------------------------------------------------------------------

    def equals_the_oracle(self) -> None:
        mine, oracle = self.window, self.oracle
        assert (mine.start_offset, mine.end_offset) == (oracle.start, oracle.end)
        assert mine.next_fetch_offset == oracle.next_fetch_offset
        assert mine.can_acquire == oracle.can_acquire
        assert mine.done_count == oracle.done_count
        known = {
            number: _state_of_run(run)
            for batch in mine._batches
            if batch.was_acquired
            for run in batch.runs
            for number in range(run.first, run.last + 1)
        }
        assert known == {number: _state_of(each) for number, each in oracle.offsets().items()}

    def runs_follow_each_other(self) -> None:
        end = self.window.start_offset
        for batch in self.window._batches:
            for before, run in zip([None, *batch.runs], batch.runs, strict=False):
                assert run.first == end
                assert run.last >= run.first
                assert (run.change is None) == (run.becomes is None)
                assert before is None or run.change is not None or not run.equals(before)
                end = run.last + 1
        assert end == self.window.end_offset

    def locks_are_bounded_and_complete(self) -> None:
        held = [run for run in self.window._runs() if run.state is RecordState.ACQUIRED]
        self.held_max = max(self.held_max, len(held))
        assert len(self.window._locks) <= max(LOCKS_MAX, 2 * self.held_max)
        locked = {(number, ends_ms) for ends_ms, first, last in self.window._locks for number in range(first, last + 1)}
        for run in held:
            if run.change is None:
                assert locked.issuperset((number, run.lock_ends_ms) for number in range(run.first, run.last + 1))

    def nothing_is_lost(self) -> None:
        """An offset that the start has passed is done, was delivered as often as it may be, or cannot be delivered."""
        in_log = {number for each in self.log if not each.is_aborted for number in range(each.base, each.last + 1)}
        for number in range(max(self.passed, self.log_start), self.window.start_offset):
            is_exhausted = self.deliveries.get(number, 0) >= self.limits.delivery_count_limit
            assert number in self.done or is_exhausted or number not in in_log
        self.passed = max(self.passed, self.window.start_offset)


def _ranges(offsets: list[int], states: WrittenOffsets | None = None) -> list[tuple[int, int]]:
    """Join offsets that follow each other and have the same state."""
    found: list[tuple[int, int]] = []
    for each in offsets:
        if found and found[-1][1] == each - 1 and (states is None or states[each] == states[each - 1]):
            found[-1] = found[-1][0], each
        else:
            found.append((each, each))
    return found


def _below(end: int, written: WrittenOffsets) -> WrittenOffsets:
    return {number: state for number, state in written.items() if number < end}


def _per_offset(written: list[Written]) -> WrittenOffsets:
    """Spread it out. No offset may be there twice."""
    spread = [
        (number, (int(state), count)) for first, last, state, count in written for number in range(first, last + 1)
    ]
    assert len(dict(spread)) == len(spread)
    return dict(spread)


def _state_of(offset: Offset) -> State:
    is_held = offset.state == ACQUIRED
    return offset.state, offset.count, offset.member, offset.lock_ends_ms if is_held else 0, offset.before is not None


def _state_of_run(run: Run) -> State:
    if run.becomes is not None:
        return int(run.becomes), run.delivery_count, NOBODY, 0, True
    return int(run.state), run.delivery_count, run.member_id, run.lock_ends_ms, False


@pytest.mark.parametrize("seed", range(deep(200, quick=40)))
def test_a_window_is_one_state_per_offset(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(window, "_LOCKS_MAX", LOCKS_MAX)
    conversation = Conversation(seed)
    for _ in range(STEPS):
        conversation.step()
