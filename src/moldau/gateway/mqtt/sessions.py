"""The sessions of all clients: who takes over whose, which have expired, and whose wills are due. Pure: time is an
argument."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from moldau.gateway.mqtt.packets import Will
from moldau.gateway.mqtt.session import PendingWill, Session
from moldau.gateway.ports import Account

Holder = TypeVar("Holder")
"""Who has a session: a connection."""


class Begun(NamedTuple, Generic[Holder]):
    session: Session
    is_present: bool
    """Whether it was there before."""
    taken_from: Holder | None
    """The connection that must end."""
    ended: Session | None
    """The session that the client did not want to continue."""


class Due(NamedTuple):
    wills: list[PendingWill]
    expired: list[Session]


class Sessions(Generic[Holder]):
    def __init__(self, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[str, Session] = {}
        self._holders: dict[str, Holder] = {}
        self._deadlines: list[tuple[int, int, str]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions.values())

    def get(self, key: str) -> Session | None:
        return self._sessions.get(key)

    def is_held(self, key: str) -> bool:
        return key in self._holders

    def holder(self, key: str) -> Holder | None:
        return self._holders.get(key)

    def restore(self, session: Session) -> None:
        """Take a session that was read from its topic. Without `away_since_ms` its client is connected to another
        gateway, which knows when it expires."""
        self._sessions[session.key] = session
        if session.away_since_ms is not None:
            self._note_deadline(session)

    def forget(self, key: str) -> None:
        """Another gateway ended the session."""
        if key not in self._holders:
            self._sessions.pop(key, None)

    def begin(self, key: str, clean_start: bool, expiry_s: int, holder: Holder) -> Begun[Holder]:
        """Give a client its session. A will that waited is not sent if the client continues its session."""
        taken_from = self._holders.pop(key, None)
        session = self._sessions.get(key)
        ended = None
        if clean_start and session is not None:
            ended, session = session, None
        is_present = session is not None
        if session is None:
            session = Session(key)
            if len(self._sessions) >= self._sessions_max and key not in self._sessions:
                expiry_s = 0
        session.expiry_s = expiry_s
        session.away_since_ms = session.will = None
        self._sessions[key] = session
        self._holders[key] = holder
        return Begun(session, is_present, taken_from, ended)

    def leave(
        self, session: Session, holder: Holder, will: Will | None, account: Account, now_ms: int
    ) -> tuple[Will | None, bool]:
        """A connection has ended: return its will, if it is due now, and whether the session has ended with it."""
        delay_s = 0 if will is None else will.properties.will_delay_s or 0
        if self._holders.get(session.key) is not holder:
            # Another connection has taken over. A will with a delay is for clients that do not continue their session.
            goes_on = self._sessions.get(session.key) is session
            return (None if delay_s and goes_on else will), False
        del self._holders[session.key]
        if not session.is_persistent:
            del self._sessions[session.key]
            return will, True
        session.away_since_ms = now_ms
        due = None if delay_s else will
        if will is not None and delay_s:
            session.will = PendingWill(will, account, now_ms + 1000 * min(delay_s, session.expiry_s))
        self._note_deadline(session)
        return due, False

    def next_deadline_ms(self) -> int | None:
        return self._deadlines[0][0] if self._deadlines else None

    def due(self, now_ms: int) -> Due:
        """Return the wills that are due, and the sessions that have expired, which are forgotten."""
        found = Due([], [])
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            session = self._sessions.get(heapq.heappop(self._deadlines)[2])
            if session is None or session.away_since_ms is None:
                continue
            if session.will is not None and session.will.due_ms <= now_ms:
                found.wills.append(session.will)
                session.will = None
            expires_at_ms = session.expires_at_ms
            if expires_at_ms is not None and expires_at_ms <= now_ms:
                del self._sessions[session.key]
                found.expired.append(session)
            else:
                self._note_deadline(session)
        return found

    def pending_wills(self) -> Iterable[PendingWill]:
        return [session.will for session in self._sessions.values() if session.will is not None]

    def _note_deadline(self, session: Session) -> None:
        at_ms = session.expires_at_ms
        assert at_ms is not None
        if session.will is not None:
            at_ms = min(at_ms, session.will.due_ms)
        heapq.heappush(self._deadlines, (at_ms, next(self._numbers), session.key))
