"""The way to the active controller, wherever it is: on this node, or on the one that leads the quorum.

Brokers ask it things of their own, and pass on what clients ask: a request that only the controller can decide travels
in an envelope, as it was sent, and its answer comes back likewise. While nobody leads, or the leader changes under way,
it is tried again until its time is up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from moldau.base.clock import Clock, Timers
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.promise import Promise
from moldau.client.peers import Peer, Peers
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.wire.schema import Message

RETRY_MS: Final = 50
FORWARD_TIMEOUT_MS: Final = 30_000
CREATE_TOPICS_VERSION: Final = 7
TRY_AGAIN: Final = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})
"""What says nothing of the request itself: somebody else, or the same one a little later, may answer it."""


class Leadership(Protocol):
    """What the quorum knows of its leader."""

    @property
    def is_leader(self) -> bool: ...

    def leader_address(self) -> tuple[str, int] | None: ...


class TopicCreator(Protocol):
    def create_topics(self, request: CreateTopicsRequest) -> Promise[CreateTopicsResponse | KafkaError]:
        """For topics that a broker itself finds it needs."""
        ...


class ControllerChannel:
    """`local` is the controller of this node, where it has one."""

    def __init__(
        self,
        leadership: Leadership,
        local: Callable[[ApiKey, Message, int], Promise[Any]] | None,
        peers: Peers,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self._leadership = leadership
        self._local = local
        self._peers = peers
        self._clock = clock
        self._timers = timers
        self._address: tuple[str, int] | None = None
        self._open: dict[str, Peer] = {}

    def ask(
        self, api: ApiKey, request: Message, purpose: str = "control", timeout_ms: int = FORWARD_TIMEOUT_MS
    ) -> Promise[Any]:
        """A request of this broker's own. The response, or a KafkaError if there was none in time."""
        return self._begin(_Asked(api, request, purpose, self._clock.elapsed_ms() + timeout_ms, None))

    def forward(
        self, api: ApiKey, request: Message, version: int, timeout_ms: int = FORWARD_TIMEOUT_MS
    ) -> Promise[Any]:
        """A client's request, in the version in which it came."""
        return self._begin(_Asked(api, request, "forward", self._clock.elapsed_ms() + timeout_ms, version))

    def create_topics(self, request: CreateTopicsRequest) -> Promise[CreateTopicsResponse | KafkaError]:
        return self.forward(ApiKey.CREATE_TOPICS, request, CREATE_TOPICS_VERSION)

    def leader_changed(self) -> None:
        """The old leader may never answer: requests that wait for it are sent to the new one. While nobody is known to
        lead, the old one may well be there still, and answer."""
        address = self._leadership.leader_address()
        if address is None:
            return
        if self._address is not None and address != self._address:
            waiting, self._open = self._open, {}
            for peer in waiting.values():
                peer.close()
        self._address = address

    def _begin(self, asked: _Asked) -> Promise[Any]:
        self._try(asked)
        return asked.answer

    def _try(self, asked: _Asked) -> None:
        if self._leadership.is_leader and self._local is not None:
            version = APIS[asked.api].highest if asked.version is None else asked.version
            self._local(asked.api, asked.request, version).then(lambda response: self._answered(asked, response))
            return
        address = self._leadership.leader_address()
        left_ms = asked.deadline_ms - self._clock.elapsed_ms()
        if address is None or left_ms <= 0:
            self._try_again(asked, KafkaError(ErrorCode.NOT_CONTROLLER, "there is no active controller"))
            return
        self._address = address
        peer = self._open[asked.purpose] = self._peers.to(*address, asked.purpose)
        if asked.version is None:
            peer.ask(asked.api, asked.request, left_ms).then(lambda response: self._answered(asked, response))
        else:
            frame = request_frame(asked.api, asked.version, 0, None, asked.request)
            envelope = EnvelopeRequest(bytes(frame[4:]), None)
            peer.ask(ApiKey.ENVELOPE, envelope, left_ms).then(lambda response: self._opened(asked, response))

    def _opened(self, asked: _Asked, response: EnvelopeResponse | KafkaError) -> None:
        """The answer that is in an envelope."""
        if isinstance(response, KafkaError):
            self._answered(asked, response)
        elif response.error_code or response.response_data is None:
            self._answered(asked, KafkaError(ErrorCode(response.error_code)))
        else:
            assert asked.version is not None
            try:
                _, inner = read_response(response_class(asked.api), response.response_data, asked.api, asked.version)
            except MalformedData as bad:
                self._answered(asked, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(bad)))
            else:
                self._answered(asked, inner)

    def _answered(self, asked: _Asked, response: Any) -> None:
        code = response.code if isinstance(response, KafkaError) else getattr(response, "error_code", 0)
        if code in TRY_AGAIN:
            self._try_again(asked, KafkaError(ErrorCode(code)))
        else:
            asked.answer.complete(response)

    def _try_again(self, asked: _Asked, refused: KafkaError) -> None:
        if self._clock.elapsed_ms() + RETRY_MS >= asked.deadline_ms:
            asked.answer.complete(refused)
        else:
            self._timers.after_ms(RETRY_MS, lambda: self._try(asked))


class _Asked:
    """A request on its way: what is asked, how long it may take, and who waits for the answer."""

    __slots__ = ("answer", "api", "deadline_ms", "purpose", "request", "version")

    def __init__(self, api: ApiKey, request: Message, purpose: str, deadline_ms: int, version: int | None) -> None:
        self.api = api
        self.request = request
        self.purpose = purpose
        self.deadline_ms = deadline_ms
        self.version = version
        self.answer: Promise[Any] = Promise()
