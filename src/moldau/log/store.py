"""All logs of one data directory: found at start, made and deleted while running, marked clean at the end.

Owns the directory (`.lock`) and the checkpoints that speak of many logs at once. Clock-free: times are handed in.
High watermarks are the caller's knowledge; the store only writes them down and reads them back.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.log import checkpoints, layout
from moldau.log.checkpoint_files import Checkpoint, CheckpointFiles
from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import Files, write_all
from moldau.log.log import Log
from moldau.log.producers import Producers
from moldau.log.recovery import RecoveryReport, open_log
from moldau.log.segment import Segment
from moldau.log.segments import Segments

ConfigOf = Callable[[TopicPartition], LogConfig]


@dataclass(slots=True)
class StoreReport:
    """What was found at start."""

    was_clean: bool
    broker_epoch: int = -1
    """Under which epoch the broker was registered when it was left cleanly; below 0 if that is not known."""
    logs: int = 0
    recovered: list[RecoveryReport] = field(default_factory=list)
    """Only those with something to tell."""
    unreadable: list[tuple[str, str]] = field(default_factory=list)
    """(directory, why) of partitions that could not be opened and were left untouched."""


class LogStore:
    def __init__(self, files: Files, directory: str) -> None:
        """Takes the directory for this process; StorageFault if another one has it."""
        files.mkdir(directory)
        self.directory = directory
        self.high_watermarks: dict[TopicPartition, int] = {}
        """As last written down before the start: where a replica may begin."""
        self._files = files
        self._lock = files.lock(f"{directory}/{layout.LOCK}")
        self.ignores_case = files.exists(f"{directory}/{layout.LOCK.upper()}")
        """Whether the file system does, as macOS' does by default: two topics could then be meant by one directory."""
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, Uuid] = {}
        self._deletable: list[tuple[int, int, str]] = []
        """When a directory is due, after which delay, and its path."""
        self._checkpoints = CheckpointFiles(files, directory)
        self._checkpointed: set[TopicPartition] = set()
        """Partitions of which the checkpoints on disk speak, whether they are still there or not."""

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._logs

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def topic_id(self, partition: TopicPartition) -> Uuid | None:
        """As the partition's own directory says; None if it says nothing that can be read."""
        return self._topic_ids.get(partition)

    # --- start --------------------------------------------------------------------------------------------------

    def load(self, config_of: ConfigOf, now_ms: int) -> StoreReport:
        """Opens every log there is. The clean-shutdown marker goes first: from here on a crash is a crash."""
        names = self._files.names(self.directory)
        report = StoreReport(was_clean=layout.CLEAN_SHUTDOWN in names)
        if report.was_clean:
            marker = self._files.read(f"{self.directory}/{layout.CLEAN_SHUTDOWN}")
            report.broker_epoch = checkpoints.decode_clean_shutdown(marker or b"")
            self._files.unlink(f"{self.directory}/{layout.CLEAN_SHUTDOWN}")
            self._files.sync_directory(self.directory)
        recovery_points = self._checkpoints.read(layout.RECOVERY_POINTS)
        starts = self._checkpoints.read(layout.LOG_STARTS)
        self.high_watermarks = self._checkpoints.read(layout.HIGH_WATERMARKS)
        cleaned = self._checkpoints.read(layout.CLEANER_OFFSETS)
        self._checkpointed = {*recovery_points, *starts, *cleaned}
        for name in sorted(names):
            partition = layout.partition_of(name)
            if layout.is_deleted_directory(name):
                self._deletable.append((now_ms, 0, f"{self.directory}/{name}"))
            elif partition is not None:
                self._load_log(
                    partition,
                    config_of(partition),
                    starts.get(partition),
                    recovery_points.get(partition, 0),
                    now_ms,
                    report,
                )
        for partition, log in self._logs.items():
            log.cleaned_up_to = cleaned.get(partition, 0)
        report.logs = len(self._logs)
        return report

    def _load_log(
        self,
        partition: TopicPartition,
        config: LogConfig,
        start_offset: int | None,
        recovery_point: int,
        now_ms: int,
        report: StoreReport,
    ) -> None:
        directory = self._directory_of(partition)
        metadata = self._files.read(f"{directory}/{layout.PARTITION_METADATA}")
        try:
            if metadata is not None:
                self._topic_ids[partition] = checkpoints.decode_partition_metadata(metadata)
        except MalformedData:
            metadata = None
        try:
            log, recovered = open_log(
                self._files, directory, partition, config,
                start_offset=start_offset, recovery_point=recovery_point,
                is_clean=report.was_clean, now_ms=now_ms,
            )  # fmt: skip
        except MalformedData as error:
            report.unreadable.append((directory, str(error)))
            return
        self._logs[partition] = log
        if metadata is None:
            recovered.notes.append("no topic id could be read from partition.metadata")
        if recovered.is_worth_telling:
            report.recovered.append(recovered)

    # --- while running ------------------------------------------------------------------------------------------

    def create(
        self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int, start_offset: int = 0
    ) -> Log:
        """A new, empty log. It is durable after its first flush, like all it will hold."""
        assert partition not in self._logs, f"{partition} exists"
        directory = self._directory_of(partition)
        self._refuse_names_of_another_case(partition, directory)
        self._files.mkdir(directory)
        self._refuse_what_was_not_loaded(directory)
        if partition in self._checkpointed:
            self._forget_checkpoints()
        metadata = self._files.open(f"{directory}/{layout.PARTITION_METADATA}", create=True)
        metadata.truncate(0)
        write_all(metadata, checkpoints.encode_partition_metadata(topic_id), 0)
        segment = Segment.create(self._files, directory, start_offset, now_ms)
        log = Log(
            self._files, directory, partition, config, Segments([segment]), LeaderEpochs(), Producers(),
            start_offset=start_offset, end_offset=start_offset, recovery_point=start_offset,
            now_ms=now_ms, unsynced=[metadata.path], is_new=True,
        )  # fmt: skip
        self._logs[partition] = log
        self._topic_ids[partition] = topic_id
        return log

    def _refuse_names_of_another_case(self, partition: TopicPartition, directory: str) -> None:
        if not self.ignores_case or not self._files.exists(directory):
            return
        name = str(partition).lower()
        for other in self._logs:
            if str(other).lower() == name:
                why = f"this file system ignores case, and the directory is {other}'s; delete one of the two topics"
                raise StorageFault(directory, OSError(errno.EEXIST, why))

    def _refuse_what_was_not_loaded(self, directory: str) -> None:
        """Records that `load` could not make sense of are for a person to look at: no new log goes on top of them."""
        for name in self._files.names(directory):
            if name.endswith(layout.LOG) and self._files.size(f"{directory}/{name}"):
                raise StorageFault(directory, OSError(errno.EEXIST, "holds the records of another log"))

    def _forget_checkpoints(self) -> None:
        """What they say of a log that is gone must not be believed of a new one with its name: a start that was moved
        would hide records, a high watermark would show what never was committed. They are written again at the next
        turn; until then a crash means reading everything."""
        self._checkpoints.forget()
        self._checkpointed.clear()

    def assign_topic_id(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """For a log whose `partition.metadata` a crash has taken: without it nobody could tell whose records these are
        when a topic of the same name is made again."""
        content = checkpoints.encode_partition_metadata(topic_id)
        checkpoints.replace_file(self._files, self._logs[partition].directory, layout.PARTITION_METADATA, content)
        self._topic_ids[partition] = topic_id

    def delete(self, partition: TopicPartition, unique: bytes, now_ms: int) -> None:
        """Takes the log out of the store at once; its directory, renamed with the help of a fresh UUID, goes later."""
        log = self._logs[partition]
        target = f"{self.directory}/{layout.deleted_directory_name(partition, unique)}"
        self._files.rename(log.directory, target)
        # Only now: a log that keeps its name on disk keeps it here, lest another one be made on top of it.
        del self._logs[partition]
        self._topic_ids.pop(partition, None)
        log.retire()
        delay_ms = log.config.file_delete_delay_ms
        self._deletable.append((now_ms + delay_ms, delay_ms, target))
        self._files.sync_directory(self.directory)

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Cuts a log. The recovery point on disk goes down first: else a crash would trust bytes never synced."""
        log = self._logs[partition]
        self._lower_recovery_point(log, log.end_after_truncation(offset))
        log.truncate_to(offset)

    def truncate_fully(self, partition: TopicPartition, offset: int) -> None:
        """Forgets all that a log holds and begins it anew at that offset."""
        log = self._logs[partition]
        self._lower_recovery_point(log, min(offset, log.segments.first.base_offset))
        log.truncate_fully(offset)

    def _lower_recovery_point(self, log: Log, offset: int) -> None:
        if offset < log.recovery_point:
            points = {each.partition: each.recovery_point for each in self}
            points[log.partition] = offset
            self._checkpoints.void()
            self.write_checkpoint(self._checkpoints.computed(layout.RECOVERY_POINTS, points))

    def take_deletable(self, now_ms: int) -> Callable[[], None] | None:
        """What removes all that was deleted long enough ago, segments and whole partitions; None if nothing was. Safe
        in a thread. What it does not get to, the next start removes."""
        paths = [path for log in self for path in log.take_deletable(now_ms)]
        directories = [directory for due_ms, _, directory in self._deletable if due_ms <= now_ms]
        self._deletable = [  # where the clock was put back, nothing waits for longer than its delay, as seen from now
            (min(due_ms, now_ms + delay_ms), delay_ms, directory)
            for due_ms, delay_ms, directory in self._deletable
            if due_ms > now_ms
        ]
        return partial(self._remove, paths, directories) if paths or directories else None

    def _remove(self, paths: list[str], directories: list[str]) -> None:
        for directory in directories:
            if self._files.exists(directory):
                paths += [f"{directory}/{name}" for name in self._files.names(directory)]
        for path in paths:
            self._files.unlink(path)
        for directory in directories:
            if self._files.exists(directory):
                self._files.rmdir(directory)

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Recovery points, log starts, clean parts and, if given, high watermarks, all at once."""
        for each in self.checkpoints(high_watermarks):
            self.write_checkpoint(each)

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> list[Checkpoint]:
        """The checkpoint files as they should be now. Cheap: writing them may then wait."""
        for log in self:
            # A start beyond what is durable could, after a crash, lie beyond the end of the log.
            if log.start_offset > log.recovery_point:
                log.flush()
        starts = {log.partition: log.start_offset for log in self if log.start_offset > log.segments.first.base_offset}
        offsets: list[tuple[str, Mapping[TopicPartition, int]]] = [
            (layout.RECOVERY_POINTS, {log.partition: log.recovery_point for log in self}),
            (layout.LOG_STARTS, starts),
            (layout.CLEANER_OFFSETS, {log.partition: log.cleaned_up_to for log in self if log.cleaned_up_to}),
        ]
        self._checkpointed = set(self._logs)
        if high_watermarks is not None:
            offsets.append((layout.HIGH_WATERMARKS, high_watermarks))
        return [self._checkpoints.computed(*each) for each in offsets]

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Safe in a thread."""
        self._checkpoints.write(checkpoint)

    def _directory_of(self, partition: TopicPartition) -> str:
        return f"{self.directory}/{partition}"

    # --- end ----------------------------------------------------------------------------------------------------

    def close(self, high_watermarks: Mapping[TopicPartition, int] | None = None, broker_epoch: int = -1) -> None:
        """Syncs everything and says so with the marker. If any log cannot be closed there is none: recovery decides."""
        try:
            for log in self:
                log.close()
            self.write_checkpoints(high_watermarks)
            marker = checkpoints.encode_clean_shutdown(broker_epoch)
            checkpoints.replace_file(self._files, self.directory, layout.CLEAN_SHUTDOWN, marker)
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Lets go of the directory as a crash would: what is there is for recovery to judge."""
        self._lock.release()
