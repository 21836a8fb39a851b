"""The follower's side of an incremental fetch session (KIP-227) with one leader: it knows the positions to fetch from
and those that the leader has. A request contains only the differences, so partitions without news cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from moldau.base.ids import Uuid
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
Key = tuple[Uuid, int]


class Position(NamedTuple):
    """The position of a follower in a partition."""

    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    leader_epoch: int


class ReplicaFetchSession:
    def __init__(self, partition_max_bytes: int) -> None:
        self._partition_max_bytes = partition_max_bytes
        self._id = 0
        self._epoch = INITIAL_EPOCH
        self._positions: dict[Key, Position] = {}
        self._changed: dict[Key, None] = {}
        self._dropped: dict[Key, None] = {}
        self.sent: dict[Key, Position] = {}
        """The positions that the leader has from earlier requests of this session. The fetcher compares them with its
        logs when a response arrives."""

    def __bool__(self) -> bool:
        """Whether there is anything to fetch."""
        return bool(self._positions)

    def set_position(self, key: Key, position: Position) -> None:
        self._positions[key] = position
        self._dropped.pop(key, None)
        if self.sent.get(key) == position:
            self._changed.pop(key, None)
        else:
            self._changed[key] = None

    def drop(self, key: Key) -> None:
        """Stop fetching a partition. If it is added again, its position is sent again, even without a request in
        between: the leader may have got it when it could not accept it yet."""
        self._positions.pop(key, None)
        self._changed.pop(key, None)
        if self.sent.pop(key, None) is not None:
            self._dropped[key] = None

    def fill(self, request: FetchRequest) -> None:
        """Fill in what changed since the last request, and count it as sent."""
        request.session_id, request.session_epoch = self._id, self._epoch
        if self._epoch == INITIAL_EPOCH:
            self.sent = dict(self._positions)
            request.topics = self._topics(self._positions)
        else:
            self.sent.update((key, self._positions[key]) for key in self._changed)
            request.topics = self._topics(self._changed)
            request.forgotten_topics_data = [
                ForgottenTopic(topic_id, "", indexes) for topic_id, indexes in _by_topic(self._dropped).items()
            ]
        self._changed, self._dropped = {}, {}

    def on_response(self, session_id: int) -> None:
        """Handle a response without an error. A leader that has no room for sessions returns id 0."""
        self._id = session_id
        if not session_id:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if self._epoch == EPOCH_MAX else self._epoch + 1

    def start_over(self) -> None:
        """Send everything in the next request, which ends the old session. Whether the leader got the last request is
        unknown."""
        self._epoch = INITIAL_EPOCH

    def _topics(self, keys: Iterable[Key]) -> list[FetchTopic]:
        return [
            FetchTopic(topic_id, "", [self._fetch_partition((topic_id, index)) for index in indexes])
            for topic_id, indexes in _by_topic(keys).items()
        ]

    def _fetch_partition(self, key: Key) -> FetchPartition:
        position = self._positions[key]
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
