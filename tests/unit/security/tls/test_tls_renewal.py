"""Renewed certificates: which are accepted, which are refused, and that a refusal is reported once."""

from __future__ import annotations

import ssl
from contextlib import suppress

import pytest
from harness.certificates import Authority
from harness.tls_files import MemoryKeyFiles, pem_settings

from moldau.base.setting_sources import SettingsError
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.tls.mapping_rules import NoRuleApplies
from moldau.security.tls.renewal import ListenerTls, NoContextYet
from moldau.security.tls.settings import TlsSettings

AUTHORITY = Authority()


def listener_tls(files: MemoryKeyFiles, is_internal: bool = False, **texts: str) -> ListenerTls:
    return ListenerTls("SSL", pem_settings(**texts), files, is_internal=is_internal)


def key_files(*names: str, user: str = "node") -> MemoryKeyFiles:
    return MemoryKeyFiles({"node.pem": AUTHORITY.issue(*names, user=user).pem, "ca.pem": AUTHORITY.pem})


def test_a_renewed_certificate_is_used_for_new_connections() -> None:
    files = key_files("a.example")
    tls = listener_tls(files)
    server, client = tls.server, tls.client
    assert tls.reload_if_changed() is None
    assert tls.server is server
    files.write("node.pem", AUTHORITY.issue("a.example", "b.example", user="NODE").pem)
    assert tls.reload_if_changed() == "listener SSL: renewed certificates are in use for new connections"
    assert tls.server is not server
    assert tls.client is not client
    assert tls.reload_if_changed() is None


@pytest.mark.parametrize(
    ("names", "user", "allowed", "line"),
    [
        (("a.example",), "other", "allow_dn_changes", r"the subject is CN=other,.* instead of CN=node,.*allow\.dn"),
        (("b.example",), "node", "allow_san_changes", r"names lack DNS:a\.example; .*allow\.san"),
    ],
)
def test_a_certificate_of_another_node_is_refused(names: tuple[str, ...], user: str, allowed: str, line: str) -> None:
    for is_allowed in (False, True):
        files = key_files("a.example")
        tls = listener_tls(files, **({allowed: "true"} if is_allowed else {}))
        server = tls.server
        files.write("node.pem", AUTHORITY.issue(*names, user=user).pem)
        if is_allowed:
            assert tls.reload_if_changed()
            continue
        with pytest.raises(SettingsError, match=f"the old certificates stay in use, .*{line}"):
            tls.reload_if_changed()
        assert tls.server is server
        assert tls.reload_if_changed() is None


def test_a_bad_file_is_reported_once_and_the_next_good_one_is_used() -> None:
    files = key_files()
    tls = listener_tls(files)
    files.write("node.pem", "half a fi")
    with pytest.raises(SettingsError, match=r"ssl\.keystore\.location=node\.pem: is neither a PEM nor a PKCS12 file"):
        tls.reload_if_changed()
    assert tls.reload_if_changed() is None
    files.write("node.pem", AUTHORITY.issue(user="node").pem)
    assert tls.reload_if_changed()


def test_a_new_trust_store_is_used_too() -> None:
    files = key_files()
    tls = listener_tls(files)
    files.write("ca.pem", AUTHORITY.pem + Authority().pem)
    assert tls.reload_if_changed()
    assert len(tls.server.get_ca_certs()) == 2


def test_an_internal_listener_keeps_a_certificate_that_its_nodes_trust() -> None:
    files = key_files()
    tls = listener_tls(files, is_internal=True)
    files.write("node.pem", Authority().issue(user="node").pem)
    with pytest.raises(SettingsError, match="not accepted with its own trust store"):
        tls.reload_if_changed()


STRANGERS = Authority()
FILES = {
    "node.pem": AUTHORITY.issue("a.example", user="node").pem,
    "ca.pem": AUTHORITY.pem,
    "renewed.pem": AUTHORITY.issue("a.example", "b.example", user="node").pem,
    "other.pem": AUTHORITY.issue("a.example", user="other").pem,
    "fewer.pem": AUTHORITY.issue("b.example", user="node").pem,
    "strange.pem": STRANGERS.issue("a.example", user="node").pem,
    "strangers.pem": STRANGERS.pem,
    "both.pem": AUTHORITY.pem + STRANGERS.pem,
}


