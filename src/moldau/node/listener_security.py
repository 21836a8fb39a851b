"""How clients authenticate by SASL at the listeners of a node, and what their dynamic configs start from."""

from __future__ import annotations

import asyncio
import secrets
from typing import TYPE_CHECKING

from moldau.base.clock import Clock
from moldau.base.ports import RunInThread
from moldau.metadata.current import CurrentImage
from moldau.metadata.scram_secret import scram_secret
from moldau.runtime.timers import LoopTimers
from moldau.security.delegation_tokens import TokenHmacs
from moldau.security.dynamic_listeners import StaticListeners
from moldau.security.sasl.exchange import Mechanism
from moldau.security.sasl.token_credentials import TokenCredentials
from moldau.security.sasl.use import SaslListenerSettings
from moldau.server.sasl_session import SaslServer
from moldau.settings import Settings

if TYPE_CHECKING:
    from moldau.runtime.node_oauth import NodeOAuth


def static_listeners(settings: Settings) -> StaticListeners:
    """Return what the listeners of a broker are by its properties file."""
    names = [each.name for each in settings.listeners]
    return StaticListeners(
        settings.properties,
        {name: settings.tls[name] for name in names if name in settings.tls},
        settings.sasl,
        names,
        settings.inter_broker_listener_name,
        {settings.controller_listener_name, *(each.name for each in settings.controller_listeners)},
    )


class SaslServers:
    """The SASL of all listeners of a node."""

    def __init__(self, settings: Settings, clock: Clock, oauth: NodeOAuth | None, run_in_thread: RunInThread) -> None:
        """`oauth` verifies the tokens of OAUTHBEARER; None if no listener offers it."""
        self._settings = settings
        self._clock = clock
        self._oauth = oauth
        self._run_in_thread = run_in_thread
        self._salts_without_users = secrets.token_bytes()
        """While no user exists, made-up salts tell nothing."""
        self._opened: dict[str, tuple[SaslServer, CurrentImage]] = {}

    def open(self, listener: str, current: CurrentImage) -> SaslServer | None:
        """Return how clients authenticate on that listener; None if it has no SASL."""
        sasl = self._settings.sasl
        if listener not in sasl.listeners:
            return None
        server = SaslServer(
            self._mechanisms(listener, sasl.listeners[listener], current),
            sasl.listeners[listener].receive_bytes_max,
            sasl.failure_delay_ms,
            self._clock,
            LoopTimers(asyncio.get_running_loop()),
            self._settings.connection_limits.authentication_ms_max,
        )
        self._opened[listener] = server, current
        return server

    def change(self, listener: str, settings: SaslListenerSettings) -> None:
        """Use these settings for the next authentications on that listener."""
        server, current = self._opened[listener]
        server.mechanisms = self._mechanisms(listener, settings, current)

    def _mechanisms(self, listener: str, settings: SaslListenerSettings, current: CurrentImage) -> dict[str, Mechanism]:
        return settings.mechanisms(
            lambda: current.image.scram_credentials,
            lambda: (scram_secret(current.image) or "").encode() or self._salts_without_users,
            new_nonce,
            self._tokens(current),
            None if self._oauth is None else self._oauth.verify(listener),
        )

    def _tokens(self, current: CurrentImage) -> TokenCredentials | None:
        """Return the delegation tokens with which clients may log in; None if there are none."""
        settings = self._settings.delegation_tokens
        if not settings.is_enabled:
            return None
        hmacs = TokenHmacs(settings.secret_key)
        return TokenCredentials(hmacs, lambda: current.image.delegation_tokens, self._clock.now_ms, self._run_in_thread)


def new_nonce() -> str:
    return secrets.token_urlsafe(24)
