"""The group coordinator of a node: its shards, the topic they live in, and what they must be told of topics."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.later import Later
from moldau.base.names import CONSUMER_OFFSETS_TOPIC
from moldau.coordinator.group.groups import Groups
from moldau.coordinator.group.settings import GroupSettings
from moldau.coordinator.machine import Outcome
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.replica.partitions import Partitions
from moldau.runtime.controller_channel import TopicCreator
from moldau.runtime.shards import Shards
from moldau.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

R = TypeVar("R")
GROUP_ID_BYTES_MAX = 2**15 - 1
"""More cannot be written into a record's key."""


class GroupCoordinator:
    def __init__(
        self,
        settings: GroupSettings,
        offsets_topic: CreatableTopic,
        node_id: int,
        partitions: Partitions,
        current: CurrentImage,
        creator: TopicCreator,
        clock: Clock,
        timers: Timers,
        rng: Random,
    ) -> None:
        self._offsets_topic = offsets_topic
        self._current = current
        self._creator = creator
        self._clock = clock
        self._timers = timers
        self._shards: Shards[Groups] = Shards(
            CONSUMER_OFFSETS_TOPIC,
            node_id,
            partitions,
            current,
            lambda: Groups(settings, current, clock, rng),
            clock,
            timers,
        )

    # --- requests -----------------------------------------------------------------------------------------------

    def submit(self, group_id: str, decide: Callable[[Groups], Outcome[R]], may_be_empty: bool = False) -> R | Later[R]:
        """Puts a request to the shard of its group. KafkaError if there is none here, and a promise may come to one."""
        if not (group_id or may_be_empty) or len(group_id.encode()) > GROUP_ID_BYTES_MAX:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        return self._shards.submit(group_id, decide)

    def submit_all(self, decide: Callable[[Groups], Outcome[R]]) -> list[R | Later[R]]:
        return self._shards.submit_all(decide)

    def find(self, group_id: str) -> int:
        """The node that has the group; KafkaError if nobody has it now."""
        index = self._shards.partition_of(group_id)
        leader = self._current.image.topics[CONSUMER_OFFSETS_TOPIC].partitions[index].leader
        if leader < 0:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return leader

    def open(self) -> Later[ErrorCode]:
        """Makes the topic that groups are kept in, if it is not there: the first to look for a coordinator does so."""
        done: Later[ErrorCode] = Later()
        if CONSUMER_OFFSETS_TOPIC in self._current.image.topics:
            done.complete(ErrorCode.NONE)
            return done
        made = self._creator.create_topics(CreateTopicsRequest([self._offsets_topic]))
        return made.map(lambda given: given.code if isinstance(given, KafkaError) else _code_of(given))

    # --- what goes on meanwhile ---------------------------------------------------------------------------------

    def follow(self, image: MetadataImage, changes: Changes) -> None:
        self._shards.follow(image, changes)
        if changes.topics or changes.removed:
            # The machines look at the image themselves, and it is not in force before all have followed.
            self._timers.soon(lambda: self._shards.tell(lambda groups: groups.topics_changed(image, changes)))

    def expire_offsets(self) -> None:
        """Forgets what nobody will come back for."""
        now_ms = self._clock.now_ms()
        self._shards.tell_each(lambda groups: groups.expire(now_ms))

    def close(self) -> None:
        """The node stops: members are to look for another coordinator."""
        self._shards.close(ErrorCode.COORDINATOR_NOT_AVAILABLE)


def _code_of(made: CreateTopicsResponse) -> ErrorCode:
    return ErrorCode(made.topics[0].error_code)


def offsets_topic(partitions: int, replication_factor: int, segment_bytes: int) -> CreatableTopic:
    configs = {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": str(segment_bytes)}
    said = [CreatableTopicConfig(name, value) for name, value in configs.items()]
    return CreatableTopic(CONSUMER_OFFSETS_TOPIC, partitions, replication_factor, configs=said)
