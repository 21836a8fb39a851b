"""Functions that create batches and logs, and read logs, for the tests of `moldau.log`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from moldau.base.ids import TopicPartition
from moldau.base.steps import finish
from moldau.log import compaction, layout
from moldau.log.cleaning.job import CleaningJob, CleaningResult
from moldau.log.config import LogConfig
from moldau.log.files import Files
from moldau.log.log import Log
from moldau.log.reports import StoreReport
from moldau.log.store import LogStore
from moldau.log.time_index import TimestampOffset
from moldau.log.time_search import TimeSearch
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import BatchHeader, split_batches
from moldau.wire.compression import Compression
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, decode_records

NOW_MS = 1_700_000_000_000
PARTITION = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))


def batch_of(
    values: Sequence[bytes | None] = (b"value",),
    *,
    timestamp: int = NOW_MS,
    key: bytes | None = b"key",
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> memoryview:
    records = [Record(NEXT_OFFSET, timestamp, key, value) for value in values]
    return memoryview(
        build_batch(
            records,
            compression=compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=base_sequence,
            is_transactional=is_transactional,
        )
    )


def new_log(config: LogConfig | None = None, files: Files | None = None, start_offset: int = 0) -> Log:
    store = LogStore(files or MemoryFiles(), "data")
    log = store.create(PARTITION, TOPIC_ID, config or LogConfig(), NOW_MS)
    if start_offset:
        store.truncate_fully(PARTITION, start_offset)
    return log


def load_store(files: Files, config: LogConfig | None = None) -> tuple[LogStore, StoreReport]:
    store = LogStore(files, "data")
    return store, store.load(lambda _: config or LogConfig(), NOW_MS)


class WatchedFiles(MemoryFiles):
    """Notes each time index that is read."""

    def __init__(self) -> None:
        super().__init__()
        self.time_indexes_read: list[str] = []

    def read(self, path: str) -> bytes | None:
        if path.endswith(layout.TIME_INDEX):
            self.time_indexes_read.append(path)
        return super().read(path)


def reopened_log(files: Files, timestamps: Iterable[int], config: LogConfig, config_after: LogConfig) -> Log:
    """A log with one batch for each timestamp, after a clean shutdown and a start: no index is loaded yet."""
    store = LogStore(files, "data")
    log = store.create(PARTITION, TOPIC_ID, config, NOW_MS)
    for timestamp in timestamps:
        log.append(batch_of(timestamp=timestamp), leader_epoch=3, now_ms=NOW_MS)
    store.close()
    reopened = load_store(files, config_after)[0].get(PARTITION)
    assert reopened is not None
    return reopened


def here(open_batch: Callable[[], TimestampOffset | None]) -> TimeSearch:
    """Open a batch without a thread."""
    yield from ()
    return open_batch()


def run_search(search: TimeSearch) -> TimestampOffset | None:
    """Run the rest of a search that waits for no thread."""
    return finish(search)  # type: ignore[arg-type]


def offset_for_time(log: Log, target_ms: int | None) -> TimestampOffset | None:
    return run_search(log.search_time(target_ms, here))


def swap_in(log: Log, job: CleaningJob, cleaned: CleaningResult, now_ms: int) -> None:
    """Swap in the result of a cleaning, without turns and threads."""
    work = compaction.begin_swap(log, job, cleaned)
    assert work is not None, "the log has changed"
    while not work.is_renamed:
        work.rename_next()
    work.sync()
    while not work.is_done:
        compaction.replace_next(log, work, now_ms)
    compaction.finish_swap(log, work)


def read_batches(log: Log, offset: int | None = None, up_to: int | None = None) -> list[tuple[BatchHeader, bytes]]:
    """Every batch a consumer would get, fetch by fetch, each fetch large."""
    offset = log.start_offset if offset is None else offset
    up_to = log.end_offset if up_to is None else up_to
    found = []
    while (piece := log.read(offset, 1 << 30, up_to)) is not None:
        for header, window in split_batches(memoryview(piece.read())):
            found.append((header, bytes(window)))
            offset = header.next_offset
    return found


def read_records(log: Log, offset: int | None = None, up_to: int | None = None) -> list[Record]:
    return [record for _, batch in read_batches(log, offset, up_to) for record in decode_records(batch)]


def read_values(log: Log) -> dict[int, bytes | None]:
    """Offset -> value of every record that is not below the start of the log."""
    return {record.offset: record.value for record in read_records(log) if record.offset >= log.start_offset}
