"""SCRAM with a delegation token: the user name is the token's id, the password is its hmac in base64."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Final

from moldau.base.ports import RunInThread
from moldau.security.delegation_tokens import DelegationToken, TokenHmacs
from moldau.security.principals import USER
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, ScramKeys, base64_text
from moldau.security.scram_credentials import ScramCredential, ScramMechanism

CREDENTIALS_MAX: Final = 4096
"""How many are remembered: each costs milliseconds to compute."""
Key = tuple[ScramMechanism, str]


class TokenCredentials:
    """The credentials of the tokens in the metadata. `now_ms` is the wall clock. They are computed in a thread while
    the client computes its own side."""

    def __init__(
        self,
        hmacs: TokenHmacs,
        tokens: Callable[[], Mapping[str, DelegationToken]],
        now_ms: Callable[[], int],
        run_in_thread: RunInThread,
    ) -> None:
        self._hmacs = hmacs
        self._tokens = tokens
        self._now_ms = now_ms
        self._run_in_thread = run_in_thread
        self._computed: dict[Key, ScramCredential] = {}
        self._computing: set[Key] = set()

    def owner_and_lifetime_ms(self, token_id: str) -> tuple[str, int] | None:
        """Return the user as whom the bearer of a token logs in, and for how long; None if the token is not valid."""
        token = self._tokens().get(token_id)
        if token is None or token.owner.type != USER:
            return None
        lifetime_ms = token.lifetime_ms(self._now_ms())
        return (token.owner.name, lifetime_ms) if lifetime_ms > 0 else None

    def prepare(self, mechanism: ScramMechanism, token_id: str) -> tuple[bytes, int]:
        """Return the salt and the iterations of a token that exists. Its credential will be needed soon."""
        key = (mechanism, token_id)
        if key not in self._computed and key not in self._computing:
            self._computing.add(key)
            made: list[ScramCredential] = []

            def finish(_: object) -> None:
                self._computing.discard(key)
                for credential in made:
                    self._remember(key, credential)

            self._run_in_thread(lambda: made.append(self._compute(key))).then(finish)
        return _salt(token_id), ITERATIONS_MIN

    def credential(self, mechanism: ScramMechanism, token_id: str) -> ScramCredential:
        """Return the credential of a token that exists, computed here if the thread is not ready."""
        key = (mechanism, token_id)
        credential = self._computed.get(key)
        if credential is None:
            credential = self._compute(key)
            self._remember(key, credential)
        return credential

    def _remember(self, key: Key, credential: ScramCredential) -> None:
        if key not in self._computed and len(self._computed) >= CREDENTIALS_MAX:
            self._computed.pop(next(iter(self._computed)))
        self._computed[key] = credential

    def _compute(self, key: Key) -> ScramCredential:
        mechanism, token_id = key
        keys, salt, password = ScramKeys(mechanism), _salt(token_id), base64_text(self._hmacs.hmac(token_id))
        return keys.credential(keys.salted_password(password, salt, ITERATIONS_MIN), salt, ITERATIONS_MIN)


def _salt(token_id: str) -> bytes:
    """The password is as random as a key: the salt need not be secret, only different for each token."""
    return hashlib.sha256(token_id.encode()).digest()
