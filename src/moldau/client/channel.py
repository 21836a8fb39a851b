"""A blocking connection to one node: sends requests and receives their responses in the same order.

It serves admin requests, and the Spark connector, which keeps a few requests in flight. It
has no retries, metadata or groups: for another node the caller opens another channel. It supports TLS and SASL;
a session with a lifetime is renewed in time.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, TypeVar, cast

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.base.host_names import is_host_name
from moldau.client.requests.api_versions import api_versions_request
from moldau.security.sasl.client import ClientLogin, LoginFailed
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsResponse
from moldau.wire.schema import Message

RESPONSE_BYTES_MAX: Final = 100 << 20
"""A larger response to an admin call is not from a broker: more likely another protocol was read as a length."""
TIMEOUT_SECONDS: Final = 10.0
BUFFER_BYTES_MIN: Final = 64 << 10
CLOSED: Final = "the broker closed the connection"
RENEW_AT: Final = 0.8
"""The share of a SASL session's lifetime after which it is renewed, as soon as no response is awaited."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Security:
    """How to connect to a node: with TLS or not, and the user of SASL if there is one."""

    tls: ssl.SSLContext | None = None
    login: ClientLogin | None = None


class _InFlight(NamedTuple):
    """A request whose response has not been read yet."""

    key: ApiKey
    version: int
    correlation_id: int


