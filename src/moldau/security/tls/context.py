"""Contexts of Python's ssl for listeners and clients, from the settings and the stores.

Clients get no session tickets: one would outlive a change of the trust store. With TLS 1.2 a client may still resume a
session by its id, but only with the context that knows it, and a changed store makes a new context. Certificates of a
trust store are trusted even if they are not roots, as in Java.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final

from moldau.base.setting_sources import SettingsError
from moldau.security.tls.cipher_names import TLS_13_SUITES, is_safe, openssl_name
from moldau.security.tls.settings import TlsSettings
from moldau.security.tls.stores import KeyFiles, KeyStore, read_key_store, read_trust_store, store_error

_VERIFY_MODES: Final = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@dataclass(frozen=True, slots=True)
class Stores:
    """What the files contained at one time."""

    keys: KeyStore | None
    trusted: str | None
    """Certificates as PEM; None for those of the system."""


def read_stores(settings: TlsSettings, files: KeyFiles) -> Stores:
    """Read both stores. Raise SettingsError if one cannot be used."""
    keys = read_key_store(settings.key_store, files) if settings.key_store.is_set else None
    trusted = read_trust_store(settings.trust_store, files) if settings.trust_store.is_set else None
    return Stores(keys, trusted)


def server_context(settings: TlsSettings, stores: Stores, files: KeyFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    _configure(context, settings, stores, files)
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    return context


def client_context(settings: TlsSettings, stores: Stores, files: KeyFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    _configure(context, settings, stores, files)
    return context


OWN_TRUST: Final = "its own trust store"
SYSTEM_TRUST: Final = "the system's authorities; set ssl.truststore.location"


def check_handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, trust: str = OWN_TRUST, what: str = "this node's certificate"
) -> None:
    """Let two contexts of this node talk to each other, in memory. Raise SettingsError, which names the certificate and
    the `trust` that should accept it, if they cannot: then it could not talk to nodes with the same settings either."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    checks_host, client.check_hostname = client.check_hostname, False
    try:
        sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
        while sides:
            side = sides.pop(0)
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                sides.append(side)
                if not to_server.pending and not to_client.pending:
                    raise SettingsError("the handshake with itself does not end") from None
    except ssl.SSLError as refused:
        raise SettingsError(f"{what} is not accepted with {trust}: {handshake_fault(refused)}") from None
    finally:
        client.check_hostname = checks_host


def handshake_fault(error: ssl.SSLError) -> str:
    """Return what went wrong, in a few words."""
    if isinstance(error, ssl.SSLCertVerificationError) and error.verify_message:
        return f"certificate verify failed: {error.verify_message}"
    reason = error.reason or (str(error.args[-1]) if error.args else "")
    return reason.lower().replace("_", " ") or type(error).__name__


def _configure(context: ssl.SSLContext, settings: TlsSettings, stores: Stores, files: KeyFiles) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _limit_versions(context, settings)
    if stores.keys is not None:
        _load_keys(context, settings, stores.keys, files)
    if stores.trusted is None:
        is_client = context.protocol == ssl.PROTOCOL_TLS_CLIENT
        context.load_default_certs(ssl.Purpose.SERVER_AUTH if is_client else ssl.Purpose.CLIENT_AUTH)
        return
    try:
        context.load_verify_locations(cadata=stores.trusted)
    except ssl.SSLError:
        store = settings.trust_store
        raise store_error(store.prefix, store.location, "a certificate is damaged") from None


def _limit_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    versions = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
    enabled = {name for name in settings.enabled_protocols if settings.protocol != "TLSv1.2" or name == "TLSv1.2"}
    if settings.cipher_suites:
        enabled &= _choose_suites(context, settings.cipher_suites, "TLSv1.3" in enabled)
        if not enabled:
            raise SettingsError("ssl.cipher.suites has no suite for any of ssl.enabled.protocols")
    context.minimum_version = min(versions[name] for name in enabled)
    context.maximum_version = max(versions[name] for name in enabled)


def _choose_suites(context: ssl.SSLContext, suites: tuple[str, ...], has_tls_13: bool) -> set[str]:
    """Enable these suites; return the protocols that have any."""
    of_tls_13 = [name for name in suites if name in TLS_13_SUITES]
    of_tls_12 = [openssl_name(name) for name in suites if name not in TLS_13_SUITES]
    missing = [name for name in TLS_13_SUITES if name not in of_tls_13]
    if has_tls_13 and of_tls_13 and missing:
        raise SettingsError(
            f"ssl.cipher.suites: Python cannot disable single suites of TLS 1.3; add {', '.join(missing)}, or remove"
            f" {', '.join(of_tls_13)}"
        )
    for name in of_tls_12:
        _set_ciphers(context, name)
        if not is_safe(name) or name not in {suite["name"] for suite in context.get_ciphers()}:
            raise SettingsError(f"ssl.cipher.suites: {name} is not supported")
    if of_tls_12:
        _set_ciphers(context, ":".join(of_tls_12))
    return {*(("TLSv1.2",) if of_tls_12 else ()), *(("TLSv1.3",) if of_tls_13 else ())}


def _set_ciphers(context: ssl.SSLContext, names: str) -> None:
    try:
        context.set_ciphers(names)
    except (ssl.SSLError, ValueError):  # ValueError: a NUL
        raise SettingsError(f"ssl.cipher.suites: {names} is not supported") from None


def _load_keys(context: ssl.SSLContext, settings: TlsSettings, keys: KeyStore, files: KeyFiles) -> None:
    store = settings.key_store
    try:
        with files.named("".join((keys.key, *keys.chain)).encode()) as path:
            context.load_cert_chain(path, password=keys.password or "")
    except ssl.SSLError as refused:
        raise store_error(store.prefix, store.location, _key_fault(refused, keys.password is not None)) from None
    except ValueError:  # OpenSSL's limit
        raise store_error(store.prefix, store.location, "ssl.key.password is longer than 1024 bytes") from None


def _key_fault(refused: ssl.SSLError, is_encrypted: bool) -> str:
    if refused.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not fit the certificate"
    if refused.reason in ("EE_KEY_TOO_SMALL", "CA_MD_TOO_WEAK", "CA_KEY_TOO_SMALL"):
        return f"the certificate is too weak: {handshake_fault(refused)}"
    if is_encrypted:
        return "ssl.key.password is wrong, or the private key is damaged"
    return "the private key or a certificate is damaged"
