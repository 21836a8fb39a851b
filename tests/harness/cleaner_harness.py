"""A log cleaner on a node in memory; a test decides when time passes and when the work of threads is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from harness.in_memory_node import InMemoryNode
from moldau.base.errors import StorageFault
from moldau.base.promise import Promise
from moldau.log.cleaning.job import CleaningJob, CleaningResult
from moldau.log.log import Log
from moldau.runtime.cleaning.cleaner import LogCleaner
from moldau.runtime.cleaning.ports import CleaningFailed, ThreadSegmentCleaner
from moldau.runtime.cleaning.settings import CleanerSettings
from moldau.runtime.housekeeping import Housekeeping
from moldau.runtime.own_work import OwnWork
from moldau.testing.files import MemoryFiles
from moldau.wire.apis import ApiKey
from moldau.wire.batch import split_batches
from moldau.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from moldau.wire.records import NEXT_OFFSET, Record, build_batch, decode_records

BACKOFF_MS = 15_000
DAY_MS = 24 * 3600 * 1000
NO_CLEANER = dict.fromkeys(
    ("log.cleaner.backoff.ms", "log.retention.check.interval.ms", "replica.high.watermark.checkpoint.interval.ms"),
    str(365 * DAY_MS),
)
"""Disables the node's own cleaner and all other periodic writers of the same files."""


class ManualThread:
    """Runs the work of a thread when a test asks for it."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Promise[StorageFault | None]]] = []

    def __call__(self, work: Callable[[], None]) -> Promise[StorageFault | None]:
        done: Promise[StorageFault | None] = Promise()
        self.waiting.append((work, done))
        return done

    def do(self) -> None:
        """Run the next waiting work."""
        work, done = self.waiting.pop(0)
        fault = None
        try:
            work()
        except StorageFault as refused:
            fault = refused
        done.complete(fault)


class WatchedSegmentCleaner(ThreadSegmentCleaner):
    """Records its jobs; a test can make it fail."""

    def __init__(self, files: MemoryFiles, run_in_thread: ManualThread) -> None:
        super().__init__(files, run_in_thread)
        self.jobs: list[CleaningJob] = []
        self.rates: list[float] = []
        self.abandoned = 0
        self.failures: list[CleaningFailed] = []

    def clean(self, job: CleaningJob, bytes_per_second: float) -> Promise[CleaningResult | CleaningFailed]:
        self.jobs.append(job)
        self.rates.append(bytes_per_second)
        if not self.failures:
            return super().clean(job, bytes_per_second)
        failed: Promise[CleaningResult | CleaningFailed] = Promise()
        failed.complete(self.failures.pop(0))
        return failed

    def set_rate(self, bytes_per_second: float) -> None:
        self.rates.append(bytes_per_second)

    def abandon(self) -> None:
        self.abandoned += 1

    @property
    def cleaned(self) -> list[str]:
        """The partitions of the jobs, in order."""
        return [job.directory.rpartition("/")[2] for job in self.jobs]


class CleanerHarness:
    """A node, its log cleaner and its housekeeping."""

    def __init__(self, node: InMemoryNode | None = None) -> None:
        self.node = node or InMemoryNode(static=NO_CLEANER).start()
        self.run_in_thread = ManualThread()
        self.cleans = WatchedSegmentCleaner(self.node.files, self.run_in_thread)
        self.housekeeping = Housekeeping(
            self.node.partitions,
            self.node.store,
            self.node.flusher,
            self.node.clock,
            OwnWork(self.node.timers, self.node.faults.append),
            lambda: DAY_MS,
            lambda partition: self.cleaner.is_cleaning(partition),
        )
        self.cleaner = LogCleaner(
            self.node.partitions,
            self.cleans,
            CleanerSettings(map_bytes_max=2 << 20),
            self.node.clock,
            OwnWork(self.node.timers, self.node.faults.append),
            self.run_in_thread,
            self.housekeeping.delete_expired,
            lambda: self.housekeeping.write_checkpoints(self.run_in_thread, self.node.faults.append),
            lambda: self.housekeeping.purge(self.run_in_thread, self.node.faults.append),
        )
        self.cleaner.start()

    def log(self, topic: str) -> Log:
        return self.node.partition(topic).log

    def create_topic(self, name: str, **configs: str) -> None:
        self.node.create_topic(name, **{"cleanup_policy": "compact", **configs})

    def write(self, topic: str, records: Mapping[str, str | None], *, roll: bool = True, **header: int) -> None:
        """Append one batch, by default in a segment of its own, and flush it."""
        now_ms = self.node.clock.now_ms()
        made = [
            Record(NEXT_OFFSET, now_ms, key.encode(), None if value is None else value.encode())
            for key, value in records.items()
        ]
        self.node.partition(topic).append(memoryview(build_batch(made, **header)), -1, now_ms)  # type: ignore[arg-type]
        log = self.log(topic)
        if roll:
            log.roll(now_ms)
        log.flush()

    def read(self, topic: str) -> list[tuple[int, str, str | None]]:
        """Return (offset, key, value) of all records that consumers can read."""
        return records_of(self.log(topic))

    def wait(self, delay_ms: int = BACKOFF_MS) -> None:
        """Advance the time without running the work of threads."""
        self.node.timers.advance(delay_ms)

    def settle(self, rounds: int = 20) -> None:
        """Advance the time until the cleaner has nothing to do."""
        for _ in range(rounds):
            self.wait()
            while self.run_in_thread.waiting:
                self.run_in_thread.do()
                self.wait(0)

    def files_of(self, topic: str, suffix: str) -> list[str]:
        return [name for name in self.node.files.names(self.log(topic).directory) if name.endswith(suffix)]

    def set_topic_configs(self, name: str, **configs: str) -> None:
        self._alter(2, name, configs)

    def set_broker_configs(self, **configs: str) -> None:
        self._alter(4, "", configs)

    def _alter(self, kind: int, name: str, configs: Mapping[str, str]) -> None:
        given = [AlterableConfig(key.replace("_", "."), 0, value) for key, value in configs.items()]
        request = IncrementalAlterConfigsRequest([AlterConfigsResource(kind, name, given)], False)
        answer = self.node.committed(self.node.ask_controller(ApiKey.INCREMENTAL_ALTER_CONFIGS, request))
        assert not answer.responses[0].error_code, answer.responses[0].error_message

    def crash(self, seed: int) -> CleanerHarness:
        """Lose power and start again."""
        return CleanerHarness(InMemoryNode(self.node.files.crash(Random(seed)), static=NO_CLEANER).start())

    def restart(self) -> CleanerHarness:
        return CleanerHarness(InMemoryNode(self.node.files.restart(), static=NO_CLEANER).start())


def records_of(log: Log) -> list[tuple[int, str, str | None]]:
    offset, found = log.start_offset, []
    while (piece := log.read(offset, 1 << 30, log.end_offset)) is not None:
        for header, window in split_batches(memoryview(piece.read())):
            offset = header.next_offset
            if not header.is_control:
                found += [each for each in decode_records(bytes(window)) if each.offset >= log.start_offset]
    return [
        (each.offset, (each.key or b"").decode(), None if each.value is None else each.value.decode()) for each in found
    ]
