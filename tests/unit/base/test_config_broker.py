"""The broker keys and their effective values, as Apache Kafka 4.3.1 describes them."""

from __future__ import annotations

import re

import pytest

from moldau.base.broker_configs import (
    BROKER_CONFIGS,
    IMPLEMENTED,
    IMPLEMENTED_NAMES,
    broker_config,
    broker_value,
    check_dynamic_broker_configs,
    cluster_default_configs,
    effective_broker_configs,
    has_effect,
    is_dynamic_of_listener,
)
from moldau.base.config_def import BrokerLayers, ConfigSource, ConfigType, UpdateMode, rows_of
from moldau.base.errors import ErrorCode, KafkaError
from moldau.base.settings import log, security
from moldau.base.settings.accepted import ACCEPTED

KAFKAS, DEAD_LETTERS = 340, 2
"""Keys of Kafka 4.3, and those of dead letters, which are of 4.4."""


def test_implemented_and_accepted_keys_are_disjoint_and_documented() -> None:
    assert len(BROKER_CONFIGS) == len(IMPLEMENTED) + len(ACCEPTED)
    assert all(definition.documentation for definition in IMPLEMENTED)
    assert {definition.name for definition in ACCEPTED}.isdisjoint(IMPLEMENTED_NAMES)


def test_every_default_is_valid() -> None:
    for definition in BROKER_CONFIGS.values():
        if definition.default_text is not None:
            assert definition.parse(definition.default_text) == definition.default, definition.name


def test_the_number_of_keys_is_kafkas() -> None:
    assert len(effective_broker_configs(BrokerLayers())) == KAFKAS + DEAD_LETTERS
    assert sum(definition.update_mode is not UpdateMode.READ_ONLY for definition in BROKER_CONFIGS.values()) == (
        102 + DEAD_LETTERS
    )


def test_the_source_of_a_value_is_the_first_layer_that_sets_it() -> None:
    broker = BrokerLayers(static={"num.partitions": "4", "log.dirs": "/data"}, dynamic={"num.io.threads": " 9 "})
    entries = {entry.name: entry for entry in effective_broker_configs(broker)}
    assert (entries["num.partitions"].value, entries["num.partitions"].source) == (
        "4",
        ConfigSource.STATIC_BROKER_CONFIG,
    )
    assert [(s.value, int(s.source)) for s in entries["num.partitions"].synonyms] == [("4", 4), ("1", 5)]
    assert (entries["num.io.threads"].value, entries["num.io.threads"].source) == (
        "9",
        ConfigSource.DYNAMIC_BROKER_CONFIG,
    )
    assert (entries["log.roll.ms"].value, entries["log.roll.ms"].source) == (None, ConfigSource.DEFAULT_CONFIG)
    assert broker_value(log.NUM_PARTITIONS, broker) == 4


def test_secrets_are_never_shown() -> None:
    secrets = [definition.name for definition in BROKER_CONFIGS.values() if definition.type is ConfigType.PASSWORD]
    assert "ssl.keystore.password" in secrets
    broker = BrokerLayers(static=dict.fromkeys(secrets, "hunter2"), dynamic_default={"ssl.key.password": "hunter2"})
    assert "hunter2" not in repr(effective_broker_configs(broker))
    assert "hunter2" not in repr(cluster_default_configs(broker))


def test_cluster_wide_defaults_do_not_include_other_layers() -> None:
    broker = BrokerLayers(static={"log.retention.ms": "5"}, dynamic_default={"log.retention.ms": "7"})
    (entry,) = cluster_default_configs(broker)
    assert (entry.name, entry.value, int(entry.source)) == ("log.retention.ms", "7", 3)
    assert [(s.name, s.value, int(s.source)) for s in entry.synonyms] == [("log.retention.ms", "7", 3)]
    assert cluster_default_configs(BrokerLayers()) == ()


def test_a_key_may_be_set_for_one_listener() -> None:
    assert broker_config("listener.name.internal.ssl.keystore.type") is BROKER_CONFIGS["ssl.keystore.type"]
    assert broker_config("listener.name.internal.no.such") is None
    assert broker_config("listener.name.") is None


