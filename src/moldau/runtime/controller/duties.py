"""What the active controller does without a request. When it takes over: write the bootstrap records of a new metadata
log and the SCRAM secret, and begin the brokers' sessions. From then on: fence brokers whose session expired, return
leadership to preferred replicas, and elect unclean leaders where that was allowed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.cluster_settings import BalanceSettings, BrokerSessionSettings
from moldau.base.config_def import BrokerLayers
from moldau.metadata.controller.broker_sessions import BrokerSessions
from moldau.metadata.controller.decision import Decision
from moldau.metadata.controller.elections import decide_balance, decide_unclean_elections
from moldau.metadata.controller.features import decide_bootstrap
from moldau.metadata.controller.fencing import decide_fence_stale
from moldau.metadata.controller.scram_credentials import decide_scram_secret, new_scram_secret
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.active import Controller, Decide
from moldau.wire.schema import MetadataRecord

log = logging.getLogger("moldau.controller")


class ControllerDuties:
    def __init__(
        self,
        node_id: int,
        controller: Controller,
        sessions: BrokerSessions,
        session_settings: BrokerSessionSettings,
        balance: BalanceSettings,
        broker_configs_of: Callable[[MetadataImage], BrokerLayers],
        clock: Clock,
        timers: Timers,
        rng: Random,
        first_records: tuple[MetadataRecord, ...] = (),
    ) -> None:
        """`first_records` are for a new metadata log."""
        self._rng = rng
        self._first_records = first_records
        self._node_id = node_id
        self._controller = controller
        self._sessions = sessions
        self._session_settings = session_settings
        self._balance = balance
        self._broker_configs_of = broker_configs_of
        self._clock = clock
        self._timers = timers
        self._fencing_timer: Timer | None = None
        self._fencing_ms = 0
        self._leader_timer: Timer | None = None
        self._connections: dict[str, int | None] = {}
        """The broker whose heartbeat was last accepted over each connection; None until the first is."""

    def take_over(self) -> None:
        self._controller.submit_own(lambda image: decide_bootstrap(image, self._first_records))
        self._controller.submit_own(lambda image: decide_scram_secret(image, lambda: new_scram_secret(self._rng)))
        suspect = self._controller.previous_leader_id
        self._controller.submit_own(lambda image: self._begin_sessions(image, suspect))
        self._leader_timer = self._timers.after_ms(self._balance.check_interval_ms, self._check_leaders)

    def lay_down(self) -> None:
        for timer in (self._fencing_timer, self._leader_timer):
            if timer is not None:
                timer.cancel()
        self._fencing_timer = self._leader_timer = None
        self._connections.clear()

    # --- brokers' sessions --------------------------------------------------------------------------------------

    def heartbeat_received(self, address: str) -> None:
        """Note that a heartbeat arrived over this connection, which exists now."""
        self._connections.setdefault(address, None)

    def heartbeat_accepted(self, broker_id: int, address: str) -> None:
        """Note that a broker uses this connection, unless it has ended since the heartbeat arrived: a connection that
        has gone would hide all later ones of this broker that end."""
        if address in self._connections:
            self._connections[address] = broker_id

    def connection_gone(self, address: str) -> None:
        """Shorten the session of a broker whose connection is closed: that happens at once if its process died."""
        broker_id = self._connections.pop(address, None)
        if broker_id is not None and self._controller.is_active and broker_id not in self._connections.values():
            self._sessions.connection_lost(broker_id, self._clock.monotonic_ms())
            self.set_fencing_timer()

    def set_fencing_timer(self) -> None:
        """Set the timer to the time when the next session may expire."""
        deadline_ms = self._sessions.next_deadline_ms()
        if deadline_ms is None or not self._controller.is_active:
            return
        if self._fencing_timer is not None:
            if self._fencing_ms <= deadline_ms:
                return
            self._fencing_timer.cancel()
        self._fencing_ms = deadline_ms
        self._fencing_timer = self._timers.after_ms(max(deadline_ms - self._clock.monotonic_ms(), 1), self._fence)

    def _begin_sessions(self, image: MetadataImage, suspect: int = -1) -> Decision[None]:
        self._sessions.begin_all(image, self._clock.monotonic_ms(), suspect)
        # This node's own broker begins a new session with its next heartbeat; a restarted one need not wait.
        self._sessions.end(self._node_id)
        self.set_fencing_timer()
        return Decision(None)

    def _fence(self) -> None:
        self._fencing_timer = None
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._fencing_ms > self._session_settings.heartbeat_interval_ms:
            # This node itself was suspended: heartbeats of the brokers are still to be read.
            self._controller.submit_own(self._begin_sessions)
        else:
            self._controller.submit_own(lambda image: self._fence_stale(image, now_ms))

    def _fence_stale(self, image: MetadataImage, now_ms: int) -> Decision[list[int]]:
        decision = decide_fence_stale(image, self._sessions, now_ms, self._broker_configs_of(image))
        self.set_fencing_timer()
        return decision

    # --- leaders ------------------------------------------------------------------------------------------------

    def _check_leaders(self) -> None:
        # Set first: a check that fails is made again.
        self._leader_timer = self._timers.after_ms(self._balance.check_interval_ms, self._check_leaders)
        self._elect(lambda image: decide_unclean_elections(image, self._broker_configs_of(image)))
        if self._balance.auto_rebalance_enabled:
            self._elect(decide_balance)

    def _elect(self, decide: Decide[bool]) -> None:
        """Elect in rounds, each committed before the next, until there is nothing more to do."""

        def next_round(has_more: object) -> None:
            if has_more is True:
                self._timers.soon(lambda: self._elect(decide))

        self._controller.submit_own(decide).then(next_round)
