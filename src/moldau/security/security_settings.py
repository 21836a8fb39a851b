"""The settings of a node about logins, TLS and who may do what, and what a start warns of in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from moldau.base.listener_settings import ListenerSettings
from moldau.base.setting_sources import Values
from moldau.security.authorizer_settings import AuthorizerSettings, read_authorizer, warn_of_authorizer
from moldau.security.sasl.use import SaslSettings, SaslUse
from moldau.security.tls.listener_settings import read_node_tls, warn_of_missing_trust, warn_of_unknown_listeners
from moldau.security.tls.settings import TlsSettings

if TYPE_CHECKING:
    from moldau.security.sasl.settings import JaasFile, TokenSource

_JAAS_FILE: Final = re.compile(r"-Djava\.security\.auth\.login\.config=(\S+)")
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

    @classmethod
    def of(cls, token_source: TokenSource, kafka_opts: str) -> SecurityReader:
        """`kafka_opts` are Java's options, which may name a JAAS file and the allowed URLs."""
        if not kafka_opts:
            return cls(token_source)
        from moldau.security.sasl.oauthbearer.urls import allowed_urls
        from moldau.security.sasl.settings import read_jaas_file

        found = _JAAS_FILE.search(kafka_opts)
        jaas_file = read_jaas_file(found[1], "KAFKA_OPTS") if found else {}
        return cls(token_source, jaas_file, allowed_urls(kafka_opts))

    def __call__(self, values: Values, listeners: ListenerSettings, is_alone: bool) -> SecuritySettings:
        use, sasl = SaslUse.of(listeners, is_alone), SaslSettings()
        if use.is_any:
            from moldau.security.sasl.settings import read_sasl  # a dozen modules that most nodes do not need

            sasl = read_sasl(values, use, self.jaas_file, self.token_source, self.allowed_urls)
        return SecuritySettings(sasl, read_node_tls(values, listeners), read_authorizer(values))


def no_security(values: Values, listeners: ListenerSettings, is_alone: bool) -> SecuritySettings:
    """For tools that connect to nobody."""
    return SecuritySettings()


def warn_of_security(values: Values, listeners: ListenerSettings, security: SecuritySettings) -> Iterator[str]:
    yield from warn_of_authorizer(values)
    if any("sasl." in key for key in values.texts) or security.sasl.listeners:
        from moldau.security.sasl.warnings import warn_of_missing_users, warn_of_sasl

        yield from warn_of_sasl(values)
        yield from warn_of_missing_users(security.sasl)
    yield from warn_of_missing_trust(security.tls)
    yield from warn_of_unknown_listeners(values, listeners.protocols)
