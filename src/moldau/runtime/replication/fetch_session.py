"""A follower's side of an incremental fetch session (KIP-227) with one leader: what it wants, what the leader was told
of that, and so what a request must say. Its cost is that of what changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.base.ids import Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

INITIAL_EPOCH = 0
LAST_EPOCH = 2**31 - 1
Key = tuple[Uuid, int]


class Position(NamedTuple):
    """Where a follower is in a partition."""

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    leader_epoch: int


class ReplicaFetchSession:
    def __init__(self, partition_max_bytes: int) -> None:
        self._partition_max_bytes = partition_max_bytes
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[Key, Position] = {}
        self._changed: dict[Key, None] = {}
        self._dropped: dict[Key, None] = {}
        self.told: dict[Key, Position] = {}

    def __bool__(self) -> bool:
        """Whether anything is wanted."""
        return bool(self._wanted)

    def want(self, key: Key, position: Position) -> None:
        self._wanted[key] = position
        self._dropped.pop(key, None)
        if self.told.get(key) == position:
            self._changed.pop(key, None)
        else:
            self._changed[key] = None

    def drop(self, key: Key) -> None:
        """What is wanted again after that is told again, even if nothing was said in between: the leader may have heard
        it when it could not believe it."""
        self._wanted.pop(key, None)
        self._changed.pop(key, None)
        if self.told.pop(key, None) is not None:
            self._dropped[key] = None

    def speak(self, request: FetchRequest) -> None:
        """Fills in what the leader must be told; from here on it was told."""
        request.session_id, request.session_epoch = self._id, self._epoch
        if self._epoch == INITIAL_EPOCH:
            self.told = dict(self._wanted)
            request.topics = self._topics(self._wanted)
        else:
            self.told.update((key, self._wanted[key]) for key in self._changed)
            request.topics = self._topics(self._changed)
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id, "", indexes) for topic_id, indexes in _by_topic(self._dropped).items()
            ]
        self._changed, self._dropped = {}, {}

    def answered(self, session_id: int) -> None:
        """An answer without an error. A leader without room for sessions gives the id 0."""
        self._id = session_id
        if not session_id:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1

    def start_over(self) -> None:
        """The leader may or may not have heard the last request: it is told everything in the next one, which ends the
        old session."""
        self._epoch = INITIAL_EPOCH

    def _topics(self, keys: Iterable[Key]) -> list[FetchTopic]:
        return [
            FetchTopic(topic_id, "", [self._asked((topic_id, index)) for index in indexes])
            for topic_id, indexes in _by_topic(keys).items()
        ]

    def _asked(self, key: Key) -> FetchPartition:
        position = self._wanted[key]
        return FetchPartition(
            partition=key[1],
            current_leader_epoch=position.leader_epoch,
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            partition_max_bytes=self._partition_max_bytes,
        )


def _by_topic(keys: Iterable[Key]) -> dict[Uuid, list[int]]:
    topics: dict[Uuid, list[int]] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, []).append(index)
    return topics
