"""Renewed certificates: which are accepted, which are refused, and that a refusal is reported once."""

from __future__ import annotations

import pytest
from certificates import Authority
from tls_files import MemoryKeyFiles, pem_settings

from moldau.base.setting_sources import SettingsError
from moldau.security.principals import ANONYMOUS, Principal
from moldau.security.tls.mapping_rules import NoRuleApplies
from moldau.security.tls.renewal import ListenerTls

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