@pytest.mark.parametrize("is_internal", [False, True])
@pytest.mark.parametrize(
    ("changed", "reason", "is_for_internal_only"),
    [
        ({"keystore_location": "renewed.pem"}, None, False),
        ({"truststore_location": "both.pem"}, None, False),
        ({"client_auth": "required", "enabled_protocols": "TLSv1.3"}, None, False),
        ({"keystore_location": "gone.pem"}, r"ssl\.keystore\.location=gone\.pem: cannot be read: No such file", False),
        ({"truststore_location": "gone.pem"}, r"ssl\.truststore\.location=gone\.pem: cannot be read", False),
        ({"keystore_location": "ca.pem"}, "expected one private key, but found 0", False),
        ({"cipher_suites": "MADE\0UP"}, r"ssl\.cipher\.suites: MADE\\x00UP is not supported", False),
        ({"cipher_suites": "MADE_UP"}, r"ssl\.cipher\.suites: MADE_UP is not supported", False),
        ({"keystore_location": "other.pem"}, r"the subject is CN=other,.* instead of CN=node", False),
        ({"keystore_location": "fewer.pem"}, r"names lack DNS:a\.example", False),
        (
            {"keystore_location": "strange.pem"},
            "this node's certificate is not accepted with its own trust store",
            True,
        ),
        ({"truststore_location": "strangers.pem"}, "this node's certificate is not accepted with its own", True),
        # other nodes would not trust it yet
        (
            {"keystore_location": "strange.pem", "truststore_location": "both.pem"},
            "this node's certificate is not accepted with the trust store in use",
            True,
        ),
        # the other nodes, which still have the old certificates, would not be trusted any more
        (
            {"keystore_location": "strange.pem", "truststore_location": "strangers.pem"},
            "this node's certificate is not accepted with the trust store in use",
            True,
        ),
    ],
)
def test_which_settings_can_replace_those_in_use(
    changed: dict[str, str], reason: str | None, is_for_internal_only: bool, is_internal: bool
) -> None:
    tls = listener_tls(MemoryKeyFiles(FILES), is_internal)
    server, client, wanted = tls.server, tls.client, pem_settings(**changed)
    if reason is None or (is_for_internal_only and not is_internal):
        tls.check(wanted)
        assert tls.server is server
        tls.want(wanted)
        assert tls.reload_if_changed() == "listener SSL: changed configs are in use for new connections"
        assert tls.server is not server
        assert tls.reload_if_changed() is None
        return
    with pytest.raises(SettingsError, match=reason):
        tls.check(wanted)
    assert (tls.server, tls.client) == (server, client)
    assert client.check_hostname


def test_the_certificate_in_use_must_be_trusted_by_a_new_trust_store() -> None:
    """Step by step to another authority: trust both, change the certificate, stop to trust the old one."""
    tls = listener_tls(MemoryKeyFiles(FILES), is_internal=True)

    def wanted(key: str, trust: str) -> TlsSettings:
        return pem_settings(keystore_location=key, truststore_location=trust)

    for step in (("node.pem", "both.pem"), ("strange.pem", "both.pem"), ("strange.pem", "strangers.pem")):
        tls.check(wanted(*step))
        if step == ("strange.pem", "both.pem"):
            with pytest.raises(SettingsError, match="the certificate in use is not accepted with the new trust store"):
                tls.check(wanted("strange.pem", "strangers.pem"))
        tls.want(wanted(*step))
        assert tls.reload_if_changed()


def test_settings_that_cannot_be_used_are_tried_again_when_their_files_change() -> None:
    files = MemoryKeyFiles(FILES)
    tls = listener_tls(files)
    server = tls.server
    tls.want(pem_settings(keystore_location="later.pem"))
    with pytest.raises(SettingsError, match=r"the dynamic configs cannot be used: .*later\.pem: cannot be read"):
        tls.reload_if_changed()
    assert tls.reload_if_changed() is None
    assert tls.server is server
    files.write("later.pem", FILES["renewed.pem"])
    assert tls.reload_if_changed()
    assert tls.server is not server


