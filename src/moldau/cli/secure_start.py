"""`moldau start --secure`: sets security up at the first start, and renews the certificate while the broker runs. If
client.properties is missing, the node logs in to itself and gives the admin user a new password (`Recovery`).

What --secure sets is like a default: a file, a variable or --override may change it, but not to a listener without TLS
or without authentication.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moldau.base.listeners import WILDCARD_HOSTS, Listener
from moldau.base.setting_sources import SettingsError, SettingText
from moldau.base.settings.node import ADVERTISED_LISTENERS, LISTENERS
from moldau.base.settings.security import DELEGATION_TOKEN_SECRET_KEY, SASL_ENABLED_MECHANISMS, SASL_JAAS_CONFIG
from moldau.cli.admin_password import renew_admin_password
from moldau.cli.secure_options import connect_lines
from moldau.secure_setup.directory import SecureDirectory
from moldau.secure_setup.first_users import new_password
from moldau.secure_setup.problems import SetupFailed
from moldau.secure_setup.settings import (
    ADMIN,
    CLIENTS_LISTENER,
    advertised_again,
    client_properties,
    name_to_keep,
)
from moldau.security.sasl.jaas import PLAIN_MODULE
from moldau.security.sasl.mechanism import PLAIN
from moldau.security.sasl.settings import jaas_key
from moldau.settings import Settings, from_texts, log_dirs

log = logging.getLogger("moldau.start")

DEFAULT_LISTENERS: Final = f"{CLIENTS_LISTENER}://0.0.0.0:9092"
ORIGIN: Final = "--secure"
ADVERTISE_ORIGIN: Final = "--advertise"
ADVERTISED: Final = ADVERTISED_LISTENERS.name
KEPT_ADVERTISE: Final = "advertise"
"""The advertised name in secure.properties."""
PLAIN_JAAS: Final = jaas_key(CLIENTS_LISTENER, PLAIN)
CLIENTS_MECHANISMS: Final = f"listener.name.{CLIENTS_LISTENER.lower()}.{SASL_ENABLED_MECHANISMS.name}"
RENEWAL_CHECK_S: Final = 3600.0


class SecureStart:
    """One start of a secured node."""

    def __init__(
        self,
        texts: Mapping[str, SettingText],
        environ: Mapping[str, str],
        more_hosts: Sequence[str],
        start_others: Callable[[Listener, Listener | None, Path], None],
    ) -> None:
        """`texts` are the settings from all other sources, `more_hosts` names for the certificate. `start_others` gets
        the node's listener, that of its metrics, and client.properties, after a lost file was made again."""
        self._texts = texts
        self._environ = environ
        self._more_hosts = more_hosts
        self._start_others = start_others
        self._directory = SecureDirectory(Path(log_dirs(texts)[0]))
        self._hosts: tuple[str, ...] = ()
        self._password: str | None = None
        self._recovery: Recovery | None = None
        self._listeners: Mapping[str, Listener] = {}

    def prepare(self) -> Settings:
        """Return the settings; make or renew the files that they name. Raise SettingsError if that cannot be done."""
        try:
            texts = {**secured_defaults(self._directory, self._texts), **self._texts}
            is_set_up = self._directory.is_set_up
            if is_set_up and not self._directory.client_file.exists() and Recovery.is_possible(texts):
                self._recovery = Recovery(new_password())
                texts |= self._recovery.texts(texts)
            settings = from_texts(texts, self._environ)
            _check_and_add_warnings(settings)
            self._hosts = (*certificate_hosts(settings), *self._more_hosts)
            now = datetime.now(UTC)
            if is_set_up:
                self._directory.renew_if_due(self._hosts, now)
            else:
                self._password = self._directory.set_up(self._hosts, [Path(settings.log_dirs[0])], now)
            self._directory.keep(values_to_keep(texts, settings.listeners[0].port))
        except SetupFailed as failed:
            raise SettingsError(f"{ORIGIN}: {failed}") from failed
        self._listeners = {each.name: each for each in settings.listeners}
        return settings

    def announce(self, line: str, listener: Listener, metrics: Listener | None) -> None:
        """Print that the node is ready, and how to connect; watch the certificate from now on."""
        print(line, flush=True)
        if self._recovery is None and self._directory.client_file.exists():
            self._print_how_to_connect(listener.address)
        elif self._recovery is None:
            print(
                f"{self._directory.client_file} is missing. It is made again by a start with a listener"
                f" {CLIENTS_LISTENER} and without the setting {PLAIN_JAAS}.",
                flush=True,
            )
        if self._recovery is None:
            self._start_others(listener, metrics, self._directory.client_file)
        arguments = (listener, metrics)
        watching = threading.Thread(target=self._watch, args=arguments, name="certificate renewal", daemon=True)
        watching.start()

    def _print_how_to_connect(self, address: str) -> None:
        for each in connect_lines(address, self._directory.client_file, self._password, sys.stdout.isatty()):
            print(each)
        sys.stdout.flush()
        self._password = None

    def _watch(self, listener: Listener, metrics: Listener | None) -> None:
        """Make client.properties again if it is missing, then look hourly whether the certificate must be renewed. The
        node itself notices the new certificate."""
        if self._recovery is not None:
            self._renew_password(self._recovery, listener.address)
            self._start_others(listener, metrics, self._directory.client_file)
        while True:
            time.sleep(RENEWAL_CHECK_S)
            try:
                self._directory.renew_if_due(self._hosts, datetime.now(UTC), is_running=True)
            except SetupFailed as failed:
                log.error("the node's certificate cannot be renewed: %s", failed)

    def _renew_password(self, recovery: Recovery, address: str) -> None:
        try:
            own = recovery.address(self._listeners[CLIENTS_LISTENER], address)
            properties = recovery.client_properties(self._directory.authority)
            self._password = renew_admin_password(own, properties, self._directory)
        except SetupFailed as failed:
            log.error("%s", failed)
        else:
            self._print_how_to_connect(address)


