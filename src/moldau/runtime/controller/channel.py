"""Sends requests to the active controller, on this node or on the node that leads the quorum.

Brokers send requests of their own and forward those of clients: a request that only the controller can decide is sent
unchanged in an envelope, together with its client's principal, and so is its response. While there is no leader, or if
it changes meanwhile, the request is retried until its timeout.
"""

from __future__ import annotations

import logging
from typing import Any, Final, Protocol

from moldau.base.clock import Clock
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.limits import RETRY_DELAY_MS
from moldau.base.promise import Promise
from moldau.client.peers import Peer, Peers
from moldau.runtime.internal_errors import complete_alone
from moldau.runtime.own_work import OwnWork
from moldau.security.principal_data import principal_bytes
from moldau.security.principals import Client
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.wire.schema import Message

log = logging.getLogger("moldau.controller")
FORWARD_TIMEOUT_MS: Final = 30_000
CREATE_TOPICS_VERSION: Final = 7
RETRIABLE: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""Errors that do not depend on the request: another controller, or the same one a little later, may answer it."""
NOT_TRUSTED: Final = "The controller does not accept forwarded requests of this broker: it lacks CLUSTER_ACTION."
"""What clients read then. Their own permissions are not the reason."""


class Leadership(Protocol):
    """What the quorum knows of its leader."""

    @property
    def is_leader(self) -> bool: ...

    def leader_address(self) -> tuple[str, int] | None: ...

    def majority_silent_ms(self) -> int: ...


class TopicCreator(Protocol):
    def create_topics(
        self, request: CreateTopicsRequest, client: Client | None = None
    ) -> Promise[CreateTopicsResponse | KafkaError]:
        """Create topics that a client needs, or the broker itself."""
        ...


class AskController(Protocol):
    """A call of the controller. The result may be a KafkaError."""

    def __call__(self, api: ApiKey, request: Message, version: int, client: Client | None = None) -> Promise[Any]: ...


class ControllerChannel:
    """`local` is the controller of this node, if it has one."""

    def __init__(
        self,
        leadership: Leadership,
        local: AskController | None,
        peers: Peers,
        clock: Clock,
        own_work: OwnWork,
    ) -> None:
        self._leadership = leadership
        self._local = local
        self._peers = peers
        self._clock = clock
        self._own_work = own_work
        self._address: tuple[str, int] | None = None
        self._peers_in_use: dict[str, Peer] = {}

    def ask(
        self, api: ApiKey, request: Message, purpose: str = "control", timeout_ms: int = FORWARD_TIMEOUT_MS
    ) -> Promise[Any]:
        """Send a request of this broker. Return a promise of the response, or of a KafkaError after the timeout."""
        return self._start(_PendingRequest(api, request, purpose, self._clock.monotonic_ms() + timeout_ms, None))

    def forward(
        self,
        api: ApiKey,
        request: Message,
        version: int,
        client: Client | None = None,
        timeout_ms: int = FORWARD_TIMEOUT_MS,
    ) -> Promise[Any]:
        """Forward a request of a client in the version in which it came."""
        deadline_ms = self._clock.monotonic_ms() + timeout_ms
        return self._start(_PendingRequest(api, request, "forward", deadline_ms, version, client))

    def create_topics(
        self, request: CreateTopicsRequest, client: Client | None = None
    ) -> Promise[CreateTopicsResponse | KafkaError]:
        return self.forward(ApiKey.CREATE_TOPICS, request, CREATE_TOPICS_VERSION, client)

    def controller_silent_ms(self) -> int:
        """Return for how long the controller of this node, if it is the active one, has not heard from a majority of
        the others: it may have been replaced. 0 if another node has the active controller."""
        return self._leadership.majority_silent_ms()

    def leader_changed(self) -> None:
        """Send requests that wait for the old leader to the new one, because the old one may never respond. While no
        leader is known, keep waiting: the old one may still respond."""
        address = self._leadership.leader_address()
        if address is None:
            return
        if self._address is not None and address != self._address:
            waiting, self._peers_in_use = self._peers_in_use, {}
            for peer in waiting.values():
                peer.close()
        self._address = address

    def _start(self, pending: _PendingRequest) -> Promise[Any]:
        self._try(pending)
        return pending.answer

    def _try(self, pending: _PendingRequest) -> None:
        if self._leadership.is_leader and self._local is not None:
            version = APIS[pending.api].highest if pending.version is None else pending.version
            self._local(pending.api, pending.request, version, pending.client).then(
                lambda response: self._on_response(pending, response)
            )
            return
        address = self._leadership.leader_address()
        remaining_ms = pending.deadline_ms - self._clock.monotonic_ms()
        if address is None or remaining_ms <= 0:
            self._retry(pending, KafkaError(ErrorCode.NOT_CONTROLLER, "no active controller is known"))
            return
        self._address = address
        peer = self._peers_in_use[pending.purpose] = self._peers.to(*address, pending.purpose)
        if pending.version is None:
            peer.ask(pending.api, pending.request, remaining_ms).then(
                lambda response: self._on_response(pending, response)
            )
        else:
            peer.ask(ApiKey.ENVELOPE, _envelope(pending, pending.version), remaining_ms).then(
                lambda response: self._on_envelope(pending, response)
            )

    def _on_envelope(self, pending: _PendingRequest, response: EnvelopeResponse | KafkaError) -> None:
        """Handle the response inside an envelope."""
        if isinstance(response, KafkaError):
            self._on_response(pending, response)
        elif response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._on_response(pending, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, NOT_TRUSTED))
        elif response.error_code or response.response_data is None:
            self._on_response(pending, KafkaError(ErrorCode(response.error_code)))
        else:
            assert pending.version is not None
            try:
                _, inner = read_response(
                    response_class(pending.api), response.response_data, pending.api, pending.version
                )
            except MalformedData as bad:
                self._on_response(pending, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(bad)))
            else:
                self._on_response(pending, inner)

    def _on_response(self, pending: _PendingRequest, response: Any) -> None:
        code = response.code if isinstance(response, KafkaError) else getattr(response, "error_code", 0)
        if code in RETRIABLE:
            self._retry(pending, KafkaError(ErrorCode(code)))
        else:
            self._answer(pending, response)

    def _retry(self, pending: _PendingRequest, error: KafkaError) -> None:
        if self._clock.monotonic_ms() + RETRY_DELAY_MS >= pending.deadline_ms:
            self._answer(pending, error)
        else:
            self._own_work.after_ms(RETRY_DELAY_MS, lambda: self._try(pending))

    def _answer(self, pending: _PendingRequest, response: Any) -> None:
        """An unexpected exception in what the broker does with an answer stops the node; in a request of a client it
        concerns that request alone. The connection that brings the answer has no part in it."""
        if pending.version is None:
            self._own_work.guard(pending.answer.complete)(response)
        else:
            complete_alone(pending.answer, response, log, "the controller")


def _envelope(pending: _PendingRequest, version: int) -> EnvelopeRequest:
    client = pending.client
    frame = request_frame(pending.api, version, 0, None if client is None else client.client_id, pending.request)
    principal = None if client is None else principal_bytes(client.principal)
    return EnvelopeRequest(bytes(frame[4:]), principal)


class _PendingRequest:
    """A request that waits for its response, with its deadline and its promise."""

    __slots__ = ("answer", "api", "client", "deadline_ms", "purpose", "request", "version")

    def __init__(
        self,
        api: ApiKey,
        request: Message,
        purpose: str,
        deadline_ms: int,
        version: int | None,
        client: Client | None = None,
    ) -> None:
        self.api = api
        self.request = request
        self.purpose = purpose
        self.deadline_ms = deadline_ms
        self.version = version
        self.client = client
        self.answer: Promise[Any] = Promise()
