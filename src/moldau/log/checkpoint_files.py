"""The checkpoint files that cover all logs of a directory.

They are computed on the event loop and written in a thread. Meanwhile a log may be truncated, or its name reused for a
new log: a checkpoint computed before that must not be written after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.base.errors import MalformedData, StorageFault
from moldau.base.ids import TopicPartition
from moldau.log import checkpoints, layout
from moldau.log.files import Files
from moldau.log.write_order import WriteOrder

DISPENSABLE: Final = (layout.RECOVERY_POINTS, layout.CLEANER_OFFSETS, layout.HIGH_WATERMARKS)
"""Without these, a start takes longer, but nothing is lost."""


class Checkpoint(NamedTuple):
    """The offsets that a checkpoint file should have. They are encoded in the thread that writes the file."""

    name: str
    offsets: Mapping[TopicPartition, int]
    number: int
    """Its place among all writes."""


class CheckpointFiles:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._write_order = WriteOrder()
        self._written: dict[str, bytes] = {}
        self._on_disk: dict[str, Mapping[TopicPartition, int]] = {}
        """The offsets of each file, also of partitions that do not exist any more."""
        self.unreadable: list[str] = []
        """Names of files that exist and could not be read. They are replaced whole, so no crash leaves such a file."""

    def read(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self._directory}/{name}"
        # A missing file equals an empty checkpoint: an empty one need not be written.
        self._written[name] = self._files.read(path) or checkpoints.encode_offsets({})
        try:
            offsets = checkpoints.read_offsets(self._files, path) or {}
        except MalformedData:
            self.unreadable.append(name)
            offsets = {}
        self._on_disk[name] = dict(offsets)
        return offsets

    def has(self, partition: TopicPartition) -> bool:
        """Return whether a file on disk has an offset of this partition."""
        # A copy: a thread may write a file meanwhile.
        return any(partition in offsets for offsets in list(self._on_disk.values()))

    def take_number(self) -> int:
        """Return the number of a checkpoint whose offsets are collected from now on."""
        return self._write_order.take()

    def computed(self, name: str, offsets: Mapping[TopicPartition, int]) -> Checkpoint:
        return Checkpoint(name, offsets, self._write_order.take())

    def write(self, checkpoint: Checkpoint) -> None:
        """Write the file if its content has changed. Thread-safe."""
        content = checkpoints.encode_offsets(checkpoint.offsets)
        with self._write_order.at(checkpoint.number) as is_current:
            if is_current and self._written.get(checkpoint.name) != content:
                # If this fails, the file may have the old or the new offsets.
                self._written.pop(checkpoint.name, None)
                self._on_disk[checkpoint.name] = _highest(self._on_disk.get(checkpoint.name, {}), checkpoint.offsets)
                checkpoints.replace_file(self._files, self._directory, checkpoint.name, content)
                self._written[checkpoint.name] = content
                self._on_disk[checkpoint.name] = dict(checkpoint.offsets)

    def write_if_possible(self, checkpoint: Checkpoint) -> bool:
        """Write the file like `write`. Return False if it is dispensable, and there is no room on the disk."""
        try:
            self.write(checkpoint)
        except StorageFault as fault:
            if not fault.is_shortage or checkpoint.name not in DISPENSABLE:
                raise
            return False
        return True

    def void(self) -> None:
        """Never write checkpoints that were computed before this call."""
        self._write_order.void()

    def lower(self, partition: TopicPartition, offset: int) -> None:
        """Lower the offsets of a partition to `offset` in all files that have a higher one. Checkpoints that were
        computed before may have a higher one too: they are void. A dispensable file is deleted if there is no room on
        the disk for another one."""
        self.void()
        for name, offsets in list(self._on_disk.items()):
            if offsets.get(partition, 0) > offset and not self.write_if_possible(
                self.computed(name, {**offsets, partition: offset})
            ):
                self._unlink(name)
                self._files.sync_directory(self._directory)

    def forget(self, log_starts: Mapping[TopicPartition, int]) -> None:
        """Delete the checkpoint files; the next write creates them again. Only the one with the log start offsets is
        replaced at once: after a crash without it, deleted records would be there again."""
        self.void()
        self.write(self.computed(layout.LOG_STARTS, log_starts))
        for name in DISPENSABLE:
            self._unlink(name)
        self._files.sync_directory(self._directory)

    def _unlink(self, name: str) -> None:
        self._files.unlink(f"{self._directory}/{name}")
        self._written.pop(name, None)
        self._on_disk.pop(name, None)


def _highest(old: Mapping[TopicPartition, int], new: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {partition: max(old.get(partition, 0), new.get(partition, 0)) for partition in (*old, *new)}
