"""All partitions on this node. They follow the image: they are created, led or followed, reconfigured and removed as it
changes.

Finding one takes two dict lookups. The first image must be no older than the one when the node went down: an older
image may assign a partition to other brokers, and it would be deleted here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from random import Random

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.log.config import LogConfig
from moldau.log.log import Log
from moldau.log.store import LogStore
from moldau.metadata.apply import Changes
from moldau.metadata.image import MetadataImage, TopicImage
from moldau.metadata.records import ConfigResource
from moldau.replica.faults import ReportFault
from moldau.replica.flushing import Flusher
from moldau.replica.partition import Partition
from moldau.replica.replication import Replication

Effective = Callable[[MetadataImage, Mapping[str, str]], Mapping[str, str]]
"""Returns all configs of a topic as texts, from the image (which has the brokers' configs) and the topic's
overrides."""


class Partitions:
    def __init__(
        self,
        node_id: int,
        store: LogStore,
        flusher: Flusher,
        effective: Effective,
        rng: Random,
        report_fault: ReportFault,
        replication: Replication | None = None,
    ) -> None:
        """Without `replication` every partition behaves as if it had no other replica."""
        self._node_id = node_id
        self._store = store
        self._flusher = flusher
        self._effective = effective
        self._rng = rng
        self._report_fault = report_fault
        self._replication = replication
        self._image = MetadataImage()
        self._missing: dict[TopicPartition, None] = {}
        """Partitions of this node whose log could not be opened."""
        self._topics: dict[str, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._topics.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            raise KafkaError(self.absence(topic, index))
        return partition

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._topics.get(topic, {}).values())

    def absence(self, topic: str, index: int) -> ErrorCode:
        """Return the error for a partition that is not open on this node. NOT_LEADER_OR_FOLLOWER makes clients request
        metadata again."""
        if TopicPartition(topic, index) in self._missing:
            return ErrorCode.KAFKA_STORAGE_ERROR
        topic_image = self._image.topics.get(topic)
        if topic_image is None or not 0 <= index < len(topic_image.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_image(self, image: MetadataImage, changes: Changes, now_ms: int) -> None:
        """Apply an image's changes to the partitions of this node."""
        self._image = image
        if self._replication is not None:
            self._replication.brokers = image.brokers
        for removed in changes.removed:
            self._remove_topic(removed, now_ms)
        reconfigured = {name for kind, name in changes.configs if kind == ConfigResource.TOPIC}
        all_reconfigured = any(kind == ConfigResource.BROKER for kind, _ in changes.configs)
        for name in sorted(changes.topics):
            self._apply_topic(image, image.topics[name], now_ms)
        for name in list(self._topics) if all_reconfigured else sorted(reconfigured & self._topics.keys()):
            self._reconfigure(image, name)
        if changes.brokers:
            self.reevaluate_isr()

    def reevaluate_isr(self, *, looks_for_laggards: bool = False) -> None:
        """Check the followers of all partitions that this node leads, after brokers have changed or time has passed."""
        for partition in list(self):
            if partition.leadership is not None:
                partition.reevaluate_isr(looks_for_laggards=looks_for_laggards)

    def _config(self, image: MetadataImage, topic: str) -> tuple[LogConfig, int]:
        properties = self._effective(image, image.configs_of(ConfigResource.TOPIC, topic))
        return LogConfig.from_properties(properties), int(properties["min.insync.replicas"])

    def _apply_topic(self, image: MetadataImage, topic: TopicImage, now_ms: int) -> None:
        hosted = self._topics.setdefault(topic.name, {})
        config: tuple[LogConfig, int] | None = None
        for index, state in enumerate(topic.partitions):
            if self._node_id not in state.replicas:
                self._remove_partition(hosted, TopicPartition(topic.name, index), topic.id, now_ms)
                continue
            if index not in hosted:
                config = config or self._config(image, topic.name)
                name = TopicPartition(topic.name, index)
                try:
                    hosted[index] = self._open(name, topic.id, config, image, now_ms)
                except StorageFault as fault:
                    self._missing[name] = None
                    self._report_fault(f"{name}: the log cannot be opened and will be retried", fault)
                    continue
            if state.leader == self._node_id:
                hosted[index].lead(state)
            else:
                hosted[index].become_follower(state)

    def retry(self, image: MetadataImage, now_ms: int) -> list[str]:
        """Try again to open the partitions whose log could not be opened; return the names of their topics."""
        missing, self._missing = self._missing, {}
        topics = [name for name in dict.fromkeys(partition.topic for partition in missing) if name in image.topics]
        for name in topics:
            self._apply_topic(image, image.topics[name], now_ms)
        return topics

    def _open(
        self, name: TopicPartition, topic_id: Uuid, config: tuple[LogConfig, int], image: MetadataImage, now_ms: int
    ) -> Partition:
        log_config, min_insync_replicas = config
        log = self._log(name, topic_id, log_config, now_ms)
        partition = Partition(
            name,
            topic_id,
            log,
            image.topics[name.topic].partitions[name.partition],
            self._node_id,
            min_insync_replicas,
            max(min(self._store.high_watermarks.get(name, 0), log.end_offset), log.start_offset),
            self._flusher,
            self._replication,
        )
        partition.report_fault = self._report_fault
        return partition

    def _log(self, name: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int) -> Log:
        """Return the log that was loaded at start, or a new one. A log of an earlier topic of the same name is deleted.
        A log without a topic id that was never synced is deleted too: it may belong to an earlier topic, and none of
        its records was acknowledged."""
        log = self._store.get(name)
        stored_id = self._store.topic_id(name)
        if log is not None and (stored_id not in (topic_id, None) or (stored_id is None and not log.recovery_point)):
            self._store.delete(name, self._rng.randbytes(16), now_ms)
            log = None
        if log is None:
            return self._store.create(name, topic_id, config, now_ms)
        if stored_id is None:
            self._store.assign_topic_id(name, topic_id)
        log.update_config(config)
        return log

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        config, min_insync_replicas = self._config(image, topic)
        for partition in self._topics[topic].values():
            partition.log.update_config(config)
            partition.min_insync_replicas = min_insync_replicas
            partition.reevaluate_isr()

    def _remove_partition(
        self, hosted: dict[int, Partition], name: TopicPartition, topic_id: Uuid, now_ms: int
    ) -> None:
        """Close and delete a partition that is now on other brokers."""
        partition = hosted.pop(name.partition, None)
        if partition is not None:
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._delete_log(name, topic_id, now_ms)

    def _remove_topic(self, topic: TopicImage, now_ms: int) -> None:
        hosted = self._topics.get(topic.name, {})
        for index, partition in list(hosted.items()):
            if partition.topic_id == topic.id:
                del hosted[index]
                partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not hosted:
            self._topics.pop(topic.name, None)
        for index in range(len(topic.partitions)):
            self._delete_log(TopicPartition(topic.name, index), topic.id, now_ms)

    def _delete_log(self, name: TopicPartition, topic_id: Uuid, now_ms: int) -> None:
        """Delete the log of the topic with this id, even if no partition is open: the node may have stopped between the
        removal of the topic and the deletion of its log."""
        if name not in self._store or self._store.topic_id(name) != topic_id:
            return
        try:
            self._store.delete(name, self._rng.randbytes(16), now_ms)
        except StorageFault as fault:
            self._report_fault(f"{name}: the partition was removed, but its files could not be deleted", fault)
