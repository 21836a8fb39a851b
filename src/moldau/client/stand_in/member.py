"""A member of a consumer group by KIP-848: the broker assigns partitions, heartbeats request and confirm them.

Heartbeats are sent while polling, so the group removes a member that does not poll for longer than its session.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.ids import TopicPartition, by_topic
from moldau.client.admin.group_coordinators import TRANSIENT
from moldau.client.admin.groups import Groups
from moldau.client.cluster import GROUP, Cluster
from moldau.client.requests.groups import OFFSET_COMMIT_VERSIONS
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from moldau.wire.schema import Message

M = TypeVar("M", bound=Message)

REBALANCE_MS: Final = 60_000
RESPONSE_MS: Final = 10_000
RETRY_SECONDS: Final = 0.2
METADATA_RETRY_SECONDS: Final = 0.5
"""How often the names of topics are requested that no broker knew yet."""
LEAVING: Final = -1
NO_GROUPS: Final = (
    "this broker does not support KIP-848, which groups need without confluent-kafka:"
    " use Python 3.14 or older with confluent-kafka, or read without a group"
)
REMOVED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})
"""The group continues without this member, which joins again."""
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
        self._sends_all = True
        """Whether the next heartbeat has the whole state of the member: when it joins, and after one without a
        response. A coordinator repeats an assignment only then."""
        self._sends_topics = False
        self._sends_owned = False
        self._next_heartbeat = 0.0
        self._assigned: list[tuple[bytes, int]] | None = None
        """The assigned partitions by topic id; kept until the member owns them all."""
        self._next_metadata = 0.0
        self._topic_ids: dict[str, bytes] = {}
        self.owned: set[TopicPartition] = set()
        self.is_removed = False
        """Whether the group revoked everything without asking; the caller then calls `rejoin`."""

    def subscribe(self, topics: Iterable[str]) -> None:
        self._topics = sorted(set(topics))
        self._sends_topics = True
        self._next_heartbeat = 0.0

    def heartbeat(self, now: float) -> None:
        """Send a heartbeat to the coordinator when it is time, and store the assignment that it returns."""
        if now < self._next_heartbeat or not self._topics:
            return
        self._next_heartbeat = now + RETRY_SECONDS
        try:
            response = self._send_heartbeat()
        except KafkaError as error:
            self._coordinator = None
            if error.code in REMOVED:
                self.is_removed = True
            elif error.code not in TRANSIENT:
                raise
            return
        self._epoch = response.member_epoch
        self._sends_all = self._sends_topics = self._sends_owned = False
        self._next_heartbeat = now + response.heartbeat_interval_ms / 1000
        if response.assignment is not None:
            topics = response.assignment.topic_partitions
            self._assigned = [(bytes(topic.topic_id), index) for topic in topics for index in topic.partitions]
            self._next_metadata = now

    def target_partitions(self, now: float) -> set[TopicPartition] | None:
        """Return the partitions that this member should own, if they changed; topics without a known name follow
        later."""
        if self._assigned is None or now < self._next_metadata:
            return None
        self._next_metadata = now + METADATA_RETRY_SECONDS
        names = {topic.topic_id: topic.name for topic in self._cluster.topics().values()}
        self._topic_ids |= {name: topic_id for topic_id, name in names.items()}
        partitions = {TopicPartition(names[topic_id], index) for topic_id, index in self._assigned if topic_id in names}
        return None if len(partitions) < len(self._assigned) and partitions == self.owned else partitions

    def confirm_owned(self, partitions: set[TopicPartition]) -> None:
        """Store which partitions are read, after others were revoked; a heartbeat tells the coordinator at once."""
        self.owned = partitions
        if self._assigned is not None and len(partitions) == len(self._assigned):
            self._assigned = None
        self._sends_owned = True
        self._next_heartbeat = 0.0

    def rejoin(self) -> None:
        self.owned = set()
        self._assigned = None
        self._epoch = 0
        self._sends_all = True
        self.is_removed = False
        self._next_heartbeat = 0.0

    def leave(self) -> None:
        """Leave the group. If the coordinator cannot be reached, the session expires."""
        if self._epoch > 0:
            self._epoch = LEAVING
            self._send_heartbeat()

    def committed(self) -> Mapping[TopicPartition, int]:
        offsets = Groups(self._cluster, RESPONSE_MS).committed([self._group_id])[self._group_id]
        return {topic_partition: each.offset for topic_partition, each in offsets.items()}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Return whether the commit was accepted; if not, the next heartbeat tells whether this is still a member.

        The offsets of a deleted topic are left out: they must not keep the member from giving up its partitions.
        """
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

        def attempt() -> None:
            response = self._request(ApiKey.OFFSET_COMMIT, request, OffsetCommitResponse, OFFSET_COMMIT_VERSIONS)
            codes = {
                TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
                for topic in response.topics
                for each in topic.partitions
                if each.error_code
            }
            for code in codes.values():
                if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self._coordinator = None
                    raise KafkaError(code)
            if codes and (known := codes.keys() & self._cluster_partitions()):
                raise KafkaError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"the coordinator does not know {min(known)} yet"
                )

        try:
            self._cluster.retry(attempt, RESPONSE_MS, TRANSIENT | {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
        except KafkaError as error:
            if error.code not in REMOVED | STALE:
                raise
            self.is_removed = error.code in REMOVED
            self._next_heartbeat = 0.0
            return False
        return True

    def _cluster_partitions(self) -> set[TopicPartition]:
        topics = self._cluster.topics().values()
        return {TopicPartition(topic.name, index) for topic in topics for index in topic.leaders}

    def _send_heartbeat(self) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            self._group_id,
            self._member_id,
            self._epoch,
            rebalance_timeout_ms=REBALANCE_MS if self._sends_all else -1,
            subscribed_topic_names=self._topics if self._sends_all or self._sends_topics else None,
            topic_partitions=self._owned_by_topic() if self._sends_all or self._sends_owned else None,
        )
        self._sends_all = True  # until there is a response
        response = self._request(ApiKey.CONSUMER_GROUP_HEARTBEAT, request, ConsumerGroupHeartbeatResponse)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message)
        return response

    def _request(
        self, key: ApiKey, request: Message, response_type: type[M], versions: tuple[int, int] | None = None
    ) -> M:
        """Return the coordinator's response. If it cannot be reached, the next call looks it up again."""
        try:
            channel = self._cluster.channel(self._coordinator_id())
            if not channel.offers(ApiKey.CONSUMER_GROUP_HEARTBEAT):
                raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, NO_GROUPS)
            return channel.ask(key, request, response_type, versions)
        except (OSError, MalformedData):
            self._coordinator = None
            raise

    def _owned_by_topic(self) -> Sequence[RequestTopicPartitions]:
        return [
            RequestTopicPartitions(self._topic_ids[name], indexes)
            for name, indexes in by_topic(sorted(self.owned)).items()
        ]

    def _coordinator_id(self) -> int:
        if self._coordinator is None:
            (coordinator,) = self._cluster.coordinators(GROUP, [self._group_id])
            if coordinator.error_code:
                raise KafkaError(ErrorCode(coordinator.error_code), coordinator.error_message)
            self._coordinator = coordinator.node_id
        return self._coordinator
