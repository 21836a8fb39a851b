"""The settings of TLS and SASL that a broker's listeners get by its dynamic configs, `listener.name.NAME.KEY`.

A dynamic config overrides the same key of the properties file. Each listener is read alone, so that one with configs
that cannot be used leaves the others as they are. The controllers' listener has no dynamic configs: a node that starts
must reach it before it knows any.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from moldau.base.broker_configs import broker_config, is_dynamic_of_listener, listener_of
from moldau.base.setting_sources import SettingsError, SettingText, Values
from moldau.base.settings.security import CONNECTIONS_MAX_REAUTH_MS
from moldau.security.sasl.use import SaslListenerSettings, SaslSettings
from moldau.security.tls.listener_settings import read_listener_tls
from moldau.security.tls.settings import TlsSettings

STATIC: Final = "its properties"
DYNAMIC: Final = "dynamic config"
REAUTHENTICATION_MS_MIN: Final = 1000
"""Shorter sessions keep clients from their work. A properties file may set them."""


def is_of_tls(name: str) -> bool:
    """Return whether a dynamic config of a listener is one of its TLS, not of its SASL."""
    definition = broker_config(name)
    return definition is not None and definition.name.startswith("ssl.")


def refuse_short_sessions(changes: Mapping[str, str]) -> None:
    """Raise SettingsError if one of these dynamic configs lets sessions end almost at once."""
    for name, text in changes.items():
        definition = broker_config(name)
        if definition is not CONNECTIONS_MAX_REAUTH_MS:
            continue
        lifetime_ms = definition.parse(text)
        assert isinstance(lifetime_ms, int), "checked before"
        if 0 < lifetime_ms < REAUTHENTICATION_MS_MIN:
            raise SettingsError(f"{name}={text}: expected 0, for no end, or at least {REAUTHENTICATION_MS_MIN}")


@dataclass(frozen=True, slots=True)
class StaticListeners:
    """What the listeners of a broker begin with, without that of the controllers."""

    properties: Mapping[str, str] = field(repr=False)
    tls: Mapping[str, TlsSettings]
    """By listener, for those with TLS."""
    sasl: SaslSettings
    names: Collection[str]
    inter_broker: str
    """The listener by which the brokers reach each other."""
    controllers: Collection[str]
    """The names of the controllers' listeners."""

    @property
    def with_sasl(self) -> list[str]:
        return [name for name in self.names if name in self.sasl.listeners]

    def tls_of(self, listener: str, dynamic: Mapping[str, str]) -> TlsSettings:
        """Return the settings of a listener with TLS. Raise SettingsError."""
        values, static = self._values(listener, dynamic, is_tls=True), self.tls[listener]
        changed = read_listener_tls(values, listener, is_server=True)
        return replace(changed, mapping_rules=static.mapping_rules)

    def sasl_of(self, listener: str, dynamic: Mapping[str, str]) -> SaslListenerSettings:
        """Return the settings of a listener with SASL. Raise SettingsError."""
        from moldau.security.sasl.settings import read_changed_listener  # which nodes with SASL have imported already

        values = self._values(listener, dynamic, is_tls=False)
        own_login = self.sasl.broker_login if listener == self.inter_broker else None
        return read_changed_listener(values, listener, self.sasl, own_login)

    def refuse_without_effect(self, names: Collection[str]) -> None:
        """Raise SettingsError if one of these dynamic configs would have no effect here: a mistyped one must not look
        as if it protected something."""
        for name in names:
            listener = listener_of(name)
            assert listener is not None, "a key of a listener"
            if listener in self.controllers:
                raise SettingsError(
                    f"{name}: a node that starts connects to the controllers before it knows its dynamic configs; set"
                    " this in its properties file"
                )
            if listener not in (self.tls if is_of_tls(name) else self.with_sasl):
                what = "TLS" if is_of_tls(name) else "SASL"
                raise SettingsError(f"{name}: this broker has no listener {listener} with {what}")

    def _values(self, listener: str, dynamic: Mapping[str, str], *, is_tls: bool) -> Values:
        texts = {name: SettingText(text, STATIC) for name, text in self.properties.items()}
        for name, text in dynamic.items():
            if is_dynamic_of_listener(name) and listener_of(name) == listener and is_of_tls(name) == is_tls:
                texts[name] = SettingText(text, DYNAMIC)
        return Values(texts)
