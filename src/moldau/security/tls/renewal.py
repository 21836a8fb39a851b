"""The TLS of one listener: its contexts, made again when the files or the settings change, and the principals of its
clients.

Connections keep the context that they began with. A renewed certificate has to be for the same node: its subject is
the same, and it has all old alternative names. A file that cannot be used leaves everything as it was; at a start, when
nothing was in use yet, there is no context until it can be used.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from moldau.base.setting_sources import SettingsError
from moldau.security.principals import ANONYMOUS, USER, Principal
from moldau.security.tls.context import (
    OWN_TRUST,
    SYSTEM_TRUST,
    Stores,
    check_handshake,
    client_context,
    read_stores,
    server_context,
)
from moldau.security.tls.names import alternative_names, subject
from moldau.security.tls.settings import TlsSettings
from moldau.security.tls.stores import KeyFiles


@dataclass(frozen=True, slots=True)
class Contexts:
    settings: TlsSettings
    server: ssl.SSLContext | None
    client: ssl.SSLContext
    stores: Stores
    versions: tuple[object, ...]
    """Of the files, taken before they were read."""


class NoContextYet(ConnectionError):
    """The dynamic configs of a listener could not be used since the start. The properties file might protect less."""


class ListenerTls:
    def __init__(
        self,
        listener: str,
        settings: TlsSettings,
        files: KeyFiles,
        *,
        is_server: bool = True,
        is_internal: bool = False,
    ) -> None:
        """Without `is_server` this node only connects to the listener. The nodes of a cluster use an internal listener
        among each other, so the node must accept its own certificate. Raise SettingsError if a file cannot be used."""
        self.listener = listener
        self._files = files
        self._is_server = is_server
        self._is_internal = is_internal
        self._static = settings
        self._wanted: TlsSettings | None = settings
        """None if the dynamic configs cannot be read."""
        self._is_closed = False
        """Whether the dynamic configs of the start are not in use yet."""
        self._reported = ""
        """Why it is closed."""
        try:
            self._contexts = self._load(settings)
        except SettingsError as wrong:
            raise SettingsError(f"listener {listener}: {wrong}") from None
        self._seen: tuple[TlsSettings, tuple[object, ...]] = settings, self._contexts.versions
        """The settings and the versions of their files that were tried last."""

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that are accepted from now on. Raise NoContextYet."""
        self._require_open()
        assert self._contexts.server is not None, "this node does not listen there"
        return self._contexts.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections to other nodes that are opened from now on. Raise NoContextYet."""
        self._require_open()
        return self._contexts.client

    def _require_open(self) -> None:
        if self._is_closed:
            raise NoContextYet(f"listener {self.listener} waits until its dynamic configs of TLS can be used")

    def principal(self, certificate: bytes | None) -> Principal:
        """Return who a client with this certificate (in DER) is. Raise NoRuleApplies or MalformedData if nobody."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._contexts.settings.mapping_rules.user(subject(certificate)))

    def begin(self, settings: TlsSettings | None) -> None:
        """At a start, before the listener is open: use these settings instead of those of the properties file, None if
        they cannot be read. Until they have been loaded once there is no context."""
        self._wanted = settings
        self._is_closed = settings != self._contexts.settings

    def want(self, settings: TlsSettings) -> None:
        """From the next `reload_if_changed` on, use these settings."""
        self._wanted = settings

    def check(self, settings: TlsSettings) -> None:
        """Raise SettingsError if these settings could not replace those in use. Nothing changes. Waits for the disk.

        The nodes of a cluster change one after the other. On an internal listener a new certificate must be trusted
        with the trust store in use, which the others have, and the certificate in use with a new trust store."""
        new, old = self._load(settings), self._contexts
        if self._is_closed:
            return  # nothing is in use
        self._check_names(new)
        if self._is_internal and new.server is not None and old.server is not None:
            # A context of its own: to check it changes it for a moment, and that in use belongs to new connections.
            check_handshake(new.server, client_context(old.settings, old.stores, self._files), "the trust store in use")
            check_handshake(old.server, new.client, "the new trust store", "the certificate in use")

    def reload_if_changed(self) -> str | None:
        """Make new contexts if a file or the settings have changed; return a line for the log if so. Waits for the
        disk: a thread calls it. Raise SettingsError if the new ones cannot be used; they are then not tried again
        before the next change, unless there is no context yet: then each reason is reported once."""
        wanted = self._wanted
        if wanted is None:
            return None
        seen = wanted, self._file_versions(wanted)
        if seen == self._seen and not self._is_closed:
            return None
        is_other = self._is_closed or wanted != self._contexts.settings
        self._seen = seen
        try:
            new = self._load(wanted)
            if not self._is_closed:  # no client has seen the certificate of the properties file since the start
                self._check_names(new)
        except SettingsError as wrong:
            if self._is_closed:
                self._report_closed(wrong)
                return None
            what = "the dynamic configs" if is_other else "the new ones"
            raise SettingsError(
                f"listener {self.listener}: the old certificates stay in use, {what} cannot be used: {wrong}"
            ) from None
        self._seen = wanted, new.versions
        self._contexts = new
        self._is_closed, self._reported = False, ""
        what = "changed configs" if is_other else "renewed certificates"
        return f"listener {self.listener}: {what} are in use for new connections"

    def _report_closed(self, wrong: SettingsError) -> None:
        if str(wrong) == self._reported:
            return
        self._reported = str(wrong)
        raise SettingsError(self.closed_line(wrong))

    def closed_line(self, wrong: SettingsError) -> str:
        """Return the line for the log about a listener whose dynamic configs cannot be used at a start."""
        both_ways = ", and this broker opens none to other brokers," if self._is_internal else ""
        return (
            f"listener {self.listener}: no connections are accepted{both_ways} until the dynamic configs can be used:"
            f" {wrong}"
        )

    def _load(self, settings: TlsSettings) -> Contexts:
        versions = self._file_versions(settings)
        stores = read_stores(settings, self._files)
        server = server_context(settings, stores, self._files) if self._is_server else None
        client = client_context(settings, stores, self._files)
        if server is not None and self._is_internal:
            check_handshake(server, client, OWN_TRUST if settings.trust_store.is_set else SYSTEM_TRUST)
        return Contexts(settings, server, client, stores, versions)

    def _file_versions(self, settings: TlsSettings) -> tuple[object, ...]:
        return tuple(self._files.version(path) for path in settings.files)

    def _check_names(self, new: Contexts) -> None:
        """Raise SettingsError if the certificate is for another node than that in use. The key store of the properties
        file can always be returned to."""
        old, settings = self._contexts.stores, new.settings
        if settings.key_store == self._static.key_store != self._contexts.settings.key_store:
            return
        if old.keys is None or new.stores.keys is None:
            return
        old_certificate, new_certificate = old.keys.certificate, new.stores.keys.certificate
        old_subject, new_subject = subject(old_certificate), subject(new_certificate)
        if not settings.allow_dn_changes and old_subject.lower() != new_subject.lower():
            raise SettingsError(
                f"the subject is {new_subject} instead of {old_subject}; if this is intended, set"
                " ssl.allow.dn.changes=true and restart"
            )
        missing = alternative_names(old_certificate) - alternative_names(new_certificate)
        if not settings.allow_san_changes and missing:
            raise SettingsError(
                f"the subject alternative names lack {', '.join(sorted(missing))}; if this is intended, set"
                " ssl.allow.san.changes=true and restart"
            )
