"""Clients as they ought to be, and the things that happen to them: answers get lost, callbacks take their time, whole
processes stand still or die.

A client gives up what it is not to have any more before it takes what is new, and tells the broker when it is done.
While it is at it, it says nothing of what it owns: what it has not taken up yet would look as if it had been given up.
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
    """What it was told to have."""
    said: Slots | None = field(default=None)
    """What the broker knows it owns; None if the client cannot be sure what the broker knows at all."""
    has_resubscribed: bool = False

    def beat(self, *, is_lost: bool = False) -> int:
        """One heartbeat; gives how many records it made. The answer may get lost on the way."""
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
        """One step of its own towards what it was told; whether there was one to take."""
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
        """It was told that it is no member any more: it gives up everything and begins anew."""
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
