"""SaslHandshake v0–1 and SaslAuthenticate v0–2 of a client that need not authenticate, or has done so: errors. They are
listed and served on every listener, as in Kafka; `server/sasl_session` answers them during the authentication.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.security.sasl.exchange import AFTER_SUCCESS
from moldau.server.router import Caller
from moldau.server.sasl_session import AUTHENTICATE_VERSIONS, HANDSHAKE_VERSIONS
from moldau.wire.apis import ApiKey
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class SaslHandshake:
    api = ApiKey.SASL_HANDSHAKE
    versions = HANDSHAKE_VERSIONS

    def answer(self, request: SaslHandshakeRequest, caller: Caller) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


class SaslAuthenticate:
    api = ApiKey.SASL_AUTHENTICATE
    versions = AUTHENTICATE_VERSIONS

    def answer(self, request: SaslAuthenticateRequest, caller: Caller) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, AFTER_SUCCESS)
