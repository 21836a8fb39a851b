"""The connections of a node to other nodes, on the sockets of a running event loop: `Peers` in a real process.

It works with callbacks: a request is written at once, and its promise is completed when the response has arrived. Only
opening a connection and logging in are tasks. Each connection has one timer for all its deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import monotonic
from typing import Any, Final

from moldau.base.buffers import Buffer
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.loop_watch import LONG_CALL_S, LOOP_WATCH
from moldau.base.promise import Promise
from moldau.client.peer_login import begin_exchange, exchange_tokens
from moldau.client.peers import Peers
from moldau.client.requests.api_versions import api_versions_request
from moldau.client.response_frames import ResponseFrames
from moldau.security.sasl.client import ClientLogin, LoginFailed
from moldau.security.tls.context import handshake_fault
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsResponse
from moldau.wire.schema import Message

log = logging.getLogger("moldau.peers")

RECONNECT_BACKOFF_S: Final = 0.02
"""The pause after a connection could not be opened: a caller that retries at once must not spin."""
LOGIN_BACKOFF_S: Final = 0.5  # after a failed login: the password will not be right at once
LOGIN_TIMEOUT_S: Final = 30.0
RENEW_AT: Final = 0.85  # the share of a SASL session's lifetime after which it is renewed
TIMER_SLACK_S: Final = 0.002  # the event loop counts in milliseconds and may wake one too early
API_VERSIONS_VERSION: Final = 3
CORRELATION_ID_MAX: Final = (1 << 31) - 1

Versions = dict[int, tuple[int, int]]


class PeerTraffic:
    """The bytes of all connections for one purpose since the start; metrics read them."""

    __slots__ = ("bytes_in", "bytes_out")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0


class _PendingRequest:
    """A request without a response so far."""

    __slots__ = ("api", "correlation_id", "deadline", "promise", "request", "version")

    def __init__(self, api: ApiKey, request: Message, version: int | None, deadline: float) -> None:
        self.promise: Promise[Any] = Promise()
        self.request: Message | None = request
        """Released once it is sent."""
        self.api, self.version, self.deadline = api, version, deadline
        self.correlation_id = 0


TlsContext = Callable[[], ssl.SSLContext]
"""Returns the context for a new connection: another one after the certificates were renewed. Raises OSError if there is
none yet."""


class PeerConnections:
    """The connections of one node to the same listener of all others."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tls: TlsContext | None = None) -> None:
        """Without `tls` the connections are plaintext."""
        self._loop = loop
        self._tls = tls
        self._peers: dict[tuple[str, int, str], PeerConnection] = {}
        self.traffic: dict[str, PeerTraffic] = {}  # by purpose
        self._is_closed = False
        self._warned_second, self._suppressed = -1, 0

    def with_login(self, login: ClientLogin | None) -> Peers:
        """Return the same connections, which log in as this user; without a login, they do not."""
        return self if login is None else _PeersWithLogin(self, login)

    def to(self, host: str, port: int, purpose: str, login: ClientLogin | None = None) -> PeerConnection:
        """Return the connection to that node for that purpose; a new one if the last was closed."""
        key = (host, port, purpose)
        peer = self._peers.get(key)
        if peer is None or peer.is_closed:
            peer = self._peers[key] = self._connection(host, port, purpose)
            peer.login = login
            peer.traffic = self.traffic.setdefault(purpose, PeerTraffic())
            if self._is_closed:
                peer.close()
        return peer

    def _connection(self, host: str, port: int, purpose: str) -> PeerConnection:
        return PeerConnection(self._loop, host, port, purpose, self._warn, self._tls)

    def close_all(self) -> None:
        """Close all connections; later requests fail."""
        self._is_closed = True
        for peer in self._peers.values():
            peer.close()

    def _warn(self, line: str) -> None:
        """Log one line a second at most: a peer that sends invalid data is retried again and again."""
        second = int(self._loop.time())
        if second == self._warned_second:
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more warnings were left out)" if self._suppressed else ""
        self._warned_second, self._suppressed = second, 0
        log.warning("%s%s", line.encode("unicode_escape").decode(), more)


class _PeersWithLogin:
    def __init__(self, connections: PeerConnections, login: ClientLogin) -> None:
        self._connections = connections
        self._login = login

    def to(self, host: str, port: int, purpose: str) -> PeerConnection:
        return self._connections.to(host, port, purpose, self._login)


