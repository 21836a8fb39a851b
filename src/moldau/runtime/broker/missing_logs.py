"""Finds, before a broker registers, which logs it should have and does not have.

Its own metadata tells: it is in the in-sync set of a partition, and has no log of that topic. A directory that was
removed leaves no other trace on the disk: the checkpoints know a new partition only seconds after its first records.
"""

from __future__ import annotations

from functools import partial

from moldau.base.clock import Timers
from moldau.base.ids import TopicPartition
from moldau.base.promise import Promise
from moldau.log.store import LogStore
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage
from moldau.runtime.quorum.metadata_log import MetadataLog


class MissingLogs:
    def __init__(self, node_id: int, store: LogStore, metadata_log: MetadataLog, timers: Timers) -> None:
        self._node_id = node_id
        self._store = store
        self._metadata_log = metadata_log
        self._end_at_start = metadata_log.end_offset
        self._timers = timers
        self._is_found = False
        self.known: Promise[list[TopicPartition]] = Promise()
        """Completed when the image has everything that this node knew when it stopped."""

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Wait for the end that the metadata log had at start. What was not committed may be truncated meanwhile: no
        image had it."""
        if not self._is_found and image.offset + 1 >= min(self._end_at_start, self._metadata_log.end_offset):
            self._is_found = True
            # Not at once: this image is not current yet.
            self._timers.soon(partial(self.known.complete, self._find(image)))

    def _find(self, image: MetadataImage) -> list[TopicPartition]:
        return [
            partition
            for topic in image.topics.values()
            if not topic.is_view
            for index, state in enumerate(topic.partitions)
            if self._node_id in state.isr
            and self._store.topic_id(partition := TopicPartition(topic.name, index)) != topic.id
        ]
