"""Who a client says it is in its CONNECT."""

from __future__ import annotations

from typing import Final

from moldau.base.errors import ErrorCode, KafkaError, MalformedData
from moldau.gateway.ports import Certificate, Credentials, Password, Token
from moldau.security.tls.names import subject

TOKEN_USER: Final = "$token"
"""The user name with which the password is a token of OAuth."""


def credentials_of(user: str | None, password: bytes | None, certificate: bytes | None) -> Credentials:
    """Return the password or token of a CONNECT; without a user name the certificate of its connection, in DER.
    KafkaError SASL_AUTHENTICATION_FAILED if these cannot be."""
    try:
        if user is None:
            return None if certificate is None else Certificate(subject(certificate))
        text = (password or b"").decode()
    except (UnicodeDecodeError, MalformedData):
        raise KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "the password is not UTF-8") from None
    return Token(text) if user == TOKEN_USER else Password(user, text)
