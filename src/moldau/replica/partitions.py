"""All partitions this node holds, kept as the image says: made, grown, led or followed, reconfigured and removed when
it changes.

Finding one costs two lookups, however many there are. The first image that is followed must be one that was in force
when the node went down, or later: a partition that an earlier one gives to others would be deleted here.
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
"""From what was set on a topic to all its configs, as texts; what was set on brokers is in the image."""


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
        """Without `replication` every partition is led as if it had no other replica."""
        self._node_id = node_id
        self._store = store
        self._flusher = flusher
        self._effective = effective
        self._rng = rng
        self._report_fault = report_fault
        self._replication = replication
        self._image = MetadataImage()
        self._missing: dict[TopicPartition, None] = {}
        self._topics: dict[str, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._topics.get(topic)
        found = None if partitions is None else partitions.get(index)
        if found is None:
            raise KafkaError(self.absence(topic, index))
        return found

    def of_topic(self, topic: str) -> list[Partition]:
        return list(self._topics.get(topic, {}).values())

    def absence(self, topic: str, index: int) -> ErrorCode:
        """Why a partition is not here: a client that is told that it is elsewhere looks for it anew."""
        if TopicPartition(topic, index) in self._missing:
            return ErrorCode.KAFKA_STORAGE_ERROR
        known = self._image.topics.get(topic)
        if known is None or not 0 <= index < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_image(self, image: MetadataImage, changes: Changes, now_ms: int) -> None:
        """Brings what is here in line with what the image says of it."""
        self._image = image
        if self._replication is not None:
            self._replication.brokers = image.brokers
        for removed in changes.removed:
            self._remove(removed, now_ms)
        reconfigured = {name for kind, name in changes.configs if kind == ConfigResource.TOPIC}
        everything = any(kind == ConfigResource.BROKER for kind, _ in changes.configs)
        for name in sorted(changes.topics):
            self._lay_out(image, image.topics[name], now_ms)
        for name in list(self._topics) if everything else sorted(reconfigured & self._topics.keys()):
            self._reconfigure(image, name)
        if changes.brokers:
            self.reevaluate_isr()

    def reevaluate_isr(self, *, looks_for_laggards: bool = False) -> None:
        """Looks at all followers of what is led here: brokers have come or gone, or time has passed."""
        for partition in list(self):
            if partition.leadership is not None:
                partition.reevaluate_isr(looks_for_laggards=looks_for_laggards)

    def _config(self, image: MetadataImage, topic: str) -> tuple[LogConfig, int]:
        properties = self._effective(image, image.configs_of(ConfigResource.TOPIC, topic))
        return LogConfig.from_properties(properties), int(properties["min.insync.replicas"])

    def _lay_out(self, image: MetadataImage, topic: TopicImage, now_ms: int) -> None:
        hosted = self._topics.setdefault(topic.name, {})
        config: tuple[LogConfig, int] | None = None
        for index, state in enumerate(topic.partitions):
            if self._node_id not in state.replicas:
                self._let_go(hosted, TopicPartition(topic.name, index), topic.id, now_ms)
                continue
            if index not in hosted:
                config = config or self._config(image, topic.name)
                name = TopicPartition(topic.name, index)
                try:
                    hosted[index] = self._open(name, topic.id, config, image, now_ms)
                except StorageFault as fault:
                    self._missing[name] = None
                    self._report_fault(f"{name} cannot be opened and will be tried again", fault)
                    continue
            if state.leader == self._node_id:
                hosted[index].lead(state)
            else:
                hosted[index].become_follower(state)

    def retry(self, image: MetadataImage, now_ms: int) -> list[str]:
        """Tries again to open what the disk refused before; gives the topics of which something was missing."""
        missing, self._missing = self._missing, {}
        topics = [name for name in dict.fromkeys(partition.topic for partition in missing) if name in image.topics]
        for name in topics:
            self._lay_out(image, image.topics[name], now_ms)
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
        """The log that was found at start, or a new one. One of an earlier topic of the same name gives way, and so
        does one that may be: its id was lost with all that was never synced, of which nothing was promised."""
        found = self._store.get(name)
        known_id = self._store.topic_id(name)
        if found is not None and (known_id not in (topic_id, None) or (known_id is None and not found.recovery_point)):
            self._store.delete(name, self._rng.randbytes(16), now_ms)
            found = None
        if found is None:
            return self._store.create(name, topic_id, config, now_ms)
        if known_id is None:
            self._store.assign_topic_id(name, topic_id)
        found.update_config(config)
        return found

    def _reconfigure(self, image: MetadataImage, topic: str) -> None:
        config, min_insync_replicas = self._config(image, topic)
        for partition in self._topics[topic].values():
            partition.log.update_config(config)
            partition.min_insync_replicas = min_insync_replicas
            partition.reevaluate_isr()

    def _let_go(self, hosted: dict[int, Partition], name: TopicPartition, topic_id: Uuid, now_ms: int) -> None:
        """Other brokers have the partition now."""
        partition = hosted.pop(name.partition, None)
        if partition is not None:
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._delete_log(name, topic_id, now_ms)

    def _remove(self, topic: TopicImage, now_ms: int) -> None:
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
        """Also where no partition is open: the node may have gone down between the topic's removal and its files'."""
        if name not in self._store or self._store.topic_id(name) != topic_id:
            return
        try:
            self._store.delete(name, self._rng.randbytes(16), now_ms)
        except StorageFault as fault:
            self._report_fault(f"{name} was deleted, but its files are still there", fault)
