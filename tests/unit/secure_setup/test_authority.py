"""The authority of `--secure`: what its certificates contain, and when they have to be renewed."""

from __future__ import annotations

import ssl
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID

from moldau.base.setting_sources import SettingsError
from moldau.secure_setup.authority import (
    AUTHORITY_LIFETIME,
    NODE_LIFETIME,
    Authority,
    as_host,
    expires,
    hosts_of,
    issue,
    new_authority,
)
from moldau.secure_setup.problems import SetupFailed
from moldau.security.tls.context import check_handshake
from moldau.security.tls.names import subject
from moldau.security.tls.pem import der_of, parse_blocks

NOW = datetime(2026, 11, 17, tzinfo=UTC)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return new_authority(NOW)


def test_a_node_certificate_is_for_servers_and_clients_and_of_the_authority(authority: Authority) -> None:
    pem = issue(authority, ["kafka.example.com", "10.0.0.1", "::1"], NOW)
    certificate = x509.load_pem_x509_certificate(pem.encode())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.certificate.encode()))
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert set(usage) == {ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH}
    assert hosts_of(pem) == {"kafka.example.com", "10.0.0.1", "::1"}
    assert expires(pem) == NOW + NODE_LIFETIME
    assert subject(der_of(next(block for block in parse_blocks(pem) if block.is_certificate))) == "CN=moldau-node"


def test_a_node_certificate_cannot_issue_others(authority: Authority) -> None:
    certificate = x509.load_pem_x509_certificate(issue(authority, ["a"], NOW).encode())
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


def test_strict_clients_accept_certificates_of_their_authority_only(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now)
    (tmp_path / "node.pem").write_text(issue(authority, ["localhost"], now))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=authority.certificate)
    server.verify_mode = ssl.CERT_REQUIRED
    server.load_cert_chain(tmp_path / "node.pem")
    client = ssl.create_default_context(cadata=authority.certificate)
    client.load_cert_chain(tmp_path / "node.pem")
    for context in (server, client):
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    check_handshake(server, client)
    with pytest.raises(SettingsError, match="certificate verify failed"):
        check_handshake(server, ssl.create_default_context(cadata=new_authority(now).certificate))


def test_authorities_differ_by_name() -> None:
    names = {x509.load_pem_x509_certificate(new_authority(NOW).certificate.encode()).subject for _ in range(2)}
    assert len(names) == 2


def test_an_authority_that_expires_issues_nothing(authority: Authority) -> None:
    with pytest.raises(SetupFailed, match="expires on 2036-11-14"):
        issue(authority, ["a"], NOW + AUTHORITY_LIFETIME - timedelta(days=1))


def test_a_damaged_key_is_not_quoted(authority: Authority) -> None:
    with pytest.raises(SetupFailed, match=r"^the authority's private key is damaged$"):
        issue(Authority(authority.certificate, authority.key[:80]), ["a"], NOW)
    assert authority.key not in repr(authority)


def test_a_key_that_was_encrypted_is_refused(authority: Authority) -> None:
    key = load_pem_private_key(authority.key.encode(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret")).decode()
    with pytest.raises(SetupFailed, match=r"^the authority's private key has a password; expected one without$"):
        issue(Authority(authority.certificate, encrypted), ["a"], NOW)


def test_a_certificate_without_alternative_names_is_for_no_host(authority: Authority) -> None:
    assert hosts_of(authority.certificate) == frozenset()


def test_an_address_with_a_zone_is_found_again_in_its_certificate(authority: Authority) -> None:
    host = as_host("fe80::1%eth0")
    assert hosts_of(issue(authority, [host], NOW)) == {host}


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Kafka.Example.COM.", "kafka.example.com"),
        ("[::1]", "::1"),
        ("10.0.0.1", "10.0.0.1"),
        ("bücher", "xn--bcher-kva"),
    ],
)
def test_hosts_are_normalised_as_in_certificates(text: str, host: str) -> None:
    assert as_host(text) == host


@pytest.mark.parametrize("text", ["", "a b", "a:9092", "http://a", "x" * 70, "a\nb"])
def test_text_that_is_not_a_host_is_refused(text: str) -> None:
    with pytest.raises(SetupFailed, match="is not a host name or an address"):
        as_host(text)


def test_a_missing_cryptography_package_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(SetupFailed, match=r"pip install 'moldau\[tls\]'"):
        new_authority(NOW)
