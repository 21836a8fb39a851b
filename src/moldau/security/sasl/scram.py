"""SCRAM on the server's side (RFC 5802): the client proves that it knows the password without sending it.

A user without credentials is asked the same question as the others, with a salt derived from the name, and refused at
the end: one question does not tell whether a user exists. (Kafka refuses unknown users at the first step.) An unknown
delegation token is refused at once: its id cannot be guessed.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from moldau.security.sasl import scram_messages
from moldau.security.sasl.made_up_salts import MadeUpSalts
from moldau.security.sasl.mechanism import SaslRefusal, Step
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, ClientFirst, MalformedMessage, ScramKeys, base64_text
from moldau.security.sasl.token_credentials import TokenCredentials
from moldau.security.scram_credentials import ScramCredential, ScramMechanism

NONCE_BYTES: Final = 20

Credentials = Mapping[tuple[int, str], ScramCredential]
"""By mechanism and user: those of the metadata image."""


class ScramUsers:
    """The credentials of one mechanism, and made-up ones for the users that do not exist."""

    def __init__(
        self, mechanism: ScramMechanism, credentials: Callable[[], Credentials], secret: Callable[[], bytes]
    ) -> None:
        """`secret` returns what only the nodes of the cluster know, and all of them: who knows it can tell made-up
        salts from others, and one that differs between nodes would do so too."""
        self.keys = ScramKeys(mechanism)
        self.mechanism = mechanism
        self._credentials = credentials
        self._secret = secret
        self._counted: Credentials | None = None
        self._made_up_salts = MadeUpSalts(self._bytes_for)

    def find(self, user: str) -> tuple[ScramCredential, bool]:
        """Return the user's credential, or a made-up one, and whether the user exists."""
        found = self._credentials().get((self.mechanism, user))
        made_up = self._make_up(user)  # for users that exist too: the time must not tell them from others
        return (made_up, False) if found is None else (found, True)

    def _make_up(self, user: str) -> ScramCredential:
        credentials = self._credentials()
        if credentials is not self._counted:
            self._made_up_salts.count(
                (each.salt, each.iterations)
                for (mechanism, _), each in credentials.items()
                if mechanism == self.mechanism
            )
            self._counted = credentials
        salt, iterations = self._made_up_salts.make_up(user)
        size = self.keys.size
        keys = self._bytes_for(f"keys {user}", 2 * size)
        return ScramCredential(salt, keys[:size], keys[size:], iterations)

    def _bytes_for(self, name: str, length: int) -> bytes:
        blocks = range(-(-length // self.keys.size))
        return b"".join(
            self.keys.mac(self._secret(), f"{block} {self.mechanism} {name}".encode("utf-8", "surrogatepass"))
            for block in blocks
        )[:length]


class ScramServer:
    """The server's side of one authentication. `new_nonce` returns random printable characters without a comma;
    `tokens` is None if there are no delegation tokens."""

    def __init__(self, users: ScramUsers, new_nonce: Callable[[], str], tokens: TokenCredentials | None = None) -> None:
        self._users = users
        self._tokens = tokens
        self._keys = users.keys
        self._new_nonce = new_nonce
        self._first: ClientFirst | None = None
        self._is_finished = False
        self.user_tried = ""
        """The id of a delegation token, if the client has one: it is no secret."""

    def respond(self, token: bytes) -> Step:
        if self._is_finished:
            raise SaslRefusal
        try:
            return self._begin(token) if self._first is None else self._finish(self._first, token)
        except MalformedMessage:
            self._is_finished = True
            raise SaslRefusal from None
        except SaslRefusal:
            self._is_finished = True
            raise

    def _begin(self, token: bytes) -> Step:
        first = scram_messages.parse_client_first(token)
        self.user_tried = first.user
        if first.authorization_id not in ("", first.user):
            raise SaslRefusal(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        if first.is_token:
            salt, iterations = self._prepare_token(first.user)
        else:
            self._credential, self._is_known = self._users.find(first.user)
            salt, iterations = self._credential.salt, self._credential.iterations
        if iterations < ITERATIONS_MIN:
            raise SaslRefusal
        self._first = first
        self._nonce = first.nonce + self._new_nonce()
        self._server_first = f"r={self._nonce},s={base64_text(salt)},i={iterations}"
        return Step(self._server_first.encode())

    def _prepare_token(self, token_id: str) -> tuple[bytes, int]:
        """Return the salt and the iterations of a token."""
        if self._tokens is None or self._tokens.owner_and_lifetime_ms(token_id) is None:
            raise SaslRefusal
        return self._tokens.prepare(self._users.mechanism, token_id)

    def _find_token(self, token_id: str) -> tuple[ScramCredential, Step]:
        """Return the credential of a token, and as whom its bearer logs in."""
        assert self._tokens is not None, "found by the first message"
        valid = self._tokens.owner_and_lifetime_ms(token_id)
        if valid is None:
            raise SaslRefusal  # it has expired since the first message
        owner, lifetime_ms = valid
        return self._tokens.credential(self._users.mechanism, token_id), Step(b"", owner, True, lifetime_ms)

    def _finish(self, first: ClientFirst, token: bytes) -> Step:
        self._is_finished = True
        final = scram_messages.parse_client_final(token)
        if final.nonce != self._nonce or final.channel_binding != first.header.encode():
            raise SaslRefusal
        message = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        if first.is_token:
            credential, success = self._find_token(first.user)
        else:
            credential, success = self._credential, Step(b"", first.user if self._is_known else None)
        keys = self._keys
        signature = keys.mac(credential.stored_key, message)
        if len(final.proof) != len(signature):
            raise SaslRefusal
        stored_key = keys.hashed(scram_messages.xor(final.proof, signature))
        if not hmac.compare_digest(stored_key, credential.stored_key) or success.user is None:
            raise SaslRefusal
        proof = base64_text(keys.mac(credential.server_key, message))
        return success._replace(token=f"v={proof}".encode())
