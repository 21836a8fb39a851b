"""The session of a connection on a SASL listener: it answers SASL's own requests until the client is authenticated,
then the router answers, with the access of the client's principal.

Before that, ApiVersions is answered once, and any other request closes the connection. A refused client gets its answer
after a delay, which slows down guessing; nothing is read meanwhile. `SaslExchange` decides what is answered.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from moldau.base.clock import Clock, Timer, Timers
from moldau.base.counters import AUTHENTICATION_FAILED, CLOSED_NOT_AUTHENTICATED
from moldau.base.errors import ErrorCode, MalformedData
from moldau.base.limits import AUTHENTICATION_MS_MAX, FRAME_TRUSTED_BYTES, UNAUTHENTICATED_TRUSTED_BYTES
from moldau.base.promise import Promise
from moldau.security.acls.access import Access
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.sasl.exchange import Mechanism, NotAnswered, Phase, SaslExchange, TokenAnswer
from moldau.server.conversation import Reply
from moldau.server.handlers.api_versions import ApiVersions
from moldau.server.handlers.sasl import SaslAuthenticate, SaslHandshake
from moldau.server.router import Router
from moldau.wire.apis import APIS
from moldau.wire.codec import NO_REPLY, Outgoing, decode_from
from moldau.wire.frames import Framing, RequestHeader, read_request_header
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_SIZE: Final = struct.Struct(">i")
_ERROR_CODE: Final = slice(8, 10)
"""Of an ApiVersions response: after the size and the correlation id."""
_HANDSHAKE_KEY: Final = SaslHandshake.api.to_bytes(2, "big")


@dataclass(slots=True)
class SaslServer:
    """What all connections of a SASL listener share."""

    mechanisms: Mapping[str, Mechanism]
    """For the next authentications; others may take their place at any time."""
    receive_bytes_max: int
    """Largest frame of a client that is not authenticated yet."""
    failure_delay_ms: int
    clock: Clock
    timers: Timers
    time_ms_max: int = AUTHENTICATION_MS_MAX


class Connection(Protocol):
    """What a session does with its connection."""

    def limit_frames(self, bytes_max: int, trusted_bytes: int, is_stranger: bool) -> None: ...

    def stop_reading(self) -> None: ...

    def close(self, reason: str = "", closed_by: str = ...) -> None: ...


class SaslSession:
    """Call it with a frame to get the reply."""

    def __init__(
        self,
        server: SaslServer,
        router: Router,
        listener: str,
        peer: str,
        frame_bytes_max: int,
        access: Callable[[Principal], Access],
    ) -> None:
        self._server = server
        self._exchange = SaslExchange(server.mechanisms)
        self._frame_bytes_max = frame_bytes_max
        self._answer_as: Callable[[Principal], Callable[[memoryview], Reply]] = lambda principal: (
            router.for_connection(listener, peer, access(principal)).answer
        )
        self._answer: Callable[[memoryview], Reply] = self._authenticate
        self._serve: Callable[[memoryview], Reply] = self._answer_as(ANONYMOUS)
        self._has_sent_versions = False
        self._timer: Timer | None = None
        self._is_closed = False

    def __call__(self, frame: memoryview) -> Reply:
        return self._answer(frame)

    def begin(self, connection: Connection) -> None:
        """Called once, before the first request."""
        self._connection = connection
        self._expect_authentication()

    @property
    def failure(self) -> str:
        """Why the client was refused, or is about to be; empty if it was not."""
        return f"authentication failed: {self._exchange.failure}" if self._exchange.failure else ""

    @property
    def tried(self) -> tuple[str, str]:
        """By which mechanism, and as which user, the client wanted to log in; empty where it did not say so."""
        return self._exchange.mechanism, self._exchange.user_tried

    def end(self) -> None:
        """Called when the connection is closed."""
        self._is_closed = True
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expect_authentication(self) -> None:
        """Answer only SASL's requests, and limit their size and time."""
        self._answer = self._authenticate
        is_stranger = self._exchange.principal is None
        self._connection.limit_frames(self._server.receive_bytes_max, UNAUTHENTICATED_TRUSTED_BYTES, is_stranger)
        self._timer = self._server.timers.after_ms(self._server.time_ms_max, self._on_timeout)

    def _on_timeout(self) -> None:
        self._timer = None
        self._connection.close(
            f"it did not authenticate within {self._server.time_ms_max} ms", CLOSED_NOT_AUTHENTICATED
        )

    def _on_authenticated(self) -> None:
        self._cancel_timer()
        assert self._exchange.principal is not None
        self._serve = self._answer_as(self._exchange.principal)
        self._answer = self._serve if self._exchange.expires_ms is None else self._serve_until_expired
        self._connection.limit_frames(self._frame_bytes_max, FRAME_TRUSTED_BYTES, is_stranger=False)

    def _serve_until_expired(self, frame: memoryview) -> Reply:
        """Answer requests of a session with a lifetime. After its end only a SaslHandshake is answered, which begins
        the next one (KIP-368)."""
        if frame[:2] == _HANDSHAKE_KEY:
            return self._authenticate(frame)
        if self._exchange.is_expired(self._server.clock.monotonic_ms()):
            raise MalformedData("its session has expired; the client must authenticate again in time")
        return self._serve(frame)

    def _authenticate(self, frame: memoryview) -> Reply:
        exchange = self._exchange
        if exchange.phase is Phase.RAW_TOKENS:
            return self._answer_raw_token(frame)
        header, position = read_request_header(frame)
        key = header.api_key
        if key == SaslHandshake.api:
            return self._answer_handshake(frame, header, position)
        if key == SaslAuthenticate.api and exchange.phase is Phase.TOKENS:
            return self._answer_token(frame, header, position)
        name = APIS[key].name if key in APIS else f"API key {key}"
        if exchange.phase is Phase.TOKENS:
            # Some clients ignore that their token was refused.
            return self._refuse(None, exchange.failure or f"{name} during the authentication")
        if key != ApiVersions.api or self._has_sent_versions:
            raise MalformedData(f"{name} before authentication; is the client's security.protocol right?")
        reply = self._serve(frame)
        # A client asks again in an older version after an error. But a large request is decoded in a thread, which a
        # stranger gets once, whatever the answer will be.
        self._has_sent_versions = not isinstance(reply, Outgoing) or reply[_ERROR_CODE] == b"\0\0"
        return reply

    def _answer_handshake(self, frame: memoryview, header: RequestHeader, position: int) -> Reply:
        _check_version(header, SaslHandshake.versions)
        request, _ = decode_from(SaslHandshakeRequest, frame, header.api_version, position)
        exchange, now_ms = self._exchange, self._server.clock.monotonic_ms()
        exchange.mechanisms = self._server.mechanisms  # a removed user cannot authenticate again either
        answer = exchange.handshake(request.mechanism, header.api_version, now_ms)
        response = SaslHandshakeResponse(answer.error, answer.mechanisms)
        reply = Framing(SaslHandshake.api, header.api_version).frame(header.correlation_id, response)
        if exchange.phase is Phase.FAILED:
            return self._refuse(reply, exchange.failure)
        if exchange.is_reauthenticating:
            self._expect_authentication()
        return reply

    def _answer_token(self, frame: memoryview, header: RequestHeader, position: int) -> Reply:
        _check_version(header, SaslAuthenticate.versions)
        request, _ = decode_from(SaslAuthenticateRequest, frame, header.api_version, position)
        try:
            answer = self._exchange.authenticate(bytes(request.auth_bytes), self._server.clock.monotonic_ms())
        except NotAnswered as reason:
            return self._refuse(None, str(reason))
        return self._when_verified(answer, partial(self._reply_to_token, header))

    def _reply_to_token(self, header: RequestHeader, answer: TokenAnswer) -> Reply:
        exchange = self._exchange
        response = SaslAuthenticateResponse(answer.error, answer.message, answer.token, answer.lifetime_ms)
        reply = Framing(SaslAuthenticate.api, header.api_version).frame(header.correlation_id, response)
        if exchange.phase is Phase.FAILED:
            return self._refuse(reply, exchange.failure)
        if exchange.phase is Phase.AUTHENTICATED:
            self._on_authenticated()
        return reply

    def _answer_raw_token(self, frame: memoryview) -> Reply:
        """Answer a token without a header: the reply has none either, and there is none after a failure."""
        try:
            answer = self._exchange.authenticate(bytes(frame), self._server.clock.monotonic_ms())
        except NotAnswered as reason:
            return self._refuse(None, str(reason))
        return self._when_verified(answer, self._reply_to_raw_token)

    def _reply_to_raw_token(self, answer: TokenAnswer) -> Reply:
        exchange = self._exchange
        if answer.error is not ErrorCode.NONE:
            return self._refuse(None, exchange.failure)
        if exchange.phase is Phase.AUTHENTICATED:
            self._on_authenticated()
        return Outgoing(_SIZE.pack(len(answer.token)) + answer.token)

    def _when_verified(
        self, answer: TokenAnswer | Promise[TokenAnswer], reply_to: Callable[[TokenAnswer], Reply]
    ) -> Reply:
        """Return the reply to a token, or a promise of it: then the client has to wait for it."""
        if not isinstance(answer, Promise):
            return reply_to(answer)
        self._answer = _refuse_while_verifying
        late_reply: Promise[Outgoing] = Promise()

        def on_answer(verified: TokenAnswer) -> None:
            if self._is_closed:
                return
            self._answer = self._authenticate
            reply = reply_to(verified)
            if isinstance(reply, Promise):
                reply.then(late_reply.complete)
            elif reply is not None:
                late_reply.complete(reply)

        answer.then(on_answer)
        return late_reply

    def _refuse(self, reply: Outgoing | None, reason: str) -> Reply:
        """Close the connection after the delay; before that, send the reply, if there is one."""
        self._cancel_timer()
        self._answer = _ignore
        self._connection.stop_reading()
        late_reply: Promise[Outgoing] = Promise()

        def close() -> None:
            self._timer = None
            if reply is not None:
                late_reply.complete(reply)
            self._connection.close(f"authentication failed: {reason}", AUTHENTICATION_FAILED)

        self._timer = self._server.timers.after_ms(self._server.failure_delay_ms, close)
        return NO_REPLY if reply is None else late_reply


def _check_version(header: RequestHeader, versions: tuple[int, int]) -> None:
    if not versions[0] <= header.api_version <= versions[1]:
        raise MalformedData(f"{APIS[header.api_key].name} version {header.api_version} is not served")


def _refuse_while_verifying(frame: memoryview) -> Reply:
    raise MalformedData("a request before the answer to its token")


def _ignore(frame: memoryview) -> Reply:
    """Answer nothing: the connection is about to be closed."""
    return NO_REPLY
