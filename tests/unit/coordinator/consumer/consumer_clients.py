"""Correct clients, and the failures that they meet: lost responses, slow callbacks, processes
that are suspended or die.

A client revokes partitions before it takes new ones, and tells the broker when it has done so.
Meanwhile it does not report what it owns: partitions that it has not taken yet would look revoked.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from consumer_rooms import ConsumerRooms

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)

Slots = frozenset[tuple[Uuid, int]]
FENCED = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}


@dataclass
class ConsumerClient:
    rooms: ConsumerRooms
    member_id: str
    topics: list[str]
    regex: str = ""
    instance_id: str | None = None
    epoch: int = 0
    owned: Slots = frozenset()
    desired: Slots = frozenset()
    """The assignment that it got."""
    said: Slots | None = field(default=None)
    """What the broker knows that it owns; None if the client cannot know that."""
    has_resubscribed: bool = False

    def beat(self, *, is_lost: bool = False) -> int:
        """Send a heartbeat and return how many records it wrote. The response may get lost."""
        try:
            response, records = self.rooms.beat(self._ask())
        except KafkaError as refused:
            if refused.code not in FENCED | {ErrorCode.UNRELEASED_INSTANCE_ID}:
                raise
            self.abandon()
            return 1
        if is_lost:
            self.said = None
        else:
            self._hear(response)
        return len(records)

    def react(self) -> bool:
        """Move one step towards the assignment. Return whether there was one."""
        if self.owned - self.desired:
            self.owned &= self.desired
        elif self.desired - self.owned:
            self.owned = self.desired
        else:
            return False
        return True

    def subscribe(self, topics: list[str], regex: str) -> None:
        self.topics, self.regex = topics, regex
        self.has_resubscribed = True

    def abandon(self) -> None:
        """It was fenced: it gives up everything and joins again."""
        self.epoch, self.owned, self.desired, self.said = 0, frozenset(), frozenset(), None

    def leave(self, epoch: int = -1) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        try:
            self.rooms.beat(request)
        except KafkaError as refused:
            if refused.code not in FENCED | {ErrorCode.FENCED_INSTANCE_ID}:
                raise
        self.abandon()

    def _ask(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.epoch == 0 or self.said is None or self.has_resubscribed:
            self.has_resubscribed = False
            request.rebalance_timeout_ms = 30_000
            request.subscribed_topic_names = self.topics
            request.subscribed_topic_regex = self.regex
        if self.epoch == 0 or (self.said != self.owned and self.owned == self.desired):
            request.topic_partitions = _topics(self.owned)
            self.said = self.owned
        return request

    def _hear(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.desired = frozenset(
                (topic.topic_id, index) for topic in response.assignment.topic_partitions for index in topic.partitions
            )


def _topics(slots: Slots) -> list[RequestTopicPartitions]:
    by_topic: dict[Uuid, list[int]] = {}
    for topic_id, index in sorted(slots):
        by_topic.setdefault(topic_id, []).append(index)
    return [RequestTopicPartitions(topic_id, indexes) for topic_id, indexes in by_topic.items()]
