"""All logs of one data directory: loads them at start, creates and deletes them, and marks a clean stop.

Owns the directory (`.lock`) and the checkpoints that cover all logs. There is no clock here: the caller passes times.
The caller knows the high watermarks; the store only writes and reads their checkpoint.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.ports import RunAll, run_one_by_one
from moldau.base.steps import Steps, TurnItems, finish
from moldau.base.topic_names import METADATA_TOPIC
from moldau.base.turns import ITEMS_A_TURN
from moldau.log import checkpoints, layout
from moldau.log.checkpoint_files import Checkpoint, CheckpointFiles
from moldau.log.config import LogConfig
from moldau.log.epochs import LeaderEpochs
from moldau.log.files import Files
from moldau.log.log import Log
from moldau.log.meta_properties import is_only_formatted
from moldau.log.prepared_logs import LogPreparation, NewLog, PreparedLog, create_files
from moldau.log.producers import Producers
from moldau.log.recovery import open_log
from moldau.log.reports import StoreReport
from moldau.log.segments import Segments

ConfigOf = Callable[[TopicPartition], LogConfig]


class LogStore:
    def __init__(self, files: Files, directory: str) -> None:
        """Lock the directory for this process. Raise StorageFault if another process has locked it."""
        files.mkdir(directory)
        self.directory = directory
        self.high_watermarks: dict[TopicPartition, int] = {}
        """From the checkpoint that was read at start: the first high watermark of each replica."""
        self._files = files
        self._lock = files.lock(f"{directory}/{layout.LOCK}")
        self.is_case_insensitive = files.exists(f"{directory}/{layout.LOCK.upper()}")
        """Whether the file system ignores case, as on macOS by default: two topics could share one directory then."""
        self._logs: dict[TopicPartition, Log] = {}
        self._topic_ids: dict[TopicPartition, Uuid] = {}
        self._deletable: list[tuple[int, int, str]] = []
        """(when to remove it in ms, delay in ms, path) of deleted partitions' directories."""
        self._being_prepared: set[TopicPartition] = set()
        """Partitions whose files a thread is creating now."""
        self._prepared: dict[TopicPartition, PreparedLog] = {}
        """Files that a thread has created, and no log uses yet."""
        self._are_all_recovered = True
        """False if there was no room on the disk to recover a log: the next start has to do it."""
        self._checkpoints = CheckpointFiles(files, directory)
        self._collected: set[TopicPartition] = set()
        """Partitions of the checkpoints that were collected last."""

    def __iter__(self) -> Iterator[Log]:
        return iter(self._logs.values())

    def __len__(self) -> int:
        return len(self._logs)

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._logs

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def topic_id(self, partition: TopicPartition) -> Uuid | None:
        """Return the topic id in the file partition.metadata; None if the file is missing or damaged."""
        return self._topic_ids.get(partition)

    # --- start --------------------------------------------------------------------------------------------------

    def load(self, config_of: ConfigOf, now_ms: int, before_cut: Callable[[], None] = lambda: None) -> StoreReport:
        """Open every log. The clean-shutdown marker is removed first: from here on a crash means recovery.
        `before_cut` is called before recovery changes a damaged log: the next start would not know of the damage."""
        if is_only_formatted(self._files, self.directory):
            return StoreReport(was_clean=False)  # the metadata log is created like that of an empty directory
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
        cleaner_offsets = self._checkpoints.read(layout.CLEANER_OFFSETS)
        report.unreadable_checkpoints += self._checkpoints.unreadable
        for name in sorted(names):
            partition, is_deleted = layout.partition_of(name), layout.is_deleted_directory(name)
            if (partition is None and not is_deleted) or not self._files.is_directory(f"{self.directory}/{name}"):
                continue  # somebody else's
            if partition is None:
                self._deletable.append((now_ms, 0, f"{self.directory}/{name}"))
            else:
                self._load_log(
                    partition,
                    config_of(partition),
                    starts.get(partition),
                    recovery_points.get(partition, 0),
                    now_ms,
                    report,
                    before_cut,
                )
        for partition, log in self._logs.items():
            log.cleaned_up_to = cleaner_offsets.get(partition, 0)
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
        before_cut: Callable[[], None],
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
                before_cut=before_cut if partition.topic != METADATA_TOPIC else lambda: None,
            )  # fmt: skip
        except MalformedData as error:
            report.unreadable.append((directory, str(error)))
            return
        except StorageFault as fault:
            if not fault.lacks_space or partition.topic == METADATA_TOPIC:
                raise
            self._are_all_recovered = False
            report.unreadable.append((directory, f"{fault}; free some space there, and start again"))
            return
        self._logs[partition] = log
        if (high_watermark := self.high_watermarks.get(partition, 0)) > log.end_offset:
            recovered.missing.append(f"it ends below its high watermark {high_watermark}")
        if metadata is None:
            recovered.notes.append("no topic id could be read from partition.metadata")
        if recovered.has_findings:
            report.recovered.append(recovered)

    # --- while running ------------------------------------------------------------------------------------------

    def prepare(self, topic_ids: Mapping[TopicPartition, Uuid], now_ms: int) -> LogPreparation:
        """Return what creates the files of new logs in a thread. Call `adopt` when it has run."""
        # A directory that exists is not prepared: `create` decides about it.
        if any(
            self._may_be_checkpointed(partition) and not self._files.exists(self._directory_of(partition))
            for partition in topic_ids
        ):
            self._forget_checkpoints()
        self._being_prepared |= topic_ids.keys()
        logs = [NewLog(partition, topic_id, self._directory_of(partition)) for partition, topic_id in topic_ids.items()]
        return LogPreparation(self._files, logs, now_ms)

    def adopt(self, preparation: LogPreparation) -> None:
        """Let `create` use the files that were prepared."""
        self._being_prepared.difference_update(log.partition for log in preparation.logs)
        self._prepared.update(preparation.prepared)

    def discard_prepared(self, new_uuid: Callable[[], bytes], now_ms: int) -> None:
        """Delete prepared files of logs that were not created: their topics were deleted meanwhile."""
        while self._prepared:
            partition, prepared = self._prepared.popitem()
            target = f"{self.directory}/{layout.deleted_directory_name(partition, new_uuid())}"
            self._files.rename(prepared.directory, target)
            self._deletable.append((now_ms, 0, target))

    def create(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int) -> Log:
        """Create an empty log. Its directory and files are durable only after its first flush."""
        assert partition not in self._logs, f"{partition} exists"
        directory = self._directory_of(partition)
        if partition in self._being_prepared:
            raise StorageFault(directory, OSError(errno.EBUSY, "its files are being created in a thread"))
        prepared = self._prepared.pop(partition, None)
        self._refuse_same_name_in_other_case(partition, directory)
        is_prepared = prepared is not None and prepared.topic_id == topic_id
        is_new = not is_prepared and self._files.mkdir(directory)
        if not is_prepared and not is_new:
            self._refuse_unloaded_records(directory)
        if self._may_be_checkpointed(partition):
            self._forget_checkpoints()
        if prepared is None or not is_prepared:
            prepared = create_files(self._files, directory, topic_id, now_ms, is_new)
        log = Log(
            self._files, directory, partition, config, Segments([prepared.segment]), LeaderEpochs(), Producers(),
            start_offset=0, end_offset=0, recovery_point=0,
            now_ms=now_ms, unsynced=[prepared.metadata_path], is_new=True,
        )  # fmt: skip
        self._logs[partition] = log
        self._topic_ids[partition] = topic_id
        return log

    def _refuse_same_name_in_other_case(self, partition: TopicPartition, directory: str) -> None:
        if not self.is_case_insensitive or not self._files.exists(directory):
            return
        name = str(partition).lower()
        for other in self._logs:
            if str(other).lower() == name:
                reason = (
                    f"the file system ignores case, and {other} uses the same directory; delete one of the two topics"
                )
                raise StorageFault(directory, OSError(errno.EEXIST, reason))

    def _refuse_unloaded_records(self, directory: str) -> None:
        """Raise StorageFault for records that `load` could not read: a new log must not overwrite them."""
        for name in self._files.names(directory):
            if name.endswith(layout.LOG) and self._files.size(f"{directory}/{name}"):
                raise StorageFault(
                    directory,
                    OSError(errno.EEXIST, "the directory contains records that could not be loaded; move it away"),
                )

    def _forget_checkpoints(self) -> None:
        """Delete the checkpoints, so that a new log does not inherit offsets of a deleted one with its name: an old
        start offset would hide records, an old high watermark would expose uncommitted ones. To be called before the
        new log has files: the node may crash at any time. They are written again at the next interval, the log start
        offsets of the other logs at once. After a crash before that, recovery reads all segments."""
        starts = {log.partition: start for log in self if (start := _checkpointed_start(log)) is not None}
        self._checkpoints.forget(starts)
        self._collected.clear()

    def _may_be_checkpointed(self, partition: TopicPartition) -> bool:
        """Return whether a checkpoint file has an offset of a partition of this name, or may get one: collected
        checkpoints may be written later, or never."""
        return partition in self._collected or self._checkpoints.has(partition)

    def assign_topic_id(self, partition: TopicPartition, topic_id: Uuid) -> None:
        """Write `partition.metadata` of a log that lost it in a crash: without the id nobody could tell which topic the
        records belong to if a topic of the same name is created again."""
        content = checkpoints.encode_partition_metadata(topic_id)
        checkpoints.replace_file(self._files, self._logs[partition].directory, layout.PARTITION_METADATA, content)
        self._topic_ids[partition] = topic_id

    def delete(self, partition: TopicPartition, unique: bytes, now_ms: int) -> None:
        """Remove the log from the store and rename its directory, which is deleted later. `unique` is a new UUID. The
        next checkpoint makes the new name durable; after a crash before that, the topic's record removes it again."""
        log = self._logs[partition]
        target = f"{self.directory}/{layout.deleted_directory_name(partition, unique)}"
        self._files.rename(log.directory, target)
        # Not before the rename: if that fails, no other log may be created in the same directory.
        del self._logs[partition]
        self._topic_ids.pop(partition, None)
        log.retire()
        delay_ms = log.config.file_delete_delay_ms
        self._deletable.append((now_ms + delay_ms, delay_ms, target))

    def truncate(self, partition: TopicPartition, offset: int) -> None:
        """Truncate a log. Lower what the checkpoints on disk say of it first: else a crash would leave records that are
        appended later, below the old offsets, unchecked, or make them count as deleted or cleaned."""
        log = self._logs[partition]
        end_offset = log.end_after_truncation(offset)
        if end_offset < log.end_offset:
            self._checkpoints.lower(partition, end_offset)
        log.truncate_to(offset)

    def truncate_fully(self, partition: TopicPartition, offset: int) -> None:
        """Delete all records of a log and restart it at `offset`."""
        log = self._logs[partition]
        self._checkpoints.lower(partition, min(offset, log.segments.first.base_offset))
        log.truncate_fully(offset)

    def take_deletable(self, now_ms: int) -> Callable[[], None] | None:
        """Return a function that removes the segments and partitions whose delay is over; None if there are none."""
        return finish(self.collect_deletable(now_ms))

    def collect_deletable(self, now_ms: int) -> Steps[Callable[[], None] | None]:
        """Like `take_deletable`, some hundred logs or deleted directories in each step.

        The function is thread-safe. The next start removes what it does not reach.
        """
        paths: list[str] = []
        turn = TurnItems(ITEMS_A_TURN)
        for log in list(self._logs.values()):
            paths += log.take_deletable(now_ms)
            if turn.ends_after(1):
                yield
        directories: list[str] = []
        deletable, self._deletable = self._deletable, []
        turn = TurnItems(ITEMS_A_TURN)
        for due_ms, delay_ms, directory in deletable:
            if due_ms <= now_ms:
                directories.append(directory)
            else:  # if the clock was set back, a directory waits at most its delay from now on
                self._deletable.append((min(due_ms, now_ms + delay_ms), delay_ms, directory))
            if turn.ends_after(1):
                yield
        return partial(self._remove, paths, directories) if paths or directories else None

    def _remove(self, paths: Iterable[str], directories: Iterable[str]) -> None:
        """Remove files and directories. It can be called again if it fails."""
        paths = list(paths)
        for directory in directories:
            if self._files.exists(directory):
                paths += [f"{directory}/{name}" for name in self._files.names(directory)]
        for path in paths:
            self._files.unlink(path)
        for directory in directories:
            if self._files.exists(directory):
                self._files.rmdir(directory)

    def write_checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write all checkpoints. None for `high_watermarks` means that their checkpoint is not written. Without room on
        the disk, the old ones stay, which are still valid."""
        for each in self.checkpoints(high_watermarks):
            self._checkpoints.write_if_possible(each)

    def checkpoints(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> list[Checkpoint]:
        """Return the contents of the checkpoint files; the caller writes them, perhaps in a thread."""
        collected: list[Checkpoint] = []
        for _ in self.collect_checkpoints(None if high_watermarks is None else high_watermarks.get, collected):
            pass
        return collected

    def collect_checkpoints(
        self, high_watermark: Callable[[TopicPartition], int | None] | None, collected: list[Checkpoint]
    ) -> Iterator[None]:
        """Append the contents of the checkpoint files to `collected`, in steps, between which logs may change: a
        truncation or a new log voids what was collected before."""
        names = [layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.CLEANER_OFFSETS]
        numbers = [self._checkpoints.take_number() for _ in range(len(names) + 1)]
        self._collected = set(self._logs)
        points: dict[TopicPartition, int] = {}
        starts: dict[TopicPartition, int] = {}
        cleaned: dict[TopicPartition, int] = {}
        high_watermarks: dict[TopicPartition, int] = {}
        turn = TurnItems(ITEMS_A_TURN)
        for log in list(self._logs.values()):
            if turn.is_over():
                yield
            turn.count(1)
            partition = log.partition
            points[partition] = log.recovery_point
            if (start_offset := _checkpointed_start(log)) is not None:
                starts[partition] = start_offset
            if log.cleaned_up_to:
                cleaned[partition] = log.cleaned_up_to
            if high_watermark is not None and (offset := high_watermark(partition)) is not None:
                high_watermarks[partition] = offset
        collected += map(Checkpoint, names, (points, starts, cleaned), numbers)
        if high_watermark is not None:
            collected.append(Checkpoint(layout.HIGH_WATERMARKS, high_watermarks, numbers[-1]))

    def write_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Write one checkpoint. Thread-safe."""
        self._checkpoints.write(checkpoint)

    def _directory_of(self, partition: TopicPartition) -> str:
        return f"{self.directory}/{partition}"

    # --- stop ---------------------------------------------------------------------------------------------------

    def close(
        self,
        high_watermarks: Mapping[TopicPartition, int] | None = None,
        broker_epoch: int = -1,
        run_all: RunAll = run_one_by_one,
    ) -> None:
        """Sync everything, then write the clean-shutdown marker. There is none if a log cannot be closed, if there was
        no room to recover one, or if one still lacks records: only after an unclean stop are they missed again."""
        try:
            run_all(log.close for log in self)
            self.write_checkpoints(high_watermarks)
            if self._are_all_recovered and all(log.whole_below is None for log in self):
                marker = checkpoints.encode_clean_shutdown(broker_epoch)
                checkpoints.replace_file(self._files, self.directory, layout.CLEAN_SHUTDOWN, marker)
        finally:
            self._lock.release()

    def abandon(self) -> None:
        """Unlock the directory without closing the logs, as a crash would; the next start recovers them."""
        self._lock.release()


def _checkpointed_start(log: Log) -> int | None:
    """Return the log start offset that the checkpoint has; None if the log begins with its first segment."""
    # A start offset above the recovery point could be beyond the end of the log after a crash.
    start_offset = min(log.start_offset, log.recovery_point)
    return start_offset if start_offset > log.segments.first.base_offset else None
