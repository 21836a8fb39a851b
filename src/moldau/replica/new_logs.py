"""Creates the files of this node's new partitions in a thread, before `Partitions` opens them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from moldau.base.clock import Clock
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise
from moldau.log.store import LogStore
from moldau.metadata.image import MetadataImage
from moldau.replica.faults import ReportFault


class NewLogs:
    def __init__(
        self,
        node_id: int,
        store: LogStore,
        run_in_thread: RunInThread,
        clock: Clock,
        rng: Random,
        report_fault: ReportFault,
    ) -> None:
        self._node_id = node_id
        self._store = store
        self._run_in_thread = run_in_thread
        self._clock = clock
        self._rng = rng
        self._report_fault = report_fault

    def prepare(self, image: MetadataImage, partitions: Iterable[tuple[str, int]]) -> Promise[None] | None:
        """Create the files of those partitions that this node does not have yet; None if there are none. A partition
        without prepared files can be opened too: it only takes longer."""
        wanted = {
            TopicPartition(topic, index): topic_id
            for topic, index in partitions
            if (topic_id := self._topic_id_of_new(image, topic, index)) is not None
        }
        if not wanted:
            return None
        preparation = self._store.prepare(wanted, self._clock.now_ms())
        return self._run_in_thread(preparation.run).map(lambda fault: self._store.adopt(preparation))

    def _topic_id_of_new(self, image: MetadataImage, topic: str, index: int) -> Uuid | None:
        topic_image = image.topics.get(topic)
        if topic_image is None or topic in image.views or TopicPartition(topic, index) in self._store:
            return None
        return topic_image.id if self._node_id in topic_image.partitions[index].replicas else None

    def discard_unused(self) -> None:
        """Delete the prepared files of topics that were deleted before their partitions were opened."""
        try:
            self._store.discard_prepared(lambda: self._rng.randbytes(16), self._clock.now_ms())
        except StorageFault as fault:
            self._report_fault("files of a deleted topic could not be deleted", fault)
