"""Base of the members of both protocols: owned partitions, positions, commits, and resuming from committed offsets.

A partition's log is a number that grows with time; a reading client moves its position towards it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from machines.machine import CLIENT_PORT
from machines.network import SimulatedPeers
from machines.process import MachineClock, Process, ProcessTimers

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import ZERO_UUID, Uuid
from moldau.base.promise import Promise
from moldau.wire.apis import ApiKey
from moldau.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from moldau.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from moldau.wire.schema import Message

if TYPE_CHECKING:
    from groups.world import GroupsWorld

REQUEST_TIMEOUT_MS = 4_000
BACKOFF_MS = 200
READ_MS = 1_000
EXCUSE_MS = 60_000
"""How long a missed deadline may have consequences."""
PARKED = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
"""Their responses wait for other members, and all later responses of the connection behind them."""
TOPIC_IDS_FROM = 10
SEVERAL_GROUPS_FROM = 8
ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""The coordinator is not available yet: ask again."""


class Held(NamedTuple):
    topic_id: Uuid
    partition: int


class ReadingClient:
    kind = ""

    def __init__(
        self, world: GroupsWorld, name: str, group_id: str, topics: Collection[str], instance_id: str | None
    ) -> None:
        self.world = world
        self.rng: Random = world.client_rng
        self.name = name
        self.group_id = group_id
        self.topics = frozenset(topics)
        self.instance_id = instance_id
        self.member_id = ""
        self.positions: dict[Held, int | None] = {}
        """Owned partitions; the position is None until the committed offset is known."""
        self.is_dead = False
        self._process = Process(name)
        self._timers = ProcessTimers(world.timers, self._process, MachineClock(world.timers))
        self._peers = SimulatedPeers(world.network, self._process, self._timers.after_ms)
        self._stalled_until_ms = 0
        self.excused_until_ms = 0
        """Until then the coordinator may remove it."""
        self.commits_every = self.rng.randint(2, 6)
        self.turn = 0
        """Counts the actions that cancel what was scheduled before."""
        self._reads = 0
        self._is_committing = False
        self._is_fetching = False
        self._is_fetch_old = False
        """Whether partitions were assigned since the request: the response may be older than their assignment."""
        world.clients[name] = self
        self.later(self.rng.randint(1, READ_MS), self._read)

    # --- time -----------------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self._timers.after_ms(delay_ms, lambda: self.act(call))

    def in_turn(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Call later, unless another action has begun by then."""
        turn = self.turn
        self.later(delay_ms, lambda: call() if self.turn == turn else None)

    def act(self, call: Callable[[], None]) -> None:
        if not self.is_dead:
            self._process.act(call)

    def ask(
        self, api: ApiKey, version: int, request: Message, on_reply: Callable[[Any], None], timeout_ms: int = 0
    ) -> None:
        """Call `on_reply` with the response, or None if there was none."""

        def replied(response: Any) -> None:
            if isinstance(response, KafkaError):
                self.excuse()
                response = None
            self.act(lambda: on_reply(response))

        self._send(api, version, request, timeout_ms or REQUEST_TIMEOUT_MS).then(replied)

    def _send(self, api: ApiKey, version: int, request: Message, timeout_ms: int) -> Promise[Any]:
        peer = self._peers.to(self.world.machine.host, CLIENT_PORT, "rebalances" if api in PARKED else "")
        return peer.ask(api, request, timeout_ms, version)

    def ask_in_turn(
        self, api: ApiKey, version: int, request: Message, on_reply: Callable[[Any], None], timeout_ms: int = 0
    ) -> None:
        turn = self.turn
        self.ask(api, version, request, lambda reply: on_reply(reply) if self.turn == turn else None, timeout_ms)

    # --- start and end --------------------------------------------------------------------------------------------

    def stall(self, duration_ms: int) -> None:
        self._process.stop()
        self._stalled_until_ms = max(self._stalled_until_ms, self.world.elapsed_ms + duration_ms)
        self.world.timers.after_ms(duration_ms, self._stall_ends)
        self.excuse(duration_ms + EXCUSE_MS)
        if self.rng.random() < 0.8:
            # It commits after the stall what it was about to commit before, whatever has changed.
            self.later(duration_ms, self.commit)

    def _stall_ends(self) -> None:
        if self.world.elapsed_ms >= self._stalled_until_ms:
            self._process.resume()

    def wake(self) -> None:
        """End a stall early."""
        self._stalled_until_ms = 0
        self._stall_ends()

    def excuse(self, more_ms: int = EXCUSE_MS) -> None:
        self.excused_until_ms = max(self.excused_until_ms, self.world.elapsed_ms + more_ms)

    def die(self) -> None:
        self._retire()
        self._end_process()

    def die_after(self, api: ApiKey, version: int, request: Message) -> None:
        """Do nothing more but to send this request; its connection stays open until there is a response."""
        self._retire()
        self._send(api, version, request, REQUEST_TIMEOUT_MS).then(lambda response: self._end_process())

    def _retire(self) -> None:
        self.is_dead = True
        for twin in self.world.population.twins_of(self):
            twin.excuse()  # it may have been replaced without knowing it yet
        self.world.ledger.released(self, self.positions)
        self.positions = {}
        del self.world.clients[self.name]

    def _end_process(self) -> None:
        self._process.end()
        self.world.network.process_died(self._process)

    def subscribe(self, topics: Collection[str]) -> None:
        raise NotImplementedError

    def leave(self) -> None:
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        """Generation or member epoch, as the client knows it."""
        raise NotImplementedError

    @property
    def is_settled(self) -> bool:
        raise NotImplementedError

    def on_commit_refused(self, code: ErrorCode) -> None:
        """Called when a commit fails because this is no member, or not of this generation."""
        raise NotImplementedError

    def offset_commit_version(self) -> int:
        raise NotImplementedError

    def offset_fetch_version(self) -> int:
        raise NotImplementedError

    # --- partitions -----------------------------------------------------------------------------------------------

    def take(self, partitions: Iterable[Held]) -> None:
        added = [each for each in sorted(partitions) if each not in self.positions]
        for each in added:
            self.positions[each] = None
        self.world.ledger.took(self, added)
        if added:
            self._is_fetch_old = self._is_fetching
            self._fetch()

    def release(self, partitions: Iterable[Held]) -> None:
        gone = [each for each in sorted(partitions) if each in self.positions]
        for each in gone:
            del self.positions[each]
        self.world.ledger.released(self, gone)

    def release_all(self) -> None:
        self.release(list(self.positions))

    # --- reading --------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        for each, position in self.positions.items():
            if position is not None:
                end = self.world.log_end(each)
                self.positions[each] = min(end, position + self.rng.randint(1, 50))
        self._reads += 1
        if self._reads % self.commits_every == 0:
            self.commit()
        if None in self.positions.values():
            self._fetch()
        self.later(READ_MS, self._read)

    def _by_topic(self, partitions: Iterable[Held]) -> dict[Uuid, list[int]]:
        by_topic: dict[Uuid, list[int]] = {}
        for each in sorted(partitions):
            by_topic.setdefault(each.topic_id, []).append(each.partition)
        return by_topic

    # --- commit ---------------------------------------------------------------------------------------------------

    def commit(self, then: Callable[[], None] | None = None) -> None:
        """Commit all known positions; call `then` whatever the outcome."""
        image = self.world.image
        known = {
            each: position
            for each, position in self.positions.items()
            if position is not None and image.topic_by_id(each.topic_id) is not None
        }
        if self._is_committing or not known or self.epoch < 0:
            if then is not None:
                then()
            return
        self._is_committing = True
        version = self.offset_commit_version()
        topics = [
            OffsetCommitRequestTopic(
                *self._named(topic_id, version),
                [OffsetCommitRequestPartition(index, known[Held(topic_id, index)], -1, self.name) for index in found],
            )
            for topic_id, found in self._by_topic(known).items()
        ]
        request = OffsetCommitRequest(self.group_id, self.epoch, self.member_id, self.instance_id, topics=topics)
        turn = self.turn
        self.ask(ApiKey.OFFSET_COMMIT, version, request, lambda response: self._committed(response, turn, then))

    def _named(self, topic_id: Uuid, version: int) -> tuple[Uuid, str]:
        """Name a topic as that version does, by id or by name."""
        return (topic_id, "") if version >= TOPIC_IDS_FROM else (ZERO_UUID, self.world.topic_names[topic_id])

    def _committed(self, response: Any, turn: int, then: Callable[[], None] | None) -> None:
        self._is_committing = False
        codes = set()
        if response is not None:
            codes = {ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions}
        fatal = codes - ELSEWHERE - HARMLESS
        if fatal and self.turn == turn:
            self.on_commit_refused(min(fatal))
        if then is not None:
            then()

    # --- resume ---------------------------------------------------------------------------------------------------

    def _fetch(self) -> None:
        image = self.world.image
        wanted = [
            each
            for each, position in self.positions.items()
            if position is None and image.topic_by_id(each.topic_id) is not None
        ]
        if self._is_fetching or not wanted:
            return
        self._is_fetching = True
        turn = self.turn
        version = self.offset_fetch_version()
        request = self._fetch_request(version, self._by_topic(wanted))
        self.ask(ApiKey.OFFSET_FETCH, version, request, lambda response: self._fetched(response, version, turn))

    def _fetch_request(self, version: int, wanted: dict[Uuid, list[int]]) -> OffsetFetchRequest:
        names = self.world.topic_names
        if version < SEVERAL_GROUPS_FROM:
            topics = [OffsetFetchRequestTopic(names[topic_id], found) for topic_id, found in wanted.items()]
            return OffsetFetchRequest(group_id=self.group_id, topics=topics)
        several = [
            OffsetFetchRequestTopics(*self._named(topic_id, version), found) for topic_id, found in wanted.items()
        ]
        who = (self.member_id, self.epoch) if self.kind == "consumer" else (None, -1)
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.group_id, *who, several)])

    def _fetched(self, response: Any, version: int, turn: int) -> None:
        is_old, self._is_fetching, self._is_fetch_old = self._is_fetch_old, False, False
        if response is None or self.turn != turn or is_old:
            return
        of_group = response if version < SEVERAL_GROUPS_FROM else response.groups[0]
        if of_group.error_code:
            return  # the next fetch of offsets asks again
        for topic in of_group.topics:
            for each in topic.partitions:
                held = self._held(topic, each.partition_index, version)
                if not each.error_code and held is not None and self.positions.get(held, 0) is None:
                    self.positions[held] = max(each.committed_offset, 0)

    def _held(self, topic: Any, partition: int, version: int) -> Held | None:
        if version >= TOPIC_IDS_FROM:
            return Held(topic.topic_id, partition)
        known = self.world.image.topics.get(topic.name)
        return None if known is None else Held(known.id, partition)


HARMLESS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Errors of a commit after which the client is still a member."""