@pytest.mark.parametrize(
    ("changes", "per_broker", "expected"),
    [
        ({"node.id": "2"}, True, "Cannot update these configs dynamically: [node.id]"),
        ({"log.retention.hours": "1"}, False, "Cannot update these configs dynamically: [log.retention.hours]"),
        (
            {"log.retention.ms": "abc"},
            True,
            "Invalid value abc for configuration log.retention.ms: Not a number of type LONG",
        ),
        ({"num.io.threads": "0"}, False, "Invalid value 0 for configuration num.io.threads: Value must be at least 1"),
        (
            {"cordoned.log.dirs": "/a"},
            False,
            "Cannot update these configs at default cluster level, broker id must be specified: [cordoned.log.dirs]",
        ),
    ],
)
def test_dynamic_changes_are_refused_as_in_kafka(changes: dict[str, str], per_broker: bool, expected: str) -> None:
    with pytest.raises(KafkaError) as refused:
        check_dynamic_broker_configs(changes, per_broker=per_broker)
    assert (refused.value.code, refused.value.message) == (ErrorCode.INVALID_REQUEST, expected)


PREFIX = "These security configs can be dynamically updated only per-listener using the listener prefix"
DEFAULT_LEVEL = "Cannot update these configs at default cluster level, broker id must be specified"
READ_ONLY = "Cannot update these configs dynamically"
STORE_KEYS = [row.name for row in rows_of(security) if re.match(r"ssl\.(keystore|truststore|key)\.", row.name)]
"""Those that Kafka changes in a running broker: SslConfigs.RECONFIGURABLE_CONFIGS."""
FIXED = "Moldau cannot change these configs of a running broker"


@pytest.mark.parametrize(
    ("name", "text", "per_broker", "expected"),
    [
        *((f"listener.name.a.{key}", "PEM", True, None) for key in STORE_KEYS),
        *((f"listener.name.a.{key}", "PEM", False, DEFAULT_LEVEL) for key in STORE_KEYS),
        *((key, "PEM", True, PREFIX) for key in STORE_KEYS),
        ("listener.name.a.ssl.client.auth", "required", True, None),
        ("listener.name.a.ssl.client.auth", "perhaps", True, "Invalid value perhaps for configuration ssl.client.auth"),
        ("listener.name.a.ssl.enabled.protocols", "TLSv1.3", True, None),
        ("listener.name.a.ssl.protocol", "TLSv1.2", True, None),
        ("listener.name.a.ssl.cipher.suites", "x", True, None),
        ("ssl.client.auth", "required", True, PREFIX),
        ("listener.name.A.ssl.client.auth", "required", True, FIXED),
        ("listener.name.a.plain.ssl.client.auth", "required", True, FIXED),
        ("listener.name.a.ssl.endpoint.identification.algorithm", "", True, FIXED),
        ("listener.name.a.ssl.principal.mapping.rules", "DEFAULT", True, READ_ONLY),
        ("listener.name.a.ssl.allow.dn.changes", "true", True, READ_ONLY),
        ("listener.name.a.sasl.enabled.mechanisms", "PLAIN", True, None),
        ("sasl.enabled.mechanisms", "PLAIN", True, PREFIX),
        ("listener.name.a.plain.sasl.jaas.config", "x", True, None),
        ("listener.name.a.plain.sasl.jaas.config", "x", False, DEFAULT_LEVEL),
        ("listener.name.a.sasl.jaas.config", "x", True, FIXED),
        ("listener.name.a.oauthbearer.sasl.jaas.config", "x", True, FIXED),
        ("sasl.jaas.config", "x", True, PREFIX),
        ("listener.name.a.connections.max.reauth.ms", "5", True, None),
        ("listener.name.a.plain.connections.max.reauth.ms", "5", True, None),
        ("listener.name.a.connections.max.reauth.ms", "5", False, DEFAULT_LEVEL),
        ("connections.max.reauth.ms", "5", True, READ_ONLY),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN", True, FIXED),
        ("listener.name.a.oauthbearer.sasl.oauthbearer.jwks.endpoint.url", "file:/x", True, READ_ONLY),
        ("sasl.kerberos.service.name", "x", True, FIXED),
    ],
)
def test_which_configs_of_tls_and_sasl_can_be_changed(
    name: str, text: str, per_broker: bool, expected: str | None
) -> None:
    assert is_dynamic_of_listener(name) == (expected not in (PREFIX, READ_ONLY, FIXED))
    if expected is None:
        check_dynamic_broker_configs({name: text}, per_broker=per_broker)
        return
    with pytest.raises(KafkaError, match=f"^{re.escape(expected)}") as refused:
        check_dynamic_broker_configs({name: text}, per_broker=per_broker)
    assert refused.value.code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "changes", [{"log.retention.ms": "5"}, {"no.such": "x"}, {"leader.replication.throttled.rate": "5"}]
)
def test_valid_and_unknown_dynamic_changes_are_accepted(changes: dict[str, str]) -> None:
    check_dynamic_broker_configs(changes, per_broker=False)


