"""What the console was started with, and the client properties of a user who logs in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from moldau.base.errors import UnusableProperty
from moldau.web.hosts import is_loopback

MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""Those that need only a user and a password."""
CREDENTIAL_LENGTH_MAX: Final = 500
"""Of a user's name, and of a password."""
CERTIFICATES: Final = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
CREDENTIALS: Final = ("sasl.jaas.config", "sasl.username", "sasl.password")


@dataclass(frozen=True, slots=True)
class ConsoleOptions:
    bootstrap: str
    properties: Mapping[str, str] = field(repr=False, default_factory=dict)
    """How to reach the cluster; may have passwords."""
    host: str = "localhost"
    port: int = 8080
    read_only: bool = False
    asks_login: bool = True
    """Whether users log in, if the cluster's listener has SASL. If not, everybody acts as the user of
    `properties`."""
    allowed_hosts: frozenset[str] = frozenset()
    metrics: tuple[str, ...] = ()
    pipelines: tuple[str, ...] = ()
    certificate: str | None = None
    key: str | None = None

    @property
    def login_required(self) -> bool:
        return self.asks_login and self.properties.get("security.protocol", "").upper().startswith("SASL")

    @property
    def is_shared_certificate(self) -> bool:
        """Whether everybody acts as the owner of the console's certificate."""
        is_ssl = self.properties.get("security.protocol", "").upper() == "SSL"
        return is_ssl and any(name in self.properties for name in CERTIFICATES)

    def access_problem(self, has_authorizer: Callable[[], bool]) -> str | None:
        """Why this console changes no users, ACLs and quotas; None if it does. Whoever reaches it must not get rights
        that the cluster gives to nobody but the console. `--no-login` says that this is meant."""
        if self.login_required or not self.asks_login:
            return None
        if self.is_shared_certificate:
            reason = "everybody who reaches it acts as the owner of its certificate"
        elif has_authorizer():
            reason = "nobody logs in to it, and the cluster has an authorizer"
        else:
            return None
        return f"This console changes no users, ACLs and quotas: {reason}. Start it with `--no-login` if that is meant."

    @property
    def host_names(self) -> frozenset[str]:
        """The names under which browsers may reach this console."""
        return self.allowed_hosts | {self.host.lower()}

    @property
    def is_tls(self) -> bool:
        return self.certificate is not None

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The mechanisms to offer: the one that the properties name, if it takes a user and a password; else all."""
        named = self.properties.get("sasl.mechanism", self.properties.get("sasl.mechanisms", "")).upper()
        return (named,) if named in MECHANISMS else MECHANISMS

    @property
    def cookie(self) -> str:
        """The name of the session's cookie. Browsers send cookies to all ports of a host: each console has its own."""
        return f"moldau_console_{self.port}"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_tls else 'http'}://{host}:{self.port}/"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach the console."""
        return is_loopback(self.host)

    @property
    def passwords_problem(self) -> str | None:
        """Why this console takes no new passwords for users; None if it does."""
        if self.is_local or self.is_tls:
            return None
        return (
            "this console takes no new passwords: they would cross the network unencrypted. Start it with"
            " `--tls-certificate` and `--tls-key`, or let it listen on localhost"
        )


def properties_of(options: ConsoleOptions, user: str, password: str, mechanism: str) -> dict[str, str]:
    """Return the client properties of a user who logs in: the way to the cluster is the console's, the rest theirs."""
    if mechanism not in options.mechanisms:
        raise UnusableProperty(f"mechanism: expected one of {', '.join(options.mechanisms)}")
    shared = {name: value for name, value in options.properties.items() if name not in CREDENTIALS}
    shared.pop("sasl.mechanisms", None)
    return {**shared, "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
