"""The settings that `--secure` makes: they are valid, protect every listener, and fit into a properties file."""

from __future__ import annotations

import pytest

from moldau.base.properties import parse
from moldau.cli.secure_start import check_is_secured
from moldau.local_cluster import NodeAddress
from moldau.secure_setup.settings import client_file, client_properties, secured_node_properties
from moldau.security.principals import parse_super_users
from moldau.security.sasl.jaas import parse_line
from moldau.settings import SettingsError, from_properties

NODES = [NodeAddress(number, 9091 + number, 10091 + number, 11091 + number) for number in (1, 2, 3)]
STORES = ("/data/node.pem", "/data/authority.pem")


def test_a_node_of_a_cluster_has_no_listener_without_tls_and_a_login() -> None:
    settings = from_properties(
        secured_node_properties(NODES[1], NODES, "/data", STORES, "0.0.0.0", "kafka.example.com")
    )
    assert settings.warnings == ()
    listeners = {each.name: each for each in (*settings.listeners, *settings.controller_listeners)}
    assert {name: each.security_protocol for name, each in listeners.items()} == {
        "SASL_SSL": "SASL_SSL",
        "NODES": "SSL",
        "CONTROLLER": "SSL",
    }
    assert [settings.tls[name].client_auth for name in ("SASL_SSL", "NODES", "CONTROLLER")] == [
        "none",
        "required",
        "required",
    ]
    assert settings.inter_broker_listener_name == "NODES"
    assert settings.authorizer.super_users == parse_super_users("User:admin;User:CN=moldau-node")
    assert [str(each) for each in settings.advertised_listeners] == [
        "SASL_SSL://kafka.example.com:9093",
        "NODES://127.0.0.1:11093",
    ]


def test_only_the_listener_for_clients_is_on_other_interfaces() -> None:
    settings = from_properties(secured_node_properties(NODES[0], NODES, "/data", STORES, "::", None))
    hosts = {each.name: each.host for each in (*settings.listeners, *settings.controller_listeners)}
    assert hosts == {"SASL_SSL": "::", "NODES": "127.0.0.1", "CONTROLLER": "127.0.0.1"}


@pytest.mark.parametrize("password", ["plain", 'a"b\\n c#!=', " x\\", "ü€"])
def test_a_client_file_is_read_as_it_was_written(password: str) -> None:
    properties = client_properties(
        'o"user', password, "-----BEGIN CERTIFICATE-----\nAA\nBB\n-----END CERTIFICATE-----\n"
    )
    read = {each.key: each.value for each in parse(client_file(properties))}
    assert read["ssl.truststore.certificates"].splitlines() == properties["ssl.truststore.certificates"].splitlines()
    assert parse_line(read["sasl.jaas.config"]).options == {"username": 'o"user', "password": password}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, "listener PLAINTEXT://0.0.0.0:9092 does not demand both"),
        ({"listeners": "SSL://:9092"}, "does not demand both TLS and authentication"),
        ({"listeners": "SASL_SSL://:9092,SASL_PLAINTEXT://:9093"}, "listener SASL_PLAINTEXT://:9093 does not demand"),
        (
            {"authorizer.class.name": "", "super.users": None, "allow.everyone.if.no.acl.found": None},
            "must not be empty",
        ),
        (
            {
                "listeners": "SASL_SSL://:9092,CONTROLLER://:9093",
                "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:SSL",
                "controller.quorum.voters": "1@a:9093,2@b:9093",
                "controller.listener.names": "CONTROLLER",
                "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
                "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram."
                'ScramLoginModule required username="node" password="x";',
            },
            "these settings are of a cluster",
        ),
    ],
)
def test_settings_that_weaken_security_are_refused(changes: dict[str, str | None], reason: str) -> None:
    from moldau.secure_setup.settings import secured_properties

    properties = {"listeners": "SASL_SSL://:9092", **secured_properties(*STORES), **changes}
    settings = from_properties({key: value for key, value in properties.items() if value is not None})
    with pytest.raises(SettingsError, match=f"^--secure: .*{reason}"):
        check_is_secured(settings)


def test_required_client_certificates_count_as_authentication() -> None:
    from moldau.secure_setup.settings import secured_properties

    properties = {"listeners": "SSL://:9092", "ssl.client.auth": "required", **secured_properties(*STORES)}
    check_is_secured(from_properties(properties))


def test_all_nodes_have_the_same_delegation_token_key() -> None:
    texts = [secured_node_properties(each, NODES, "/data", STORES, "::", None, "the-key") for each in NODES]
    assert {from_properties(each).delegation_tokens.secret_key for each in texts} == {"the-key"}
    assert "the-key" not in repr(from_properties(texts[0]))
    assert not from_properties(
        secured_node_properties(NODES[0], NODES, "/data", STORES, "::", None)
    ).delegation_tokens.is_enabled


@pytest.mark.parametrize(
    ("listeners", "advertise", "advertised"),
    [
        ("SASL_SSL://0.0.0.0:9092", "kafka.example.com", "SASL_SSL://kafka.example.com:9092"),
        ("SASL_SSL://:19092", "kafka.example.com:443", "SASL_SSL://kafka.example.com:443"),
        ("SASL_SSL://[::]:9092", "[fd00::1]", "SASL_SSL://[fd00::1]:9092"),
        ("SASL_SSL://localhost:9092", "kafka.example.com", None),
        ("SASL_SSL://:9092,OTHER://:9093", "kafka.example.com", None),
        ("nonsense", "kafka.example.com", None),
    ],
)
def test_a_kept_advertised_name_is_used_where_it_fits(listeners: str, advertise: str, advertised: str | None) -> None:
    from moldau.secure_setup.settings import advertised_again, name_to_keep

    assert advertised_again(listeners, advertise) == advertised
    if advertised is not None:
        port = int(listeners.rpartition(":")[2])
        assert name_to_keep(advertised, port) == advertise
