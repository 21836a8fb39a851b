"""The settings of a node about logins, TLS and who may do what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from moldau.base.listener_settings import ListenerSettings
from moldau.base.setting_sources import Values
from moldau.security.authorizer_settings import AuthorizerSettings, read_authorizer
from moldau.security.sasl.settings import JaasFile, SaslSettings, SaslUse, TokenSource, read_sasl
from moldau.security.tls.listener_settings import read_node_tls
from moldau.security.tls.settings import TlsSettings

ReadSecurity = Callable[[Values, ListenerSettings, bool], "SecuritySettings"]
"""Also gets whether the node is alone: then it needs no login of its own."""


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    sasl: SaslSettings = field(default_factory=SaslSettings)
    tls: Mapping[str, TlsSettings] = field(default_factory=dict)
    """By listener."""
    authorizer: AuthorizerSettings = field(default_factory=AuthorizerSettings)


@dataclass(frozen=True, slots=True)
class SecurityReader:
    token_source: TokenSource
    jaas_file: JaasFile = field(default_factory=dict)
    allowed_urls: frozenset[str] | None = None
    """The only ones that OAUTHBEARER may use; None allows all."""

    def __call__(self, values: Values, listeners: ListenerSettings, is_alone: bool) -> SecuritySettings:
        use = SaslUse.of(listeners, is_alone)
        sasl = read_sasl(values, use, self.jaas_file, self.token_source, self.allowed_urls)
        return SecuritySettings(sasl, read_node_tls(values, listeners), read_authorizer(values))


def no_security(values: Values, listeners: ListenerSettings, is_alone: bool) -> SecuritySettings:
    """For tools that connect to nobody."""
    return SecuritySettings()