class PeerConnection:
    """A `Peer`: connects at the first request, and again at the next request after it broke."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: str,
        port: int,
        purpose: str,
        warn: Callable[[str], None],
        tls: TlsContext | None = None,
    ) -> None:
        self.is_closed = False
        self.login: ClientLogin | None = None
        """The user as which to authenticate; None if the peer does not demand it."""
        self.refusal: KafkaError | None = None
        """Why the last login was refused. Requests that waited for it fail as for a lost connection."""
        self.traffic = PeerTraffic()
        self._tls = tls
        self._loop = loop
        self._host, self._port, self._purpose = host, port, purpose
        self._warn = warn
        self._unsent: deque[_PendingRequest] = deque()
        """Requests made before the connection was ready."""
        self._in_flight: deque[_PendingRequest] = deque()
        """Requests without a response, oldest first."""
        self._versions: Versions | None = None
        """Known while requests may be sent."""
        self._offered: Versions | None = None
        """Known from the peer's answer on, before and during a login too."""
        self._logging_in: asyncio.Task[None] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._correlation_id = 0
        self._api_versions_version = API_VERSIONS_VERSION
        self._opening: asyncio.Task[None] | None = None
        self._frames: ResponseFrames | None = None
        self._send_bytes: Callable[[Buffer], None] = _not_connected
        self._open_not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def ask(self, api: ApiKey, request: Message, timeout_ms: int, version: int | None = None) -> Promise[Any]:
        pending = _PendingRequest(api, request, version, self._loop.time() + timeout_ms / 1000)
        if self.is_closed:
            self._fail(pending, ErrorCode.NETWORK_EXCEPTION, "this node closed the connection")
            return pending.promise
        if self._versions is None:
            self._unsent.append(pending)
            if self._opening is None:
                self._opening = self._loop.create_task(self._open(), name=f"connect to {self}")
        else:
            self._send(pending, self._versions)
        self._watch(pending.deadline)
        return pending.promise

    def close(self) -> None:
        self.is_closed = True
        self._drop("this node closed the connection")

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    # --- opening ------------------------------------------------------------------------------------------------

    async def _open(self) -> None:
        """Connect and request the API versions. `_opening` holds this task until the connection is lost."""
        this_task = asyncio.current_task()
        frames = ResponseFrames(self._receiver(), self._on_end)
        try:
            await asyncio.sleep(max(0.0, self._open_not_before - self._loop.time()))
            transport = await self._connect(frames)
        except (OSError, UnicodeError, OverflowError) as error:
            if isinstance(error, ssl.SSLError):
                self._warn(f"connection to {self} ({self._purpose}) failed: TLS: {handshake_fault(error)}")
            self._open_not_before = self._loop.time() + RECONNECT_BACKOFF_S
            if self._opening is this_task:
                self._opening = None
                self._drop(f"cannot be reached: {error}")
            return
        except asyncio.CancelledError:
            frames.end()  # with TLS the event loop would wait for the peer's end of the connection
            raise
        if self._opening is not this_task:
            frames.end()
            return
        sock = transport.get_extra_info("socket")
        with suppress(OSError):  # macOS, if the peer has closed the connection already: `_on_end` will be called
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._frames = frames
        self._send_bytes = self._sender(transport)
        self._api_versions_version = API_VERSIONS_VERSION
        self._request_versions()

    async def _connect(self, frames: ResponseFrames) -> asyncio.Transport:
        context = None if self._tls is None else self._tls()
        server_hostname = None if context is None else self._host
        transport, _ = await self._loop.create_connection(
            lambda: frames, self._host, self._port, ssl=context, server_hostname=server_hostname
        )
        return transport

    def _sender(self, transport: asyncio.WriteTransport) -> Callable[[Buffer], None]:
        return transport.write  # replaced, as `_receiver`, by `testing/faulty_peers`, which delays what passes

    def _receiver(self) -> Callable[[memoryview], None]:
        return self._on_frame

    def _request_versions(self) -> None:
        self._correlation_id = 1
        request = api_versions_request()
        self._send_bytes(request_frame(ApiKey.API_VERSIONS, self._api_versions_version, 1, self._purpose, request))

    def _on_versions(self, frame: memoryview) -> None:
        """A node that does not know our version of ApiVersions answers in version 0 (KIP-511)."""
        if frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big") and self._api_versions_version:
            self._api_versions_version = 0
            self._request_versions()
            return
        correlation_id, response = read_response(
            ApiVersionsResponse, frame, ApiKey.API_VERSIONS, self._api_versions_version
        )
        if correlation_id != 1 or response.error_code:
            raise MalformedData(f"no valid ApiVersions response: error {response.error_code}, request {correlation_id}")
        self._offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if self.login is None:
            self._on_ready(self._offered)
        else:
            self._start_login(self.login, self._offered)

    def _on_ready(self, versions: Versions) -> None:
        """Send the requests that waited."""
        self._versions = versions
        while self._unsent:
            self._send(self._unsent.popleft(), versions)

    # --- login --------------------------------------------------------------------------------------------------

    def _start_login(self, login: ClientLogin, versions: Versions) -> None:
        """Log in, for the first time or again (KIP-368)."""
        self._logging_in = self._loop.create_task(self._log_in(login, versions), name=f"log in to {self}")

    async def _log_in(self, login: ClientLogin, versions: Versions) -> None:
        try:
            exchange = await begin_exchange(login)  # may wait for an identity provider: requests go on meanwhile
            self._versions = None  # now they wait
            lifetime_ms = await exchange_tokens(login, exchange, partial(self._ask_for_login, versions))
        except (KafkaError, LoginFailed) as failed:
            self._logging_in = None
            self.refusal = _refusal(failed)
            self._open_not_before = self._loop.time() + LOGIN_BACKOFF_S
            self._on_end(f"login as {login.user} with {login.mechanism} failed: {failed}", is_error=True)
            return
        self._logging_in, self.refusal = None, None
        if lifetime_ms > 0:
            delay_s = RENEW_AT * lifetime_ms / 1000
            self._renewal = self._loop.call_later(delay_s, self._start_login, login, versions)
        self._on_ready(versions)

    async def _ask_for_login(self, versions: Versions, api: ApiKey, request: Message) -> Any:
        pending = _PendingRequest(api, request, None, self._loop.time() + LOGIN_TIMEOUT_S)
        answered: asyncio.Future[Any] = self._loop.create_future()
        pending.promise.then(lambda response: None if answered.done() else answered.set_result(response))
        self._send(pending, versions)
        self._watch(pending.deadline)
        response = await answered
        if isinstance(response, KafkaError):
            raise response
        return response

    # --- requests and responses ---------------------------------------------------------------------------------

    def _send(self, pending: _PendingRequest, versions: Versions) -> None:
        version = _common_version(pending.api, pending.version, versions)
        if version is None:
            name = APIS[pending.api].name + ("" if pending.version is None else f" version {pending.version}")
            self._fail(pending, ErrorCode.UNSUPPORTED_VERSION, f"{name} is not supported by the peer")
            return
        assert pending.request is not None, "sent twice"
        self._correlation_id = pending.correlation_id = self._correlation_id % CORRELATION_ID_MAX + 1
        frame = request_frame(pending.api, version, pending.correlation_id, self._purpose, pending.request)
        pending.version, pending.request = version, None
        self._in_flight.append(pending)
        self.traffic.bytes_out += len(frame)
        self._send_bytes(frame)

    def _on_frame(self, frame: memoryview) -> None:
        began_s = monotonic()
        self.traffic.bytes_in += len(frame)
        try:
            if self._offered is None:
                self._on_versions(frame)
                return
            promise, response = self._read(frame)
        except MalformedData as error:
            self._on_end(str(error), is_error=True)
            return
        promise.complete(response)
        if (took_s := monotonic() - began_s) > LONG_CALL_S:
            LOOP_WATCH.note(f"{type(response).__name__} of {self}", took_s)

    def _read(self, frame: memoryview) -> tuple[Promise[Any], Message]:
        if not self._in_flight:
            raise MalformedData("a response without a request")
        pending = self._in_flight[0]
        assert pending.version is not None, "sent in some version"
        cls: type[Message] = response_class(pending.api)
        correlation_id, response = read_response(cls, frame, pending.api, pending.version)
        if correlation_id != pending.correlation_id:
            raise MalformedData(f"response to request {correlation_id}, expected {pending.correlation_id}")
        self._in_flight.popleft()
        return pending.promise, response

    # --- the end ------------------------------------------------------------------------------------------------

    def _watch(self, deadline: float) -> None:
        """Set the timer to the earliest deadline. Responses do not move it, so that few requests touch it."""
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._loop.time()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        deadlines = [pending.deadline for queue in (self._in_flight, self._unsent) for pending in queue]
        if not deadlines:
            return
        earliest = min(deadlines)
        if earliest > self._loop.time() + TIMER_SLACK_S:
            self._watch(earliest)
        else:
            self._drop("no response in time")

    def _on_end(self, why: str, is_error: bool) -> None:
        if is_error:
            self._warn(f"connection to {self} ({self._purpose}) closed: {why}")
        self._drop(why)

    def _drop(self, why: str) -> None:
        """Close the connection and fail all pending requests, with `call_soon`: their waiters may send again at
        once."""
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        if self._frames is not None:
            self._frames.end()
            self._frames = None
        logging_in, self._logging_in = self._logging_in, None
        if logging_in is not None:
            logging_in.cancel()
        if self._renewal is not None:
            self._renewal.cancel()
            self._renewal = None
        self._send_bytes, self._versions, self._offered = _not_connected, None, None
        unanswered = [*self._in_flight, *self._unsent]
        self._in_flight.clear()
        self._unsent.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = self._loop.time() + TIMER_SLACK_S
        for pending in unanswered:
            is_late = pending.deadline <= now
            self._fail(pending, ErrorCode.REQUEST_TIMED_OUT if is_late else ErrorCode.NETWORK_EXCEPTION, why)

    def _fail(self, pending: _PendingRequest, code: ErrorCode, why: str) -> None:
        self._loop.call_soon(pending.promise.complete, KafkaError(code, f"{self}: {why}"))


def _refusal(failed: KafkaError | LoginFailed) -> KafkaError | None:
    """Return why a login was refused; None if the connection was lost, or not answered in time."""
    if isinstance(failed, LoginFailed):
        return KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed))
    return None if failed.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT) else failed


def _common_version(api: ApiKey, requested: int | None, versions: Versions) -> int | None:
    lowest, highest = versions.get(api, (0, -1))
    if requested is not None:
        return requested if lowest <= requested <= highest else None
    version = min(highest, APIS[api].highest)
    return version if version >= max(lowest, APIS[api].lowest) else None


def _not_connected(data: Buffer) -> None:
    raise AssertionError("request written without a connection")
