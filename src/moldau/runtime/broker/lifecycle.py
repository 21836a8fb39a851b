"""A broker's life as the controller sees it: registered, then heard of at every beat, then taking its leave.

It serves from the moment it is unfenced, which it is once it knows everything up to its own registration. Leaving, it
asks the controller to hand over what it leads, and goes when told so or when its patience is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.cluster_settings import BrokerSessionSettings
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.ids import Uuid
from moldau.base.promise import Promise
from moldau.metadata.apply import Changes
from moldau.metadata.current import CurrentImage
from moldau.metadata.image import MetadataImage
from moldau.runtime.controller.channel import ControllerChannel
from moldau.wire.apis import ApiKey
from moldau.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from moldau.wire.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

log = logging.getLogger("moldau.lifecycle")
NO_EPOCH: Final = -1
REGISTER_RETRY_MS: Final = 100
LEAVE_PATIENCE_MS: Final = 10_000


class BrokerLifecycle:
    def __init__(
        self,
        node_id: int,
        settings: BrokerSessionSettings,
        channel: ControllerChannel,
        current: CurrentImage,
        clock: Clock,
        timers: Timers,
        incarnation_id: Uuid,
        on_registered: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._node_id = node_id
        self._settings = settings
        self._channel = channel
        self._current = current
        self._clock = clock
        self._timers = timers
        self.incarnation_id = incarnation_id
        self._on_registered = on_registered
        self._registration = BrokerRegistrationRequest()
        self.epoch = NO_EPOCH
        """That of the registration in force; fetches and proposals carry it."""
        self._refused = ErrorCode.NONE
        """Why the last registration was; told once."""
        self._is_asking = False
        self._timer: Timer | None = None
        self._serving: Promise[None] = Promise()
        self._left: Promise[None] = Promise()
        self._is_leaving = self._is_over = False

    def start(self, registration: BrokerRegistrationRequest) -> Promise[None]:
        """Registers, and comes when this broker may serve."""
        registration.incarnation_id = self.incarnation_id
        self._registration = registration
        self._register()
        return self._serving

    def leave(self) -> Promise[None]:
        """Hands over what this broker leads; comes when that is done, or has taken too long."""
        if self._left.done or self._is_leaving:
            return self._left
        self._is_leaving = True
        others = [each for each in self._current.image.live_brokers() if each.id != self._node_id]
        if self.epoch == NO_EPOCH or not self._settings.is_shutdown_controlled or not others:
            self._left.complete(None)
            return self._left
        self._timers.after_ms(LEAVE_PATIENCE_MS, self._leave_anyway)
        self.beat_now()
        return self._left

    def close(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()

    def beat_now(self) -> None:
        """There is a new controller, or news for it: it need not wait for the next beat."""
        if self.epoch != NO_EPOCH and not self._is_asking and not self._is_over:
            self._beat()

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Serving begins with the image that says so, not only with the controller's word."""
        broker = image.brokers.get(self._node_id)
        if broker is None or broker.fenced or broker.epoch != self.epoch or self._serving.done:
            return
        self._timers.soon(self._serve)

    def _serve(self) -> None:
        if not self._serving.done:
            self._serving.complete(None)

    # --- registering --------------------------------------------------------------------------------------------

    def _register(self) -> None:
        self._is_asking = True
        asked = self._channel.ask(
            ApiKey.BROKER_REGISTRATION, self._registration, timeout_ms=self._settings.session_timeout_ms
        )
        asked.then(self._registered)

    def _registered(self, response: BrokerRegistrationResponse | KafkaError) -> None:
        self._is_asking = False
        if self._is_over:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            if code is not self._refused:
                log.warning("broker %d is not registered yet: %s", self._node_id, code.name)
            self._refused = code
            self._timers.after_ms(REGISTER_RETRY_MS, self._register)
            return
        assert isinstance(response, BrokerRegistrationResponse)
        self.epoch = response.broker_epoch
        self._on_registered(self.epoch)
        # From here on the id of a process that died is another's: what follows is said for this registration.
        self._beat()

    # --- beating ------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_asking = True
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._current.image.offset,
            want_fence=False,
            want_shut_down=self._is_leaving,
        )
        asked = self._channel.ask(ApiKey.BROKER_HEARTBEAT, request, timeout_ms=self._settings.session_timeout_ms)
        asked.then(self._beaten)

    def _beaten(self, response: BrokerHeartbeatResponse | KafkaError) -> None:
        self._is_asking = False
        if self._is_over:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            log.warning("broker %d registers again: %s", self._node_id, code.name)
            self._register()
            return
        # No controller for the length of a session: the last node of a cluster that stops has nobody to hand over to.
        if self._is_leaving and (isinstance(response, KafkaError) or response.should_shut_down):
            self._leave_anyway()
            return
        waits = not self._serving.done or self._is_leaving
        interval_ms = self._settings.heartbeat_interval_ms
        self._timer = self._timers.after_ms(min(interval_ms, REGISTER_RETRY_MS) if waits else interval_ms, self._beat)

    def _leave_anyway(self) -> None:
        if not self._left.done:
            self.close()
            self._left.complete(None)
