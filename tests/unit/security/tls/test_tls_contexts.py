"""Contexts: versions, cipher suites, client certificates, and a handshake of a node with itself."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from contextlib import suppress

import pytest
from harness.certificates import Authority
from harness.tls_files import MemoryKeyFiles, pem_settings

from moldau.base.setting_sources import SettingsError
from moldau.security.tls.cipher_names import TLS_13_SUITES, openssl_name
from moldau.security.tls.context import check_handshake, client_context, read_stores, server_context

AUTHORITY = Authority()
FILES = MemoryKeyFiles({"node.pem": AUTHORITY.issue().pem, "ca.pem": AUTHORITY.pem, "other.pem": Authority().pem})
JAVA_SUITE = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
OPENSSL_SUITE = "ECDHE-ECDSA-AES256-GCM-SHA384"


def server(**texts: str) -> ssl.SSLContext:
    settings = pem_settings(**texts)
    return server_context(settings, read_stores(settings, FILES), FILES)


def client(**texts: str) -> ssl.SSLContext:
    settings = pem_settings(False, **texts)
    return client_context(settings, read_stores(settings, FILES), FILES)


@pytest.mark.parametrize(
    ("settings", "versions"),
    [
        ({}, ("TLSv1_2", "TLSv1_3")),
        ({"protocol": "TLSv1.2"}, ("TLSv1_2", "TLSv1_2")),
        ({"enabled_protocols": "TLSv1.3"}, ("TLSv1_3", "TLSv1_3")),
        ({"enabled_protocols": ""}, ("TLSv1_2", "TLSv1_3")),
        ({"cipher_suites": JAVA_SUITE}, ("TLSv1_2", "TLSv1_2")),
        ({"cipher_suites": OPENSSL_SUITE}, ("TLSv1_2", "TLSv1_2")),
        ({"cipher_suites": ",".join(TLS_13_SUITES)}, ("TLSv1_3", "TLSv1_3")),
        ({"cipher_suites": ",".join((JAVA_SUITE, *TLS_13_SUITES))}, ("TLSv1_2", "TLSv1_3")),
    ],
)
def test_tls_versions_follow_the_settings(settings: dict[str, str], versions: tuple[str, str]) -> None:
    context = server(**settings)
    assert (context.minimum_version.name, context.maximum_version.name) == versions


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"enabled_protocols": "TLSv1.1"}, "TLSv1.1 is not supported; expected TLSv1.2 or TLSv1.3"),
        ({"protocol": "SSLv3"}, "ssl.protocol: expected one of TLS, TLSv1.2, TLSv1.3"),
        ({"protocol": "TLSv1.2", "enabled_protocols": "TLSv1.3"}, "is not one of ssl.enabled.protocols"),
        ({"cipher_suites": "TLS_AES_256_GCM_SHA384"}, "Python cannot disable single suites of TLS 1.3"),
        ({"cipher_suites": "NONE_SUCH"}, "ssl.cipher.suites: NONE_SUCH is not supported"),
        ({"cipher_suites": "ALL"}, "ssl.cipher.suites: ALL is not supported"),
        ({"cipher_suites": "ECDHE-RSA-NULL-SHA"}, "is not supported"),
        ({"cipher_suites": f"{JAVA_SUITE},ADH-AES256-SHA"}, "ADH-AES256-SHA is not supported"),
        ({"cipher_suites": JAVA_SUITE, "enabled_protocols": "TLSv1.3"}, "has no suite for any of"),
        ({"endpoint_identification_algorithm": "ldap"}, "expected https, or nothing"),
    ],
)
def test_settings_without_protection_are_refused(settings: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError, match=line):
        server(**settings)


def test_names_of_cipher_suites_are_those_of_openssl() -> None:
    if shutil.which("openssl") is None:
        pytest.skip("needs the command openssl")
    command = ["openssl", "ciphers", "-stdname", "ECDHE:DHE:kRSA:!aNULL:!PSK:!SRP:!ARIA:@SECLEVEL=0"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    names = {line.split()[0]: line.split()[2] for line in printed.splitlines()}
    assert len(names) > 20
    assert {java: openssl_name(java) for java in names} == names


def test_a_server_sends_no_tickets_and_renegotiates_nothing() -> None:
    context = server()
    assert context.num_tickets == 0
    assert context.options & ssl.OP_NO_TICKET
    assert context.options & ssl.OP_NO_RENEGOTIATION


Connection = tuple[ssl.SSLObject, ssl.SSLObject]
"""The client's side and the server's side."""


def connected(server: ssl.SSLContext, client: ssl.SSLContext, session: ssl.SSLSession | None = None) -> Connection:
    """Return a connection that resumes this session, if the server does."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, session=session)
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    for side in (client_side, server_side) * 3:
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    server_side.write(b"x")
    assert client_side.read(1) == b"x"
    return client_side, server_side


@pytest.mark.parametrize(("protocol", "is_resumed"), [("TLSv1.2", True), ("TLSv1.3", False)])
def test_a_session_is_not_resumed_with_other_stores(protocol: str, is_resumed: bool) -> None:
    ours = client(enabled_protocols=protocol, endpoint_identification_algorithm="")
    old, new = server(enabled_protocols=protocol), server(enabled_protocols=protocol)
    first = connected(old, ours)  # as long as it is open, its session can be resumed
    again, _ = connected(old, ours, first[0].session)
    assert again.session_reused == is_resumed
    renewed, _ = connected(new, ours, first[0].session)
    assert not renewed.session_reused


@pytest.mark.parametrize(
    ("text", "mode"), [("none", ssl.CERT_NONE), ("requested", ssl.CERT_OPTIONAL), ("required", ssl.CERT_REQUIRED)]
)
def test_client_auth_sets_the_verify_mode(text: str, mode: ssl.VerifyMode) -> None:
    assert server(client_auth=text).verify_mode is mode


def test_clients_check_certificates_and_host_names() -> None:
    assert client().check_hostname
    unchecked = client(endpoint_identification_algorithm="")
    assert not unchecked.check_hostname
    assert unchecked.verify_mode is ssl.CERT_REQUIRED


def test_a_node_checks_a_handshake_with_itself() -> None:
    ours = client()
    check_handshake(server(client_auth="required"), ours)
    assert ours.check_hostname
    with pytest.raises(SettingsError, match=r"not accepted with its own trust store: certificate verify failed"):
        check_handshake(server(), client(truststore_location="other.pem"))
    with pytest.raises(SettingsError, match="not accepted with its own trust store"):
        check_handshake(server(client_auth="required", truststore_location="other.pem"), client())
