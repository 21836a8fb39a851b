"""What the active controller does unasked: fence brokers that are not heard of, and now and then give leadership back
to preferred replicas, and a leader to what has none where an unclean one was allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.cluster_settings import BalanceSettings, BrokerSessionSettings
from moldau.base.config_def import BrokerLayers
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import decide_balance, decide_unclean_elections
from moldau.metadata.controller.features import decide_bootstrap
from moldau.metadata.controller.fencing import decide_fence_stale
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller

log = logging.getLogger("moldau.controller")


class ControllerDuties:
    def __init__(
        self,
        node_id: int,
        controller: Controller,
        sessions: BrokerSessions,
        settings: BrokerSessionSettings,
        balance: BalanceSettings,
        layers: Callable[[MetadataImage], BrokerLayers],
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._node_id = node_id
        self._controller = controller
        self._sessions = sessions
        self._settings = settings
        self._balance = balance
        self._layers = layers
        self._clock = clock
        self._timers = timers
        self._fencing: Timer | None = None
        self._fencing_ms = 0
        self._balancing: Timer | None = None
        self._connections: dict[str, int] = {}
        """By which connection each broker was last heard of."""

    def take_over(self) -> None:
        self._controller.submit(decide_bootstrap)
        self._controller.submit(self._begin_sessions)
        self._balancing = self._timers.after_ms(self._balance.check_interval_ms, self._look_after_leaders)
        self.arm()

    def lay_down(self) -> None:
        for timer in (self._fencing, self._balancing):
            if timer is not None:
                timer.cancel()
        self._fencing = self._balancing = None
        self._connections.clear()

    # --- brokers' sessions --------------------------------------------------------------------------------------

    def heard_of(self, broker_id: int, address: str) -> None:
        """By a heartbeat that came over this connection."""
        self._connections[address] = broker_id

    def connection_gone(self, address: str) -> None:
        """A process that dies drops its connections at once: no need to wait for the whole session."""
        broker_id = self._connections.pop(address, None)
        if broker_id is not None and self._controller.is_active and broker_id not in self._connections.values():
            self._sessions.connection_lost(broker_id, self._clock.elapsed_ms())
            self.arm()

    def arm(self) -> None:
        """Sees to it that the next session that may end is looked at in time."""
        due_ms = self._sessions.next_deadline_ms()
        if due_ms is None or not self._controller.is_active:
            return
        if self._fencing is not None:
            if self._fencing_ms <= due_ms:
                return
            self._fencing.cancel()
        self._fencing_ms = due_ms
        self._fencing = self._timers.after_ms(max(due_ms - self._clock.elapsed_ms(), 1), self._fence)

    def _begin_sessions(self, image: MetadataImage) -> Decision[None]:
        self._sessions.begin(image, self._clock.elapsed_ms())
        # Whatever process had this node's id before is gone: its successor need not wait for its session to end.
        self._sessions.end(self._node_id)
        return Decision(None)

    def _fence(self) -> None:
        self._fencing = None
        now_ms = self._clock.elapsed_ms()
        if now_ms - self._fencing_ms > self._settings.heartbeat_interval_ms:
            # It was this node that slept: what the others sent meanwhile is still to be read.
            self._controller.submit(self._begin_sessions)
        else:
            self._controller.submit(
                lambda image: decide_fence_stale(image, self._sessions, now_ms, self._layers(image))
            )
        self.arm()

    # --- leaders ------------------------------------------------------------------------------------------------

    def _look_after_leaders(self) -> None:
        self._elect(lambda image: decide_unclean_elections(image, self._layers(image)))
        if self._balance.is_automatic:
            self._elect(decide_balance)
        self._balancing = self._timers.after_ms(self._balance.check_interval_ms, self._look_after_leaders)

    def _elect(self, decide: Callable[[MetadataImage], Decision[bool]]) -> None:
        """Round by round, each committed before the next, until there is nothing more to do."""

        def go_on(has_more: object) -> None:
            if has_more is True:
                self._timers.soon(lambda: self._elect(decide))

        self._controller.submit(decide).then(go_on)
