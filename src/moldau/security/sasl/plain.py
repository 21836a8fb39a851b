"""PLAIN (RFC 4616): the client sends user and password as they are."""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from moldau.security.sasl.mechanism import SaslRefusal, Step

TOKENS_MAX = 4
"""Kafka stops counting here."""


class PlainServer:
    """The server's side, with the passwords of all users."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = passwords
        self.user_tried = ""

    def respond(self, token: bytes) -> Step:
        """Check `[authorization id] NUL user NUL password`; an unknown user takes as long as a wrong password."""
        parts = bytes(token).decode("utf-8", "replace").split("\0")
        if len(parts) != 3:
            count = min(len(parts), TOKENS_MAX)
            raise SaslRefusal(f"Invalid SASL/PLAIN response: expected 3 tokens, got {count}")
        authorization_id, user, password = parts
        self.user_tried = user
        if not user:
            raise SaslRefusal("Authentication failed: username not specified")
        if not password:
            raise SaslRefusal("Authentication failed: password not specified")
        expected = self._passwords.get(user)
        is_equal = hmac.compare_digest((expected or "").encode("utf-8", "surrogatepass"), password.encode())
        if expected is None or not is_equal:
            raise SaslRefusal("Authentication failed: Invalid username or password")
        if authorization_id not in ("", user):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        return Step(b"", user)
