"""Key and trust stores: every format, and for each error one line that shows no secret."""

from __future__ import annotations

import builtins
import ssl
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12
from harness.certificates import PASSWORD, Authority
from harness.tls_files import MemoryKeyFiles, pem_settings, tls_settings

from moldau.base.setting_sources import SettingsError
from moldau.security.tls.context import client_context, read_stores, server_context
from moldau.security.tls.settings import TlsSettings

AUTHORITY = Authority()
NODE = AUTHORITY.issue(user="node")
P12 = NODE.pkcs12(AUTHORITY)
TRUSTED_P12 = pkcs12.serialize_key_and_certificates(
    None, None, None, [AUTHORITY.certificate], BestAvailableEncryption(PASSWORD.encode())
)
FILES = {
    "node.pem": NODE.pem,
    "ca.pem": AUTHORITY.pem,
    "encrypted.pem": NODE.encrypted_key() + NODE.chain,
    "node.p12": P12,
    "ca.p12": TRUSTED_P12,
    "node.jks": b"\xfe\xed\xfe\xed\0\0\0\2",
    "mixed.pem": AUTHORITY.issue().key + NODE.chain,
    "two.pem": NODE.pem + AUTHORITY.issue().key,
    "key.pem": NODE.key,
    "cut.pem": NODE.pem[:-30],
    "damaged.pem": NODE.key + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "broken.pem": NODE.key.replace("\n", "\n!", 2),
    "text.pem": "hello",
    "cut.p12": P12[:200],
}


def handshake(settings: TlsSettings, client: ssl.SSLContext | None = None) -> str:
    """Return the subject's common name of the certificate that a client gets."""
    files = MemoryKeyFiles(FILES)
    server = server_context(settings, read_stores(settings, files), files)
    if client is None:
        client = ssl.create_default_context(cadata=AUTHORITY.pem)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    sides = [ours, server.wrap_bio(to_server, to_client, server_side=True)]
    while sides:
        side = sides.pop(0)
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            sides.append(side)
    certificate = ours.getpeercert()
    assert certificate is not None
    subject: dict[str, Any] = {key: value for ((key, value),) in certificate["subject"]}  # type: ignore[misc, union-attr]
    return str(subject["commonName"])


@pytest.mark.parametrize(
    "settings",
    [
        {"keystore_type": "PEM", "keystore_location": "node.pem"},
        {"keystore_type": "PEM", "keystore_location": "encrypted.pem", "key_password": PASSWORD},
        {"keystore_type": "PKCS12", "keystore_location": "node.p12", "keystore_password": PASSWORD},
        {"keystore_location": "node.p12", "keystore_password": PASSWORD},
        {"keystore_type": "PEM", "keystore_key": NODE.key, "keystore_certificate_chain": NODE.chain},
        {
            "keystore_type": "PEM",
            "keystore_key": NODE.encrypted_key().replace("\n", " "),
            "keystore_certificate_chain": NODE.chain.replace("\n", " "),
            "key_password": PASSWORD,
        },
    ],
    ids=["pem", "encrypted", "pkcs12", "pkcs12-as-jks", "inline", "inline-without-line-ends"],
)
def test_every_key_store_format_is_accepted(settings: dict[str, str]) -> None:
    assert handshake(tls_settings(**settings)) == "node"


@pytest.mark.parametrize(
    "settings",
    [
        {"truststore_type": "PEM", "truststore_location": "ca.pem"},
        {"truststore_type": "PEM", "truststore_certificates": AUTHORITY.pem.replace("\n", " ")},
        {"truststore_location": "ca.p12", "truststore_password": PASSWORD},
    ],
)
def test_every_trust_store_format_is_accepted(settings: dict[str, str]) -> None:
    files = MemoryKeyFiles(FILES)
    wanted = tls_settings(False, **settings)
    client = client_context(wanted, read_stores(wanted, files), files)
    assert handshake(pem_settings(), client) == "node"


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"keystore_location": "none.pem"}, "ssl.keystore.location=none.pem: cannot be read: No such file"),
        ({"keystore_location": "encrypted.pem"}, "the private key is encrypted; set ssl.key.password"),
        ({"keystore_location": "encrypted.pem", "key_password": "planted-wrong"}, "ssl.key.password is wrong"),
        (
            {"keystore_location": "encrypted.pem", "key_password": "planted" * 200},
            "password is longer than 1024 bytes",
        ),
        ({"keystore_location": "mixed.pem"}, "the private key does not fit the certificate"),
        ({"keystore_location": "two.pem"}, "expected one private key, but found 2"),
        ({"keystore_location": "ca.pem"}, "expected one private key, but found 0"),
        ({"keystore_location": "key.pem"}, "contains no certificate"),
        ({"keystore_location": "cut.pem"}, "a PEM block has no end"),
        ({"keystore_location": "damaged.pem"}, "the private key or a certificate is damaged"),
        ({"keystore_location": "broken.pem"}, "a PEM block .* is damaged"),
        ({"keystore_location": "text.pem"}, "is neither a PEM nor a PKCS12 file"),
        ({"keystore_location": "node.jks"}, "is a JKS file.* keytool -importkeystore"),
        ({"truststore_location": "key.pem"}, "ssl.truststore.location=key.pem: contains no certificate"),
        ({"truststore_location": "damaged.pem"}, "a certificate is damaged"),
    ],
)
def test_a_bad_store_is_reported_in_one_line(settings: dict[str, str], line: str) -> None:
    check_error(pem_settings(**settings), line)