def secured_defaults(directory: SecureDirectory, texts: Mapping[str, SettingText]) -> dict[str, SettingText]:
    """Return the defaults of --secure, with the name that an earlier start advertised. `texts` are the settings from
    other sources, which precede."""
    secured = {
        LISTENERS.name: DEFAULT_LISTENERS,
        **directory.node_properties(directory.token_key() or new_password()),
    }
    listeners = texts[LISTENERS.name].text if LISTENERS.name in texts else DEFAULT_LISTENERS
    name = directory.kept().get(KEPT_ADVERTISE)
    if name is not None and (advertised := advertised_again(listeners, name)) is not None:
        secured[ADVERTISED] = advertised
    return {key: SettingText(text, ORIGIN) for key, text in secured.items()}


def values_to_keep(texts: Mapping[str, SettingText], port: int) -> dict[str, str]:
    """Return what later starts need: the key of delegation tokens if it is ours, and the name of --advertise."""
    kept = (
        {DELEGATION_TOKEN_SECRET_KEY.name: texts[DELEGATION_TOKEN_SECRET_KEY.name].text}
        if texts[DELEGATION_TOKEN_SECRET_KEY.name].origin == ORIGIN
        else {}
    )
    if ADVERTISED in texts and texts[ADVERTISED].origin == ADVERTISE_ORIGIN:
        kept[KEPT_ADVERTISE] = name_to_keep(texts[ADVERTISED].text, port)
    return kept


@dataclass(frozen=True, slots=True)
class Recovery:
    """How the node itself logs in as the admin user whose password is lost: with PLAIN and a random password that
    nobody else knows, until the next start."""

    password: str = field(repr=False)

    @staticmethod
    def is_possible(texts: Mapping[str, SettingText]) -> bool:
        """Return whether the settings leave room for this login: our listener for clients, without a JAAS config of
        PLAIN."""
        names = [each.partition("://")[0].strip().upper() for each in texts[LISTENERS.name].text.split(",")]
        return PLAIN_JAAS not in texts and CLIENTS_LISTENER in names

    def texts(self, texts: Mapping[str, SettingText]) -> dict[str, SettingText]:
        """Return the settings that allow this login beside those there are."""
        enabled = texts.get(CLIENTS_MECHANISMS, texts[SASL_ENABLED_MECHANISMS.name]).text
        settings = {
            CLIENTS_MECHANISMS: f"{enabled},{PLAIN}",
            PLAIN_JAAS: f'{PLAIN_MODULE} required user_{ADMIN}="{self.password}";',
        }
        return {key: SettingText(text, ORIGIN) for key, text in settings.items()}

    def address(self, listener: Listener, advertised: str) -> str:
        """Return where to reach the listener from this machine. If its port is 0, the port is that of `advertised`."""
        port = listener.port or int(advertised.rpartition(":")[2])
        return listener.on_this_machine._replace(port=port).address

    def client_properties(self, authority: str) -> dict[str, str]:
        jaas = f'{PLAIN_MODULE} required username="{ADMIN}" password="{self.password}";'
        return {
            **client_properties(ADMIN, "", authority),
            "sasl.mechanism": PLAIN,
            SASL_JAAS_CONFIG.name: jaas,
        }


def _check_and_add_warnings(settings: Settings) -> None:
    try:
        check_is_secured(settings)
    except SettingsError as wrong:
        wrong.warnings = settings.warnings
        raise


def check_is_secured(settings: Settings) -> None:
    """Raise SettingsError if a setting takes back what --secure promises."""
    for listener in settings.listeners:
        tls = settings.tls.get(listener.name)
        has_login = listener.security_protocol == "SASL_SSL" or (tls is not None and tls.client_auth == "required")
        if tls is None or not has_login:
            raise SettingsError(
                f"{ORIGIN}: listener {listener} does not demand both TLS and authentication; remove it, or give it the"
                " protocol SASL_SSL"
            )
    if not settings.authorizer.is_enabled:
        raise SettingsError(f"{ORIGIN}: authorizer.class.name must not be empty")
    if not settings.is_alone:
        raise SettingsError(
            f"{ORIGIN}: these settings are of a cluster; `moldau cluster start --secure` makes one on this machine,"
            " docs/security.md says how to secure others"
        )


def certificate_hosts(settings: Settings) -> list[str]:
    """Return the hosts by which clients know the node."""
    hosts = [listener.host for listener in (*settings.listeners, *settings.advertised_listeners)]
    return [host for host in dict.fromkeys(hosts) if host not in WILDCARD_HOSTS]
