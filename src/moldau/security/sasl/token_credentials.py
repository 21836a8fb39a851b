"""SCRAM with a delegation token: the user name is the token's id, the password is its hmac in base64."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from moldau.security.delegation_tokens import DelegationToken, TokenHmacs
from moldau.security.principals import USER
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, ScramKeys, base64_text
from moldau.security.scram_credentials import ScramCredential, ScramMechanism

CREDENTIALS_MAX: Final = 4096
"""How many are remembered: each costs milliseconds to compute."""


class TokenCredentials:
    """The credentials of the tokens in the metadata. `now_ms` is the wall clock."""

    def __init__(
        self, hmacs: TokenHmacs, tokens: Callable[[], Mapping[str, DelegationToken]], now_ms: Callable[[], int]
    ) -> None:
        self._hmacs = hmacs
        self._tokens = tokens
        self._now_ms = now_ms
        self._computed: dict[tuple[ScramMechanism, str], ScramCredential] = {}

    def owner_and_lifetime_ms(self, token_id: str) -> tuple[str, int] | None:
        """Return the user as whom the bearer of a token logs in, and for how long; None if the token is not valid."""
        token = self._tokens().get(token_id)
        if token is None or token.owner.type != USER:
            return None
        lifetime_ms = token.lifetime_ms(self._now_ms())
        return (token.owner.name, lifetime_ms) if lifetime_ms > 0 else None

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Return the credential of a token that exists."""
        key = (mechanism, token_id)
        credential = self._computed.get(key)
        if credential is None:
            credential = _compute(ScramKeys(mechanism), token_id, base64_text(self._hmacs.hmac(token_id)))
            if len(self._computed) >= CREDENTIALS_MAX:
                self._computed.pop(next(iter(self._computed)))
            self._computed[key] = credential
        return credential


def _compute(keys: ScramKeys, token_id: str, password: str) -> ScramCredential:
    # The password is as random as a key. The salt need not be secret, only different for each token.
    salt = hashlib.sha256(token_id.encode()).digest()
    return keys.credential(keys.salted_password(password, salt, ITERATIONS_MIN), salt, ITERATIONS_MIN)
