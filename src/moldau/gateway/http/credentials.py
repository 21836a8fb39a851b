"""Who a request says it is: the header `Authorization`, or the certificate of its connection."""

from __future__ import annotations

import base64
import binascii
from typing import Final

from moldau.gateway.ports import Certificate, Credentials, Password, Token
from moldau.web.failures import ApiError

HEADER_LENGTH_MAX: Final = 20_000
CHALLENGE: Final = 'Basic realm="Kafka", charset="UTF-8", Bearer'


def credentials_of(authorization: bytes | None, subject: str | None) -> Credentials:
    """Return what the request shows: Basic is a user's password, Bearer a token; without either, the certificate.
    ApiError if the header cannot be read."""
    if authorization is None:
        return None if subject is None else Certificate(subject)
    scheme, _, rest = authorization[: HEADER_LENGTH_MAX + 1].partition(b" ")
    if len(authorization) > HEADER_LENGTH_MAX:
        raise bad_login(f"Authorization has more than {HEADER_LENGTH_MAX} bytes")
    if scheme.lower() == b"basic":
        return _password(rest.strip())
    if scheme.lower() == b"bearer":
        return Token(rest.strip().decode("latin-1"))
    raise bad_login("Authorization must be Basic or Bearer")


def _password(encoded: bytes) -> Password:
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        raise bad_login("Authorization: Basic must be USER:PASSWORD in UTF-8 and base64") from None
    if not colon:
        raise bad_login("Authorization: Basic must have USER:PASSWORD")
    return Password(user, password)


def bad_login(message: str) -> ApiError:
    return ApiError(401, "LOGIN_FAILED", message)
