"""The SASL login of a connection to another node."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

from moldau.base.errors import ErrorCode, KafkaError
from moldau.security.sasl.client import ClientLogin, ClientMechanism
from moldau.wire.apis import ApiKey
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest
from moldau.wire.schema import Message


async def begin_exchange(login: ClientLogin) -> ClientMechanism:
    """Return what the login sends. Raise LoginFailed if there is no token."""
    # OAUTHBEARER waits for its token, and SCRAM hashes for tens of milliseconds: neither on the loop.
    return await asyncio.to_thread(login.begin, secrets.token_urlsafe(24))


async def exchange_tokens(
    login: ClientLogin, exchange: ClientMechanism, ask: Callable[[ApiKey, Message], Awaitable[Any]]
) -> int:
    """Return the lifetime of the session in milliseconds, 0 if it has none. Raise KafkaError if the peer refuses the
    login, LoginFailed if the peer is not to be trusted. `ask` raises KafkaError if there is no response."""
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
