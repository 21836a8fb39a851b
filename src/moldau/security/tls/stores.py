"""Key and trust stores: PEM and PKCS12, told apart by their first bytes, not by the type in the settings.

Java does the same for JKS and PKCS12: its type JKS also opens PKCS12 files. PKCS12 needs the package `cryptography`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from moldau.base.errors import MalformedData
from moldau.base.setting_sources import SettingsError
from moldau.security.tls.pem import Block, der_of, parse_blocks
from moldau.security.tls.settings import PEM, StoreSettings, TlsSettings

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates
    from cryptography.x509 import Certificate

_JKS_MAGIC: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")
_DER_SEQUENCE: Final = 0x30
_PEM_START: Final = b"-----BEGIN "
FIRST_BYTES: Final = 64 << 10
"""Enough for the text that may precede the first certificate of a PEM file."""
STORE_BYTES_MAX: Final = 16 << 20


class KeyFiles(Protocol):
    """The files with keys and certificates."""

    def read(self, path: str, bytes_max: int) -> bytes:
        """Return the content, at most `bytes_max` of it. Raise OSError if it cannot be read."""
        ...

    def version(self, path: str) -> object:
        """Return a value that differs after the file was changed or replaced; None if there is no file."""
        ...

    def named(self, data: bytes) -> AbstractContextManager[str]:
        """Return a path under which the bytes can be read until the end of the context, by this user only."""
        ...


@dataclass(frozen=True, slots=True)
class KeyStore:
    key: str = field(repr=False)
    """The private key as PEM."""
    password: str | None = field(repr=False)
    """Of the key, if it is encrypted."""
    chain: tuple[str, ...]
    """The certificates as PEM: that of the key first."""

    @property
    def certificate(self) -> bytes:
        """The certificate of the key in DER."""
        return der_of(parse_blocks(self.chain[0])[0])


def read_key_store(store: StoreSettings, files: KeyFiles) -> KeyStore:
    """Read key and certificates. Raise SettingsError if they cannot be used."""
    if store.key_pem is not None and store.certificates_pem is not None:
        return _pem_key_store(store, _blocks(store, store.key_pem + "\n" + store.certificates_pem))
    data = _content(store, files)
    if not _is_pkcs12(store, data):
        return _pem_key_store(store, _blocks(store, data.decode("latin-1")))
    return _pkcs12_key_store(store, data)


def read_trust_store(store: StoreSettings, files: KeyFiles) -> str:
    """Return the trusted certificates as PEM. Raise SettingsError if they cannot be used."""
    if store.certificates_pem is not None:
        text = store.certificates_pem
    else:
        data = _content(store, files)
        if _is_pkcs12(store, data):
            return _pkcs12_trust_store(store, data)
        text = data.decode("latin-1")
    certificates = [block.text for block in _blocks(store, text) if block.is_certificate]
    if not certificates:
        raise store_error(store.prefix, store.location, "contains no certificate")
    return "".join(certificates)


def warn_of_types(settings: Iterable[TlsSettings], files: KeyFiles) -> Iterator[str]:
    """Yield a line for each PEM file that the settings call something else: we read it, Kafka's own brokers do not."""
    for each in settings:
        for store in (each.key_store, each.trust_store):
            if store.location is not None and store.type != PEM and _is_pem(store.location, files):
                key = f"{store.prefix}.type"
                yield f"{store.prefix}.location={store.location}: is a PEM file, {key} is {store.type}; set {key}=PEM"


def _is_pem(location: str, files: KeyFiles) -> bool:
    try:
        return _PEM_START in files.read(location, FIRST_BYTES)
    except OSError:
        return False  # reported as an error when the store is read


def _content(store: StoreSettings, files: KeyFiles) -> bytes:
    assert store.location is not None
    try:
        data = files.read(store.location, STORE_BYTES_MAX + 1)
    except OSError as refused:
        raise store_error(store.prefix, store.location, f"cannot be read: {refused.strerror}") from None
    if len(data) > STORE_BYTES_MAX:
        raise store_error(store.prefix, store.location, f"has more than {STORE_BYTES_MAX} bytes")
    return data


