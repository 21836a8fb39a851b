"""Listeners with TLS in the settings: overrides, refused settings, and no secret in any message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.certificates import PASSWORD, Authority, Vault
from harness.patience import PATIENCE_S

from moldau.base.broker_configs import effective_broker_configs
from moldau.base.listeners import Listener
from moldau.cli.kafka import server_start
from moldau.node import Node
from moldau.runtime import node_tls
from moldau.runtime.node_tls import NodeTls
from moldau.settings import SettingsError, from_properties

PEM = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/x/node.pem"}
MAP = "CONTROLLER:SSL,CLIENTS:SSL,INTERNAL:SSL,OPEN:PLAINTEXT"
BROKER_ONLY = {"process.roles": "broker", "controller.quorum.bootstrap.servers": "localhost:9093", "node.id": "5"}


def test_settings_of_a_listener_override_those_of_all_listeners() -> None:
    settings = from_properties(
        {
            "listeners": "CLIENTS://:9092,INTERNAL://:9094,OPEN://:9095",
            "listener.security.protocol.map": MAP,
            "inter.broker.listener.name": "internal",
            **PEM,
            "ssl.client.auth": "none",
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.internal.ssl.keystore.location": "/x/internal.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "/x/authority.pem",
        }
    )
    assert settings.tls.keys() == {"CLIENTS", "INTERNAL"}
    assert settings.tls["CLIENTS"].client_auth == "none"
    assert settings.tls["CLIENTS"].key_store.location == "/x/node.pem"
    assert settings.tls["INTERNAL"].client_auth == "required"
    assert settings.tls["INTERNAL"].key_store.location == "/x/internal.pem"
    assert settings.inter_broker_listener_name == "INTERNAL"
    assert settings.warnings == ()


@pytest.mark.parametrize(
    ("listeners", "protocol", "name"),
    [("PLAINTEXT://:1,SSL://:2", "SSL", "SSL"), ("OPEN://:1,INTERNAL://:2", "SSL", "INTERNAL")],
)
def test_security_inter_broker_protocol_chooses_the_listener(listeners: str, protocol: str, name: str) -> None:
    protocols = {"listener.security.protocol.map": f"{MAP},SSL:SSL,PLAINTEXT:PLAINTEXT"}
    settings = from_properties({"listeners": listeners, "security.inter.broker.protocol": protocol, **PEM, **protocols})
    assert settings.inter_broker_listener_name == name


@pytest.mark.parametrize(
    ("listeners", "name"),
    [
        ("SSL://:1,PLAINTEXT://:2", "PLAINTEXT"),
        ("SSL://:1,OPEN://:2", "SSL"),  # Kafka would not start
    ],
)
def test_brokers_use_the_plaintext_listener_if_nothing_is_set(listeners: str, name: str) -> None:
    protocols = {"listener.security.protocol.map": f"{MAP},SSL:SSL,PLAINTEXT:PLAINTEXT"}
    settings = from_properties({"listeners": listeners, **PEM, **protocols})
    assert settings.inter_broker_listener_name == name


def test_a_broker_connects_to_controllers_with_tls_and_without_a_key() -> None:
    properties = {**BROKER_ONLY, "listeners": "OPEN://:9092", "listener.security.protocol.map": MAP}
    settings = from_properties(properties)
    assert settings.tls.keys() == {"CONTROLLER"}
    assert settings.controller_listener_name == "CONTROLLER"
    assert not settings.tls["CONTROLLER"].key_store.is_set


@pytest.mark.parametrize(
    ("properties", "line"),
    [
        ({"listeners": "SSL://:1"}, "ssl.keystore.location: a listener with TLS needs a key and a certificate"),
        ({"listeners": "SSL://:1,CONTROLLER://:2", **PEM}, "CONTROLLER has no entry in listener.security.protocol.map"),
        ({**BROKER_ONLY, "listeners": "SSL://:1", **PEM}, "controller.listener.names: CONTROLLER has no entry"),
        (
            {"listeners": "SSL://:1", "security.inter.broker.protocol": "PLAINTEXT", **PEM},
            "expected the protocol of an advertised listener that is not the controllers'",
        ),
        (
            {
                "listeners": "SSL://:1",
                "security.inter.broker.protocol": "SSL",
                "inter.broker.listener.name": "SSL",
                **PEM,
            },
            "only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
        ),
        ({"listeners": "SASL_SSL://:1", **PEM}, "GSSAPI on listener SASL_SSL is not supported; expected PLAIN, SCRAM"),
        ({"listeners": "SSL://:1", **PEM, "ssl.client.auth": "REQUIRED"}, "String must be one of: required, requested"),
        (
            {"listeners": "SSL://:1", **PEM, "listener.name.ssl.ssl.principal.mapping.rules": "default"},
            "listener.name.ssl.ssl.principal.mapping.rules=default: Invalid rule",
        ),
    ],
)
def test_invalid_tls_settings_are_refused(properties: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError) as refused:
        from_properties(properties)
    assert line in str(refused.value)


def test_listeners_are_registered_with_their_protocol_id() -> None:
    assert [Listener("X", name, "", 1).security_protocol_id for name in ("PLAINTEXT", "SSL")] == [0, 1]


SECRETS = {
    "ssl.keystore.password": "planted-1",
    "ssl.key.password": "planted-2",
    "ssl.truststore.password": "planted-3",
    "listener.name.ssl.ssl.keystore.password": "planted-4",
    "listener.name.ssl.ssl.keystore.key": "planted-5",
    "ssl.keystore.certificate.chain": "planted-6",
    "ssl.truststore.certificates": "planted-7",
}


@pytest.mark.parametrize("key", SECRETS)
@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_no_error_shows_a_secret(tmp_path: Path, key: str, kind: str) -> None:
    """Each secret is wrong in some way: with the type of the store, without a location, or for the file."""
    vault = Vault(tmp_path)
    (tmp_path / "node.p12").write_bytes(Authority().issue().pkcs12(vault.authority, "other"))
    locations = {"ssl.keystore.type": kind, "ssl.keystore.location": str(tmp_path / "node.p12")}
    for stores in ({"ssl.keystore.type": kind, "ssl.truststore.type": kind}, locations):
        try:
            settings = from_properties({"listeners": "SSL://localhost:0", **stores, key: SECRETS[key]})
            shown = repr(settings) + "".join(settings.warnings)
            NodeTls(settings.tls, ["SSL"], [])
        except SettingsError as refused:
            shown = str(refused)
        assert "planted" not in shown
        assert "\n" not in shown


def test_configs_for_clients_show_no_secret() -> None:
    settings = from_properties({**SECRETS, "ssl.truststore.location": "/x"})
    entries = effective_broker_configs(settings.broker_layers())
    assert "planted" not in repr([(entry.name, entry.value, entry.synonyms) for entry in entries])
    assert next(entry.value for entry in entries if entry.name == "ssl.truststore.location") == "/x"


def test_a_start_with_a_wrong_password_is_refused_without_showing_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.pem"
    file.write_text(Authority().issue().encrypted_key(PASSWORD) + Authority().issue().chain)
    properties = tmp_path / "server.properties"
    properties.write_text(
        f"listeners=SSL://localhost:0\nssl.keystore.type=PEM\nssl.keystore.location={file}\n"
        f"ssl.key.password=planted\nlog.dirs={tmp_path}/data\n"
    )
    assert server_start.main([str(properties)]) == 1
    shown = capsys.readouterr()
    assert f"listener SSL: ssl.keystore.location={file}: ssl.key.password is wrong" in shown.err
    assert "planted" not in shown.out + shown.err
    assert not (tmp_path / "data").exists()


def test_a_node_reloads_its_changed_key_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(node_tls, "CHECK_INTERVAL_S", 0.01)
    caplog.set_level(logging.INFO, "moldau.tls")
    vault = Vault(tmp_path)
    properties = {"listeners": "SSL://127.0.0.1:0", "log.dirs": str(tmp_path / "data"), **vault.server()}

    def lines() -> list[str]:
        return [record.levelname for record in caplog.records if record.name == "moldau.tls"]

    async def replace_key_store() -> None:
        node = Node(from_properties(properties))
        await node.start()
        try:
            tls = node._tls.server("SSL")
            assert tls is not None
            first = tls.server
            vault.spoil("node")
            await until(lambda: lines() == ["ERROR"])
            assert tls.server is first
            vault.issue("node")
            await until(lambda: lines() == ["ERROR", "INFO"])
            assert tls.server is not first
        finally:
            await node.stop()

    asyncio.run(asyncio.wait_for(replace_key_store(), PATIENCE_S))


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(0.01)
