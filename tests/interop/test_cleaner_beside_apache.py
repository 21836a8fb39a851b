"""The same log, cleaned by Apache Kafka's own cleaner and by ours: the result is equal, batch by batch.

Random histories (tests/harness/cleaning_histories.py) are cleaned round after round while time passes, so that delete
horizons are set and expire. Each side reads by its indexes what the other has left. cleaner_comparison.py lists the
intended differences. A failing run names its seed.

Set MOLDAU_TEST_KAFKA_LIBS to a directory of Apache Kafka's jars; javac must be on the PATH.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from apache_cleaner import ApacheCleaner, needs_java, read_in, write_out
from cleaner_comparison import (
    ABORTED_KEPT_LONGER,
    END_OF_SEGMENT,
    MARKER_KEPT_LONGER,
    ONLY_BATCH_WITH_EPOCH,
    RECENT,
    Comparison,
    Content,
    Round,
    content_of,
)
from harness.cleaning_histories import CONFIG, OPEN, RETENTION_MS, History
from harness.making_logs import PARTITION, load_store, offset_for_time

from moldau.log import layout
from moldau.log.config import LOG_APPEND_TIME
from moldau.log.log import Log
from moldau.log.reading import aborted_between
from moldau.log.store import LogStore
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import read_header

pytestmark = [pytest.mark.moldau_only, needs_java]

HISTORIES: Final = 20
ROUNDS: Final = 7
DAY_MS: Final = 86_400_000
"""Both cleaners forget a producer after this time (`producer.id.expiration.ms`)."""
MEMORY: Final = Path("/dev/shm")
DIRECTORY: Final = f"data/{PARTITION.topic}-{PARTITION.partition}"
ALIKE: Final = {
    "rounds", "records alike", "aborted transactions alike", "batches alike", "batches with a horizon",
    "batches without records", "batches with fewer records", "markers alike", "markers with a horizon",
}  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def broker_answers() -> None:
    """These tests do not use the shared broker of this directory."""


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheCleaner]:
    with ApacheCleaner(
        tmp_path_factory.mktemp("apache") / "errors",
        delete_retention_ms=CONFIG.delete_retention_ms,
        segment_bytes=CONFIG.segment_bytes,
        index_interval_bytes=CONFIG.index_interval_bytes,
    ) as cleaner:
        yield cleaner


@pytest.fixture
def base(tmp_path: Path) -> Iterator[Path]:
    """Use memory if possible: Kafka syncs everything it writes, and the disk may be busy."""
    if not MEMORY.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=MEMORY) as directory:
        yield Path(directory)


class HistoryWithShortProducers(History):
    """Adds producers that write once, so that in the end only a marker is left of them, and in some rounds log append
    time."""

    def write_all(self) -> None:
        timestamp_type = LOG_APPEND_TIME if self.rng.random() < 0.2 else CONFIG.message_timestamp_type
        self.log.update_config(replace(CONFIG, message_timestamp_type=timestamp_type))
        last_ms = self.now_ms
        if self.rng.random() < 0.5:
            self.add_short_producer()
        self.write(self.rng.randint(3, 30))
        if self.rng.random() < 0.3:
            self.log.roll(self.now_ms)
        self.reopen()
        # Often exactly when the delete horizons of the last round expire.
        next_ms = last_ms + self.rng.choice((0, RETENTION_MS // 2, *[RETENTION_MS] * 5, DAY_MS))
        self.now_ms = max(self.now_ms, next_ms)
        self.log.producers.expire(self.now_ms, DAY_MS)

    def add_short_producer(self) -> None:
        """Add one transaction, perhaps without records; its end may raise the producer's epoch."""
        producer = max(self.epochs) + 1
        self.epochs[producer] = self.sequences[producer] = 0
        self.open[producer] = len(self.fates)
        self.fates[len(self.fates)] = OPEN
        for _ in range(self.rng.choice((0, 1, 1, 3))):
            self._append(producer)
        self.epochs[producer] += self.rng.choice((0, 1, 1))
        self.end_transaction(producer, self.rng.random() < 0.5)

    def _append(self, producer_id: int) -> None:
        first = self.log.end_offset
        super()._append(producer_id)
        if self.log.config.message_timestamp_type == LOG_APPEND_TIME:
            for offset in range(first, self.log.end_offset):
                self.puts[offset] = self.puts[offset]._replace(timestamp=self.now_ms)


