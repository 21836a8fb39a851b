"""A member of the classic protocol, written from its description: join, sync, heartbeat; the leader assigns.

Eager members revoke everything before they rejoin; cooperative ones keep their partitions, revoke those that the new
generation does not assign to them, and rejoin so that others can get them.

Each step begins a new turn: `in_turn` and `ask_in_turn` drop timers and responses of earlier ones, such as a
heartbeat's response that comes after the member has begun to rejoin.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from reading_client import BACKOFF_MS, ELSEWHERE, Held, ReadingClient

from groups.classic_assignors import COOPERATIVE, MemberSubscription, Partition, assign
from moldau.base.errors import ErrorCode
from moldau.wire.apis import ApiKey
from moldau.wire.consumer_protocol import read, write
from moldau.wire.log_records.consumer_protocol import Assignment, Subscription, TopicPartitions
from moldau.wire.messages.heartbeat import HeartbeatRequest
from moldau.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from moldau.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from moldau.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

if TYPE_CHECKING:
    from groups.world import GroupsWorld

HEARTBEAT_MS = 3_000
SESSION_MS = 10_000
CHECK_TOPICS_MS = 5_000
POLL_MS = 1_500
"""How long a member may take to notice that it has to rejoin."""
JOIN_SLACK_MS = 5_000
PROTOCOL_FIELDS_FROM = 5
LEAVE_SEVERAL_FROM = 3


class ClassicClient(ReadingClient):
    kind = "classic"

    def __init__(
        self,
        world: GroupsWorld,
        name: str,
        group_id: str,
        topics: Collection[str],
        instance_id: str | None,
        protocols: Sequence[str],
        rebalance_timeout_ms: int,
    ) -> None:
        super().__init__(world, name, group_id, topics, instance_id)
        self.protocols = list(protocols)
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.generation = -1
        self.protocol = ""
        self.is_stable = False
        self.is_leader = False
        # Instance ids, and the leader's option to skip the assignment, need later versions; others may use any version.
        self.join_version = 9 if instance_id else self.rng.randint(1, 9)
        self.version_of = {
            ApiKey.SYNC_GROUP: 5 if instance_id else self.rng.randint(0, 5),
            ApiKey.HEARTBEAT: 4 if instance_id else self.rng.randint(0, 4),
            ApiKey.LEAVE_GROUP: 5 if instance_id else self.rng.randint(0, 5),
        }
        self._subscription_version = self.rng.randint(1, 3)
        self._subscribed_topics: frozenset[str] = frozenset()
        self._counts: dict[str, int] = {}
        """The partition counts of the group's topics at the leader's last assignment."""
        self.later(self.rng.randint(1, 2_000), self.join)
        self.later(CHECK_TOPICS_MS, self._check_topics)

    # --- hooks of the base class ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self.generation

    @property
    def is_settled(self) -> bool:
        return self.is_stable

    @property
    def is_cooperative(self) -> bool:
        return self.protocols == [COOPERATIVE]

    def offset_commit_version(self) -> int:
        return self.rng.randint(7, 10) if self.instance_id else self.rng.randint(2, 10)

    def offset_fetch_version(self) -> int:
        return self.rng.randint(1, 10)

    def on_commit_refused(self, code: ErrorCode) -> None:
        if not self.is_stable:
            return  # it is joining: the commit may come too late for the generation, and the join will show that
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin()
        else:
            self._refused(code)

    def subscribe(self, topics: Collection[str]) -> None:
        self.topics = frozenset(topics)
        self._rejoin()

    def leave(self) -> None:
        version = self.version_of[ApiKey.LEAVE_GROUP]
        request = LeaveGroupRequest(self.group_id, self.member_id)
        if version >= LEAVE_SEVERAL_FROM:
            request = LeaveGroupRequest(self.group_id, members=[MemberIdentity(self.member_id, self.instance_id)])
        if self.member_id:
            self.die_after(ApiKey.LEAVE_GROUP, version, request)
        else:
            self.die()

    # --- join -----------------------------------------------------------------------------------------------------

    def _rejoin(self) -> None:
        """Rejoin after a moment; every second time, on average, commit before."""
        self.turn += 1
        self.is_stable = False
        self.in_turn(self.rng.randint(0, POLL_MS), self._prepare)

    def _prepare(self) -> None:
        if self.rng.random() < 0.5:
            turn = self.turn
            self.commit(lambda: self.join() if self.turn == turn else None)
        else:
            self.join()

    def join(self) -> None:
        self.turn += 1
        self.is_stable = False
        if not self.is_cooperative:
            self.release_all()
        protocols = [JoinGroupRequestProtocol(name, self._subscription()) for name in self.protocols]
        request = JoinGroupRequest(
            self.group_id,
            SESSION_MS,
            self.rebalance_timeout_ms,
            self.member_id,
            self.instance_id,
            "consumer",
            protocols,
        )
        timeout_ms = self.rebalance_timeout_ms + JOIN_SLACK_MS
        self.ask_in_turn(ApiKey.JOIN_GROUP, self.join_version, request, self._joined, timeout_ms)

    def _subscription(self) -> bytes:
        names = self.world.topic_names
        by_topic: dict[str, list[int]] = {}
        for held in sorted(self.positions):
            by_topic.setdefault(names[held.topic_id], []).append(held.partition)
        owned = [TopicPartitions(name, found) for name, found in sorted(by_topic.items())]
        message = Subscription(sorted(self.topics), None, owned, self.generation)
        return write(message, self._subscription_version)

    def _joined(self, response: Any) -> None:
        code = None if response is None else ErrorCode(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.join()
        elif code is ErrorCode.NONE:
            self.member_id, self.generation = response.member_id, response.generation_id
            self.protocol = response.protocol_name
            self.is_leader = response.leader == self.member_id
            self.turn += 1
            self._sync(self._assignments(response) if self.is_leader else {})
        else:
            self._again(code, self.join)

    def _assignments(self, response: Any) -> dict[str, list[Partition]]:
        subscriptions = {each.member_id: _member_subscription(each.metadata) for each in response.members}
        self._subscribed_topics = frozenset().union(*(subscription.topics for subscription in subscriptions.values()))
        self._counts = self._partition_counts(self._subscribed_topics)
        if response.skip_assignment:
            return {}
        return assign(self.protocol, subscriptions, self._counts)

    def _partition_counts(self, topics: Collection[str]) -> dict[str, int]:
        existing = self.world.image.topics
        return {name: len(existing[name].partitions) for name in sorted(topics) if name in existing}

    # --- sync -----------------------------------------------------------------------------------------------------

    def _sync(self, assignments: dict[str, list[Partition]]) -> None:
        message = [
            SyncGroupRequestAssignment(member_id, _assignment(found, self._subscription_version))
            for member_id, found in assignments.items()
        ]
        version = self.version_of[ApiKey.SYNC_GROUP]
        protocol = ("consumer", self.protocol) if version >= PROTOCOL_FIELDS_FROM else (None, None)
        request = SyncGroupRequest(self.group_id, self.generation, self.member_id, self.instance_id, *protocol, message)
        timeout_ms = self.rebalance_timeout_ms + JOIN_SLACK_MS
        self.in_turn(
            self.rng.randint(0, 50),
            lambda: self.ask_in_turn(ApiKey.SYNC_GROUP, version, request, self._synced, timeout_ms),
        )

    def _synced(self, response: Any) -> None:
        code = None if response is None else ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            self._again(code, self.join)
            return
        self.turn += 1
        self.is_stable = True
        assigned = self._given(response.assignment)
        revoked = self.positions.keys() - assigned
        self.release(revoked)
        self.take(assigned)
        if revoked:
            self._rejoin()  # cooperative: others wait for what it revoked
        else:
            self.in_turn(HEARTBEAT_MS, self._heartbeat)

    def _given(self, assignment: bytes) -> set[Held]:
        if not assignment:
            return set()
        message, _ = read(Assignment, assignment)
        topics = self.world.image.topics
        return {
            Held(topics[topic.topic].id, index)
            for topic in message.assigned_partitions
            if topic.topic in topics
            for index in topic.partitions
        }

    # --- heartbeats -----------------------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        request = HeartbeatRequest(self.group_id, self.generation, self.member_id, self.instance_id)
        self.ask_in_turn(ApiKey.HEARTBEAT, self.version_of[ApiKey.HEARTBEAT], request, self._on_heartbeat_response)

    def _on_heartbeat_response(self, response: Any) -> None:
        code = None if response is None else ErrorCode(response.error_code)
        if code is ErrorCode.NONE:
            self.in_turn(HEARTBEAT_MS, self._heartbeat)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._rejoin()
        else:
            self._again(code, self._heartbeat)

    def _check_topics(self) -> None:
        """As the leader, rejoin if the topics have changed, so that partitions are assigned again."""
        if self.is_stable and self.is_leader and self._counts != self._partition_counts(self._subscribed_topics):
            self._rejoin()
        self.later(CHECK_TOPICS_MS, self._check_topics)

    def _again(self, code: ErrorCode | None, what: Callable[[], None]) -> None:
        """Retry after no response or a moved coordinator; any other error changes the membership."""
        if code is None or code in ELSEWHERE:
            self.in_turn(BACKOFF_MS, what)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.in_turn(BACKOFF_MS, self.join)
        else:
            self._refused(code)

    def _refused(self, code: ErrorCode) -> None:
        self.world.ledger.refused(self, code)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.die()
            return
        self.generation = -1
        if code is not ErrorCode.ILLEGAL_GENERATION:
            self.member_id = ""
        self.release_all()
        self.turn += 1
        self.is_stable = False
        self.in_turn(self.rng.randint(1, BACKOFF_MS), self.join)


def _member_subscription(metadata: bytes) -> MemberSubscription:
    message, _ = read(Subscription, metadata)
    owned = frozenset((topic.topic, index) for topic in message.owned_partitions for index in topic.partitions)
    return MemberSubscription(frozenset(message.topics), owned, message.generation_id)


def _assignment(partitions: list[Partition], version: int) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, index in partitions:
        by_topic.setdefault(topic, []).append(index)
    return write(Assignment([TopicPartitions(name, found) for name, found in sorted(by_topic.items())]), version)
