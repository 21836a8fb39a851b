"""The ssl.* settings of one listener or client, with Kafka's names, defaults and rules for what excludes what.

Only texts are checked here; `stores` and `context` read the files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from moldau.base.config_def import ConfigValue
from moldau.security.tls.mapping_rules import MappingRules

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")
PEM: Final = "PEM"
STORE_TYPES: Final = (PEM, "PKCS12", "JKS")
CLIENT_AUTH: Final = ("none", "requested", "required")
NO_PASSWORD: Final = "set ssl.keystore.password too; or ssl.keystore.type=PEM, if it is a PEM file"
NOT_SUPPORTED: Final = ("ssl.engine.factory.class", "ssl.provider")
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
            raise error(key, "not supported; remove it")
    key_store, trust_store = reader.key_store(), reader.trust_store()
    if is_server and not key_store.is_set:
        raise error("ssl.keystore.location", "a listener with TLS needs a key and a certificate; set this key")
    protocol = reader.choice("ssl.protocol", ("TLS", *PROTOCOLS))
    enabled = reader.items("ssl.enabled.protocols") or PROTOCOLS
    for name in enabled:
        if name not in PROTOCOLS:
            raise error("ssl.enabled.protocols", f"{name} is not supported; expected {' or '.join(PROTOCOLS)}")
    # `context` leaves out 1.3 if this is TLSv1.2; TLS and TLSv1.3 allow both, as in Java
    if protocol == "TLSv1.2" and "TLSv1.2" not in enabled:
        raise error("ssl.protocol", "is not one of ssl.enabled.protocols")
    algorithm = (reader.text("ssl.endpoint.identification.algorithm") or "").lower()
    if algorithm not in ("https", ""):
        raise error("ssl.endpoint.identification.algorithm", "expected https, or nothing for no check of host names")
    return TlsSettings(
        key_store=key_store,
        trust_store=trust_store,
        protocol=protocol,
        enabled_protocols=enabled,
        cipher_suites=reader.items("ssl.cipher.suites"),
        client_auth=reader.choice("ssl.client.auth", CLIENT_AUTH) if is_server else "none",
        checks_host=algorithm == "https",
        mapping_rules=reader.mapping_rules() if is_server else MappingRules(),
        allow_dn_changes=is_server and value_of("ssl.allow.dn.changes") is True,
        allow_san_changes=is_server and value_of("ssl.allow.san.changes") is True,
    )


class _Reader:
    def __init__(self, value_of: ValueOf, error: ErrorFor) -> None:
        self._value_of = value_of
        self._error = error

    def text(self, key: str) -> str | None:
        value = self._value_of(key)
        assert value is None or isinstance(value, str), f"{key} is no string"
        return value or None

    def items(self, key: str) -> tuple[str, ...]:
        value = self._value_of(key)
        assert value is None or isinstance(value, tuple), f"{key} is no list"
        return value or ()

    def choice(self, key: str, choices: tuple[str, ...]) -> str:
        text = self.text(key) or choices[0]
        if text not in choices:
            raise self._error(key, f"expected one of {', '.join(choices)}")
        return text

    def mapping_rules(self) -> MappingRules:
        key = "ssl.principal.mapping.rules"
        try:
            return MappingRules(self.text(key) or "")
        except ValueError as wrong:
            raise self._error(key, str(wrong)) from None

    def key_store(self) -> StoreSettings:
        kind = self._store_type("ssl.keystore.type")
        location, password = self.text("ssl.keystore.location"), self.text("ssl.keystore.password")
        key, chain = self.text("ssl.keystore.key"), self.text("ssl.keystore.certificate.chain")
        if key is not None:
            self._require(kind == "PEM", "ssl.keystore.key", "can be set only with ssl.keystore.type=PEM")
            self._require(chain is not None, "ssl.keystore.key", "set ssl.keystore.certificate.chain too")
            self._require(location is None, "ssl.keystore.location", "excludes ssl.keystore.key; set one of them")
        elif chain is not None:
            raise self._error("ssl.keystore.certificate.chain", "set ssl.keystore.key too")
        if kind == "PEM":
            self._require(
                password is None,
                "ssl.keystore.password",
                "has no meaning with PEM; the password of the key is ssl.key.password",
            )
        elif location is None:
            self._require(password is None, "ssl.keystore.password", "set ssl.keystore.location too")
        else:
            self._require(password is not None, "ssl.keystore.location", NO_PASSWORD)
        key_password = self.text("ssl.key.password")
        return StoreSettings("ssl.keystore", kind, location, password, key_password, key, chain)

    def trust_store(self) -> StoreSettings:
        kind = self._store_type("ssl.truststore.type")
        location, password = self.text("ssl.truststore.location"), self.text("ssl.truststore.password")
        certificates = self.text("ssl.truststore.certificates")
        if certificates is not None:
            self._require(kind == "PEM", "ssl.truststore.certificates", "can be set only with ssl.truststore.type=PEM")
            self._require(
                location is None, "ssl.truststore.location", "excludes ssl.truststore.certificates; set one of them"
            )
        if kind == "PEM":
            self._require(password is None, "ssl.truststore.password", "has no meaning with PEM")
        elif location is None:
            self._require(password is None, "ssl.truststore.password", "set ssl.truststore.location too")
        return StoreSettings("ssl.truststore", kind, location, password, certificates_pem=certificates)

    def _store_type(self, key: str) -> str:
        kind = (self.text(key) or "JKS").upper()
        if kind not in STORE_TYPES:
            raise self._error(key, f"expected one of {', '.join(STORE_TYPES)}")
        return kind

    def _require(self, is_met: bool, key: str, reason: str) -> None:
        if not is_met:
            raise self._error(key, reason)