class TwoLogs:
    """One history: our log in memory, Apache's in a directory."""

    def __init__(self, seed: str, apache: ApacheCleaner, base: Path, *, begins_alike: bool) -> None:
        self.history = HistoryWithShortProducers(seed)
        self.apache = apache
        self.theirs, self.copy = (base / seed / name / DIRECTORY for name in ("theirs", "copy"))
        self.comparison = Comparison(self.history.headers, begins_alike)
        self.apart_below = 0
        """Up to here Apache keeps its own cleaned log; everything else is copied to it from ours."""

    def clean(self) -> None:
        """Run a round of each cleaner, if there is something to clean."""
        history, log = self.history, self.history.log
        write_out(history.files, DIRECTORY, self.theirs, self.apart_below)
        up_to = history.cleanable_up_to()
        dirty = min(log.cleaned_up_to, up_to)
        if dirty == up_to:
            return
        cleaned = history.clean()
        assert cleaned is not None
        reached = self.apache.clean(self.theirs, log.end_offset, history.now_ms, dirty, up_to)
        assert reached == cleaned.cleaned_up_to == up_to
        inputs = Round(up_to, history.now_ms, {entry.producer_id: entry for entry in log.producers.active()})
        self.comparison.compare(self.check_ours_with_apache(), self.check_theirs_with_our_log(), inputs)
        if not self.comparison.begins_alike:
            self.apart_below = up_to
        elif history.rng.random() < 0.5:
            self.adopt_theirs()

    def check_ours_with_apache(self) -> Content:
        history = self.history
        content = content_of(history.files, DIRECTORY)
        write_out(history.files, DIRECTORY, self.copy)
        aborted = self.apache.check(self.copy, history.log.end_offset, history.now_ms)
        assert aborted == content.aborted
        return content

    def check_theirs_with_our_log(self) -> Content:
        files = MemoryFiles()
        load_store(files)[0].close()
        files.mkdir(DIRECTORY)
        read_in(files, DIRECTORY, self.theirs)
        content = content_of(files, DIRECTORY)
        log, ours = open_log(files)[1], self.history.log
        check_lookups(files, log, content)
        assert log.end_offset == ours.end_offset
        assert log.epochs.entries == ours.epochs.entries
        assert aborted_between(log.segments, 0, log.end_offset) == sorted(
            content.aborted, key=lambda txn: txn.first_offset
        )
        log.producers.expire(self.history.now_ms, DAY_MS)
        assert producers_of(log) == producers_of(ours)
        return content

    def adopt_theirs(self) -> None:
        """Continue our log from what Apache has left."""
        history, cleaned_up_to = self.history, self.history.log.cleaned_up_to
        history.store.close()
        read_in(history.files, DIRECTORY, self.theirs)
        history.store, history.log = open_log(history.files)
        history.log.cleaned_up_to = cleaned_up_to


def open_log(files: MemoryFiles) -> tuple[LogStore, Log]:
    """Open a log that was closed in order by either side, and check that nothing had to be repaired."""
    store, report = load_store(files, CONFIG)
    assert report.was_clean
    assert report.recovered == report.unreadable == []
    log = store.get(PARTITION)
    assert log is not None
    return store, log


def producers_of(log: Log) -> dict[int, tuple[int, int, int]]:
    return {
        entry.producer_id: (entry.epoch, entry.last_sequence, entry.transaction_start)
        for entry in log.producers.active()
    }


def check_lookups(files: MemoryFiles, log: Log, content: Content) -> None:
    """Check that every batch is found by offset and by time, and that no index had to be rebuilt."""
    names = [segment.path + suffix for segment in log.segments for suffix in (layout.OFFSET_INDEX, layout.TIME_INDEX)]
    indexes = [files.read(name) for name in names]
    stamps = [
        (record.timestamp, record.offset, batch.header.leader_epoch)
        for batch in content.batches.values()
        for record in batch.records
    ]
    for batch in content.batches.values():
        for offset in (batch.header.base_offset, batch.header.last_offset):
            piece = log.read(offset, 1, log.end_offset)
            assert piece is not None
            assert read_header(piece.read()) == batch.header
        time_ms = batch.header.max_timestamp
        first = next((stamp for stamp in stamps if stamp[0] >= time_ms), None)
        assert offset_for_time(log, time_ms) == first
    assert [files.read(name) for name in names] == indexes


def run_histories(apache: ApacheCleaner, base: Path, *, begins_alike: bool) -> Counter[str]:
    tally: Counter[str] = Counter()
    for number in range(HISTORIES):
        seed = f"{'alike' if begins_alike else 'apart'}-{number}"
        logs = TwoLogs(seed, apache, base, begins_alike=begins_alike)
        try:
            for _ in range(ROUNDS):
                logs.history.write_all()
                logs.clean()
                logs.history.check()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
        tally += logs.comparison.tally
    return tally


def test_both_cleaners_clean_the_same_log_identically(apache: ApacheCleaner, base: Path) -> None:
    """Every round begins with the same log for both: what one of them left of the round before."""
    tally = run_histories(apache, base, begins_alike=True)
    assert tally.keys() == ALIKE | {"markers without records", END_OF_SEGMENT, RECENT, ONLY_BATCH_WITH_EPOCH}


def test_logs_cleaned_separately_over_many_rounds_are_equal(apache: ApacheCleaner, base: Path) -> None:
    tally = run_histories(apache, base, begins_alike=False)
    assert tally.keys() == ALIKE | {
        END_OF_SEGMENT,
        RECENT,
        ONLY_BATCH_WITH_EPOCH,
        MARKER_KEPT_LONGER,
        ABORTED_KEPT_LONGER,
    }
