"""The sessions of the brokers at the active controller: kept in memory only; a new controller begins its own.

A session ends `session_timeout_ms` after the broker's last heartbeat. After a lost connection it ends within two
heartbeat intervals, unless the broker sends another heartbeat. Times are arguments, from the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from moldau.metadata.image import MetadataImage

HEARTBEATS_OF_GRACE: Final = 3
"""How many heartbeat intervals the node of the previous controller has to find the new one: it has probably died."""
HEARTBEATS_WITHOUT_CONNECTION: Final = 2


@dataclass(slots=True)
class _Session:
    broker_epoch: int
    deadline_ms: int
    metadata_offset: int = -1
    """The metadata offset in the broker's last heartbeat."""
    is_confirmed: bool = False
    """Whether the broker is known to be alive: this controller has heard from it."""
    shutdown_offset: int | None = None
    """During a controlled shutdown: the offset at which the other brokers know that this one leads nothing any more."""


class BrokerSessions:
    def __init__(self, session_timeout_ms: int, heartbeat_interval_ms: int) -> None:
        self.session_timeout_ms = session_timeout_ms
        self._heartbeat_interval_ms = heartbeat_interval_ms
        self._sessions: dict[int, _Session] = {}
        self._taken_over_at = -1
        self._fenced_at: dict[int, int] = {}
        """The metadata offset from which on each fenced broker knows that it was fenced."""

    def begin_all(self, image: MetadataImage, now_ms: int, suspect: int = -1) -> None:
        """Begin sessions of all unfenced brokers when this controller becomes active. Each has a whole session to find
        it: a broker that is no voter learns only from a timeout that the previous controller is gone. `suspect` is the
        node of that controller, and has less time."""
        self._taken_over_at = image.offset
        self._fenced_at.clear()
        grace_ms = min(self.session_timeout_ms, HEARTBEATS_OF_GRACE * self._heartbeat_interval_ms)
        self._sessions = {
            broker.id: _Session(broker.epoch, now_ms + (grace_ms if broker.id == suspect else self.session_timeout_ms))
            for broker in image.live_brokers()
        }

    def touch(self, broker_id: int, broker_epoch: int, now_ms: int, metadata_offset: int = -1) -> None:
        """Extend the broker's session after a heartbeat."""
        session = self._sessions.get(broker_id)
        if session is None or session.broker_epoch != broker_epoch:
            session = self._sessions[broker_id] = _Session(broker_epoch, 0)
        session.deadline_ms = now_ms + self.session_timeout_ms
        session.metadata_offset = max(session.metadata_offset, metadata_offset)

    def confirm(self, broker_id: int) -> None:
        """Note that this controller has heard from the broker, and has removed fenced members from its ISRs."""
        self._sessions[broker_id].is_confirmed = True

    def is_confirmed(self, broker_id: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.is_confirmed

    def connection_lost(self, broker_id: int, now_ms: int) -> None:
        """Shorten the broker's session: the connection of its heartbeats broke."""
        session = self._sessions.get(broker_id)
        if session is not None:
            sooner_ms = now_ms + HEARTBEATS_WITHOUT_CONNECTION * self._heartbeat_interval_ms
            session.deadline_ms = min(session.deadline_ms, sooner_ms)

    def end(self, broker_id: int) -> None:
        """End the broker's session, so that another process may register with its id at once."""
        self._sessions.pop(broker_id, None)

    def fenced(self, broker_id: int, offset: int) -> None:
        """Note that a broker is fenced. `offset` is that of the first record that says so."""
        self._fenced_at[broker_id] = offset

    def knows_its_state(self, broker_id: int, broker_epoch: int, metadata_offset: int) -> bool:
        """Whether a fenced broker has applied its registration and its fencing: one that does not know yet that others
        lead its partitions must not answer for them. A new controller does not know when others were fenced."""
        fenced_at = self._fenced_at.get(broker_id, self._taken_over_at)
        return metadata_offset >= max(broker_epoch, fenced_at)

    def is_live(self, broker_id: int, broker_epoch: int, now_ms: int) -> bool:
        session = self._sessions.get(broker_id)
        return session is not None and session.broker_epoch == broker_epoch and now_ms < session.deadline_ms

    def stale(self, now_ms: int) -> list[tuple[int, int]]:
        """Return the ids and epochs of the brokers whose session has expired."""
        return sorted((id, each.broker_epoch) for id, each in self._sessions.items() if now_ms >= each.deadline_ms)

    def next_deadline_ms(self) -> int | None:
        """Return when the next session expires; None if there is none."""
        return min((session.deadline_ms for session in self._sessions.values()), default=None)

    # --- controlled shutdown --------------------------------------------------------------------------------------

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Note the metadata offset that the other brokers must reach first; only the first call counts."""
        session = self._sessions[broker_id]
        if session.shutdown_offset is None:
            session.shutdown_offset = offset

    def shutdown_offset(self, broker_id: int) -> int | None:
        session = self._sessions.get(broker_id)
        return None if session is None else session.shutdown_offset

    def others_have_reached(self, image: MetadataImage, broker_id: int, offset: int) -> bool:
        """Whether every other active broker has applied the metadata log up to `offset`."""
        others = [broker.id for broker in image.brokers.values() if broker.is_active and broker.id != broker_id]
        return all(each in self._sessions and self._sessions[each].metadata_offset >= offset for each in others)
