"""The checkpoints that speak of many logs at once, as they are on disk.

They are computed on the loop and written apart from it, which takes as long as the disk does. Meanwhile a log may be
cut, or its name given to a new one: what was computed before that must not be written after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.base.ids import TopicPartition
from moldau.log import checkpoints, layout
from moldau.log.files import Files
from moldau.log.write_order import WriteOrder

ALL: Final = (layout.RECOVERY_POINTS, layout.LOG_STARTS, layout.CLEANER_OFFSETS, layout.HIGH_WATERMARKS)


class Checkpoint(NamedTuple):
    """A file as it should be."""

    name: str
    content: bytes
    turn: int


class CheckpointFiles:
    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._write_order = WriteOrder()
        self._written: dict[str, bytes] = {}

    def read(self, name: str) -> dict[TopicPartition, int]:
        path = f"{self._directory}/{name}"
        # No file says as much as an empty one: neither need be written for that.
        self._written[name] = self._files.read(path) or checkpoints.encode_offsets({})
        return checkpoints.read_offsets(self._files, path) or {}

    def computed(self, name: str, offsets: Mapping[TopicPartition, int]) -> Checkpoint:
        return Checkpoint(name, checkpoints.encode_offsets(offsets), self._write_order.take())

    def write(self, checkpoint: Checkpoint) -> None:
        """Safe in a thread. A file that would not change is left alone."""
        with self._write_order.at(checkpoint.turn) as is_due:
            if is_due and self._written.get(checkpoint.name) != checkpoint.content:
                checkpoints.replace_file(self._files, self._directory, checkpoint.name, checkpoint.content)
                self._written[checkpoint.name] = checkpoint.content

    def void(self) -> None:
        """Whatever was computed before this is not written after it."""
        self._write_order.void()

    def forget(self) -> None:
        """Nothing is known any more, of any log, until they are written again."""
        self.void()
        for name in ALL:
            self._files.unlink(f"{self._directory}/{name}")
            self._written.pop(name, None)
        self._files.sync_directory(self._directory)
