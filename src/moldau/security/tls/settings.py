"""The ssl.* settings of one listener or client, with Kafka's names, defaults and rules for what excludes what.

Only texts are checked here; `stores` and `context` read the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from moldau.base.config_def import ConfigDef, ConfigValue
from moldau.base.settings import accepted, security
from moldau.security.tls.mapping_rules import MappingRules

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
PEM: Final = "PEM"
STORE_TYPES: Final = (PEM, "PKCS12", "JKS")
CLIENT_AUTH: Final = ("none", "requested", "required")
NO_PASSWORD: Final = "set ssl.keystore.password too; or ssl.keystore.type=PEM, if it is a PEM file"
NOT_SUPPORTED: Final = (accepted.SSL_ENGINE_FACTORY_CLASS, accepted.SSL_PROVIDER)
"""Names of Java classes: to ignore them could mean less protection than the operator asked for."""


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the certificates are: in a file, or in the settings as PEM."""

    prefix: str
    """ssl.keystore or ssl.truststore, for errors."""
    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key_pem: str | None = field(default=None, repr=False)
    certificates_pem: str | None = field(default=None, repr=False)

    @property
    def is_set(self) -> bool:
        return self.location is not None or self.certificates_pem is not None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    key_store: StoreSettings
    trust_store: StoreSettings
    protocol: str
    enabled_protocols: tuple[str, ...]
    cipher_suites: tuple[str, ...]
    client_auth: str
    checks_host: bool
    mapping_rules: MappingRules
    allow_dn_changes: bool
    allow_san_changes: bool

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(store.location for store in (self.key_store, self.trust_store) if store.location is not None)


ValueOf = Callable[[str], ConfigValue]
"""Returns the value of a key, or its default."""
ErrorFor = Callable[[str, str], Exception]
"""Returns the error for a key with a reason."""


def read_tls(value_of: ValueOf, error: ErrorFor, *, is_server: bool) -> TlsSettings:
    """Read the settings. Raise what `error` returns for the first one that is invalid."""
    reader = _Reader(value_of, error)
    for key in NOT_SUPPORTED:
        if reader.text(key):
            raise reader.error(key, "not supported; remove it")
    key_store, trust_store = reader.key_store(), reader.trust_store()
    if is_server and not key_store.is_set:
        raise reader.error(
            security.SSL_KEYSTORE_LOCATION, "a listener with TLS needs a key and a certificate; set this key"
        )
    protocol = reader.choice(security.SSL_PROTOCOL, ("TLS", *PROTOCOLS))
    enabled = reader.items(security.SSL_ENABLED_PROTOCOLS) or PROTOCOLS
    for name in enabled:
        if name not in PROTOCOLS:
            raise reader.error(
                security.SSL_ENABLED_PROTOCOLS, f"{name} is not supported; expected {' or '.join(PROTOCOLS)}"
            )
    # `context` leaves out 1.3 if this is TLSv1.2; TLS and TLSv1.3 allow both, as in Java
    if protocol == "TLSv1.2" and "TLSv1.2" not in enabled:
        raise reader.error(security.SSL_PROTOCOL, "is not one of ssl.enabled.protocols")
    algorithm = (reader.text(security.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM) or "").lower()
    if algorithm not in ("https", ""):
        raise reader.error(
            security.SSL_ENDPOINT_IDENTIFICATION_ALGORITHM, "expected https, or nothing for no check of host names"
        )
    return TlsSettings(
        key_store=key_store,
        trust_store=trust_store,
        protocol=protocol,
        enabled_protocols=enabled,
        cipher_suites=reader.items(security.SSL_CIPHER_SUITES),
        client_auth=reader.choice(security.SSL_CLIENT_AUTH, CLIENT_AUTH) if is_server else "none",
        checks_host=algorithm == "https",
        mapping_rules=reader.mapping_rules() if is_server else MappingRules(),
        allow_dn_changes=is_server and reader.boolean(security.SSL_ALLOW_DN_CHANGES),
        allow_san_changes=is_server and reader.boolean(security.SSL_ALLOW_SAN_CHANGES),
    )


