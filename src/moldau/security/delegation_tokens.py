"""Delegation tokens (KIP-48): a login for a limited time that a user hands to others instead of the password.

The metadata has who a token is for and until when it is valid. Its password, the hmac, is never stored: all nodes
compute it from the token's id and a secret key that they share.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple

from moldau.security.principals import ANONYMOUS, Principal


class DelegationToken(NamedTuple):
    id: str
    owner: Principal
    """As whom its bearer logs in."""
    requester: Principal
    """Who created it."""
    renewers: tuple[Principal, ...]
    """Who may renew it, besides its owner."""
    issued_ms: int
    max_ms: int
    """No renewal makes it valid for longer."""
    expires_ms: int

    def lifetime_ms(self, now_ms: int) -> int:
        """Return for how long it is still valid; below 0 if it has expired."""
        return min(self.max_ms, self.expires_ms) - now_ms

    def belongs_to(self, principal: Principal) -> bool:
        """Return whether that is its owner or a renewer: they may renew and expire it."""
        return any(principal[:2] == each[:2] for each in (self.owner, *self.renewers))

    def concerns(self, principal: Principal) -> bool:
        """Return whether that is its owner, a renewer or its requester: they may see it."""
        return self.belongs_to(principal) or principal[:2] == self.requester[:2]


def may_use_tokens(principal: Principal) -> bool:
    """Return whether a client may create, renew, expire and describe tokens: not without authentication, and not if a
    token authenticated it."""
    return principal != ANONYMOUS and not principal.by_token


class TokenHmacs:
    """The hmacs of tokens, and the way back from an hmac to its token."""

    def __init__(self, secret_key: str) -> None:
        self._secret_key = secret_key.encode()
        self._ids: dict[bytes, str] = {}
        self._indexed: Mapping[str, DelegationToken] = {}

    def hmac(self, token_id: str) -> bytes:
        return hmac.digest(self._secret_key, token_id.encode(), "sha512")

    def find(self, tokens: Mapping[str, DelegationToken], hmac: bytes) -> DelegationToken | None:
        """Return the token with that hmac. An index makes it fast; it is built when an hmac is not in it."""
        token_id = self._ids.get(hmac)
        if token_id is None and tokens is not self._indexed:
            self._index(tokens)
            token_id = self._ids.get(hmac)
        return None if token_id is None else tokens.get(token_id)

    def _index(self, tokens: Mapping[str, DelegationToken]) -> None:
        known = {token_id: hmac for hmac, token_id in self._ids.items()}
        self._ids = {known.get(token_id) or self.hmac(token_id): token_id for token_id in tokens}
        self._indexed = tokens
