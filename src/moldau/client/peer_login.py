"""The SASL login of a connection to another node."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.security.sasl.client import ClientLogin
from moldau.wire.apis import ApiKey
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest
from moldau.wire.schema import Message


async def exchange_tokens(login: ClientLogin, ask: Callable[[ApiKey, Message], Awaitable[Any]]) -> int:
    """Return the lifetime of the session in milliseconds, 0 if it has none. Raise KafkaError if the peer refuses the
    login, LoginFailed if the peer is not to be trusted or there is no token. `ask` raises KafkaError if there is no
    response."""
    # OAUTHBEARER waits for its token, and SCRAM hashes for tens of milliseconds: neither on the loop.
    exchange = await asyncio.to_thread(login.begin, secrets.token_urlsafe(24))
    handshake = await ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(login.mechanism))
    if handshake.error_code:
        raise KafkaError(ErrorCode(handshake.error_code), f"the peer offers {', '.join(handshake.mechanisms)}")
    token: bytes | None = exchange.first()
    lifetime_ms = 0
    while token is not None:
        response = await ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(token))
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message)
        token = await asyncio.to_thread(exchange.respond, bytes(response.auth_bytes))
        lifetime_ms = response.session_lifetime_ms
    return lifetime_ms
