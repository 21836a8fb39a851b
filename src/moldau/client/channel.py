"""One blocking connection to one node: a request goes out, its response comes back, nothing is in flight beside it.

For the few calls that tools need and librdkafka does not offer. No retries, no metadata, no groups: a caller that wants
another node opens another channel. TLS and SASL/PLAIN are spoken; other mechanisms are refused in words.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, TypeVar, cast

from moldau import __version__
from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.wire.apis import APIS, ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.schema import Message

RESPONSE_BYTES_MAX: Final = 100 << 20
"""A larger answer to an admin call is no answer of a broker: more likely another protocol read as a length."""
TIMEOUT_SECONDS: Final = 10.0

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Security:
    """How a node wants to be spoken to: TLS or not, and the user of SASL/PLAIN if there is one."""

    tls: ssl.SSLContext | None = None
    plain_user: tuple[str, str] | None = None


class Channel:
    """A connection that knows which versions the node speaks, and picks the highest both sides know."""

    def __init__(
        self, host: str, port: int, security: Security | None = None, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        security = security or Security()
        self._socket: socket.socket = socket.create_connection((host, port), timeout=timeout_seconds)
        try:
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

    def ask(self, key: ApiKey, request: Message, answer: type[M]) -> M:
        """The response to one request, in the highest version both sides speak."""
        version = self._common_version(key)
        if version is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"The broker does not support {APIS[key].name}")
        return self._exchange(key, version, request, answer)

    def _common_version(self, key: ApiKey) -> int | None:
        lowest, highest = self.versions.get(key, (0, -1))
        version = min(highest, APIS[key].highest)
        return version if version >= max(lowest, APIS[key].lowest) else None

    def _ask_versions(self) -> Mapping[int, tuple[int, int]]:
        """A node that does not know our version of the question answers in version 0 (KIP-511)."""
        version = 3
        request = ApiVersionsRequest(client_software_name="moldau", client_software_version=__version__)
        frame = self._round_trip(ApiKey.API_VERSIONS, version, request)
        if frame[4:6] == ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big"):
            version = 0
            frame = self._round_trip(ApiKey.API_VERSIONS, version, request)
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

    def _exchange(self, key: ApiKey, version: int, request: Message, answer: type[M]) -> M:
        assert answer is cast(type, response_class(key))
        frame = self._round_trip(key, version, request)
        correlation_id, response = read_response(answer, frame, key, version)
        if correlation_id != self._correlation_id:
            raise MalformedData(f"an answer to request {correlation_id}, where {self._correlation_id} was asked")
        return response

    def _round_trip(self, key: ApiKey, version: int, request: Message) -> bytes:
        self._correlation_id += 1
        self._socket.sendall(request_frame(key, version, self._correlation_id, "moldau", request))
        size = int.from_bytes(self._receive(4), "big", signed=True)
        if not 4 <= size <= RESPONSE_BYTES_MAX:
            raise MalformedData(f"an answer of {size} bytes: not a Kafka broker, or one that speaks TLS")
        return self._receive(size)

    def _receive(self, size: int) -> bytes:
        """Grows with what arrives: a length is not believed before its bytes are there."""
        parts: list[bytes] = []
        while size:
            try:
                part = self._socket.recv(min(size, 1 << 20))
            except TimeoutError:
                raise TimeoutError(f"the broker gave no answer within {self._socket.gettimeout():.0f} s") from None
            if not part:
                raise ConnectionError("the broker closed the connection")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
