"""The files of new logs, created in a thread before the logs are opened: the event loop must not wait for the disk, and
a topic may have thousands of partitions.

Only new directories are prepared. A directory that exists may contain records, and the loop decides about these.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.log import checkpoints, layout
from moldau.log.files import Files, write_all
from moldau.log.segment import Segment


class NewLog(NamedTuple):
    """A log whose files are wanted."""

    partition: TopicPartition
    topic_id: Uuid
    directory: str


class PreparedLog(NamedTuple):
    """The files of a log without records."""

    topic_id: Uuid
    directory: str
    metadata_path: str
    segment: Segment


class LogPreparation:
    """Creates the files of some new logs. `run` may be called in a thread; use `prepared` when it has ended."""

    def __init__(self, files: Files, logs: Iterable[NewLog], now_ms: int) -> None:
        self._files = files
        self._now_ms = now_ms
        self.logs = list(logs)
        self.prepared: dict[TopicPartition, PreparedLog] = {}

    def run(self) -> None:
        """A log whose files cannot be created is left out: whoever opens it gets the fault then."""
        for log in self.logs:
            try:
                if self._files.mkdir(log.directory):
                    self.prepared[log.partition] = create_files(
                        self._files, log.directory, log.topic_id, self._now_ms, is_directory_new=True
                    )
            except StorageFault:
                continue


def create_files(files: Files, directory: str, topic_id: Uuid, now_ms: int, is_directory_new: bool) -> PreparedLog:
    """Create the files of an empty log, or empty those that are there."""
    metadata = files.open(f"{directory}/{layout.PARTITION_METADATA}", create=True)
    if not is_directory_new:
        metadata.truncate(0)
    write_all(metadata, checkpoints.encode_partition_metadata(topic_id), 0)
    segment = Segment.create(files, directory, 0, now_ms, is_directory_new)
    return PreparedLog(topic_id, directory, metadata.path, segment)
