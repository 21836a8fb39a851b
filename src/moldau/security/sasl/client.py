"""The mechanisms on the client's side, for our own clients and for the connections between nodes."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from moldau.security.sasl import scram_messages
from moldau.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
from moldau.security.sasl.oauthbearer import messages
from moldau.security.sasl.scram_messages import ITERATIONS_MIN, MalformedMessage, ScramKeys, base64_text

ITERATIONS_ACCEPTED_MAX: Final = 1 << 17
"""Of what a server demands: it must not keep a client busy for long."""
GS2_HEADER: Final = "n,,"


class LoginFailed(Exception):
    """The server's message is malformed, it does not know the password either, or there is no token to send."""


class ClientMechanism(Protocol):
    def first(self) -> bytes:
        """Return the first token."""

    def respond(self, token: bytes) -> bytes | None:
        """Return the answer to a token of the server; None if the exchange is complete. It may compute for tens of
        milliseconds. Raise LoginFailed if the server is not to be trusted."""


@dataclass(frozen=True, slots=True)
class ClientLogin:
    """The user as which a client or node authenticates."""

    mechanism: str
    user: str
    password: str = field(default="", repr=False)
    by_token: bool = False
    """Whether the user is a delegation token's id, and the password its hmac in base64. For SCRAM only."""
    token: Callable[[], str] | None = field(default=None, repr=False)
    """Gets a token for OAUTHBEARER; it may wait for a file or the network, and raises LoginFailed."""
    extensions: tuple[tuple[str, str], ...] = ()

    def begin(self, nonce: str) -> ClientMechanism:
        """Return a new exchange. `nonce` is random, printable, and has no comma. It may wait for a token."""
        if self.mechanism == PLAIN:
            return PlainClient(self.user, self.password)
        if self.mechanism == OAUTHBEARER:
            assert self.token is not None
            return OAuthBearerClient(self.token(), dict(self.extensions))
        keys = ScramKeys(SCRAM_MECHANISMS[self.mechanism])
        return ScramClient(keys, self.user, self.password, nonce, self.by_token)


class PlainClient:
    def __init__(self, user: str, password: str) -> None:
        self._token = b"\0" + user.encode() + b"\0" + password.encode()

    def first(self) -> bytes:
        return self._token

    def respond(self, token: bytes) -> bytes | None:
        return None


class OAuthBearerClient:
    def __init__(self, token: str, extensions: dict[str, str]) -> None:
        self._first = messages.client_first(token, extensions)

    def first(self) -> bytes:
        return self._first

    def respond(self, token: bytes) -> bytes | None:
        """Acknowledge an error; the server then fails the authentication."""
        return messages.ACKNOWLEDGEMENT if token else None


class ScramClient:
    def __init__(self, keys: ScramKeys, user: str, password: str, nonce: str, by_token: bool = False) -> None:
        self._keys = keys
        self._password = password
        self._nonce = nonce
        extension = f",{scram_messages.TOKEN_EXTENSION}=true" if by_token else ""
        self._first_bare = f"n={scram_messages.escape_name(user)},r={nonce}{extension}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return (GS2_HEADER + self._first_bare).encode()

    def respond(self, token: bytes) -> bytes | None:
        try:
            if self._server_signature is None:
                return self._prove(token)
            self._check(self._server_signature, token)
        except MalformedMessage as malformed:
            raise LoginFailed(f"the server sent a {malformed}") from None
        return None

    def _prove(self, token: bytes) -> bytes:
        server = scram_messages.parse_server_first(token)
        if not server.nonce.startswith(self._nonce) or server.nonce == self._nonce:
            raise LoginFailed("the server answered with a nonce that is not ours")
        if not ITERATIONS_MIN <= server.iterations <= ITERATIONS_ACCEPTED_MAX:
            raise LoginFailed(
                f"the server demands {server.iterations} iterations; expected {ITERATIONS_MIN} to"
                f" {ITERATIONS_ACCEPTED_MAX}"
            )
        keys = self._keys
        salted_password = keys.salted_password(self._password, server.salt, server.iterations)
        without_proof = f"c={base64_text(GS2_HEADER.encode())},r={server.nonce}"
        message = f"{self._first_bare},{bytes(token).decode()},{without_proof}".encode()
        client_key = keys.client_key(salted_password)
        proof = scram_messages.xor(client_key, keys.mac(keys.hashed(client_key), message))
        self._server_signature = keys.mac(keys.server_key(salted_password), message)
        return f"{without_proof},p={base64_text(proof)}".encode()

    def _check(self, expected: bytes, token: bytes) -> None:
        error, signature = scram_messages.parse_server_final(token)
        if error is not None:
            raise LoginFailed("the server refused the login")
        if not hmac.compare_digest(signature, expected):
            raise LoginFailed("the server does not know the password")
