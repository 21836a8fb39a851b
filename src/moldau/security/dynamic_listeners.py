"""The settings of TLS and SASL that a broker's listeners get by its dynamic configs, `listener.name.NAME.KEY`.

A dynamic config overrides the same key of the properties file. Each listener is read alone, so that one with configs
that cannot be used leaves the others as they are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from moldau.base.broker_configs import is_dynamic_of_listener, listener_of
from moldau.base.setting_sources import SettingsError, SettingText, Values
from moldau.security.sasl.client import ClientLogin
from moldau.security.sasl.settings import SaslListenerSettings, SaslSettings, read_changed_listener
from moldau.security.tls.listener_settings import read_listener_tls
from moldau.security.tls.settings import TlsSettings

STATIC: Final = "its properties"
DYNAMIC: Final = "dynamic config"


@dataclass(frozen=True, slots=True)
class StaticListeners:
    """What the listeners of a node begin with."""

    properties: Mapping[str, str] = field(repr=False)
    served: Collection[str]
    """The listeners of this node. It only connects to the others."""
    tls: Mapping[str, TlsSettings]
    sasl: SaslSettings
    own_logins: Mapping[str, ClientLogin | None] = field(default_factory=dict)
    """How this node logs in to the listeners by which the nodes reach each other."""

    def tls_of(self, listener: str, dynamic: Mapping[str, str]) -> TlsSettings:
        """Return the settings of a listener with TLS. Raise SettingsError."""
        values, static = self._values(listener, dynamic), self.tls[listener]
        changed = read_listener_tls(values, listener, is_server=listener in self.served)
        return replace(changed, mapping_rules=static.mapping_rules)

    def sasl_of(self, listener: str, dynamic: Mapping[str, str]) -> SaslListenerSettings:
        """Return the settings of a listener with SASL. Raise SettingsError."""
        values = self._values(listener, dynamic)
        return read_changed_listener(values, listener, self.sasl, self.own_logins.get(listener))

    def refuse_without_effect(self, names: Collection[str]) -> None:
        """Raise SettingsError if one of these dynamic configs would have no effect here: a mistyped one must not look
        as if it protected something."""
        for name in names:
            listener = listener_of(name)
            assert listener is not None, "a key of a listener"
            is_tls = name.startswith(f"listener.name.{listener.lower()}.ssl.")
            if listener not in (self.tls if is_tls else self.sasl.listeners):
                what = "TLS" if is_tls else "SASL"
                raise SettingsError(f"{name}: this broker has no listener {listener} with {what}")

    def _values(self, listener: str, dynamic: Mapping[str, str]) -> Values:
        texts = {name: SettingText(text, STATIC) for name, text in self.properties.items()}
        for name, text in dynamic.items():
            if is_dynamic_of_listener(name) and listener_of(name) == listener:
                texts[name] = SettingText(text, DYNAMIC)
        return Values(texts)
