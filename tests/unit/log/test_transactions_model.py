"""Random transactions, truncations, deletions and restarts of a log, compared with a list of batches."""

from __future__ import annotations

from dataclasses import dataclass, field

import hypothesis.strategies as st
import pytest
from harness.depth import deep
from harness.making_logs import NOW_MS, PARTITION, TOPIC_ID, batch_of, load_store
from harness.reading_committed import read_committed
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from moldau.base.errors import KafkaError
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.reading import aborted_between
from moldau.log.store import LogStore
from moldau.log.validate import Origin
from moldau.testing.files import MemoryFiles
from moldau.wire.records import EndTxnMarker, build_batch, end_txn_marker

CONFIG = LogConfig(
    segment_bytes=900, index_interval_bytes=150, retention_ms=-1, retention_bytes=4000, file_delete_delay_ms=0
)
PRODUCERS = st.integers(1, 3)
READ_BYTES = st.sampled_from([1, 200, 500, 10_000])


@dataclass
class Batch:
    first: int
    last: int
    producer: int = -1
    epoch: int = -1
    sequence: int = -1
    is_transactional: bool = False
    ends: bool | None = None
    """Of a marker: whether it commits."""
    coordinator_epoch: int = -1
    values: list[bytes] = field(default_factory=list)


@dataclass
class Producer:
    """The state of one producer after all its batches."""

    epoch: int = -1
    next_sequence: int = 0
    opened: int = -1
    coordinator_epoch: int = -1
    recent: list[Batch] = field(default_factory=list)


@dataclass
class Transaction:
    producer: int
    first: int
    marker: int | None = None
    is_committed: bool = False
    batches: list[Batch] = field(default_factory=list)


