"""A member of a consumer group in the protocol of KIP-848: the broker assigns, a heartbeat asks and confirms.

Heartbeats are sent by whoever polls, so a member that does not poll for longer than its session is taken for dead.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition
from moldau.client.cluster import Cluster, by_topic
from moldau.client.groups import BY_NAME, TRANSIENT, Groups
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.schema import Message

M = TypeVar("M", bound=Message)

REBALANCE_MS: Final = 60_000
ANSWER_MS: Final = 10_000
RETRY_SECONDS: Final = 0.2
LOOK_AGAIN_SECONDS: Final = 0.5
"""How often the names of topics are asked for that no broker knew yet."""
LEAVING: Final = -1
NO_GROUPS: Final = (
    "this broker does not speak KIP-848, which groups need here:"
    " use Python 3.14 or older with confluent-kafka, or read without a group"
)
OUT: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
"""The group goes on without this member: it joins anew."""
STALE: Final = frozenset({ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION})
"""The next heartbeat brings the epoch to commit with."""


class GroupMember:
    def __init__(self, cluster: Cluster, group_id: str) -> None:
        self._cluster = cluster
        self._group_id = group_id
        self._member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        self._epoch = 0
        self._coordinator: int | None = None
        self._topics: list[str] = []
        self._says_topics = True
        self._confirms = False
        self._next_heartbeat = 0.0
        self._assigned: list[tuple[bytes, int]] | None = None
        """Partitions by topic id that the group wants this member to have; kept until it owns them all."""
        self._next_look = 0.0
        self._topic_ids: dict[str, bytes] = {}
        self.owned: set[TopicPartition] = set()
        self.is_out = False
        """Whether the group took everything away without asking; whoever reads this calls `rejoin`."""

    def subscribe(self, topics: Iterable[str]) -> None:
        self._topics = sorted(set(topics))
        self._says_topics = True
        self._next_heartbeat = 0.0

    def heartbeat(self, now: float) -> None:
        """Tells the coordinator that this member lives, when it is time to, and hears what the group wants of it."""
        if now < self._next_heartbeat or not self._topics:
            return
        self._next_heartbeat = now + RETRY_SECONDS
        try:
            answer = self._beat()
        except KafkaError as error:
            self._coordinator = None
            if error.code in OUT:
                self.is_out = True
            elif error.code not in TRANSIENT:
                raise
            return
        self._epoch = answer.member_epoch
        self._says_topics = self._confirms = False
        self._next_heartbeat = now + answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            given = answer.assignment.topic_partitions
            self._assigned = [(bytes(topic.topic_id), index) for topic in given for index in topic.partitions]
            self._next_look = now

    def wanted(self, now: float) -> set[TopicPartition] | None:
        """The partitions that this member is to own, if the group said so; topics without a name come later."""
        if self._assigned is None or now < self._next_look:
            return None
        self._next_look = now + LOOK_AGAIN_SECONDS
        names = {topic.topic_id: topic.name for topic in self._cluster.topics().values()}
        self._topic_ids |= {name: topic_id for topic_id, name in names.items()}
        known = {TopicPartition(names[topic_id], index) for topic_id, index in self._assigned if topic_id in names}
        return None if len(known) < len(self._assigned) and known == self.owned else known

    def own(self, partitions: set[TopicPartition]) -> None:
        """What was taken away is given up and what was given is read: the coordinator is told at once."""
        self.owned = partitions
        if self._assigned is not None and len(partitions) == len(self._assigned):
            self._assigned = None
        self._confirms = True
        self._next_heartbeat = 0.0

    def rejoin(self) -> None:
        self.owned = set()
        self._assigned = None
        self._epoch = 0
        self.is_out = False
        self._next_heartbeat = 0.0

    def leave(self) -> None:
        """A group whose coordinator cannot be told will find out by itself."""
        if self._epoch > 0:
            self._epoch = LEAVING
            self._beat()

    def committed(self) -> Mapping[TopicPartition, int]:
        found = Groups(self._cluster, ANSWER_MS).committed([self._group_id])[self._group_id]
        return {where: each.offset for where, each in found.items()}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether they were taken; if not, the next heartbeat says whether this member still is one."""
        topics = [
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(index, offsets[TopicPartition(name, index)]) for index in indexes
                ],
            )
            for name, indexes in by_topic(offsets).items()
        ]
        request = OffsetCommitRequest(self._group_id, self._epoch, self._member_id, topics=topics)

        def ask() -> None:
            answer = self._ask(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, BY_NAME)
            for code in (each.error_code for topic in answer.topics for each in topic.partitions):
                if code:
                    self._coordinator = None
                    raise KafkaError(ErrorCode(code))

        try:
            self._cluster.retry(ask, ANSWER_MS, TRANSIENT)
        except KafkaError as error:
            if error.code not in OUT | STALE:
                raise
            self.is_out = error.code in OUT
            self._next_heartbeat = 0.0
            return False
        return True

    def _beat(self) -> ConsumerGroupHeartbeatResponse:
        joins = self._epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            self._group_id,
            self._member_id,
            self._epoch,
            rebalance_timeout_ms=REBALANCE_MS if joins else -1,
            subscribed_topic_names=self._topics if joins or self._says_topics else None,
            topic_partitions=[] if joins else self._owned() if self._confirms else None,
        )
        answer = self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message)
        return answer

    def _ask(self, key: ApiKey, request: Message, answer: type[M], versions: tuple[int, int] | None = None) -> M:
        """The coordinator's answer. One that cannot be spoken to is looked for anew the next time."""
        try:
            channel = self._cluster.channel(self._coordinator_id())
            if not channel.offers(ApiKey.CONSUMER_GROUP_HEARTBEAT):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, NO_GROUPS)
            return channel.ask(key, request, answer, versions)
        except (OSError, MalformedData):
            self._coordinator = None
            raise

    def _owned(self) -> Sequence[RequestTopicPartitions]:
        return [
            RequestTopicPartitions(self._topic_ids[name], indexes)
            for name, indexes in by_topic(sorted(self.owned)).items()
        ]

    def _coordinator_id(self) -> int:
        if self._coordinator is None:
            self._cluster.nodes()
            request = FindCoordinatorRequest(key=self._group_id, key_type=0, coordinator_keys=[self._group_id])
            answer = self._cluster.ask_any(ApiKey.FIND_COORDINATOR, request, FindCoordinatorResponse, (4, 6))
            (found,) = answer.coordinators
            if found.error_code:
                raise KafkaError(ErrorCode(found.error_code), found.error_message)
            self._coordinator = found.node_id
        return self._coordinator
