"""A broker's lifecycle at the controller: registration, heartbeats, controlled shutdown.

The broker serves from the moment it is unfenced, that is, once it has all metadata up to its own registration. In a
controlled shutdown it asks the controller to move its leaderships, and stops when told so or after a timeout.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

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
REGISTER_RETRY_DELAY_MS: Final = 100
LEAVE_TIMEOUT_MS: Final = 10_000
CONTACTS_MAX: Final = 64
"""Answered heartbeats that wait for metadata; those before are long past any lease."""


class _Contact(NamedTuple):
    """A heartbeat was answered: this broker was unfenced, and the metadata log ended at that offset."""

    metadata_offset: int
    sent_ms: int
    session_timeout_ms: int


class BrokerLifecycle:
    def __init__(
        self,
        node_id: int,
        settings: BrokerSessionSettings,
        channel: ControllerChannel,
        current: CurrentImage,
        lease_clock: Clock,
        timers: Timers,
        incarnation_id: Uuid,
        on_registered: Callable[[int], None] = lambda _: None,
        on_contact: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        """`on_contact` is called with a time by `lease_clock` and the session timeout: the controller knew this broker
        as unfenced then, and this broker knows what the controller had decided until then."""
        self._node_id = node_id
        self._settings = settings
        self._channel = channel
        self._current = current
        self._lease_clock = lease_clock
        self._timers = timers
        self.incarnation_id = incarnation_id
        self._on_registered = on_registered
        self._on_contact = on_contact
        self._contacts: deque[_Contact] = deque(maxlen=CONTACTS_MAX)
        """Those whose metadata this broker does not have yet, in the order of their offsets."""
        self._registration = BrokerRegistrationRequest()
        self.epoch = NO_EPOCH
        """The epoch of the current registration; fetches and ISR proposals carry it."""
        self._last_registration_error = ErrorCode.NONE
        """The error of the last attempt, so that a repeated error is logged once."""
        self._last_heartbeat_error = ErrorCode.NONE
        self._is_request_pending = False
        self._timer: Timer | None = None
        """For the next heartbeat, or the next attempt to register."""
        self._serving: Promise[None] = Promise()
        self._left: Promise[None] = Promise()
        self._is_leaving = self._is_closed = False
        self._cannot_write = self._has_said_cannot_write = False
        """Whether the disk refuses writes, and what the last heartbeat said about it."""

    def start(self, registration: BrokerRegistrationRequest) -> Promise[None]:
        """Register. The promise is completed when this broker may serve."""
        registration.incarnation_id = self.incarnation_id
        self._registration = registration
        self._register()
        return self._serving

    def leave(self) -> Promise[None]:
        """Hand over the partitions that this broker leads. The promise is completed when that is done or timed out."""
        if self._left.done or self._is_leaving:
            return self._left
        self._is_leaving = True
        others = [broker for broker in self._current.image.live_brokers() if broker.id != self._node_id]
        if self.epoch == NO_EPOCH or not self._settings.controlled_shutdown_enabled or not others:
            self._left.complete(None)
            return self._left
        self._timers.after_ms(LEAVE_TIMEOUT_MS, self._finish_leaving)
        self.beat_now()
        return self._left

    @property
    def is_leaving(self) -> bool:
        return self._is_leaving

    @property
    def has_left(self) -> bool:
        """Whether the controlled shutdown is over."""
        return self._left.done

    def set_cannot_write(self, cannot_write: bool) -> None:
        """Report that the disk refuses writes, or accepts them again."""
        self._cannot_write = cannot_write
        self.beat_now()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    def beat_now(self) -> None:
        """Send a heartbeat at once: there is a new controller, or this broker has to report a change."""
        if self.epoch != NO_EPOCH and not self._is_request_pending and not self._is_closed:
            self._beat()

    def on_image(self, image: MetadataImage, changes: Changes) -> None:
        """Begin to serve when the image shows this broker as unfenced; the controller's response is not enough."""
        if self._contacts:
            self._timers.soon(self._count_contacts)
        broker = image.brokers.get(self._node_id)
        if broker is None or broker.fenced or broker.epoch != self.epoch or self._serving.done:
            return
        self._timers.soon(self._serve)

    def _serve(self) -> None:
        if not self._serving.done and not self._is_closed:
            self._serving.complete(None)

    # --- registration -------------------------------------------------------------------------------------------

    def _register(self) -> None:
        self._is_request_pending = True
        response = self._channel.ask(
            ApiKey.BROKER_REGISTRATION, self._registration, timeout_ms=self._settings.session_timeout_ms
        )
        response.then(self._on_registration)

    def _on_registration(self, response: BrokerRegistrationResponse | KafkaError) -> None:
        self._is_request_pending = False
        if self._is_closed:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        if code is not ErrorCode.NONE:
            if code is not self._last_registration_error:
                log.warning("broker %d: registration refused, retrying: %s", self._node_id, code.name)
            self._last_registration_error = code
            self._timer = self._timers.after_ms(REGISTER_RETRY_DELAY_MS, self._register)
            return
        assert isinstance(response, BrokerRegistrationResponse)
        self._last_registration_error = ErrorCode.NONE
        self.epoch = response.broker_epoch
        self._on_registered(self.epoch)
        # A dead process with the same node id is fenced by this epoch; all further requests carry it.
        self._beat()

    # --- heartbeats ---------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._is_request_pending = True
        self._has_said_cannot_write = self._cannot_write
        request = BrokerHeartbeatRequest(
            broker_id=self._node_id,
            broker_epoch=self.epoch,
            current_metadata_offset=self._current.image.offset,
            want_fence=False,
            want_shut_down=self._is_leaving,
            cannot_write=self._cannot_write,
        )
        sent_ms = self._lease_clock.monotonic_ms()
        response = self._channel.ask(ApiKey.BROKER_HEARTBEAT, request, timeout_ms=self._settings.session_timeout_ms)
        response.then(partial(self._on_heartbeat, sent_ms))

    def _on_heartbeat(self, sent_ms: int, response: BrokerHeartbeatResponse | KafkaError) -> None:
        self._is_request_pending = False
        if self._is_closed:
            return
        code = response.code if isinstance(response, KafkaError) else ErrorCode(response.error_code)
        if code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            log.warning("broker %d: heartbeat refused, registering again: %s", self._node_id, code.name)
            self._register()
            return
        now_ms = self._lease_clock.monotonic_ms()
        if not isinstance(response, KafkaError) and code is ErrorCode.NONE and not response.is_fenced:
            self._add_contact(response, min(sent_ms, now_ms - self._channel.controller_silent_ms()))
        self._log_heartbeat_error(code, isinstance(response, KafkaError))
        # An error means that no controller responded for a whole session: nobody is left to take over.
        if self._is_leaving and (isinstance(response, KafkaError) or response.should_shut_down):
            self._finish_leaving()
            return
        has_news = self._cannot_write != self._has_said_cannot_write
        is_waiting = not self._serving.done or self._is_leaving or has_news
        interval_ms = self._settings.heartbeat_interval_ms
        # A heartbeat that took longer than the interval, because the controller changed, is followed by the next one.
        delay_ms = min(interval_ms, REGISTER_RETRY_DELAY_MS) if is_waiting else max(interval_ms - (now_ms - sent_ms), 0)
        self._timer = self._timers.after_ms(delay_ms, self._beat)

    def _add_contact(self, response: BrokerHeartbeatResponse, sent_ms: int) -> None:
        # What an earlier controller had appended behind that may never be committed.
        while self._contacts and self._contacts[-1].metadata_offset >= response.metadata_offset:
            self._contacts.pop()
        timeout_ms = response.session_timeout_ms or self._settings.session_timeout_ms
        self._contacts.append(_Contact(response.metadata_offset, sent_ms, timeout_ms))
        self._count_contacts()

    def _count_contacts(self) -> None:
        """Report the contacts whose metadata is here by now. A broker that cannot get it, because its disk is full or
        the quorum does not answer it, is in contact with nobody: others may lead its partitions."""
        while self._contacts and self._contacts[0].metadata_offset <= self._current.image.offset:
            contact = self._contacts.popleft()
            self._on_contact(contact.sent_ms, contact.session_timeout_ms)

    def _log_heartbeat_error(self, code: ErrorCode, is_unanswered: bool) -> None:
        """Log each change of the error once: a broker whose heartbeats are refused is fenced soon."""
        if code is self._last_heartbeat_error:
            return
        self._last_heartbeat_error = code
        if code is ErrorCode.NONE:
            log.info("broker %d: heartbeats are accepted again", self._node_id)
        else:
            what = "not answered" if is_unanswered else "refused"
            log.warning("broker %d: heartbeat %s, retrying: %s", self._node_id, what, code.name)

    def _finish_leaving(self) -> None:
        if not self._left.done:
            self.close()
            self._left.complete(None)
