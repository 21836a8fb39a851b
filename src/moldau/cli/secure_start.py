"""`moldau start --secure`: sets security up at the first start, and renews the certificate while the broker runs.

What --secure sets is like a default: a file, a variable or --override may change it, but not to a listener that lets
somebody in without a password. Import nothing here that a plain start does not need.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from moldau.base.listeners import WILDCARD_HOSTS
from moldau.base.setting_sources import SettingsError, SettingText
from moldau.cli.secure_options import connect_lines
from moldau.secure_setup.directory import SecureDirectory
from moldau.secure_setup.problems import SetupFailed
from moldau.secure_setup.settings import CLIENTS_LISTENER
from moldau.settings import Settings, from_texts, log_dirs

log = logging.getLogger("moldau.start")

DEFAULT_LISTENERS: Final = f"{CLIENTS_LISTENER}://0.0.0.0:9092"
ORIGIN: Final = "--secure"
RENEWAL_CHECK_S: Final = 3600.0


class SecureStart:
    """One start of a secured node."""

    def __init__(
        self, texts: Mapping[str, SettingText], environ: Mapping[str, str], more_hosts: Sequence[str] = ()
    ) -> None:
        """`texts` are the settings from all other sources, `more_hosts` names for the certificate."""
        self._texts = texts
        self._environ = environ
        self._more_hosts = more_hosts
        self._directory = SecureDirectory(Path(log_dirs(texts)[0]))
        self._hosts: tuple[str, ...] = ()
        self._password: str | None = None

    def prepare(self) -> Settings:
        """Return the settings; make or renew the files that they name. Raise SettingsError if that cannot be done."""
        secured = {"listeners": DEFAULT_LISTENERS, **self._directory.node_properties()}
        defaults = {key: SettingText(text, ORIGIN) for key, text in secured.items()}
        settings = from_texts({**defaults, **self._texts}, self._environ)
        check_is_secured(settings)
        self._hosts = (*certificate_hosts(settings), *self._more_hosts)
        now = datetime.now(UTC)
        try:
            if self._directory.is_set_up:
                self._directory.renew_if_due(self._hosts, now)
            else:
                self._password = self._directory.set_up(self._hosts, [Path(settings.log_dirs[0])], now)
        except SetupFailed as failed:
            raise SettingsError(f"{ORIGIN}: {failed}") from failed
        return settings

    def announce(self, line: str, address: str) -> None:
        """Print that the node is ready, and how to connect; watch the certificate from now on."""
        print(line)
        for each in connect_lines(address, self._directory.client_file, self._password, sys.stdout.isatty()):
            print(each)
        sys.stdout.flush()
        self._password = None
        threading.Thread(target=self._renew_for_ever, name="certificate renewal", daemon=True).start()

    def _renew_for_ever(self) -> None:
        """The node itself notices the new file."""
        pause = threading.Event()
        while not pause.wait(RENEWAL_CHECK_S):
            try:
                self._directory.renew_if_due(self._hosts, datetime.now(UTC))
            except SetupFailed as failed:
                log.error("the node's certificate cannot be renewed: %s", failed)


def check_is_secured(settings: Settings) -> None:
    """Raise SettingsError if a setting takes back what --secure promises."""
    for listener in settings.listeners:
        tls = settings.tls.get(listener.name)
        has_login = listener.security_protocol == "SASL_SSL" or (tls is not None and tls.client_auth == "required")
        if tls is None or not has_login:
            raise SettingsError(
                f"{ORIGIN}: listener {listener} lets clients in without TLS and a password; remove it, or give it the"
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