@pytest.mark.parametrize("name", ["listeners", "listener.security.protocol.map"])
@pytest.mark.parametrize("per_broker", [False, True])
def test_listeners_of_a_running_broker_cannot_be_changed(name: str, per_broker: bool) -> None:
    with pytest.raises(KafkaError) as refused:
        check_dynamic_broker_configs({name: "PLAINTEXT://:9999"}, per_broker=per_broker)
    assert (refused.value.code, refused.value.message) == (
        ErrorCode.INVALID_REQUEST,
        f"Moldau cannot change these configs of a running broker: [{name}]; set them in its properties file and restart"
        " it",
    )


def test_keys_of_listeners_and_unknown_keys_are_shown_where_they_are_set() -> None:
    limit, rate = "listener.name.internal.max.connections", "listener.name.internal.max.connection.creation.rate"
    jaas = "listener.name.internal.plain.sasl.jaas.config"
    broker = BrokerLayers(
        dynamic={limit: " 5 ", "no.such": "hunter2"},
        dynamic_default={limit: "6", rate: "7", "max.connections": "8"},
        static={jaas: "hunter2"},
    )
    entries = {entry.name: entry for entry in effective_broker_configs(broker)}
    assert len(entries) == KAFKAS + DEAD_LETTERS + 4
    shown = [(name, entries[name].value, int(entries[name].source)) for name in (limit, rate, jaas, "no.such")]
    assert shown == [(limit, "5", 2), (rate, "7", 3), (jaas, None, 4), ("no.such", None, 2)]
    assert [(s.name, s.value, int(s.source)) for s in entries[limit].synonyms] == [
        (limit, " 5 ", 2),
        (limit, "6", 3),
        ("max.connections", "8", 3),
        ("max.connections", "2147483647", 5),
    ]
    assert (entries[limit].definition.type, entries[limit].definition.read_only) == (ConfigType.INT, False)
    assert (entries["no.such"].definition.type, entries["no.such"].definition.sensitive) == (ConfigType.UNKNOWN, True)
    assert "hunter2" not in repr(list(entries.values()))
    of_all = {entry.name: entry.value for entry in cluster_default_configs(broker)}
    assert of_all == {limit: "6", rate: "7", "max.connections": "8"}
    (unknown,) = cluster_default_configs(BrokerLayers(dynamic_default={"no.such": "hunter2"}))
    assert (unknown.name, unknown.value, int(unknown.source)) == ("no.such", None, 3)
    assert "hunter2" not in repr(unknown)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("x.max.connections", True),
        ("x.plain.max.connections", False),
        ("x.plain.sasl.enabled.mechanisms", False),
        ("x.plain.ssl.keystore.location", False),
        ("x.ssl.keystore.location", True),
        ("x.plain.sasl.jaas.config", True),
        ("x.scram-sha-256.connections.max.reauth.ms", True),
        ("x.connections.max.reauth.ms", True),
        ("x.sasl.oauthbearer.expected.audience", True),
        ("x.oauthbearer.sasl.oauthbearer.expected.audience", True),
        ("x.plain.sasl.oauthbearer.expected.audience", False),
        ("x.oauthbearer.sasl.server.callback.handler.class", True),
        ("x.sasl.server.callback.handler.class", False),
        ("x.num.io.threads", False),
    ],
)
def test_which_listener_keys_have_an_effect(key: str, expected: bool) -> None:
    assert has_effect(f"listener.name.{key}") == expected
