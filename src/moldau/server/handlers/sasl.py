"""SaslHandshake v0–1 and SaslAuthenticate v0–2 of a client that need not authenticate, or has done so: errors. They are
listed and served on every listener, as in Kafka; `server/sasl_session` answers them during the authentication.
"""

from __future__ import annotations

from moldau.base.errors import ErrorCode
from moldau.security.sasl.exchange import AFTER_SUCCESS
from moldau.server.handler import Caller, Handler
from moldau.wire.apis import ApiKey
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


class SaslHandshake(Handler):
    api = ApiKey.SASL_HANDSHAKE
    versions = (0, 1)
    needs = ()
    is_on_controllers = True

    def answer(self, request: SaslHandshakeRequest, caller: Caller) -> SaslHandshakeResponse:
        return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


class SaslAuthenticate(Handler):
    api = ApiKey.SASL_AUTHENTICATE
    versions = (0, 2)
    needs = ()
    is_on_controllers = True

    def answer(self, request: SaslAuthenticateRequest, caller: Caller) -> SaslAuthenticateResponse:
        return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, AFTER_SUCCESS)
