"""The share coordinator of a node: its shards and their topic, and the deletion of records that no state needs."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import uuid_from_text
from moldau.base.limits import INT32_MAX
from moldau.base.promise import Promise
from moldau.base.settings import topics
from moldau.base.topic_names import SHARE_GROUP_STATE_TOPIC
from moldau.coordinator.machine import Outcome
from moldau.coordinator.share.partition_states import PartitionStates
from moldau.coordinator.share.settings import ShareCoordinatorSettings
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.replica.partition import Partition
from moldau.replica.partitions import Partitions
from moldau.runtime.coordinators.shards import Shards
from moldau.runtime.coordinators.topic import CoordinatorTopic, topic_spec
from moldau.runtime.own_work import OwnWork
from moldau.share.ports import ShareKey
from moldau.wire.messages.create_topics import CreatableTopic

R = TypeVar("R")
log = logging.getLogger("moldau.coordinator")
GROUP_ID_BYTES_MAX: Final = 2**15 - 1
"""The longest string that fits into a record's key."""
LOSS: Final = "share groups begin again where their share.auto.offset.reset says"
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,10}")


class ShareCoordinator:
    def __init__(
        self,
        settings: ShareCoordinatorSettings,
        topic: CoordinatorTopic,
        node_id: int,
        partitions: Partitions,
        current: CurrentImage,
        clock: Clock,
        own_work: OwnWork,
    ) -> None:
        self.topic = topic
        self._settings = settings
        self._current = current
        self._clock = clock
        self._own_work = own_work
        self.shards: Shards[PartitionStates] = Shards(
            topic,
            node_id,
            partitions,
            self._machine,
            clock,
            own_work,
            # The RegistrationGate has held back all older images: a topic that is unknown then does not exist.
            PartitionStates.remove_unknown_topics,
        )

    def _machine(self, partition: Partition) -> PartitionStates:
        return PartitionStates(
            self._settings, self._clock, self._partition_count, log_end=lambda: partition.log.end_offset
        )

    def _partition_count(self, topic_id: bytes) -> int:
        topic = self._current.image.topic_by_id(topic_id)
        return 0 if topic is None else len(topic.partitions)

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(self, key: ShareKey, decide: Callable[..., Outcome[R]], data: Any) -> R | Promise[R]:
        """Submit a request to the shard of its partition, which calls `decide(states, key, data)`. Raise KafkaError if
        this node does not have the shard; a promise may also be completed with a KafkaError."""
        if len(key.group_id.encode()) > GROUP_ID_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the group id has more than {GROUP_ID_BYTES_MAX} bytes")
        return self.shards.submit(key.coordinator_key, decide, key, data)

    def node_of(self, key: ShareKey) -> int:
        """Return the node that coordinates a partition. Raise KafkaError if there is none now."""
        return self.shards.node_of(key.coordinator_key)

    def find(self, coordinator_key: str) -> int:
        """Like `node_of`, by the text of the key. Raise KafkaError also if it is none."""
        return self.node_of(share_key(coordinator_key))

    # --- changes of metadata, chores, shutdown ------------------------------------------------------------------

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        self.topic.warn_of_loss(image, changes, LOSS)
        self.shards.on_image(image, changes)
        if changes.removed:
            # The machines read the current image, which is set only after all listeners were called.
            self._own_work.soon(lambda: self.shards.submit_to_all(PartitionStates.remove_unknown_topics))

    def snapshot_cold(self) -> None:
        """Write the states again whose last snapshot is old, in turns of the loop."""
        now_ms = self._clock.now_ms()
        self.shards.submit_in_turns(lambda states: states.snapshot_cold(now_ms))

    def prune(self) -> None:
        """Delete the records that no state needs."""
        for shard, states in self.shards.ready():
            partition = shard.partition
            needed_from = min(states.needed_from(), partition.high_watermark)
            if partition.is_leader and needed_from > partition.log.start_offset:
                try:
                    partition.delete_records(needed_from)
                except KafkaError as error:
                    log.warning("%s: records that are no longer needed were not deleted: %s", partition.name, error)

    def close(self) -> None:
        """Fail all waiting requests because the node stops; others look for another coordinator then."""
        self.shards.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def share_key(text: str) -> ShareKey:
    """Return what a coordinator key stands for. Raise KafkaError if it is none. A group id may contain colons."""
    group_id, *rest = text.rsplit(":", 2)
    try:
        topic_id, partition = rest
        if group_id.strip() and _INTEGER.fullmatch(partition) and abs(int(partition)) <= INT32_MAX:
            return ShareKey(group_id, uuid_from_text(topic_id), int(partition))
    except ValueError:
        pass
    raise KafkaError(ErrorCode.INVALID_REQUEST, "expected a key of the form group:topicId:partition")


def share_state_topic(
    partitions: int, replication_factor: int, segment_bytes: int, min_insync_replicas: int
) -> CreatableTopic:
    configs = {
        topics.CLEANUP_POLICY.name: "delete",
        topics.COMPRESSION_TYPE.name: "producer",
        topics.MIN_INSYNC_REPLICAS.name: str(min_insync_replicas),
        topics.RETENTION_MS.name: "-1",
        topics.SEGMENT_BYTES.name: str(segment_bytes),
    }
    return topic_spec(SHARE_GROUP_STATE_TOPIC, partitions, replication_factor, configs)
