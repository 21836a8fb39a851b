"""The authentication of one connection, as a state machine: which message is expected, and what the answer to it is.

SaslHandshake chooses the mechanism. From version 1 on SaslAuthenticate carries the tokens; after version 0 they come as
frames without headers. A session may have a lifetime (KIP-368): then the client authenticates again on the same
connection, with the same mechanism and as the same user, or it is not served after the end of the lifetime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from moldau.base.errors import ErrorCode
from moldau.base.promise import Promise
from moldau.security.principals import USER, Principal
from moldau.security.sasl.mechanism import SaslRefusal, ServerMechanism, Step

REAUTHENTICATION_INTERVAL_MS_MIN: Final = 1000
"""A connection may authenticate again once in this time."""
NO_HANDSHAKE: Final = "SaslAuthenticate before SaslHandshake"
TOO_EARLY: Final = "SaslAuthenticate while the token before it is being verified"
AFTER_SUCCESS: Final = "SaslAuthenticate request received after successful authentication"


class Phase(Enum):
    HANDSHAKE = auto()
    """Nothing is known of the client; ApiVersions is allowed."""
    TOKENS = auto()
    RAW_TOKENS = auto()
    """Tokens without headers, after SaslHandshake version 0."""
    VERIFYING = auto()
    """The answer to a token is not known yet; the client has to wait for it."""
    AUTHENTICATED = auto()
    FAILED = auto()


class Mechanism(NamedTuple):
    """A mechanism that a listener offers."""

    new_server: Callable[[], ServerMechanism]
    lifetime_ms: int = 0
    """Of a session; 0 means that only the client's credentials limit it."""


class HandshakeAnswer(NamedTuple):
    error: ErrorCode
    mechanisms: tuple[str, ...]


class TokenAnswer(NamedTuple):
    error: ErrorCode
    message: str
    token: bytes = b""
    lifetime_ms: int = 0


class NotAnswered(Exception):
    """A message that ends the connection without an answer. Its text is for the log."""


