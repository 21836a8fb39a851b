"""One partition of a view on this node. It stores nothing: it shows the log of its source's partition, whose offsets,
leader and high watermark are its own.

A read returns what is evaluated, and starts the evaluation of what follows. A fetch that finds nothing yet waits, as
for new records, until a worker is done. So nobody who reads a view keeps the event loop busy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError, MalformedData, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.promise import Promise
from moldau.log.epochs import LeaderEpochs
from moldau.log.producers import Producers
from moldau.log.reading import Slice, first_batch
from moldau.log.time_search import InThread, TimeSearch
from moldau.log.txn_index import AbortedTxn
from moldau.metadata.image import PartitionState
from moldau.replica.faults import ReportFault
from moldau.replica.leadership import Leadership
from moldau.replica.partition import Partition
from moldau.replica.traffic import TopicTraffic
from moldau.replica.view_counts import ViewCounts
from moldau.replica.view_failures import RunFailures
from moldau.replica.watching import Watchers
from moldau.views.definition import ViewDefinition
from moldau.views.field_ranges import RUN_BYTES_MIN, IndexedRun, RunIndex, can_match, constraints_of, indexed_fields
from moldau.views.jobs import Evaluated, EvaluatesViews, ViewFailed
from moldau.views.markers import marker
from moldau.views.shown_runs import ResultBudget, ShownPartition, ShownRecords

RUN_BYTES: Final = 8 << 20
"""Bytes of the source that are evaluated at once, unless one batch is larger."""
RUN_DIVISOR: Final = 4
"""Of a run that could not be evaluated, this part is tried next, down to one batch."""
RUNS_PENDING_MAX: Final = 8
"""Runs of one partition that are evaluated for readers at different offsets."""
SKIPS_A_READ: Final = 100
"""Runs that one read skips by the index, which has thousands: each takes some 10 microseconds of the loop."""

Version = tuple[int, int, int]


class ViewPartition:
    __slots__ = (
        "_clock", "_constraints", "_counts", "_definition", "_evaluator", "_failures", "_is_removed", "_keys",
        "_pending", "_run_bytes", "_shown", "_timers", "_version", "index",
        "log", "name", "source", "topic_id", "traffic", "watchers",
    )  # fmt: skip

    def __init__(
        self,
        name: TopicPartition,
        topic_id: Uuid,
        source: Partition,
        definition: ViewDefinition,
        evaluator: EvaluatesViews,
        budget: ResultBudget,
        index: RunIndex,
        counts: ViewCounts,
        traffic: TopicTraffic,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.name = name
        self.topic_id = topic_id
        self.source = source
        self.traffic = traffic
        self.watchers: Watchers[ViewPartition] = Watchers()
        self.log = ViewLog(self)
        self._definition = definition
        self._evaluator = evaluator
        self._counts = counts
        self.index = index
        """What runs of the source hold; all views of the source that read values in the same format share it."""
        self._constraints = constraints_of(definition.where)
        self._keys = {key: key for key in indexed_fields(self._constraints)}
        self._clock = clock
        self._timers = timers
        self._shown = ShownPartition(budget)
        self._version: Version = (-1, -1, -1)
        """Leader epoch, truncations and compactions of the source for which the results hold."""
        self._pending: dict[int, Promise[Evaluated | ViewFailed]] = {}
        """The runs that are being evaluated, by their offsets."""
        self._run_bytes = RUN_BYTES
        """How long the next run is: less after one that could not be evaluated."""
        self._failures = RunFailures()
        self._is_removed = False

    # --- as a partition -----------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        return self._is_removed or self.source.is_closed

    @property
    def is_leader(self) -> bool:
        return self.source.is_leader

    @property
    def state(self) -> PartitionState:
        return self.source.state

    @property
    def high_watermark(self) -> int:
        return self.source.high_watermark

    @property
    def last_stable_offset(self) -> int:
        return self.source.last_stable_offset

    @property
    def epoch_start_offset(self) -> int:
        return self.source.epoch_start_offset

    @property
    def leadership(self) -> Leadership | None:
        return self.source.leadership

    @property
    def report_fault(self) -> ReportFault:
        return self.source.report_fault

    def check_leader_epoch(self, current_leader_epoch: int, *, leader_only: bool = True) -> None:
        if self._is_removed:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self.source.check_leader_epoch(current_leader_epoch, leader_only=leader_only)

    def check_certain(self) -> None:
        self.source.check_certain()

    def check_replica(self, replica_id: int, broker_epoch: int, current_leader_epoch: int) -> None:
        """Nobody follows a view."""
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def replica_fetched(self, replica_id: int, broker_epoch: int, fetch_offset: int, start_offset: int) -> None:
        raise AssertionError("check_replica refuses every follower")

    # --- as a watcher of the source -----------------------------------------------------------------------------

    def high_watermark_moved(self, partition: Partition, size: int) -> None:
        """Wake the waiting fetches: they have the new records evaluated. Without any, stop watching the source."""
        if self.watchers.consumers:
            self.watchers.readable_by_consumers(self, 0)
        else:
            partition.watchers.remove(self)

    def readable(self, partition: Partition, size: int) -> None:
        self.high_watermark_moved(partition, size)

    def metadata_changed(self, partition: Partition) -> None:
        """Only followers learn that."""

    def close(self) -> None:
        """The view or its source was removed, or the source's partition was opened again."""
        self._is_removed = True
        for work in self._pending.values():
            self._evaluator.withdraw(self.name.topic, work)
        self._pending.clear()
        self.source.watchers.remove(self)
        self._shown.clear()
        self.watchers.readable_by_consumers(self, 0)
        self.watchers.clear()

    # --- reading ------------------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, up_to: int, at_least_one: bool) -> ShownRecords | None:
        """Return what is shown from `offset` on, as far as it is evaluated. What follows is evaluated next. After many
        skipped runs, the waiting fetches are woken to go on in the next turn of the loop."""
        log = self.source.log
        if not log.start_offset <= offset <= log.end_offset:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.source.watchers.consumers[self] = None
        self._check_version()
        parts: list[memoryview] = []
        size, position, skips_left = 0, offset, SKIPS_A_READ
        up_to = min(up_to, log.end_offset)
        while position < up_to:
            run = self._shown.find(position)
            if run is None and skips_left and self._skip(position, up_to):
                skips_left -= 1
                continue
            if run is None and not skips_left:
                self._timers.soon(self._wake)
                break
            if run is None:
                self._evaluate(position, up_to, is_asked_for=position == offset)
                break
            if run.shows_nothing:
                position = min(run.end, up_to)
                continue
            cut = run.cut(position, up_to, max_bytes - size, at_least_one and not size)
            if cut.batches:
                parts.append(cut.batches)
                size += len(cut.batches)
            has_moved, position = cut.behind > position, cut.behind
            if cut.is_full or not has_moved:
                break
        if parts:
            return ShownRecords.of(parts, position, size)
        if position > offset:
            return ShownRecords.nothing_up_to(position, self.source.state.leader_epoch)
        return None

    def _skip(self, offset: int, up_to: int) -> bool:
        """Store an empty run if the index says that nothing is shown at `offset`; return whether it did."""
        known = self.index.find(offset)
        if (
            known is None
            or known.end > up_to
            or known.has_controls
            or (known.unreadable and self._definition.passes_unreadable)
            or can_match(self._constraints, known.ranges)
        ):
            return False
        last = known.end - 1
        nothing = marker(last, self.source.state.leader_epoch)
        empty = Evaluated(
            known.begin,
            known.end,
            nothing,
            positions=(0,),
            last_offsets=(last,),
            seen=0,
            shown=0,
            unreadable=0,
            holds_batches=False,
        )
        self._shown.add(offset, empty)
        self._counts.skipped_runs += 1
        return True

    def _check_version(self) -> None:
        """Drop the results after a change of the leader or a truncation: the records may be others. After a compaction
        too: the log may no longer know which of the records that it has removed were aborted."""
        log = self.source.log
        version = (self.source.state.leader_epoch, log.generation, log.segments.replacements)
        if version != self._version:
            self._version = version
            self.index.check_version(version)
            self._shown.clear()
            self._failures.clear()

    def _evaluate(self, offset: int, up_to: int, is_asked_for: bool) -> None:
        """Begin to evaluate the run at `offset`: up to RUNS_PENDING_MAX that readers wait for, but only one ahead of
        them. Raise KafkaError if it failed a moment ago."""
        if self._failures.must_wait(offset, self._clock.monotonic_ms()):
            error = self._failures.error(offset)
            if is_asked_for and error is not None:
                raise error
            return
        # A reader's own run goes first: the next one is evaluated ahead only if nobody waits for another.
        if offset in self._pending or len(self._pending) >= (RUNS_PENDING_MAX if is_asked_for else 1):
            return
        if not is_asked_for and not self._shown.has_room_ahead(self._run_bytes):
            return
        has_failed = self._failures.error(offset) is not None  # with one batch: more would fail too
        records = self.source.log.read(offset, 1 if has_failed else self._run_bytes, up_to)
        if records is None:
            return
        version = self._version
        work = self._evaluator.evaluate(self.name.topic, self._definition, records, self.name.partition)
        self._pending[offset] = work
        work.then(lambda result: self._on_result(offset, version, records, result))

    def _on_result(self, offset: int, version: Version, records: Slice, result: Evaluated | ViewFailed) -> None:
        self._pending.pop(offset, None)
        if not self.is_closed:
            self._check_version()
        if version != self._version or self.is_closed:
            pass  # the waiting fetches ask again
        elif isinstance(result, Evaluated):
            self._on_evaluated(offset, records, result)
        elif not self._on_failed(offset, records, result):
            return
        self._wake()

    def _on_evaluated(self, offset: int, records: Slice, result: Evaluated) -> None:
        self._failures.forget(offset)
        self._run_bytes = min(2 * self._run_bytes, RUN_BYTES)
        self._counts.add(result)
        begin = min(offset, result.first_offset)
        self._shown.add(begin, result)
        if result.ranges and records.length >= RUN_BYTES_MIN:
            # Keys that are equal are one object: each result brings its own copies.
            ranges = {self._keys[key]: bounds for key, bounds in result.ranges if key in self._keys}
            self.index.add(IndexedRun(begin, result.next_offset, ranges, result.unreadable, result.has_controls))

    def _on_failed(self, offset: int, records: Slice, failed: ViewFailed) -> bool:
        """Return whether the waiting fetches can go on at once: with fewer records, or with an error."""
        last_offset = offset
        if failed.is_divisible:
            try:
                first = first_batch(records)
            except (StorageFault, MalformedData) as wrong:
                failed = failed._replace(why=f"{failed.why}; {wrong}")
            else:
                if first.size_in_bytes < records.length:
                    self._run_bytes = max(first.size_in_bytes, records.length // RUN_DIVISOR)
                    return True
                last_offset = first.last_offset
        now_ms = self._clock.monotonic_ms()
        backoff_ms = self._failures.add(offset, failed, now_ms)
        if backoff_ms is not None:
            self._timers.after_ms(backoff_ms, self._wake)
            return False
        self._counts.failed(self.name, offset, last_offset, failed.why, now_ms)
        return True

    def _wake(self) -> None:
        """Let the waiting fetches read again."""
        self.watchers.readable_by_consumers(self, 0)


class ViewLog:
    """The source's log, as readers of the view see it."""

    __slots__ = ("_view",)

    def __init__(self, view: ViewPartition) -> None:
        self._view = view

    @property
    def start_offset(self) -> int:
        return self._view.source.log.start_offset

    @property
    def end_offset(self) -> int:
        return self._view.source.log.end_offset

    @property
    def epochs(self) -> LeaderEpochs:
        return self._view.source.log.epochs

    @property
    def producers(self) -> Producers:
        return self._view.source.log.producers

    def last_stable_offset(self, high_watermark: int) -> int:
        return self._view.source.log.last_stable_offset(high_watermark)

    def read(self, offset: int, max_bytes: int, up_to: int, *, at_least_one: bool = True) -> ShownRecords | None:
        return self._view.read(offset, max_bytes, up_to, at_least_one)

    def aborted_between(self, offset: int, up_to: int) -> Sequence[AbortedTxn]:
        return self._view.source.log.aborted_between(offset, up_to)

    def search_time(self, target_ms: int | None, in_thread: InThread) -> TimeSearch:
        return self._view.source.log.search_time(target_ms, in_thread)


ReadablePartition = Partition | ViewPartition
