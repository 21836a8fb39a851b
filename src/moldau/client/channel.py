"""One blocking connection to one node: requests go out, their responses come back in the same order.

For the calls that tools need and librdkafka does not offer, and for the Spark connector, which keeps a request or a
few in flight. No retries, no metadata, no groups: a caller that wants another node opens another channel. TLS and
SASL/PLAIN are spoken; other mechanisms are refused in words.
"""

from __future__ import annotations

import socket
import ssl
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, NamedTuple, TypeVar, cast

from moldau import __version__
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.schema import Message

RESPONSE_BYTES_MAX: Final = 100 << 20
"""A larger answer to an admin call is no answer of a broker: more likely another protocol read as a length."""
TIMEOUT_SECONDS: Final = 10.0
BUFFER_BYTES_MIN: Final = 64 << 10

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Security:
    """How a node wants to be spoken to: TLS or not, and the user of SASL/PLAIN if there is one."""

    tls: ssl.SSLContext | None = None
    plain_user: tuple[str, str] | None = None


class _Asked(NamedTuple):
    """A request whose response has not been read yet."""

    key: ApiKey
    version: int
    correlation_id: int


class Channel:
    """A connection that knows which versions the node speaks, and picks the highest both sides know."""

    def __init__(
        self, host: str, port: int, security: Security | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        security = security or Security()
        self._socket: socket.socket = socket.create_connection((host, port), timeout=timeout_seconds)
        self._buffer = bytearray(BUFFER_BYTES_MIN)
        self._asked: deque[_Asked] = deque()
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if security.tls is not None:
                self._socket = security.tls.wrap_socket(self._socket, server_hostname=host)
            self._correlation_id = 0
            self.versions: Mapping[int, tuple[int, int]] = self._ask_versions()
            if security.plain_user is not None:
                self._authenticate(*security.plain_user)
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

    def offers(self, key: ApiKey) -> bool:
        return self._common_version(key) is not None

    @property
    def in_flight(self) -> int:
        """How many responses are still to be received."""
        return len(self._asked)

    def fileno(self) -> int:
        """For `select`: readable when a response has begun to arrive."""
        return self._socket.fileno()

    def ask(self, key: ApiKey, request: Message, answer: type[M], versions: tuple[int, int] | None = None) -> M:
        """The response to one request, in the highest version both sides speak.

        `versions` are the lowest and the highest that the caller wrote the request for, where not all will do.
        """
        assert not self._asked, "the answer would be that of an earlier request"
        self.send(key, request, versions)
        return self.receive(answer)

    def send(self, key: ApiKey, request: Message, versions: tuple[int, int] | None = None) -> None:
        """Sends a request whose response `receive` reads later; responses come in the order of requests."""
        version = self._common_version(key, versions)
        if version is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The broker does not support {APIS[key].name}")
        self._send(key, version, request)
        self._asked.append(_Asked(key, version, self._correlation_id))

    def send_unanswered(self, key: ApiKey, request: Message) -> None:
        """Sends a request that no broker answers: a Produce with acks=0."""
        self.send(key, request)
        self._asked.pop()

    def receive(self, answer: type[M]) -> M:
        """The response to the oldest request in flight.

        Records in it are windows on one buffer that the next response overwrites: be done with them by then.
        """
        asked = self._asked.popleft()
        assert answer is cast(type, response_class(asked.key))
        correlation_id, response = read_response(answer, self._read_frame(), asked.key, asked.version)
        if correlation_id != asked.correlation_id:
            raise MalformedData(f"an answer to request {correlation_id}, where {asked.correlation_id} was asked")
        return response

    def _common_version(self, key: ApiKey, versions: tuple[int, int] | None = None) -> int | None:
        lowest, highest = self.versions.get(key, (0, -1))
        ours = versions or (APIS[key].lowest, APIS[key].highest)
        version = min(highest, ours[1])
        return version if version >= max(lowest, ours[0]) else None

    def _ask_versions(self) -> Mapping[int, tuple[int, int]]:
        """A node that does not know our version of the question answers in version 0 (KIP-511)."""
        version = 3
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
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

    def _authenticate(self, user: str, password: str) -> None:
        from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
        from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

        offered = self.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN"), SaslHandshakeResponse)
        if offered.error_code:
            raise KafkaError(ErrorCode(offered.error_code), f"The broker offers SASL {', '.join(offered.mechanisms)}")
        token = b"\0" + user.encode() + b"\0" + password.encode()
        answer = self.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code), answer.error_message)

    def _send(self, key: ApiKey, version: int, request: Message) -> None:
        self._correlation_id += 1
        self._socket.sendall(request_frame(key, version, self._correlation_id, "moldau", request))

    def _read_frame(self) -> memoryview:
        size = int.from_bytes(self._fill(4), "big", signed=True)
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise MalformedData(f"an answer of {size} bytes: not a Kafka broker, or one that speaks TLS")
        return self._fill(size)

    def _fill(self, size: int) -> memoryview:
        """The next `size` bytes. The buffer doubles as they arrive: a length is not believed before its bytes are."""
        received = 0
        while received < size:
            if received == len(self._buffer):
                self._buffer = self._buffer + bytes(min(received, size - received))
            try:
                room = memoryview(self._buffer)[received:size]
                count = self._socket.recv_into(room)
            except TimeoutError:
                raise TimeoutError(f"the broker gave no answer within {self._socket.gettimeout():.0f} s") from None
            if not count:
                raise ConnectionError("the broker closed the connection")
            received += count
        return memoryview(self._buffer)[:size]