def fold(batches: list[Batch]) -> tuple[dict[int, Producer], list[Transaction]]:
    producers: dict[int, Producer] = {}
    transactions: list[Transaction] = []
    for batch in batches:
        if batch.producer < 0:
            continue
        known = producers.setdefault(batch.producer, Producer())
        if known.epoch != batch.epoch:
            known.epoch, known.next_sequence, known.recent = batch.epoch, 0, []
        if batch.ends is not None:
            known.coordinator_epoch = batch.coordinator_epoch
            if known.opened >= 0:
                ended = next(each for each in transactions if each.first == known.opened)
                ended.marker, ended.is_committed = batch.first, batch.ends
            known.opened = -1
            continue
        known.next_sequence = batch.sequence + len(batch.values)
        known.recent = [*known.recent, batch][-5:]
        if batch.is_transactional and known.opened < 0:
            known.opened = batch.first
            transactions.append(Transaction(batch.producer, batch.first))
        if batch.is_transactional:
            next(each for each in transactions if each.first == known.opened).batches.append(batch)
    return producers, transactions


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.files = MemoryFiles()
        self.store: LogStore
        self.store, _ = load_store(self.files, CONFIG)
        self.log: Log = self.store.create(PARTITION, TOPIC_ID, CONFIG, NOW_MS)
        self.batches: list[Batch] = []
        """All batches that were written and not truncated, including deleted ones."""
        self.high_watermark = 0
        self.leader_epoch = 0
        self.serial = 0

    def producer(self, producer_id: int) -> Producer:
        return fold(self.batches)[0].get(producer_id, Producer())

    def values(self, count: int) -> list[bytes]:
        self.serial += 1
        return [b"%d.%d" % (self.serial, each) for each in range(count)]

    @rule(count=st.integers(1, 4))
    def write_without_producer(self, count: int) -> None:
        values = self.values(count)
        done = self.log.append(batch_of(values), leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        self.batches.append(Batch(done.first_offset, done.last_offset, values=values))

    @rule(producer_id=PRODUCERS, count=st.integers(1, 4), is_transactional=st.sampled_from([True, True, False]))
    def write(self, producer_id: int, count: int, is_transactional: bool) -> None:
        known = self.producer(producer_id)
        batch = Batch(
            -1, -1, producer_id, max(known.epoch, 0), known.next_sequence,
            is_transactional or known.opened >= 0, values=self.values(count),
        )  # fmt: skip
        batch.first, batch.last, _, is_repeat = self.send(batch)
        assert not is_repeat
        self.batches.append(batch)

    def send(self, batch: Batch) -> tuple[int, int, int, bool]:
        content = batch_of(
            batch.values,
            producer_id=batch.producer,
            producer_epoch=batch.epoch,
            base_sequence=batch.sequence,
            is_transactional=batch.is_transactional,
        )
        return self.log.append(content, leader_epoch=self.leader_epoch, now_ms=NOW_MS)

    @rule(producer_id=PRODUCERS, back=st.integers(0, 4))
    def send_again(self, producer_id: int, back: int) -> None:
        recent = [
            each for each in self.producer(producer_id).recent if each.first >= self.log.segments.first.base_offset
        ]
        if recent:
            batch, opened = recent[-1 - back % len(recent)], self.producer(producer_id).opened
            if batch.is_transactional and (opened < 0 or batch.first < opened):
                with pytest.raises(KafkaError, match="of a transaction that has ended"):
                    self.send(batch)
            else:
                assert self.send(batch)[:2] == (batch.first, batch.last)
            assert self.log.end_offset == self.end

    @rule(producer_id=PRODUCERS, commits=st.booleans(), bumps=st.booleans(), new_coordinator=st.booleans())
    def end_transaction(self, producer_id: int, commits: bool, bumps: bool, new_coordinator: bool) -> None:
        known = self.producer(producer_id)
        epoch = max(known.epoch, 0) + bumps
        coordinator_epoch = known.coordinator_epoch + new_coordinator
        marker = end_txn_marker(EndTxnMarker(commits, coordinator_epoch), NOW_MS)
        content = build_batch(
            [marker], is_control=True, is_transactional=True, producer_id=producer_id, producer_epoch=epoch
        )
        done = self.log.append(
            memoryview(content),
            leader_epoch=self.leader_epoch,
            now_ms=NOW_MS,
            origin=Origin.COORDINATOR,
            transaction_version=2 if bumps else 1,
        )
        self.batches.append(
            Batch(
                done.first_offset, done.last_offset, producer_id, epoch, -1, True, commits, coordinator_epoch
            )
        )  # fmt: skip

    @rule(plan=st.lists(st.tuples(PRODUCERS, st.sampled_from(["write", "write", "commit", "abort"])), min_size=5))
    def work(self, plan: list[tuple[int, str]]) -> None:
        """Several writes and ends: the log must grow faster than it is truncated and deleted."""
        for producer_id, deed in plan:
            if deed == "write":
                self.write(producer_id, 1, is_transactional=True)
            elif self.producer(producer_id).opened >= 0:
                self.end_transaction(producer_id, deed == "commit", bumps=False, new_coordinator=False)

    @rule(commits=st.lists(st.booleans(), min_size=3, max_size=3), max_bytes=READ_BYTES)
    def end_all(self, commits: list[bool], max_bytes: int) -> None:
        """Otherwise a transaction would be open most of the time, and little could be read."""
        for producer_id, is_commit in enumerate(commits, 1):
            if self.producer(producer_id).opened >= 0:
                self.end_transaction(producer_id, is_commit, bumps=False, new_coordinator=False)
        self.high_watermark = self.end
        self.aborted_transactions_are_returned()
        self.committed_records_are_read(max_bytes)

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else 0

    @rule(share=st.floats(0, 1))
    def replicate(self, share: float) -> None:
        self.high_watermark += int((self.end - self.high_watermark) * share + 0.5)

    @precondition(lambda self: self.batches)
    @rule(back=st.integers(1, 5), inside=st.integers(0, 2))
    def truncate(self, back: int, inside: int) -> None:
        last = self.batches[max(-back, -len(self.batches))]
        offset = max(min(last.first + inside, last.last), self.log.segments.first.base_offset)
        self.store.truncate(PARTITION, offset)
        self.batches = [each for each in self.batches if each.last < offset]
        # The rest of the log is that of the new leader.
        self.high_watermark = self.log.end_offset
        self.leader_epoch += 1

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        start = self.log.start_offset
        self.log.delete_records(start + max(0, int((self.high_watermark - start) * share)))

    @rule()
    def retain(self) -> None:
        self.log.delete_expired(NOW_MS, self.high_watermark)
        self.log.purge(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule()
    def roll(self) -> None:
        self.log.roll(NOW_MS)

    @precondition(lambda self: self.batches)
    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.high_watermark = self.end
        if clean:
            self.store.close()
        else:
            self.store.write_checkpoints()
            self.files = self.files.restart()
        self.store, report = load_store(self.files, CONFIG)
        assert report.recovered == []
        reopened = self.store.get(PARTITION)
        assert reopened is not None
        self.log = reopened

    # --- checks -------------------------------------------------------------------------------------------------

    @invariant()
    def producers_are_remembered(self) -> None:
        assert self.log.end_offset == max(self.end, self.log.segments.first.base_offset)
        expected, _ = fold(self.batches)
        found = {
            each.producer_id: (each.epoch, each.last_sequence + 1, each.transaction_start, each.coordinator_epoch)
            for each in self.log.producers.active()
        }
        assert found == {
            producer_id: (each.epoch, each.next_sequence, each.opened, each.coordinator_epoch)
            for producer_id, each in expected.items()
        }
        for producer_id, known in expected.items():
            assert self.log.producers.has_open_transaction(producer_id, known.epoch) is (known.opened >= 0)

    def stable_offset(self) -> int:
        undecided = [
            max(each.first, self.log.start_offset)
            for each in fold(self.batches)[1]
            if each.marker is None or each.marker >= self.high_watermark
        ]
        return min([self.high_watermark, *undecided])

    @invariant()
    def last_stable_offset_is_correct(self) -> None:
        assert self.log.last_stable_offset(self.high_watermark) == self.stable_offset()

    @rule()
    def aborted_transactions_are_returned(self) -> None:
        start, stable_offset = self.log.start_offset, self.stable_offset()
        aborted = [each for each in fold(self.batches)[1] if each.marker is not None and not each.is_committed]
        for offset in range(start, stable_offset, 3):
            for up_to in {offset + 1, min(offset + 7, stable_offset), stable_offset}:
                expected = [
                    (each.producer, each.first)
                    for each in aborted
                    if each.marker is not None and each.marker >= offset and each.first < up_to
                ]
                assert [each[:2] for each in aborted_between(self.log.segments, offset, up_to)] == expected

    @rule(max_bytes=READ_BYTES)
    def committed_records_are_read(self, max_bytes: int) -> None:
        aborted = [
            batch.first
            for each in fold(self.batches)[1]
            if each.marker is None or not each.is_committed
            for batch in each.batches
        ]
        expected = [
            (offset, value)
            for batch in self.batches
            if batch.ends is None and batch.first not in aborted and batch.last < self.stable_offset()
            for offset, value in enumerate(batch.values, batch.first)
            if offset >= self.log.start_offset
        ]
        found = read_committed(self.log, self.high_watermark, max_bytes)
        assert [(record.offset, record.value) for record in found] == expected


TransactionMachine.TestCase.settings = settings(
    max_examples=deep(20, quick=10), stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTransactionMachine = TransactionMachine.TestCase


def test_the_snapshot_of_a_recovered_segment_survives_earlier_segments() -> None:
    """Recovery rewrites the snapshots: after a deletion, a truncation finds the producer state only there."""
    machine = TransactionMachine()
    machine.begin()
    machine.work(plan=[(1, "write")] * 12 + [(1, "abort")] + [(1, "write")] * 3)
    machine.restart(clean=False)
    machine.delete_records(share=0.75)
    machine.retain()
    machine.truncate(back=1, inside=0)
    machine.replicate(share=0.66)
    machine.restart(clean=False)
    machine.producers_are_remembered()
    machine.last_stable_offset_is_correct()
    machine.aborted_transactions_are_returned()
    machine.teardown()