@pytest.mark.parametrize(
    ("location", "password", "line"),
    [
        ("node.p12", "planted-wrong", "ssl.keystore.password is wrong, or the file is damaged"),
        ("cut.p12", PASSWORD, "ssl.keystore.password is wrong, or the file is damaged"),
        ("ca.p12", PASSWORD, "contains no private key with a certificate"),
    ],
)
def test_a_bad_pkcs12_store_is_reported_in_one_line(location: str, password: str, line: str) -> None:
    check_error(tls_settings(keystore_location=location, keystore_password=password), line)


def test_a_pkcs12_trust_store_needs_its_password() -> None:
    settings = tls_settings(False, truststore_location="ca.p12")
    with pytest.raises(SettingsError, match=r"set ssl\.truststore\.password"):
        read_stores(settings, MemoryKeyFiles(FILES))


def check_error(settings: TlsSettings, line: str) -> None:
    files = MemoryKeyFiles(FILES)
    with pytest.raises(SettingsError, match=line) as caught:
        server_context(settings, read_stores(settings, files), files)
    assert "planted" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pkcs12_without_cryptography_reports_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *args: Any, **named: Any) -> Any:
        if name.startswith("cryptography"):
            raise ImportError(name)
        return real(name, *args, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    check_error(tls_settings(keystore_location="node.p12", keystore_password=PASSWORD), r"pip install 'moldau\[tls\]'")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({}, "ssl.keystore.location: a listener with TLS needs"),
        ({"keystore_key": "k", "keystore_certificate_chain": "c"}, "only with ssl.keystore.type=PEM"),
        ({"keystore_type": "PEM", "keystore_key": "k"}, "set ssl.keystore.certificate.chain too"),
        ({"keystore_type": "PEM", "keystore_certificate_chain": "c"}, "set ssl.keystore.key too"),
        (
            {"keystore_type": "PEM", "keystore_key": "k", "keystore_certificate_chain": "c", "keystore_location": "x"},
            "excludes ssl.keystore.key",
        ),
        ({"keystore_type": "PEM", "keystore_location": "x", "keystore_password": PASSWORD}, "no meaning with PEM"),
        ({"keystore_location": "x"}, "set ssl.keystore.password too"),
        ({"keystore_password": PASSWORD}, "set ssl.keystore.location too"),
        ({"keystore_type": "BKS"}, "expected one of PEM, PKCS12, JKS"),
        ({"truststore_certificates": "c"}, "only with ssl.truststore.type=PEM"),
        ({"truststore_type": "PEM", "truststore_password": PASSWORD}, "no meaning with PEM"),
        ({"truststore_password": PASSWORD}, "set ssl.truststore.location too"),
        ({"engine_factory_class": "x.Y"}, "ssl.engine.factory.class: not supported"),
    ],
)
def test_settings_that_exclude_each_other_are_refused(settings: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError, match=line) as caught:
        tls_settings(**settings)
    assert "planted" not in str(caught.value)


def test_no_repr_shows_a_secret() -> None:
    settings = pem_settings(keystore_location="encrypted.pem", key_password=PASSWORD)
    stores = read_stores(settings, MemoryKeyFiles(FILES))
    shown = repr(settings) + repr(stores)
    assert PASSWORD not in shown
    assert "PRIVATE KEY" not in shown