class _Reader:
    def __init__(self, value_of: ValueOf, error: ErrorFor) -> None:
        self._value_of = value_of
        self._error = error

    def error(self, key: ConfigDef, reason: str) -> Exception:
        return self._error(key.name, reason)

    def boolean(self, key: ConfigDef) -> bool:
        return self._value_of(key.name) is True

    def text(self, key: ConfigDef) -> str | None:
        value = self._value_of(key.name)
        assert value is None or isinstance(value, str), f"{key} is no string"
        return value or None

    def items(self, key: ConfigDef) -> tuple[str, ...]:
        value = self._value_of(key.name)
        assert value is None or isinstance(value, tuple), f"{key} is no list"
        return value or ()

    def choice(self, key: ConfigDef, choices: tuple[str, ...]) -> str:
        text = self.text(key) or choices[0]
        if text not in choices:
            raise self.error(key, f"expected one of {', '.join(choices)}")
        return text

    def mapping_rules(self) -> MappingRules:
        key = security.SSL_PRINCIPAL_MAPPING_RULES
        try:
            return MappingRules(self.text(key) or "")
        except ValueError as wrong:
            raise self.error(key, str(wrong)) from None

    def key_store(self) -> StoreSettings:
        kind = self._store_type(security.SSL_KEYSTORE_TYPE)
        location, password = self.text(security.SSL_KEYSTORE_LOCATION), self.text(security.SSL_KEYSTORE_PASSWORD)
        key, chain = self.text(security.SSL_KEYSTORE_KEY), self.text(security.SSL_KEYSTORE_CERTIFICATE_CHAIN)
        if key is not None:
            self._require(kind == "PEM", security.SSL_KEYSTORE_KEY, "can be set only with ssl.keystore.type=PEM")
            self._require(chain is not None, security.SSL_KEYSTORE_KEY, "set ssl.keystore.certificate.chain too")
            self._require(
                location is None, security.SSL_KEYSTORE_LOCATION, "excludes ssl.keystore.key; set one of them"
            )
        elif chain is not None:
            raise self.error(security.SSL_KEYSTORE_CERTIFICATE_CHAIN, "set ssl.keystore.key too")
        if kind == "PEM":
            self._require(
                password is None,
                security.SSL_KEYSTORE_PASSWORD,
                "has no meaning with PEM; the password of the key is ssl.key.password",
            )
        elif location is None:
            self._require(password is None, security.SSL_KEYSTORE_PASSWORD, "set ssl.keystore.location too")
        else:
            self._require(password is not None, security.SSL_KEYSTORE_LOCATION, NO_PASSWORD)
        key_password = self.text(security.SSL_KEY_PASSWORD)
        return StoreSettings("ssl.keystore", kind, location, password, key_password, key, chain)

    def trust_store(self) -> StoreSettings:
        kind = self._store_type(security.SSL_TRUSTSTORE_TYPE)
        location, password = self.text(security.SSL_TRUSTSTORE_LOCATION), self.text(security.SSL_TRUSTSTORE_PASSWORD)
        certificates = self.text(security.SSL_TRUSTSTORE_CERTIFICATES)
        if certificates is not None:
            self._require(
                kind == "PEM", security.SSL_TRUSTSTORE_CERTIFICATES, "can be set only with ssl.truststore.type=PEM"
            )
            self._require(
                location is None,
                security.SSL_TRUSTSTORE_LOCATION,
                "excludes ssl.truststore.certificates; set one of them",
            )
        if kind == "PEM":
            self._require(password is None, security.SSL_TRUSTSTORE_PASSWORD, "has no meaning with PEM")
        elif location is None:
            self._require(password is None, security.SSL_TRUSTSTORE_PASSWORD, "set ssl.truststore.location too")
        return StoreSettings("ssl.truststore", kind, location, password, certificates_pem=certificates)

    def _store_type(self, key: ConfigDef) -> str:
        kind = (self.text(key) or str(key.default)).upper()
        if kind not in STORE_TYPES:
            raise self.error(key, f"expected one of {', '.join(STORE_TYPES)}")
        return kind

    def _require(self, is_met: bool, key: ConfigDef, reason: str) -> None:
        if not is_met:
            raise self.error(key, reason)