@pytest.mark.parametrize("is_internal", [False, True])
def test_a_start_whose_dynamic_configs_cannot_be_used_has_no_context(is_internal: bool) -> None:
    """The properties file protects less: it asks for no client certificates."""
    files = MemoryKeyFiles(FILES)
    tls = listener_tls(files, is_internal)
    tls.begin(pem_settings(keystore_location="later.pem", client_auth="required"))
    both_ways = ", and this broker opens none to other brokers," if is_internal else ""
    with pytest.raises(SettingsError) as refused:
        tls.reload_if_changed()
    assert str(refused.value) == (
        f"listener SSL: no connections are accepted{both_ways} until the dynamic configs can be used:"
        " ssl.keystore.location=later.pem: cannot be read: No such file or directory"
    )
    assert tls.reload_if_changed() is None  # it is tried again, and reported once
    for context in ("server", "client"):
        with pytest.raises(NoContextYet, match="listener SSL waits until its dynamic configs"):
            getattr(tls, context)
    files.write("later.pem", FILES["other.pem"])  # of another subject: nobody has seen that of the properties file
    assert tls.reload_if_changed() == "listener SSL: changed configs are in use for new connections"
    assert tls.server.verify_mode is ssl.CERT_REQUIRED
    assert tls.client is not None
    # From now on everything is as in any running broker.
    files.write("later.pem", "half a fi")
    with pytest.raises(SettingsError, match="the old certificates stay in use"):
        tls.reload_if_changed()
    assert tls.server.verify_mode is ssl.CERT_REQUIRED


def test_a_start_does_not_compare_names_with_the_properties_file() -> None:
    """Which may have been renewed, with one more name, while the dynamic certificate was in use."""
    files = MemoryKeyFiles(FILES)
    tls = ListenerTls("SSL", pem_settings(keystore_location="renewed.pem"), files)
    tls.begin(pem_settings(client_auth="required"))
    assert tls.reload_if_changed() == "listener SSL: changed configs are in use for new connections"
    assert tls.server.verify_mode is ssl.CERT_REQUIRED
    files.write("node.pem", FILES["other.pem"])
    with pytest.raises(SettingsError, match=r"the old certificates stay in use, .*the subject is CN=other"):
        tls.reload_if_changed()


def test_a_listener_without_contexts_can_be_set_right() -> None:
    for right in (pem_settings(), pem_settings(keystore_location="other.pem")):
        for begun in (None, pem_settings(keystore_location="gone.pem")):
            tls = listener_tls(MemoryKeyFiles(FILES), is_internal=True)
            tls.begin(begun)
            with suppress(SettingsError):
                tls.reload_if_changed()
            with pytest.raises(NoContextYet):
                _ = tls.server
            tls.check(right)
            tls.want(right)
            assert tls.reload_if_changed() == "listener SSL: changed configs are in use for new connections"
            assert tls.server is not None


def test_the_key_store_of_the_properties_file_can_be_returned_to() -> None:
    tls = listener_tls(MemoryKeyFiles(FILES))
    tls.want(pem_settings(keystore_location="renewed.pem"))
    assert tls.reload_if_changed()
    for wanted in (pem_settings(client_auth="required"), pem_settings()):
        tls.check(wanted)  # the names of renewed.pem are more than those of node.pem
        tls.want(wanted)
        assert tls.reload_if_changed() == "listener SSL: changed configs are in use for new connections"


def test_a_start_with_a_bad_file_names_the_listener() -> None:
    with pytest.raises(SettingsError, match=r"^listener SSL: ssl\.keystore\.location=node\.pem: cannot be read"):
        listener_tls(MemoryKeyFiles({}))


def test_the_principal_is_the_mapped_subject() -> None:
    tls = listener_tls(key_files(), principal_mapping_rules="RULE:^CN=(.*?),OU=tests.*$/$1/")
    assert tls.principal(None) == ANONYMOUS
    assert tls.principal(AUTHORITY.issue(user="alice").der) == Principal("User", "alice")
    with pytest.raises(NoRuleApplies):
        tls.principal(AUTHORITY.issue(user="alice", unit="strangers").der)
    assert str(listener_tls(key_files()).principal(AUTHORITY.issue(user="al,ice").der)) == (
        "User:CN=al\\,ice,OU=tests,O=Moldau"
    )
