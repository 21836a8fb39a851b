"""Share sessions: which partitions a member reads, so that its next request names only changes (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 2**31 - 1
PLACES_MAX: Final = 200_000
"""Of all sessions of a node together."""


class Place(NamedTuple):
    """A partition, by the id of its topic."""

    topic_id: Uuid
    partition: int


class ShareSession:
    __slots__ = ("address", "epoch", "group_id", "member_id", "places")

    def __init__(self, group_id: str, member_id: str, address: str) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.address = address
        """Of the connection that opened it, with whose end it ends."""
        self.epoch = INITIAL_EPOCH + 1
        """That of the next request."""
        self.places: dict[Place, bool] = {}
        """The partitions, and whether the member was told of each."""

    def in_turn(self) -> list[Place]:
        """Return the partitions, each request beginning with another one."""
        places = list(self.places)
        first = (self.epoch - 1) % len(places) if places else 0
        return places[first:] + places[:first]


class ShareSessions:
    """All sessions of a node, by group and member."""

    def __init__(self, sessions_max: int) -> None:
        self.sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_address: dict[str, ShareSession] = {}
        self._members: dict[str, int] = {}
        """How many sessions each group has."""
        self._places_left = PLACES_MAX

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def places(self) -> int:
        """How many partitions all sessions have together."""
        return PLACES_MAX - self._places_left

    def open(self, group_id: str, member_id: str, address: str, places: Iterable[Place]) -> ShareSession:
        """Begin a session anew. Raise KafkaError if there are too many."""
        before = self._sessions.get((group_id, member_id))
        if before is not None:
            self.close(before)
        if len(self._sessions) >= self.sessions_max:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        session = ShareSession(group_id, member_id, address)
        self.change(session, places, ())
        self._sessions[group_id, member_id] = session
        self._by_address[address] = session
        self._members[group_id] = self._members.get(group_id, 0) + 1
        return session

    def get(self, group_id: str, member_id: str) -> ShareSession:
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession:
        """Return the session of a request, which is the next one of its member."""
        session = self.get(group_id, member_id)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session.epoch = epoch + 1 if epoch < _EPOCH_MAX else INITIAL_EPOCH + 1
        return session

    def change(self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]) -> None:
        """Add partitions to a session, and take some out. Raise KafkaError if all sessions together have too many."""
        before = len(session.places)
        for place in added:
            session.places.setdefault(place, False)
        for place in forgotten:
            session.places.pop(place, None)
        self._places_left -= len(session.places) - before
        if self._places_left < 0:
            self._places_left += len(session.places)
            session.places.clear()
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)

    def close(self, session: ShareSession) -> None:
        if self._sessions.get((session.group_id, session.member_id)) is not session:
            return
        del self._sessions[session.group_id, session.member_id]
        self._places_left += len(session.places)
        if self._by_address.get(session.address) is session:
            del self._by_address[session.address]
        left = self._members[session.group_id] - 1
        if left:
            self._members[session.group_id] = left
        else:
            del self._members[session.group_id]

    def at(self, address: str) -> ShareSession | None:
        """Return the session that this connection opened last."""
        return self._by_address.get(address)

    def has_members(self, group_id: str) -> bool:
        return group_id in self._members
