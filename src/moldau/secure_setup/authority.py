"""An authority of one's own and the certificates that it issues, by the package `cryptography`.

Keys are on the curve P-256: every client knows it, and a key is made in less than a millisecond. The time is an
argument. All results are PEM texts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from moldau.secure_setup.problems import SetupFailed

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey

NODE_NAME: Final = "moldau-node"
"""The common name of the nodes' certificates."""
AUTHORITY_LIFETIME: Final = timedelta(days=3650)
NODE_LIFETIME: Final = timedelta(days=365)
RENEW_BEFORE: Final = timedelta(days=60)
"""A certificate that expires sooner than this is renewed."""
CLOCK_SKEW: Final = timedelta(days=1)
"""Certificates are valid from a day before they are made, for clients whose clocks are behind."""


@dataclass(frozen=True, slots=True)
class Authority:
    certificate: str
    key: str = field(repr=False)


def require_cryptography() -> None:
    """Raise SetupFailed if the package is missing."""
    try:
        import cryptography  # noqa: F401
    except ImportError:
        raise SetupFailed("certificates are made with the package cryptography: pip install 'moldau[tls]'") from None


def new_authority(now: datetime) -> Authority:
    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    key = _new_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    # The number tells authorities of several clusters apart where their certificates are listed.
    name = _name(f"Moldau authority {identifier.digest[:4].hex()}")
    certificate = (
        _builder(name, name, key.public_key(), now, now + AUTHORITY_LIFETIME)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(is_authority=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key))


def issue(authority: Authority, hosts: Iterable[str], now: datetime) -> str:
    """Return a new private key and its certificate for these host names and addresses, for servers and clients."""
    require_cryptography()
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import ExtendedKeyUsageOID

    issuer, issuer_key = _loaded(authority)
    if issuer.not_valid_after_utc - now < RENEW_BEFORE:
        raise SetupFailed(
            f"the authority's own certificate expires on {issuer.not_valid_after_utc:%Y-%m-%d};"
            " start with a new data directory, or issue certificates by another authority (docs/tls.md)"
        )
    key = _new_key()
    until = min(now + NODE_LIFETIME, issuer.not_valid_after_utc)
    names = x509.SubjectAlternativeName([_general_name(host) for host in sorted(set(hosts))])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    certificate = (
        _builder(_name(NODE_NAME), issuer.subject, key.public_key(), now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(is_authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(names, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .sign(issuer_key, hashes.SHA256())
    )
    return _key_pem(key) + _pem(certificate)


def hosts_of(pem: str) -> frozenset[str]:
    """Return the host names and addresses of a certificate."""
    require_cryptography()
    from cryptography import x509

    try:
        names = _certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:  # it was replaced by one that this program has not issued
        return frozenset()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return frozenset({*names.get_values_for_type(x509.DNSName), *addresses})


def expires(pem: str) -> datetime:
    require_cryptography()
    return _certificate(pem).not_valid_after_utc


def as_host(text: str) -> str:
    """Return the host as a certificate has it. Raise SetupFailed if it is neither a host name nor an address."""
    bare = text.strip().strip("[]")
    try:
        return str(ipaddress.ip_address(bare.partition("%")[0]))  # a certificate has no zone, as in fe80::1%eth0
    except ValueError:
        pass
    try:
        host = bare.encode("idna").decode("ascii").lower().rstrip(".")
    except UnicodeError:
        host = ""
    if not host or any(not (character.isalnum() or character in "-._*") for character in host):
        raise SetupFailed(f"{text!r} is not a host name or an address; expected e.g. kafka.example.com or 192.168.1.5")
    return host


def _loaded(authority: Authority) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(authority.key.encode(), None)
    except ValueError:
        raise SetupFailed("the authority's private key is damaged") from None
    except TypeError:
        raise SetupFailed("the authority's private key has a password; expected one without") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise SetupFailed("the authority's private key is not of this program")
    return _certificate(authority.certificate), key


def _certificate(pem: str) -> x509.Certificate:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(pem.encode())
    except ValueError:
        raise SetupFailed("a certificate is damaged") from None


def _new_key() -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _name(common_name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _general_name(host: str) -> x509.GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    from cryptography import x509

    return x509.CertificateBuilder(
        issuer, subject, key, x509.random_serial_number(), not_valid_before=now - CLOCK_SKEW, not_valid_after=until
    )


def _key_usage(is_authority: bool) -> x509.KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
