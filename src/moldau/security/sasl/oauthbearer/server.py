"""OAUTHBEARER on the server's side: the client's token says who it is.

As RFC 7628 demands, an invalid token is answered with an error in JSON, which the client acknowledges before the
authentication fails. The client learns nothing else; the reason is for the log.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from moldau.base.promise import Promise
from moldau.security.sasl.mechanism import SaslRefusal, Step
from moldau.security.sasl.oauthbearer.messages import ACKNOWLEDGEMENT, INVALID_TOKEN, ClientFirst, parse_client_first


class AccessToken(NamedTuple):
    """A token that is valid."""

    user: str
    lifetime_ms: int
    """From now on. Not positive if the token has expired, but by less than the clock skew that is allowed."""


class TokenRefused(Exception):
    """A token that is not valid, and why: one sentence for the log, without the token."""


Verdict = AccessToken | TokenRefused
Verify = Callable[[str], Promise[Verdict]]
"""Verifies a token. It may take a while: signatures are verified in a thread."""


class OAuthBearerServer:
    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self.user_tried = ""
        """Known only of a token that is valid."""
        self._problem: str | None = None
        """Why the token was refused, until the client acknowledges it."""

    def respond(self, token: bytes) -> Step | Promise[Step | SaslRefusal]:
        if self._problem is not None:
            raise SaslRefusal(INVALID_TOKEN if token == ACKNOWLEDGEMENT else None, self._problem)
        first = parse_client_first(bytes(token))
        return self._verify(first.token).map(partial(self._conclude, first))

    def _conclude(self, first: ClientFirst, verdict: Verdict) -> Step | SaslRefusal:
        if isinstance(verdict, TokenRefused):
            self._problem = str(verdict)
            return Step(INVALID_TOKEN.encode(), problem=self._problem)
        self.user_tried = verdict.user
        if first.authorization_id not in ("", verdict.user):
            return SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
        return Step(b"", verdict.user, lifetime_ms=verdict.lifetime_ms)