def _is_pkcs12(store: StoreSettings, data: bytes) -> bool:
    """Whether the bytes are a PKCS12 file rather than PEM. Raise SettingsError if they are neither."""
    if data.startswith(_JKS_MAGIC):
        raise store_error(
            store.prefix,
            store.location,
            "is a JKS file, which only Java reads; convert it: keytool -importkeystore -srckeystore OLD -destkeystore"
            " NEW.p12 -deststoretype PKCS12",
        )
    if data[:1] == bytes((_DER_SEQUENCE,)):
        return True
    if _PEM_START not in data:
        raise store_error(store.prefix, store.location, "is neither a PEM nor a PKCS12 file")
    return False


def _blocks(store: StoreSettings, text: str) -> list[Block]:
    try:
        return parse_blocks(text)
    except MalformedData as wrong:
        raise store_error(store.prefix, store.location, str(wrong)) from None


def _pem_key_store(store: StoreSettings, blocks: list[Block]) -> KeyStore:
    keys = [block for block in blocks if block.is_key]
    chain = tuple(block.text for block in blocks if block.is_certificate)
    if len(keys) != 1:
        raise store_error(store.prefix, store.location, f"expected one private key, but found {len(keys)}")
    if not chain:
        raise store_error(store.prefix, store.location, "contains no certificate")
    if keys[0].is_encrypted and store.key_password is None:
        raise store_error(store.prefix, store.location, "the private key is encrypted; set ssl.key.password")
    return KeyStore(keys[0].text, store.key_password if keys[0].is_encrypted else None, chain)


def _pkcs12_key_store(store: StoreSettings, data: bytes) -> KeyStore:
    loaded = _load_pkcs12(store, data)
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    if loaded.key is None or loaded.cert is None:
        raise store_error(store.prefix, store.location, "contains no private key with a certificate")
    key = loaded.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    try:  # the fields of a certificate are read only when they are asked for
        chain = _in_order(loaded.cert.certificate, [each.certificate for each in loaded.additional_certs])
    except ValueError:
        raise store_error(store.prefix, store.location, "a certificate in it is damaged") from None
    return KeyStore(key, None, tuple(each.public_bytes(Encoding.PEM).decode() for each in chain))


def _pkcs12_trust_store(store: StoreSettings, data: bytes) -> str:
    loaded = _load_pkcs12(store, data)
    from cryptography.hazmat.primitives.serialization import Encoding

    certificates = [each.certificate for each in loaded.additional_certs]
    if loaded.cert is not None and loaded.key is None:
        certificates.insert(0, loaded.cert.certificate)
    if not certificates:
        raise store_error(store.prefix, store.location, "contains no trusted certificate")
    return "".join(each.public_bytes(Encoding.PEM).decode() for each in certificates)


def _load_pkcs12(store: StoreSettings, data: bytes) -> PKCS12KeyAndCertificates:
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.serialization import pkcs12
        from cryptography.x509 import InvalidVersion
    except ImportError:
        raise store_error(
            store.prefix,
            store.location,
            "a PKCS12 file can be read only with the package cryptography: pip install 'moldau[tls]'; or use PEM",
        ) from None
    try:
        return pkcs12.load_pkcs12(data, None if store.password is None else store.password.encode())
    except (UnsupportedAlgorithm, InvalidVersion) as wrong:
        raise store_error(store.prefix, store.location, f"cannot be read: {wrong}") from None
    except ValueError:
        password = f"{store.prefix}.password"
        reason = f"{password} is wrong, or the file is damaged" if store.password else f"set {password}"
        raise store_error(store.prefix, store.location, reason) from None


def _in_order(certificate: Certificate, others: Iterable[Certificate]) -> list[Certificate]:
    """Return the chain: each certificate is followed by that of its issuer, if it is there."""
    chain, left = [certificate], list(others)
    while issuer := next((each for each in left if each.subject == chain[-1].issuer), None):
        chain.append(issuer)
        left.remove(issuer)
    return chain


def store_error(prefix: str, location: str | None, reason: str) -> SettingsError:
    """Return the error about a store: it names the file, never what is in it."""
    return SettingsError(f"{prefix}.location={location}: {reason}" if location is not None else f"{prefix}: {reason}")
