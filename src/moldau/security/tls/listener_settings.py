"""The ssl.* settings of each listener: `listener.name.NAME.ssl.*` overrides `ssl.*`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from moldau.base.broker_configs import listener_of
from moldau.base.config_def import ConfigValue
from moldau.base.listener_settings import ListenerSettings
from moldau.base.listeners import TLS_PROTOCOLS
from moldau.base.setting_sources import SettingsError, Values
from moldau.base.settings import node
from moldau.security.tls.settings import TlsSettings, read_tls


def read_node_tls(values: Values, listeners: ListenerSettings) -> dict[str, TlsSettings]:
    """Read the TLS settings of all listeners that use it: those of this node, and the controllers' listener that a
    node which is only a broker connects to."""
    controller_listener = listeners.controller_name
    served = [each.name for each in listeners.all if each.security_protocol in TLS_PROTOCOLS]
    tls = {name: read_listener_tls(values, name, is_server=True) for name in served}
    if "controller" in values.strings(node.PROCESS_ROLES):
        return tls
    protocol = listeners.protocols.get(controller_listener)
    if protocol is None:
        reason = "has no entry in listener.security.protocol.map"
        raise values.error(node.CONTROLLER_LISTENER_NAMES, f"{controller_listener} {reason}")
    if protocol in TLS_PROTOCOLS:
        tls[controller_listener] = read_listener_tls(values, controller_listener, is_server=False)
    return tls


def read_listener_tls(values: Values, listener: str, *, is_server: bool) -> TlsSettings:
    """Read the TLS settings of a listener. Without `is_server` this node only connects to it. Raise SettingsError."""

    def own(key: str) -> str:
        """Return the key that applies."""
        prefixed = f"listener.name.{listener.lower()}.{key}"
        return prefixed if prefixed in values else key

    def value_of(key: str) -> ConfigValue:
        applies = own(key)
        return values.parsed[applies] if applies in values else values.value(key)

    def error(key: str, reason: str) -> SettingsError:
        return values.error(own(key), reason)

    return read_tls(value_of, error, is_server=is_server)


def warn_of_missing_trust(tls: Mapping[str, TlsSettings]) -> Iterator[str]:
    """Yield a line for each listener whose clients show certificates that no trust store is set for."""
    for listener, settings in tls.items():
        if settings.client_auth != "none" and not settings.trust_store.is_set:
            yield (
                f"listener {listener}: ssl.client.auth={settings.client_auth} without ssl.truststore.location: the"
                " certificates of all authorities that the system trusts are accepted, and no others"
            )


def warn_of_unknown_listeners(values: Values, listeners: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each key of a listener that does not exist, or whose name is not in lower case."""
    for key, setting in values.texts.items():
        listener = listener_of(key)
        if listener is None:
            continue
        prefix = f"listener.name.{listener.lower()}."
        if listener not in listeners:
            yield f"{setting.origin}: {key} has no effect: there is no listener {listener}"
        elif not key.startswith(prefix):
            yield f"{setting.origin}: {key} has no effect: write it as {prefix}{key[len(prefix) :]}"
