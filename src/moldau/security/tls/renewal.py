"""The TLS of one listener: its contexts, made again when the files change, and the principals of its clients.

Connections keep the context that they began with. A renewed certificate has to be for the same node: its subject is
the same, and it has all old alternative names. A file that cannot be used leaves everything as it was.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from moldau.base.setting_sources import SettingsError
from moldau.security.principals import ANONYMOUS, USER, Principal
from moldau.security.tls.context import Stores, check_handshake, client_context, read_stores, server_context
from moldau.security.tls.names import alternative_names, subject
from moldau.security.tls.settings import TlsSettings
from moldau.security.tls.stores import KeyFiles


@dataclass(frozen=True, slots=True)
class Contexts:
    server: ssl.SSLContext | None
    client: ssl.SSLContext
    stores: Stores
    versions: tuple[object, ...]
    """Of the files, taken before they were read."""


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
        self._settings = settings
        self._files = files
        self._is_server = is_server
        self._is_internal = is_internal
        try:
            self._contexts = self._load()
        except SettingsError as wrong:
            raise SettingsError(f"listener {listener}: {wrong}") from None
        self._versions_seen = self._contexts.versions

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that are accepted from now on."""
        assert self._contexts.server is not None, "this node does not listen there"
        return self._contexts.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections to other nodes that are opened from now on."""
        return self._contexts.client

    def principal(self, certificate: bytes | None) -> Principal:
        """Return who a client with this certificate (in DER) is. Raise NoRuleApplies or MalformedData if nobody."""
        if certificate is None:
            return ANONYMOUS
        return Principal(USER, self._settings.mapping_rules.user(subject(certificate)))

    def reload_if_changed(self) -> str | None:
        """Make new contexts if a file has changed; return a line for the log if so. Waits for the disk: a thread calls
        it. Raise SettingsError if a new file cannot be used; it is then not tried again before its next change."""
        versions = self._file_versions()
        if versions == self._versions_seen:
            return None
        try:
            new = self._load()
            self._check_names(new.stores)
        except SettingsError as wrong:
            self._versions_seen = versions
            raise SettingsError(
                f"listener {self.listener}: the old certificates stay in use, the new ones cannot be used: {wrong}"
            ) from None
        self._versions_seen = versions
        self._contexts = new
        return f"listener {self.listener}: renewed certificates are in use for new connections"

    def _load(self) -> Contexts:
        versions = self._file_versions()
        stores = read_stores(self._settings, self._files)
        server = server_context(self._settings, stores, self._files) if self._is_server else None
        client = client_context(self._settings, stores, self._files)
        if server is not None and self._is_internal:
            check_handshake(server, client, self._settings.trust_store.is_set)
        return Contexts(server, client, stores, versions)

    def _file_versions(self) -> tuple[object, ...]:
        return tuple(self._files.version(path) for path in self._settings.files)

    def _check_names(self, new: Stores) -> None:
        old = self._contexts.stores
        if old.keys is None or new.keys is None:
            return
        old_certificate, new_certificate = old.keys.certificate, new.keys.certificate
        old_subject, new_subject = subject(old_certificate), subject(new_certificate)
        if not self._settings.allow_dn_changes and old_subject.lower() != new_subject.lower():
            raise SettingsError(
                f"the subject is {new_subject} instead of {old_subject}; if this is intended, set"
                " ssl.allow.dn.changes=true and restart"
            )
        missing = alternative_names(old_certificate) - alternative_names(new_certificate)
        if not self._settings.allow_san_changes and missing:
            raise SettingsError(
                f"the subject alternative names lack {', '.join(sorted(missing))}; if this is intended, set"
                " ssl.allow.san.changes=true and restart"
            )
