"""A member of the consumer protocol (KIP-848), written from its description: one heartbeat that joins, stays, acquires
and revokes partitions, and leaves.

It acquires newly assigned partitions only after it has revoked the others and reported that.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from reading_client import BACKOFF_MS, Held, ReadingClient

from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, RequestTopicPartitions

if TYPE_CHECKING:
    from groups.world import GroupsWorld

JOIN, LEAVE, LEAVE_FOR_A_WHILE = 0, -1, -2
CALLBACK_MS = 1_500
UNRELEASED_MAX = 30
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})


class ConsumerClient(ReadingClient):
    kind = "consumer"

    def __init__(
        self,
        world: GroupsWorld,
        name: str,
        group_id: str,
        topics: Collection[str],
        instance_id: str | None,
        pattern: str,
        assignor: str | None,
        rebalance_timeout_ms: int,
    ) -> None:
        super().__init__(world, name, group_id, topics, instance_id)
        self.pattern = pattern
        self.assignor = assignor
        self.rebalance_timeout_ms = rebalance_timeout_ms
        # Before version 1 the coordinator assigned member ids, and there were no regular expressions.
        self.version = 1 if pattern or instance_id or self.rng.random() < 0.8 else 0
        if self.version:
            self.member_id = str(uuid.UUID(bytes=self.rng.randbytes(16), version=4))
        self.member_epoch = JOIN
        self.interval_ms = 1_000
        self._target: frozenset[Held] | None = None
        """Assigned partitions that it does not own yet."""
        self._must_send_all = True
        self._must_send_owned = True
        self._is_asking = False
        self._beats = 0
        self._unreleased = 0
        self.later(self.rng.randint(1, 2_000), self.heartbeat)

    # --- hooks of the base class ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.member_epoch if self.member_epoch > 0 else -1

    @property
    def is_settled(self) -> bool:
        return self.member_epoch > 0 and self._target is None and not self._must_send_owned

    def offset_commit_version(self) -> int:
        return self.rng.randint(9, 10)

    def offset_fetch_version(self) -> int:
        return self.rng.randint(9, 10)

    def on_commit_refused(self, code: ErrorCode) -> None:
        """The next heartbeat will show it."""

    def subscribe(self, topics: Collection[str]) -> None:
        self.topics = frozenset(topics)
        if self.pattern:
            self.pattern = self.world.pattern()
        self._must_send_all = True

    def leave(self, for_a_while: bool = False) -> None:
        request = ConsumerGroupHeartbeatRequest(self.group_id, self.member_id, LEAVE, self.instance_id)
        if for_a_while:
            request.member_epoch = LEAVE_FOR_A_WHILE
        if self.member_epoch > 0:
            self.die_after(ApiKey.CONSUMER_GROUP_HEARTBEAT, self.version, request)
        else:
            self.die()

    # --- the heartbeat --------------------------------------------------------------------------------------------

    def heartbeat(self) -> None:
        """Send a heartbeat, one at a time; news during a request goes with the next one."""
        if self._is_asking:
            return
        self._is_asking = True
        is_full = self._must_send_all or self.member_epoch == JOIN
        owned = self._owned() if is_full or self._must_send_owned else None
        request = ConsumerGroupHeartbeatRequest(
            self.group_id, self.member_id, self.member_epoch, self.instance_id, topic_partitions=owned
        )
        if is_full:
            request.rebalance_timeout_ms = self.rebalance_timeout_ms
            request.subscribed_topic_names = sorted(self.topics)
            request.subscribed_topic_regex = self.pattern if self.version else None
            request.server_assignor = self.assignor
        self._must_send_all = False
        if self._target is None:
            self._must_send_owned = False
        self.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, self.version, request, self._on_heartbeat_response)

    def _owned(self) -> list[RequestTopicPartitions]:
        return [RequestTopicPartitions(topic_id, found) for topic_id, found in self._by_topic(self.positions).items()]

    def _on_heartbeat_response(self, response: Any) -> None:
        self._is_asking = False
        code = None if response is None else ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self._on_success(response)
        elif code in LOST:
            self._rejoin(code)
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self.world.ledger.refused(self, code)
            self.die()
        elif code is ErrorCode.UNRELEASED_INSTANCE_ID:
            self._wait_for_instance()
        else:
            # No response, or a retriable error: the coordinator may not have got the request.
            self._must_send_all = self._must_send_owned = True
            self._beat_after(BACKOFF_MS)

    def _wait_for_instance(self) -> None:
        """The previous owner of the instance id may be dead; if it is not, this client is superfluous."""
        self._unreleased += 1
        if self._unreleased > UNRELEASED_MAX:
            self.die()
        else:
            self._beat_after(self.interval_ms)

    def _beat_after(self, delay_ms: int) -> None:
        self._beats += 1
        beat = self._beats
        self.later(delay_ms, lambda: self.heartbeat() if self._beats == beat else None)

    def _on_success(self, response: Any) -> None:
        self.member_id, self.member_epoch = response.member_id, response.member_epoch
        self.interval_ms = response.heartbeat_interval_ms
        if response.assignment is not None:
            self._reconcile(
                frozenset(
                    Held(topic.topic_id, index)
                    for topic in response.assignment.topic_partitions
                    for index in topic.partitions
                )
            )
        must_send = (self._must_send_owned and self._target is None) or self._must_send_all
        self._beat_after(1 if must_send else self.interval_ms)

    def _rejoin(self, code: ErrorCode) -> None:
        self.world.ledger.refused(self, code)
        self.turn += 1
        self._target = None
        self.release_all()
        self.member_epoch = JOIN
        self._must_send_all = self._must_send_owned = True
        self._beat_after(self.rng.randint(1, BACKOFF_MS))

    # --- reconciliation -------------------------------------------------------------------------------------------

    def _reconcile(self, target: frozenset[Held]) -> None:
        is_under_way = self._target is not None
        self._target = target
        if is_under_way:
            return
        if self.positions.keys() <= target:
            self._finish()
        else:
            turn = self.turn
            self.later(self.rng.randint(0, CALLBACK_MS), lambda: self._revoke(turn))

    def _revoke(self, turn: int) -> None:
        """Revoke partitions; first commit, if the client commits at all."""
        if self.turn != turn:
            return
        if self.rng.random() < 0.6:
            self.commit(lambda: self._finish() if self.turn == turn else None)
        else:
            self._finish()

    def _finish(self) -> None:
        target, self._target = self._target, None
        if target is None or self.is_dead:
            return
        has_changed = self.positions.keys() != target
        self.release(self.positions.keys() - target)
        self.take(target)
        if has_changed:
            self._must_send_owned = True
            self._beat_after(1)
