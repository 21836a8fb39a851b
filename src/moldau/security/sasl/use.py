"""Where a node uses SASL, and how. What a node without SASL does not need is imported by who needs it, before the node
serves: `settings` when SASL is read, the mechanisms when a listener offers them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from moldau.base.listener_settings import ListenerSettings
from moldau.base.listeners import SASL_PROTOCOLS
from moldau.security.sasl.exchange import Mechanism

if TYPE_CHECKING:
    from moldau.security.sasl.client import ClientLogin
    from moldau.security.sasl.jaas import LoginModule
    from moldau.security.sasl.mechanism import ServerMechanism
    from moldau.security.sasl.oauthbearer.server import Verify
    from moldau.security.sasl.oauthbearer.settings import OAuthBearerSettings
    from moldau.security.sasl.scram import Credentials
    from moldau.security.sasl.token_credentials import TokenCredentials


@dataclass(frozen=True, slots=True)
class SaslListenerSettings:
    """One listener with SASL."""

    lifetimes_ms: Mapping[str, int]
    """The enabled mechanisms, and how long a session lasts that each authenticates; 0 means without end."""
    receive_bytes_max: int
    passwords: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Of the users of PLAIN."""
    oauthbearer: OAuthBearerSettings | None = None

    def mechanisms(
        self,
        credentials: Callable[[], Credentials],
        secret: Callable[[], bytes],
        new_nonce: Callable[[], str],
        tokens: TokenCredentials | None = None,
        verify: Verify | None = None,
    ) -> dict[str, Mechanism]:
        """Return the mechanisms as the listener offers them. `verify` is for OAUTHBEARER, the other arguments are for
        SCRAM."""
        from moldau.security.sasl.mechanism import OAUTHBEARER, PLAIN, SCRAM_MECHANISMS
        from moldau.security.sasl.oauthbearer.server import OAuthBearerServer
        from moldau.security.sasl.plain import PlainServer
        from moldau.security.sasl.scram import ScramServer, ScramUsers

        def new_server(name: str) -> Callable[[], ServerMechanism]:
            if name == PLAIN:
                return partial(PlainServer, self.passwords)
            if name == OAUTHBEARER:
                assert verify is not None
                return partial(OAuthBearerServer, verify)
            return partial(ScramServer, ScramUsers(SCRAM_MECHANISMS[name], credentials, secret), new_nonce, tokens)

        return {name: Mechanism(new_server(name), lifetime_ms) for name, lifetime_ms in self.lifetimes_ms.items()}


@dataclass(frozen=True, slots=True)
class SaslSettings:
    listeners: Mapping[str, SaslListenerSettings] = field(default_factory=dict)
    """By name; a listener that is not here has no SASL."""
    failure_delay_ms: int = 0
    broker_login: ClientLogin | None = None
    """How this node logs in to other brokers; None if it need not."""
    controller_login: ClientLogin | None = None
    jaas_file: Mapping[str, tuple[LoginModule, ...]] = field(default_factory=dict, repr=False)
    """The login modules of the JAAS file by context."""


@dataclass(frozen=True, slots=True)
class SaslUse:
    """Where a node uses SASL, by the names of listeners."""

    serves: tuple[str, ...]
    """The listeners of this node."""
    brokers: str | None
    """The listener on which it connects to brokers; None if that is without SASL."""
    controllers: str | None
    is_alone: bool
    """Whether the node may do without a login of its own: there is no other node."""

    @property
    def is_any(self) -> bool:
        return bool(self.serves) or self.brokers is not None or self.controllers is not None

    @classmethod
    def of(cls, listeners: ListenerSettings, is_alone: bool) -> SaslUse:
        def if_sasl(name: str) -> str | None:
            return name if listeners.protocols.get(name) in SASL_PROTOCOLS else None

        return cls(
            tuple(each.name for each in listeners.all if each.security_protocol in SASL_PROTOCOLS),
            if_sasl(listeners.inter_broker_name),
            if_sasl(listeners.controller_name),
            is_alone,
        )
