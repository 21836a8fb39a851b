"""The messages of OAUTHBEARER (RFC 7628). The client's first message, where ^A is the byte 1:

    n,a=AUTHORIZATION ID,^Aauth=Bearer TOKEN^Aextension=value^A^A

The authorization id and the extensions may be missing. The rules for names and values are Kafka's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from moldau.security.sasl.mechanism import SaslRefusal

SEPARATOR: Final = "\x01"
ACKNOWLEDGEMENT: Final = b"\x01"
"""The client's answer to the server's error, before the server fails the authentication."""
INVALID_TOKEN: Final = '{"status":"invalid_token"}'
AUTH: Final = "auth"
_HEADER: Final = re.compile(r"n,(?:a=((?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,")
_KEY: Final = re.compile(r"[A-Za-z]+")
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_AUTH: Final = re.compile(r"(?P<scheme>\w+) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)


class ClientFirst(NamedTuple):
    authorization_id: str
    """Empty if the client names none."""
    token: str
    extensions: Mapping[str, str]

    def __repr__(self) -> str:
        """Leave the token out."""
        return f"ClientFirst({self.authorization_id!r}, extensions={sorted(self.extensions)})"


def parse_client_first(message: bytes) -> ClientFirst:
    """Raise SaslRefusal, which quotes nothing, if the message is malformed."""
    try:
        text = message.decode("ascii")
    except UnicodeDecodeError:
        raise _malformed("it is not ASCII") from None
    header_text, separator, rest = text.partition(SEPARATOR)
    header = _HEADER.fullmatch(header_text)
    if header is None or not separator:
        raise _malformed("it does not begin with n,, or n,a=ID,")
    if not rest.endswith(SEPARATOR * 2):
        raise _malformed("it does not end with two separators")
    pairs = _parse_pairs(rest[:-2].split(SEPARATOR))
    auth = _AUTH.fullmatch(pairs.pop(AUTH, ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise _malformed("it has no auth=Bearer TOKEN")
    authorization_id = (header[1] or "").replace("=2C", ",").replace("=3D", "=")
    return ClientFirst(authorization_id, auth["token"], pairs)


def client_first(token: str, extensions: Mapping[str, str]) -> bytes:
    pairs = [f"{AUTH}=Bearer {token}", *(f"{key}={value}" for key, value in extensions.items())]
    return f"n,,{SEPARATOR}{SEPARATOR.join(pairs)}{SEPARATOR}{SEPARATOR}".encode()


def is_extension(key: str, value: str) -> bool:
    return key != AUTH and bool(_KEY.fullmatch(key) and _VALUE.fullmatch(value))


def _parse_pairs(texts: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise _malformed("a part of it is not key=value")
        if key in pairs:
            raise _malformed("a key is there twice")
        pairs[key] = value
    return pairs


def _malformed(reason: str) -> SaslRefusal:
    return SaslRefusal(reason=f"the first message of OAUTHBEARER is malformed: {reason}")
