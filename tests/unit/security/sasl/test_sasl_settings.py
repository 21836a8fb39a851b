"""The SASL settings of a node: what they mean, and what is refused with one line that shows no password."""

from __future__ import annotations

from pathlib import Path

import pytest

from moldau.base.broker_configs import effective_broker_configs
from moldau.security.sasl.client import ClientLogin
from moldau.settings import Settings, SettingsError, from_properties, load

PLANTED = "s3cr3t-planted"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
USERS = f'{PLAIN_MODULE} required username="node" password="{PLANTED}" user_node="{PLANTED}" user_ann="{PLANTED}2";'
ALONE = {"listeners": "SASL_PLAINTEXT://localhost:9092", "sasl.enabled.mechanisms": "PLAIN", JAAS: USERS}
CLUSTER = {
    **ALONE,
    "node.id": "1",
    "listeners": "SASL_PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "controller.quorum.voters": "1@localhost:9093,2@localhost:9094",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.controller.plain.sasl.jaas.config": USERS,
}


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as refused:
        from_properties(properties)
    line = str(refused.value)
    assert PLANTED not in line
    assert "\n" not in line
    return line


def without(properties: dict[str, str], *names: str) -> dict[str, str]:
    return {key: value for key, value in properties.items() if key not in names}


def test_a_single_node_needs_no_login_of_its_own() -> None:
    sasl = from_properties(ALONE).sasl
    (listener,) = sasl.listeners.values()
    assert listener.lifetimes_ms == {"PLAIN": 0}
    assert listener.passwords == {"node": PLANTED, "ann": PLANTED + "2"}
    assert listener.receive_bytes_max == 524_288
    assert sasl.failure_delay_ms == 100
    assert (sasl.broker_login, sasl.controller_login) == (None, None)
    assert from_properties(ALONE).warnings == ()


def test_a_cluster_logs_in_to_brokers_and_controllers() -> None:
    settings = from_properties(CLUSTER)
    login = ClientLogin("PLAIN", "node", PLANTED)
    assert (settings.sasl.broker_login, settings.sasl.controller_login) == (login, login)
    assert set(settings.sasl.listeners) == {"SASL_PLAINTEXT", "CONTROLLER"}
    assert settings.inter_broker_listener_name == "SASL_PLAINTEXT"
    assert settings.warnings == ()


def test_a_broker_without_the_controller_role_logs_in_to_controllers_too() -> None:
    properties = {
        **CLUSTER,
        "node.id": "7",
        "process.roles": "broker",
        "listeners": "SASL_PLAINTEXT://localhost:9092",
    }
    settings = from_properties(properties)
    assert settings.sasl.controller_login == ClientLogin("PLAIN", "node", PLANTED)
    assert set(settings.sasl.listeners) == {"SASL_PLAINTEXT"}


def test_brokers_need_no_login_if_only_clients_use_sasl() -> None:
    properties = {
        **without(CLUSTER, "listener.name.controller.plain.sasl.jaas.config"),
        "listeners": "SASL_PLAINTEXT://localhost:9092,INTERNAL://localhost:9095,CONTROLLER://localhost:9093",
        "listener.security.protocol.map": ("CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT"),
        "inter.broker.listener.name": "INTERNAL",
    }
    sasl = from_properties(properties).sasl
    assert (sasl.broker_login, sasl.controller_login) == (None, None)
    assert set(sasl.listeners) == {"SASL_PLAINTEXT"}


def test_listener_and_mechanism_prefixes_override_settings() -> None:
    properties = {
        **ALONE,
        "sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "connections.max.reauth.ms": "5000",
        "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "7000",
        "listener.name.sasl_plaintext.sasl.server.max.receive.size": "1000",
    }
    settings = from_properties(properties)
    listener = settings.sasl.listeners["SASL_PLAINTEXT"]
    assert listener.lifetimes_ms == {"SCRAM-SHA-512": 5000, "PLAIN": 7000}
    assert listener.receive_bytes_max == 1000
    assert settings.warnings == ()


def test_scram_needs_no_jaas_line_to_serve_clients() -> None:
    settings = from_properties({**without(ALONE, JAAS), "sasl.enabled.mechanisms": "SCRAM-SHA-256"})
    assert settings.sasl.listeners["SASL_PLAINTEXT"].passwords == {}


