"""What members of both protocols have in common: partitions that they hold, positions in them, commits, and resuming.

A partition's log is a number that grows with time; a client that reads moves its position towards it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.ids import ZERO_UUID, Uuid
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
    from groups_world import World

REQUEST_TIMEOUT_MS = 4_000
BACKOFF_MS = 200
READ_MS = 1_000
EXCUSE_MS = 60_000
"""What was missed may have its consequences until then."""
TOPIC_IDS_FROM = 10
SEVERAL_GROUPS_FROM = 8
ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)
"""The coordinator is not there, or not yet: ask again."""


class Held(NamedTuple):
    topic_id: Uuid
    partition: int


class ReadingClient:
    kind = ""

    def __init__(
        self, world: World, name: str, group_id: str, topics: Collection[str], instance_id: str | None
    ) -> None:
        self.world = world
        self.rng: Random = world.client_rng
        self.name = name
        self.group_id = group_id
        self.topics = frozenset(topics)
        self.instance_id = instance_id
        self.member_id = ""
        self.positions: dict[Held, int | None] = {}
        """What it holds; None until it knows where to resume."""
        self.is_dead = False
        self.stalled_until_ms = 0
        self.excused_until_ms = 0
        """Until then it is no wonder if the coordinator has thrown it out."""
        self.commits_every = self.rng.randint(2, 6)
        self.turn = 0
        """Counts what supersedes what was going on."""
        self._reads = 0
        self._is_committing = False
        self._is_fetching = False
        self._is_fetch_old = False
        """Partitions came since it was asked: what it tells of them may be older than their having been given."""
        world.clients[name] = self
        self.later(self.rng.randint(1, READ_MS), self._read)

    # --- time -----------------------------------------------------------------------------------------------------

    def later(self, delay_ms: int, call: Callable[[], None]) -> None:
        self.world.timers.after_ms(delay_ms, lambda: self.act(call))

    def in_turn(self, delay_ms: int, call: Callable[[], None]) -> None:
        """Unless something else has begun by then."""
        turn = self.turn
        self.later(delay_ms, lambda: call() if self.turn == turn else None)

    def act(self, call: Callable[[], None]) -> None:
        if self.is_dead:
            return
        left_ms = self.stalled_until_ms - self.world.elapsed_ms
        if left_ms > 0:
            self.later(left_ms, call)
        else:
            call()

    def ask(
        self, api: ApiKey, version: int, request: Message, on_reply: Callable[[Any], None], timeout_ms: int = 0
    ) -> None:
        def replied(response: Any) -> None:
            if response is None:
                self.excuse()
            self.act(lambda: on_reply(response))

        self.world.network.ask(self.name, api, version, request, timeout_ms or REQUEST_TIMEOUT_MS, replied)

    def ask_in_turn(
        self, api: ApiKey, version: int, request: Message, on_reply: Callable[[Any], None], timeout_ms: int = 0
    ) -> None:
        turn = self.turn
        self.ask(api, version, request, lambda reply: on_reply(reply) if self.turn == turn else None, timeout_ms)

    # --- life -----------------------------------------------------------------------------------------------------

    def stall(self, duration_ms: int) -> None:
        self.stalled_until_ms = max(self.stalled_until_ms, self.world.elapsed_ms + duration_ms)
        self.excuse(duration_ms + EXCUSE_MS)
        if self.rng.random() < 0.8:
            # What it was about to do when it fell asleep, it does when it wakes, whatever has become of it since.
            self.later(duration_ms, self.commit)

    def excuse(self, more_ms: int = EXCUSE_MS) -> None:
        self.excused_until_ms = max(self.excused_until_ms, self.world.elapsed_ms + more_ms)

    def die(self) -> None:
        self.is_dead = True
        self.world.ledger.released(self, self.positions)
        self.positions = {}
        del self.world.clients[self.name]

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

    def lost(self, code: ErrorCode) -> None:
        """A commit was told that this is no member, or not in this generation."""
        raise NotImplementedError

    def commit_version(self) -> int:
        raise NotImplementedError

    def fetch_version(self) -> int:
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
        """Commits all positions it knows; `then` goes on whatever came of it."""
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
        version = self.commit_version()
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
        """A topic in the words of that version."""
        return (topic_id, "") if version >= TOPIC_IDS_FROM else (ZERO_UUID, self.world.topic_names[topic_id])

    def _committed(self, response: Any, turn: int, then: Callable[[], None] | None) -> None:
        self._is_committing = False
        codes = set()
        if response is not None:
            codes = {ErrorCode(each.error_code) for topic in response.topics for each in topic.partitions}
        fatal = codes - ELSEWHERE - HARMLESS
        if fatal and self.turn == turn:
            self.lost(min(fatal))
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
        version = self.fetch_version()
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
            return  # the next look at the positions asks again
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
"""What a commit may be told without the member being any the less a member."""
