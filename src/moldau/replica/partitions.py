"""All partitions on this node. They follow the image: they are created, led or followed, reconfigured and removed as it
changes. What may take long is only begun by `on_image`: `ChunkedLayout` calls it, and in the next turns of the event
loop `update_some` and `remove_some` until nothing is left.

Finding one takes two dict lookups. The first image must be no older than the one when the node went down: an older
image may assign a partition to other brokers, and it would be deleted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from random import Random
from typing import TYPE_CHECKING, Final

from moldau.base.errors import ErrorCode, KafkaError, StorageFault
from moldau.base.ids import TopicPartition, Uuid
from moldau.base.settings.topics import MIN_INSYNC_REPLICAS
from moldau.base.steps import Steps, TurnItems, split
from moldau.base.turns import ITEMS_A_TURN
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
from moldau.replica.traffic import Traffic
from moldau.replica.view_counts import ViewCounts
from moldau.replica.views import Views

if TYPE_CHECKING:
    from moldau.replica.view_partition import ReadablePartition

TopicConfigs = Callable[[MetadataImage, Mapping[str, str]], Mapping[str, str]]
"""Returns all configs of a topic as texts, from the image (which has the brokers' configs) and the topic's
overrides."""

CONFIG_COST: Final = 50
"""Computing the config of a topic takes as long as so many partitions."""
_DONE: Final = object()
Withheld = Collection[tuple[Uuid, int]]
"""Partitions that this node led, and that others may lead by now: the ids of their topics, and their indexes."""


class _Removal:
    """A deleted topic, and how far its partitions are removed."""

    def __init__(self, topic: TopicImage, hosted: dict[int, Partition]) -> None:
        self.topic = topic
        self.hosted = hosted
        self._next_index = 0

    @property
    def is_done(self) -> bool:
        return self._next_index >= len(self.topic.partitions)

    def take(self, count: int) -> range:
        """Return the indexes of the next partitions, at most `count`."""
        indexes = range(self._next_index, min(self._next_index + count, len(self.topic.partitions)))
        self._next_index = indexes.stop
        return indexes


class Partitions:
    def __init__(
        self,
        node_id: int,
        store: LogStore,
        flusher: Flusher,
        topic_configs: TopicConfigs,
        rng: Random,
        report_fault: ReportFault,
        replication: Replication | None = None,
    ) -> None:
        """Without `replication` every partition behaves as if it had no other replica."""
        self._node_id = node_id
        self._store = store
        self._flusher = flusher
        self._topic_configs = topic_configs
        self._rng = rng
        self._report_fault = report_fault
        self._replication = replication
        self._image = MetadataImage()
        self._missing: dict[TopicPartition, Uuid] = {}
        """Partitions of this node whose log could not be opened, with the ids of their topics."""
        self._topics: dict[str, dict[int, Partition]] = {}
        self._removals: deque[_Removal] = deque()
        self._updates: deque[Steps[None]] = deque()
        """Changes of configs and brokers that not all partitions have yet. A later one waits for the earlier ones."""
        self.traffic = Traffic()
        self.is_cut_off = False
        """Whether this node has not reached the controller for so long that others may lead its partitions."""
        self.withheld: Withheld = frozenset()
        self.views: Views | None = None
        """Set before the first image by a broker that serves views."""

    def __iter__(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def all(self) -> list[Partition]:
        """Return all partitions, in a fraction of the time that iterating takes."""
        return list(chain.from_iterable(map(dict.values, self._topics.values())))

    @property
    def missing_count(self) -> int:
        """The number of partitions of this node whose log could not be opened."""
        return len(self._missing)

    def missing_by_topic(self) -> dict[str, set[int]]:
        """Return the partitions of this node whose log could not be opened: `on_image` tries again to open them."""
        topics: dict[str, set[int]] = {}
        for name, index in self._missing:
            topics.setdefault(name, set()).add(index)
        return topics

    def find(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return None if partitions is None else partitions.get(index)

    def get(self, topic: str, index: int) -> Partition:
        partitions = self._topics.get(topic)
        partition = None if partitions is None else partitions.get(index)
        if partition is None:
            raise KafkaError(self.absence(topic, index))
        return partition

    def find_readable(self, topic: str, index: int) -> ReadablePartition | None:
        """Like `find`, but finds views too: for whoever only reads."""
        partitions = self._topics.get(topic)
        if partitions is not None:
            return partitions.get(index)
        return None if self.views is None else self.views.find(self._image, topic, index, self.find)

    def get_readable(self, topic: str, index: int) -> ReadablePartition:
        partition = self.find_readable(topic, index)
        if partition is None:
            raise KafkaError(self.absence(topic, index))
        return partition

    def is_view(self, topic: str) -> bool:
        return topic in self._image.views

    def view_counts(self, view: str) -> ViewCounts | None:
        return None if self.views is None else self.views.counts.get(view)

    def absence(self, topic: str, index: int) -> ErrorCode:
        """Return the error for a partition that is not open on this node. NOT_LEADER_OR_FOLLOWER makes clients request
        metadata again."""
        source_id = self._image.views.get(topic)
        stored = topic if source_id is None else self._image.topic_names.get(source_id, topic)
        if TopicPartition(stored, index) in self._missing:
            return ErrorCode.KAFKA_STORAGE_ERROR
        topic_image = self._image.topics.get(topic)
        if topic_image is None or not 0 <= index < len(topic_image.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def on_image(self, image: MetadataImage, changes: Changes, now_ms: int) -> None:
        """Apply an image's changes to the partitions of this node. Deleted topics are not found from then on;
        `remove_some` closes their partitions and deletes their logs."""
        self._image = image
        if self.views is not None:
            self.views.on_image(changes)
        if self._replication is not None:
            self._replication.brokers = image.brokers
        for removed in changes.removed:
            self._begin_removal(removed)
        reconfigured = {name for kind, name in changes.configs if kind == ConfigResource.TOPIC}
        all_reconfigured = any(kind == ConfigResource.BROKER for kind, _ in changes.configs)
        for name in sorted(changes.topics):
            if name not in image.views:  # a view has no log
                self._apply_topic(image, image.topics[name], sorted(changes.topics[name]), now_ms)
        names = list(self._topics) if all_reconfigured else sorted(reconfigured & self._topics.keys())
        if names or changes.brokers:
            self._updates.append(self._update(names, bool(changes.brokers)))
            if len(self._updates) == 1:
                self.update_some()

    def update_some(self) -> bool:
        """Go on with changes of configs and brokers, which may concern all partitions, for some hundred of them.
        Return whether some are left."""
        if self._updates and next(self._updates[0], _DONE) is _DONE:
            self._updates.popleft()
        return bool(self._updates)

    def _update(self, reconfigured: Iterable[str], have_brokers_changed: bool) -> Steps[None]:
        turn = TurnItems(ITEMS_A_TURN)
        for name in reconfigured:
            if name not in self._topics:
                continue  # it was deleted meanwhile
            config, min_insync_replicas = self._config(self._image, name)
            turn.count(CONFIG_COST)
            for some in split(list(self._topics[name].values()), ITEMS_A_TURN):
                for partition in some:
                    partition.log.update_config(config)
                    partition.min_insync_replicas = min_insync_replicas
                    partition.reevaluate_isr()
                if turn.ends_after(len(some)):
                    yield
        turn = TurnItems(ITEMS_A_TURN)
        for some in split(self.all(), ITEMS_A_TURN) if have_brokers_changed else ():
            for partition in some:
                if partition.leadership is not None:
                    partition.reevaluate_isr()
            if turn.ends_after(len(some)):
                yield

    def _config(self, image: MetadataImage, topic: str) -> tuple[LogConfig, int]:
        properties = self._topic_configs(image, image.configs_of(ConfigResource.TOPIC, topic))
        return LogConfig.from_properties(properties), int(properties[MIN_INSYNC_REPLICAS.name])

    def _apply_topic(self, image: MetadataImage, topic: TopicImage, indexes: Iterable[int], now_ms: int) -> None:
        hosted = self._topics.setdefault(topic.name, {})
        config: tuple[LogConfig, int] | None = None
        for index in indexes:
            state = topic.partitions[index]
            if self._node_id not in state.replicas:
                self._remove_partition(hosted, TopicPartition(topic.name, index), topic.id, now_ms)
                continue
            if index not in hosted:
                config = config or self._config(image, topic.name)
                name = TopicPartition(topic.name, index)
                try:
                    hosted[index] = self._open(name, topic.id, config, image, now_ms)
                except StorageFault as fault:
                    self._missing[name] = topic.id
                    self._report_fault(f"{name}: the log cannot be opened and will be retried", fault)
                    continue
                self._missing.pop(name, None)
            if state.leader == self._node_id:
                hosted[index].lead(state)
            else:
                hosted[index].become_follower(state)

    def _open(
        self, name: TopicPartition, topic_id: Uuid, config: tuple[LogConfig, int], image: MetadataImage, now_ms: int
    ) -> Partition:
        for removal in self._removals:
            if removal.topic.name == name.topic:  # a deleted topic of the same name
                self._finish_removal(removal, name.partition, now_ms)
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
            self.traffic.of(name.topic),
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

    def _remove_partition(
        self, hosted: dict[int, Partition], name: TopicPartition, topic_id: Uuid, now_ms: int
    ) -> None:
        """Close and delete a partition that is now on other brokers."""
        self._missing.pop(name, None)
        partition = hosted.pop(name.partition, None)
        if partition is not None:
            partition.close(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            if self.views is not None:
                self.views.on_source_closed(partition)
            if not hosted:
                self.traffic.forget(name.topic)
        self._delete_log(name, topic_id, now_ms)

    def _begin_removal(self, topic: TopicImage) -> None:
        hosted = self._topics.get(topic.name, {})
        removed = {index: partition for index, partition in hosted.items() if partition.topic_id == topic.id}
        if len(removed) == len(hosted):
            self._topics.pop(topic.name, None)
            self.traffic.forget(topic.name)
        else:
            for index in removed:
                del hosted[index]
        for index in range(len(topic.partitions)) if self._missing else ():
            name = TopicPartition(topic.name, index)
            if self._missing.get(name) == topic.id:
                del self._missing[name]
        self._removals.append(_Removal(topic, removed))

    def remove_some(self, count: int, now_ms: int) -> bool:
        """Remove at most `count` partitions of deleted topics. Return whether some are left."""
        while self._removals and count > 0:
            removal = self._removals[0]
            for index in removal.take(count):
                self._finish_removal(removal, index, now_ms)
                count -= 1
            if removal.is_done:
                self._removals.popleft()
        return bool(self._removals)

    def _finish_removal(self, removal: _Removal, index: int, now_ms: int) -> None:
        partition = removal.hosted.pop(index, None)
        if partition is not None:
            partition.close(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        self._delete_log(TopicPartition(removal.topic.name, index), removal.topic.id, now_ms)

    def _delete_log(self, name: TopicPartition, topic_id: Uuid, now_ms: int) -> None:
        """Delete the log of the topic with this id, even if no partition is open: the node may have stopped between the
        removal of the topic and the deletion of its log."""
        if name not in self._store or self._store.topic_id(name) != topic_id:
            return
        try:
            self._store.delete(name, self._rng.randbytes(16), now_ms)
        except StorageFault as fault:
            self._report_fault(f"{name}: the partition was removed, but its files could not be deleted", fault)
