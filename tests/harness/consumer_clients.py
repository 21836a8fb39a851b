"""Clients that follow the consumer group protocol, and the failures that they meet: lost responses, slow callbacks,
processes that are suspended or die.

A client revokes partitions before it takes new ones, and reports what it owns only afterwards: in between, partitions
that it has not taken yet would look revoked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.in_memory_consumer_shard import InMemoryConsumerShard
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

TopicIdPartitions = frozenset[tuple[Uuid, int]]
FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


@dataclass
class ConsumerClient:
    shard: InMemoryConsumerShard
    member_id: str
    topics: list[str]
    regex: str = ""
    instance_id: str | None = None
    epoch: int = 0
    owned: TopicIdPartitions = frozenset()
    assigned: TopicIdPartitions = frozenset()
    """The last assignment from the broker."""
    reported: TopicIdPartitions | None = field(default=None)
    """The partitions that it last reported as owned; None if it is unknown whether the broker got the report."""
    has_resubscribed: bool = False

    def send_request(self, *, is_response_lost: bool = False) -> int:
        """Send a heartbeat and return how many records it wrote. The response may get lost."""
        try:
            response, records = self.shard.heartbeat(self._next_request())
        except KafkaError as error:
            if error.code not in FENCED | {ErrorCode.UNRELEASED_INSTANCE_ID}:
                raise
            self.abandon()
            return 1
        if is_response_lost:
            self.reported = None
        else:
            self._on_response(response)
        return len(records)

    def react(self) -> bool:
        """Take one step towards the assignment: revoke, or take new partitions. Return whether there was one."""
        if self.owned - self.assigned:
            self.owned &= self.assigned
        elif self.assigned - self.owned:
            self.owned = self.assigned
        else:
            return False
        return True

    def subscribe(self, topics: list[str], regex: str) -> None:
        self.topics, self.regex = topics, regex
        self.has_resubscribed = True

    def abandon(self) -> None:
        """Give up all partitions and join again, because the member was fenced."""
        self.epoch, self.owned, self.assigned, self.reported = 0, frozenset(), frozenset(), None

    def leave(self, epoch: int = -1) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        try:
            self.shard.heartbeat(request)
        except KafkaError as error:
            if error.code not in FENCED | {ErrorCode.FENCED_INSTANCE_ID}:
                raise
        self.abandon()

    def _next_request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.epoch == 0 or self.reported is None or self.has_resubscribed:
            self.has_resubscribed = False
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
        if self.epoch == 0 or (self.reported != self.owned and self.owned == self.assigned):
            request.topic_partitions = _topics(self.owned)
            self.reported = self.owned
        return request

    def _on_response(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.assigned = frozenset(
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            )


def _topics(partitions: TopicIdPartitions) -> list[RequestTopicPartitions]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(partitions):
        by_topic.setdefault(topic_id, []).append(index)
    return [RequestTopicPartitions(topic_id, indexes) for topic_id, indexes in by_topic.items()]