class Channel:
    """A connection that knows the versions of the node, and uses the highest one that both sides support."""

    def __init__(
        self,
        host: str,
        port: int,
        security: Security | None = None,
        timeout_seconds: float = TIMEOUT_SECONDS,
        connect_seconds: float | None = None,
    ) -> None:
        """Connect and log in; each step may take `connect_seconds`, or as long as a response."""
        security = security or Security()
        if not is_host_name(host) or not 0 < port < 65536:
            raise ConnectionError(f"{host}:{port} is not an address")  # also what brokers advertise
        self._socket: socket.socket = socket.create_connection(
            (host, port), timeout=timeout_seconds if connect_seconds is None else connect_seconds
        )
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._in_flight: deque[_InFlight] = deque()
        self._renew_at: float | None = None
        self._login = security.login
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
            self._correlation_id = 0
            self.versions: Mapping[int, tuple[int, int]] = self._request_versions()
            if security.login is not None:
                self._authenticate(security.login)
            if connect_seconds is not None:
                self._socket.settimeout(timeout_seconds)
        except BrokenPipeError as error:  # of the TLS handshake
            self._socket.close()
            raise ConnectionError(CLOSED) from error
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Channel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    @contextmanager
    def waiting(self, seconds: float) -> Iterator[None]:
        """Wait this long for responses, instead of as long as for the connection."""
        connect_seconds = self._socket.gettimeout()
        self._socket.settimeout(seconds)
        try:
            yield
        finally:
            self._socket.settimeout(connect_seconds)

    def offers(self, key: ApiKey) -> bool:
        return self._common_version(key) is not None

    @property
    def in_flight(self) -> int:
        """How many responses are still to be received."""
        return len(self._in_flight)

    def fileno(self) -> int:
        """For `select`: readable when a response starts to arrive, unless `has_buffered`."""
        return self._socket.fileno()

    @property
    def has_buffered(self) -> bool:
        """Whether bytes of a response have arrived and are decrypted, where `select` does not see them."""
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def ask(self, key: ApiKey, request: Message, response_type: type[M], versions: tuple[int, int] | None = None) -> M:
        """Send a request and return its response, in the highest version that both sides support.

        `versions` are the lowest and highest version that the request is valid for; without it, all are.
        """
        assert not self._in_flight, "the next response belongs to an earlier request"
        self.send(key, request, versions)
        return self.receive(response_type)

    def send(self, key: ApiKey, request: Message, versions: tuple[int, int] | None = None) -> None:
        """Send a request whose response `receive` returns later; responses come in the order of requests."""
        version = self._common_version(key, versions)
        if version is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The broker does not support {APIS[key].name}")
        if self._renew_at is not None and not self._in_flight and time.monotonic() >= self._renew_at:
            assert self._login is not None
            self._authenticate(self._login)
        self._send(key, version, request)
        self._in_flight.append(_InFlight(key, version, self._correlation_id))

    def send_unanswered(self, key: ApiKey, request: Message) -> None:
        """Send a request that has no response: a Produce with acks=0."""
        self.send(key, request)
        self._in_flight.pop()

    def receive(self, response_type: type[M]) -> M:
        """Return the response to the oldest request in flight.

        Its records are windows on a buffer that the next response overwrites: use or copy them before.
        """
        request = self._in_flight.popleft()
        assert response_type is cast(type, response_class(request.key))
        correlation_id, response = read_response(response_type, self._read_frame(), request.key, request.version)
        if correlation_id != request.correlation_id:
            raise MalformedData(f"response to request {correlation_id}, expected {request.correlation_id}")
        return response

    def _common_version(self, key: ApiKey, versions: tuple[int, int] | None = None) -> int | None:
        lowest, highest = self.versions.get(key, (0, -1))
        our_versions = versions or (APIS[key].lowest, APIS[key].highest)
        version = min(highest, our_versions[1])
        return version if version >= max(lowest, our_versions[0]) else None

    def _request_versions(self) -> Mapping[int, tuple[int, int]]:
        """Request the node's API versions. A node that does not know our version answers in version 0 (KIP-511)."""
        version = 3
        request = api_versions_request()
        self._send(ApiKey.API_VERSIONS, version, request)
        frame = self._read_frame()
        if frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
            self._send(ApiKey.API_VERSIONS, version, request)
            frame = self._read_frame()
        _, response = read_response(ApiVersionsResponse, frame, ApiKey.API_VERSIONS, version)
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code))
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _authenticate(self, login: ClientLogin) -> None:
        from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
        from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

        self._renew_at = None
        lifetime_ms = 0
        try:
            exchange = login.begin(secrets.token_urlsafe(24))
            handshake = self.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(login.mechanism), SaslHandshakeResponse)
            if handshake.error_code:
                offered = f"The broker offers SASL {', '.join(handshake.mechanisms)}"
                raise KafkaError(ErrorCode(handshake.error_code), offered)
            token: bytes | None = exchange.first()
            while token is not None:
                request = SaslAuthenticateRequest(auth_bytes=token)
                response = self.ask(ApiKey.SASL_AUTHENTICATE, request, SaslAuthenticateResponse)
                if response.error_code:
                    raise KafkaError(ErrorCode(response.error_code), response.error_message)
                token = exchange.respond(bytes(response.auth_bytes))
                lifetime_ms = response.session_lifetime_ms
        except LoginFailed as failed:
            raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, str(failed)) from None
        if lifetime_ms > 0:
            self._renew_at = time.monotonic() + RENEW_AT * lifetime_ms / 1000

    def _send(self, key: ApiKey, version: int, request: Message) -> None:
        self._correlation_id += 1
        frame = request_frame(key, version, self._correlation_id, "moldau", request)
        try:
            self._socket.sendall(frame)
        except BrokenPipeError as error:  # tools take that for their output, closed by its reader
            raise ConnectionError(CLOSED) from error

    def _read_frame(self) -> memoryview:
        size = int.from_bytes(self._fill(4), "big", signed=True)
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise MalformedData(f"response of {size} bytes: the peer is not a Kafka broker, or expects TLS")
        return self._fill(size)

    def _fill(self, size: int) -> memoryview:
        """Return the next `size` bytes. The buffer doubles as they arrive, so that a wrong length costs no memory."""
        received = 0
        while received < size:
            if received == len(self._buffer):
                self._buffer = self._buffer + bytes(min(received, size - received))
            try:
                room = memoryview(self._buffer)[received:size]
                count = self._socket.recv_into(room)
            except TimeoutError:
                raise TimeoutError(f"no response from the broker within {self._socket.gettimeout():.0f} s") from None
            if not count:
                raise ConnectionError(CLOSED)
            received += count
        return memoryview(self._buffer)[:size]
