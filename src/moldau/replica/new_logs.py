"""Creates the files of this node's new partitions in a thread, before `Partitions` opens them."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from moldau.base.clock import Clock
from moldau.base.errors import StorageFault
from moldau.base.ids import TopicPartition
from moldau.base.ports import RunInThread
from moldau.base.promise import Promise, resolved
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

    def needs_files(self, image: MetadataImage, topic: str, index: int) -> bool:
        """Return whether a partition of this node is new. Where the file system ignores case, files are not prepared:
        two topics may want the same directory."""
        topic_image = image.topics.get(topic)
        return (
            topic_image is not None
            and topic not in image.views
            and self._node_id in topic_image.partitions[index].replicas
            and TopicPartition(topic, index) not in self._store
            and not self._store.is_case_insensitive
        )

    def prepare(self, image: MetadataImage, partitions: Iterable[tuple[str, int]]) -> Promise[None]:
        """Create the files of new partitions. One whose files cannot be prepared can be opened too: it only takes
        longer."""
        topic_ids = {TopicPartition(topic, index): image.topics[topic].id for topic, index in partitions}
        try:
            preparation = self._store.prepare(topic_ids, self._clock.now_ms())
        except StorageFault as fault:
            self._report_fault("checkpoints of a deleted topic cannot be deleted, files are not prepared", fault)
            return resolved(None)
        return self._run_in_thread(preparation.run).map(lambda fault: self._store.adopt(preparation))

    def discard_unused(self) -> None:
        """Delete the prepared files of topics that were deleted before their partitions were opened."""
        try:
            self._store.discard_prepared(lambda: self._rng.randbytes(16), self._clock.now_ms())
        except StorageFault as fault:
            self._report_fault("files of a deleted topic could not be deleted", fault)
