"""The messages and keys of SCRAM (RFC 5802, RFC 7677), for both sides. Names and passwords are plain UTF-8: like
Kafka, without SASLprep.
"""

from __future__ import annotations

import binascii
import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final, NamedTuple

from moldau.security.scram_credentials import ScramCredential, ScramMechanism

ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 16384
"""Kafka's limits for new credentials; the lower one also holds for every login."""

TOKEN_EXTENSION: Final = "tokenauth"
MESSAGE_BYTES_MAX: Final = 16 << 10
"""Names and nonces are short. Strangers send these messages, and reading half a megabyte takes a tenth of a second."""

_HASHES: Final = {ScramMechanism.SCRAM_SHA_256: "sha256", ScramMechanism.SCRAM_SHA_512: "sha512"}

# A hostile message must not make the patterns backtrack: each character can match in one way only. Sets of characters
# are written without those above ASCII: with them, Python takes milliseconds to compile each.
_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE: Final = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE: Final = r"[\x21-\x2b\x2d-\x7e]+"
_EXTENSIONS: Final = rf"(?:,[A-Za-z]+={_VALUE})*"
_BASE64: Final = r"[A-Za-z0-9+/]*={0,2}"
_CLIENT_FIRST: Final = re.compile(
    rf"(?P<header>n,(?:a=(?P<authzid>{_NAME}))?,)(?P<bare>(?:m={_NAME},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST: Final = re.compile(
    rf"(?:m={_NAME},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]{{1,9}}){_EXTENSIONS}"
)
_CLIENT_FINAL: Final = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE})(?:,(?!p=)[A-Za-z]+={_VALUE})*)"
    rf",p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL: Final = re.compile(rf"(?:e=(?P<error>[^,]+)|v=(?P<signature>{_BASE64})){_EXTENSIONS}")


class MalformedMessage(ValueError):
    """A message that is not one of SCRAM's."""


class ClientFirst(NamedTuple):
    header: str
    bare: str
    authorization_id: str
    user: str
    nonce: str
    is_token: bool
    """Whether the user is a delegation token."""


class ServerFirst(NamedTuple):
    nonce: str
    salt: bytes
    iterations: int


class ClientFinal(NamedTuple):
    without_proof: str
    channel_binding: bytes
    nonce: str
    proof: bytes


def parse_client_first(token: bytes) -> ClientFirst:
    match = _match(_CLIENT_FIRST, token)
    return ClientFirst(
        match["header"],
        match["bare"],
        unescape_name(match["authzid"] or ""),
        unescape_name(match["name"]),
        match["nonce"],
        _is_token(match["extensions"]),
    )


def _is_token(extensions: str) -> bool:
    """Return what the last extension `tokenauth` says; extensions are `,name=value,…`."""
    by_name = dict(each.split("=", 1) for each in extensions.split(",")[1:])
    return by_name.get(TOKEN_EXTENSION, "").lower() == "true"


def parse_server_first(token: bytes) -> ServerFirst:
    match = _match(_SERVER_FIRST, token)
    return ServerFirst(match["nonce"], _decoded(match["salt"]), int(match["iterations"]))


def parse_client_final(token: bytes) -> ClientFinal:
    match = _match(_CLIENT_FINAL, token)
    return ClientFinal(match["bare"], _decoded(match["channel"]), match["nonce"], _decoded(match["proof"]))


def parse_server_final(token: bytes) -> tuple[str | None, bytes]:
    """Return the server's error or its signature."""
    match = _match(_SERVER_FINAL, token)
    return match["error"], _decoded(match["signature"] or "")


def escape_name(name: str) -> str:
    return name.replace("=", "=3D").replace(",", "=2C")


def unescape_name(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def base64_text(data: bytes) -> str:
    return b64encode(data).decode()


class ScramKeys:
    """The functions of one mechanism."""

    def __init__(self, mechanism: ScramMechanism) -> None:
        self._name = _HASHES[mechanism]
        self._hash: Callable[[bytes], hashlib._Hash] = getattr(hashlib, self._name)
        self.size: Final = self._hash(b"").digest_size

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """Takes milliseconds: thousands of hashes."""
        return hashlib.pbkdf2_hmac(self._name, password.encode(), salt, iterations)

    def credential(self, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """Return what the server stores of a password."""
        stored_key = self.hashed(self.client_key(salted_password))
        return ScramCredential(salt, stored_key, self.server_key(salted_password), iterations)

    def client_key(self, salted_password: bytes) -> bytes:
        return self.mac(salted_password, b"Client Key")

    def server_key(self, salted_password: bytes) -> bytes:
        return self.mac(salted_password, b"Server Key")

    def hashed(self, data: bytes) -> bytes:
        return self._hash(data).digest()

    def mac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._name)


def xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _match(pattern: re.Pattern[str], token: bytes) -> re.Match[str]:
    if len(token) > MESSAGE_BYTES_MAX:
        raise MalformedMessage("malformed SCRAM message: too long")
    match = pattern.fullmatch(bytes(token).decode("utf-8", "replace"))
    if match is None:
        raise MalformedMessage("malformed SCRAM message")
    return match


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except binascii.Error:
        raise MalformedMessage("malformed base64 in a SCRAM message") from None