class SaslExchange:
    """Times are those of a monotonic clock."""

    def __init__(self, mechanisms: Mapping[str, Mechanism]) -> None:
        self.phase = Phase.HANDSHAKE
        self.principal: Principal | None = None
        """Known once the client is authenticated; while it authenticates again, the former one."""
        self.failure = ""
        """Why the authentication failed or is about to, for the log."""
        self.user_tried = ""
        """As whom the client wanted to log in when the authentication failed."""
        self.expires_ms: int | None = None
        self.mechanisms = mechanisms
        """From which the client chooses next; others may take their place before a handshake."""
        self._mechanisms = mechanisms
        self._name = ""
        self._former_name = ""
        self._server: ServerMechanism | None = None
        self._began_again_ms: int | None = None

    @property
    def mechanism(self) -> str:
        """The mechanism that the client has chosen; empty if it has not, or none that is enabled."""
        return self._name

    @property
    def is_reauthenticating(self) -> bool:
        return self.principal is not None and self.phase is not Phase.AUTHENTICATED

    def handshake(self, mechanism: str, version: int, now_ms: int) -> HandshakeAnswer:
        """The client chooses a mechanism. After an error the exchange has failed, unless it had succeeded before."""
        if self.phase is Phase.AUTHENTICATED and not self._may_begin_again(now_ms):
            return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ())
        if self.phase not in (Phase.HANDSHAKE, Phase.AUTHENTICATED):
            self._fail("SaslHandshake during the authentication")
            return HandshakeAnswer(ErrorCode.ILLEGAL_SASL_STATE, ())
        if self.phase is Phase.AUTHENTICATED:
            self._began_again_ms, self._former_name = now_ms, self._name
        self._mechanisms = self.mechanisms
        enabled = tuple(self._mechanisms)
        if mechanism not in self._mechanisms:
            self._fail("the mechanism that the client wants is not enabled")
            return HandshakeAnswer(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
        self._name = mechanism
        self._server = self._mechanisms[mechanism].new_server()
        self.phase = Phase.TOKENS if version else Phase.RAW_TOKENS
        return HandshakeAnswer(ErrorCode.NONE, enabled)

    def authenticate(self, token: bytes, now_ms: int) -> TokenAnswer | Promise[TokenAnswer]:
        """The client sends a token. After an error the exchange has failed, unless it had succeeded before."""
        if self.phase is Phase.AUTHENTICATED:
            return TokenAnswer(ErrorCode.ILLEGAL_SASL_STATE, AFTER_SUCCESS)
        if self.phase not in (Phase.TOKENS, Phase.RAW_TOKENS):
            raise NotAnswered(TOO_EARLY if self.phase is Phase.VERIFYING else NO_HANDSHAKE)
        if self.is_reauthenticating and self._name != self._former_name:
            self._fail(f"another mechanism than {self._former_name} to authenticate again")
            raise NotAnswered(self.failure)
        assert self._server is not None, "chosen by the handshake"
        try:
            step = self._server.respond(token)
        except SaslRefusal as refusal:
            return self._refuse(refusal)
        if not isinstance(step, Promise):
            return self._conclude(step, now_ms)
        phase, self.phase = self.phase, Phase.VERIFYING
        return step.map(lambda outcome: self._conclude_later(outcome, phase, now_ms))

    def _conclude_later(self, outcome: Step | SaslRefusal, phase: Phase, now_ms: int) -> TokenAnswer:
        if self.phase is not Phase.VERIFYING:
            return TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, "")  # it has failed meanwhile
        self.phase = phase
        return self._conclude(outcome, now_ms)

    def _conclude(self, outcome: Step | SaslRefusal, now_ms: int) -> TokenAnswer:
        if isinstance(outcome, SaslRefusal):
            return self._refuse(outcome)
        self.failure = outcome.problem
        if outcome.user is None:
            return TokenAnswer(ErrorCode.NONE, "", outcome.token)
        principal, former = Principal(USER, outcome.user, outcome.by_token), self.principal
        if former is not None and former[:2] != principal[:2]:
            return self._refuse(
                SaslRefusal(
                    f"Cannot change principals during re-authentication from {former.type}.{former.name}:"
                    f" {principal.type}.{principal.name}"
                )
            )
        lifetime_ms = self._succeed(principal, outcome.lifetime_ms, now_ms)
        return TokenAnswer(ErrorCode.NONE, "", outcome.token, lifetime_ms)

    def _refuse(self, refusal: SaslRefusal) -> TokenAnswer:
        message = refusal.message or (
            f"Authentication failed during {'re-' if self.is_reauthenticating else ''}authentication due to invalid"
            f" credentials with SASL mechanism {self._name}"
        )
        self._fail(refusal.reason or message)
        return TokenAnswer(ErrorCode.SASL_AUTHENTICATION_FAILED, message)

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_ms is not None and now_ms >= self.expires_ms

    def _may_begin_again(self, now_ms: int) -> bool:
        last_ms = self._began_again_ms
        is_too_soon = last_ms is not None and now_ms - last_ms < REAUTHENTICATION_INTERVAL_MS_MIN
        return self.expires_ms is not None and not is_too_soon

    def _succeed(self, principal: Principal, credentials_ms: int | None, now_ms: int) -> int:
        """Return the lifetime of the session: no longer than that of the credentials; 0 if it has none, or if they
        have just expired."""
        session_ms = self._mechanisms[self._name].lifetime_ms
        limits_ms = [each for each in (session_ms if session_ms > 0 else None, credentials_ms) if each is not None]
        lifetime_ms = max(0, min(limits_ms, default=0))
        self.expires_ms = now_ms + lifetime_ms if limits_ms else None
        self.principal, self.phase, self._server = principal, Phase.AUTHENTICATED, None
        return lifetime_ms

    def _fail(self, reason: str) -> None:
        if self._server is not None:
            self.user_tried = self._server.user_tried
        self.phase, self.failure, self._server = Phase.FAILED, reason, None