def test_brokers_log_in_with_scram() -> None:
    properties = {
        **CLUSTER,
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (
            f'{SCRAM_MODULE} required username="node" password="{PLANTED}";'
        ),
    }
    assert from_properties(properties).sasl.broker_login == ClientLogin("SCRAM-SHA-256", "node", PLANTED)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            without(ALONE, "sasl.enabled.mechanisms"),
            "sasl.enabled.mechanisms: GSSAPI on listener SASL_PLAINTEXT is not supported; expected PLAIN, SCRAM",
        ),
        ({**ALONE, "sasl.enabled.mechanisms": "PLAIN,plain"}, "plain on listener SASL_PLAINTEXT is not supported"),
        ({**ALONE, "sasl.enabled.mechanisms": ""}, "listener SASL_PLAINTEXT needs one of PLAIN"),
        (without(ALONE, JAAS), f"{JAAS}: is not set, but PLAIN on listener SASL_PLAINTEXT needs it"),
        ({**ALONE, JAAS: USERS[:-1]}, f"{JAAS}=[hidden]: JAAS config entry not terminated by semi-colon"),
        ({**ALONE, JAAS: USERS + USERS}, "contains 2 login modules, should be 1 module"),
        ({**ALONE, JAAS: USERS.replace("PlainL", "OtherL")}, f"expected the login module {PLAIN_MODULE}"),
        ({**ALONE, JAAS: f"user={PLANTED} {PLANTED};"}, "JAAS config"),
        ({**ALONE, "sasl.server.max.receive.size": "0"}, "expected at least 1"),
        (
            {**ALONE, "connection.failed.authentication.delay.ms": "600000"},
            "expected less than connections.max.idle.ms=600000",
        ),
        (
            without(CLUSTER, "sasl.mechanism.inter.broker.protocol"),
            "sasl.mechanism.inter.broker.protocol: GSSAPI on listener SASL_PLAINTEXT is not supported",
        ),
        (
            {**CLUSTER, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "must be included in sasl.enabled.mechanisms of listener SASL_PLAINTEXT",
        ),
        (
            {**CLUSTER, "sasl.mechanism.controller.protocol": "SCRAM-SHA-256"},
            "must be included in sasl.enabled.mechanisms of listener CONTROLLER",
        ),
        (
            {**CLUSTER, JAAS: f'{PLAIN_MODULE} required user_ann="{PLANTED}";'},
            "expected username and password, with which this node logs in to other nodes",
        ),
        (
            {**CLUSTER, JAAS: f'{PLAIN_MODULE} required username="node" user_ann="{PLANTED}";'},
            "expected username and password",
        ),
        (
            {**ALONE, "listeners": "SASL_PLAINTEXT://:9092,CONTROLLER://:9093"},
            "CONTROLLER has no entry in listener.security.protocol.map",
        ),
    ],
)
def test_wrong_sasl_settings_are_refused(properties: dict[str, str], expected: str) -> None:
    assert expected in refusal(properties)


@pytest.mark.parametrize("key", ["sasl.jaas.config", "listener.name.sasl_plaintext.sasl.jaas.config"])
def test_a_jaas_line_without_a_mechanism_has_no_effect(key: str) -> None:
    (warning,) = from_properties({**ALONE, key: USERS}).warnings
    assert f"{key} has no effect" in warning
    assert PLANTED not in warning


def shown(settings: Settings) -> str:
    return repr(effective_broker_configs(settings.broker_layers()))


def test_no_password_is_shown() -> None:
    settings = from_properties({**CLUSTER, "sasl.jaas.config": USERS})
    assert PLANTED not in repr(settings)
    assert PLANTED not in shown(settings)
    assert "sasl.jaas.config" in shown(settings)


def test_users_are_read_from_a_jaas_file(tmp_path: Path) -> None:
    file = tmp_path / "jaas.conf"
    file.write_text(f"KafkaServer {{ {SCRAM_MODULE} required; {USERS} }};")
    environ = {"KAFKA_OPTS": f"-Xmx1g -Djava.security.auth.login.config={file} -Da=b"}
    settings = load(environ=environ, overrides=without(ALONE, JAAS).items())
    assert settings.sasl.listeners["SASL_PLAINTEXT"].passwords["ann"] == PLANTED + "2"
    file.write_text(
        f"KafkaServer {{ {USERS} }}; sasl_plaintext.KafkaServer {{ {USERS.replace('user_ann', 'user_bob')} }};"
    )
    settings = load(environ=environ, overrides=without(ALONE, JAAS).items())
    assert set(settings.sasl.listeners["SASL_PLAINTEXT"].passwords) == {"node", "bob"}
    file.write_text(f"KafkaServer {{ {USERS} ")
    with pytest.raises(SettingsError) as refused:
        load(environ=environ, overrides=without(ALONE, JAAS).items())
    assert str(file) in str(refused.value)
    assert PLANTED not in str(refused.value)
    with pytest.raises(SettingsError, match="cannot be read"):
        load(environ={"KAFKA_OPTS": f"-Djava.security.auth.login.config={file}x"})
