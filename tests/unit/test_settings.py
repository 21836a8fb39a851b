"""Settings from three sources; an error is one line with source, key, value and what is expected."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.base.listeners import Listener
from moldau.base.setting_sources import parse_override
from moldau.base.settings import groups
from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.settings import Settings, SettingsError, from_properties, load

KAFKAS_OWN_FILE = """
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=2
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def refusal(properties: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as refused:
        from_properties(properties)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def plaintext(host: str, port: int, name: str = "PLAINTEXT") -> Listener:
    return Listener(name, "PLAINTEXT", host, port)


def test_defaults() -> None:
    settings = load()
    assert settings.node_id == 1
    assert settings.cluster_id is None
    assert settings.listeners == settings.advertised_listeners == (plaintext("localhost", 9092),)
    assert settings.inter_broker_listener_name == "PLAINTEXT"
    assert settings.log_dirs == ("./moldau-data",)
    assert settings.num_partitions == 1
    assert settings.auto_create_topics_enable is True
    assert settings.socket_request_max_bytes == 104857600
    assert settings.properties == {}
    assert settings.warnings == ()


def test_each_source_overrides_the_one_before(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("num.partitions=2\nnode.id=3\nlog.dirs=/a , /b\n")
    environ = {"KAFKA_NUM_PARTITIONS": "4", "KAFKA_NODE_ID": "5", "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qg"}
    settings = load(str(file), environ, [("node.id", "6")])
    assert (settings.num_partitions, settings.node_id, settings.log_dirs) == (4, 6, ("/a", "/b"))
    assert settings.cluster_id == "MkU3OEVBNTcwNTJENDM2Qg"
    assert settings.properties == {"num.partitions": "4", "node.id": "6", "log.dirs": "/a , /b"}


def test_kafkas_own_example_file_gives_no_warning(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(KAFKAS_OWN_FILE)
    settings = load(str(file))
    assert settings.warnings == ()
    assert settings.listeners == (plaintext("", 9092),)
    assert settings.controller_listeners == (plaintext("", 9093, "CONTROLLER"),)
    assert settings.advertised_listeners == (plaintext("localhost", 9092),)


@pytest.mark.parametrize(
    ("advertised", "reached_at"),
    [("PLAINTEXT://two:9092,CONTROLLER://two:9093", "two"), ("PLAINTEXT://two:9092", "own-name"), ("", "own-name")],
)
def test_an_advertised_controller_address_can_be_connected_to(
    advertised: str, reached_at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("moldau.settings.own_host", lambda: "own-name")
    properties = {
        "process.roles": "broker,controller",
        "controller.quorum.bootstrap.servers": "one:9093",
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": advertised,
        "controller.listener.names": "CONTROLLER",
    }
    settings = from_properties(properties)
    assert settings.advertised_controllers == (plaintext(reached_at, 9093, "CONTROLLER"),)
    assert settings.controller_listeners == (plaintext("", 9093, "CONTROLLER"),)


@pytest.mark.parametrize(
    ("servers", "is_alone"),
    [
        ("", True),
        ("localhost:9093", True),
        ("own.invalid:9093", True),
        ("two.invalid:9093", False),
        ("localhost:9094", False),
        ("localhost:9093,192.0.2.1:9093", False),
    ],
)
def test_a_node_is_alone_if_all_addresses_of_controllers_are_its_own(servers: str, is_alone: bool) -> None:
    properties = {
        "process.roles": "broker,controller",
        "controller.quorum.bootstrap.servers": servers,
        "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
        "advertised.listeners": "PLAINTEXT://own.invalid:9092,CONTROLLER://own.invalid:9093",
        "controller.listener.names": "CONTROLLER",
    }
    assert from_properties(properties).is_alone is is_alone


def test_environment_variables_as_in_kafkas_container_images() -> None:
    environ = {
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:PLAINTEXT",
        "KAFKA_LISTENERS": "A://0.0.0.0:19092",
        "KAFKA_ADVERTISED_LISTENERS": "A://broker:19092",
        "KAFKA_HEAP_OPTS": "-Xmx1G",
        "KAFKA_JMX_PORT": "9999",
        "KAFKA_ROOT": "/opt/kafka",
        "KAFKA_PORT_9092_TCP_ADDR": "10.0.0.7",
        "KAFKA_NUM__PARTITIONS": "2",
        "KAFKA_NODE___ID": "2",
        "PATH": "/bin",
    }
    settings = load(environ=environ)
    assert settings.advertised_listeners == (plaintext("broker", 19092, "A"),)
    assert settings.warnings == (
        "KAFKA_NUM__PARTITIONS: unknown setting num_partitions is ignored; did you mean num.partitions?",
        "KAFKA_NODE___ID: unknown setting node-id is ignored; did you mean node.id?",
    )


def test_misspelt_variables_about_security_give_warnings() -> None:
    environ = {
        "KAFKA_LISTENERS": "A://0.0.0.0:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "A:PLAINTEXT",
        "KAFKA_LISTENER_NAME_A_SSL_CLIENT_ATUH": "required",
        "KAFKA_AUTHORIZER": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    assert load(environ=environ).warnings == (
        "KAFKA_LISTENER_NAME_A_SSL_CLIENT_ATUH: unknown setting listener.name.a.ssl.client.atuh is ignored;"
        " did you mean listener.name.a.ssl.client.auth?",
        "KAFKA_AUTHORIZER: unknown setting authorizer is ignored",
    )


def test_keys_without_effect_give_a_warning() -> None:
    settings = from_properties({"num.partition": "3", "num.io.threads": "9", "num.network.threads": "3"})
    assert settings.warnings == (
        "properties: unknown setting num.partition is ignored; did you mean num.partitions?",
        "properties: setting num.io.threads is accepted but has no effect in Moldau yet",
    )
    of_listener = from_properties({"listener.name.plaintext.ssl.keystore.location": "/x"})
    assert of_listener.warnings == ()
    of_no_listener = from_properties({"listener.name.other.ssl.keystore.location": "/x"})
    assert of_no_listener.warnings == (
        "properties: listener.name.other.ssl.keystore.location has no effect: there is no listener OTHER",
    )
    of_upper_case = from_properties({"listener.name.PLAINTEXT.max.connections": "3"})
    assert of_upper_case.warnings == (
        "properties: listener.name.PLAINTEXT.max.connections has no effect:"
        " write it as listener.name.plaintext.max.connections",
    )


def test_an_empty_list_of_assignors_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"group\.consumer\.assignors=: is empty; expected at least one of"):
        from_properties({"group.consumer.assignors": ""})


def test_a_password_is_in_no_warning() -> None:
    settings = load(overrides=[("sasl.jaas.config", "hunter2"), ("unknown.password", "hunter2")])
    assert len(settings.warnings) == 2
    assert "hunter2" not in repr(settings)
    assert "hunter2" not in "".join(settings.warnings)


def test_an_error_names_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# first\nnode.id=1\nlog.retention.ms=a week\n")
    with pytest.raises(SettingsError) as refused:
        load(str(file))
    assert str(refused.value) == (
        f"{file}:3: Invalid value a week for configuration log.retention.ms: Not a number of type LONG"
    )


def test_unreadable_and_malformed_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere: cannot be read: No such file"):
        load(str(tmp_path / "nowhere"))
    broken = tmp_path / "broken"
    broken.write_text("a=\\u12")
    with pytest.raises(SettingsError, match="broken: line 1:"):
        load(str(broken))


def test_a_latin_1_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "latin"
    file.write_bytes(b"broker.rack=z\xfcrich\n")
    assert load(str(file)).broker_rack == "zürich"


def test_the_byte_order_mark_of_a_utf_8_file_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "with-bom"
    file.write_bytes("broker.rack=zürich\n".encode("utf-8-sig"))
    assert load(str(file)).broker_rack == "zürich"


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"node.id": "-1"}, "Value must be at least 0"),
        ({"node.id": "1", "broker.id": "2"}, "properties: broker.id=2: differs from node.id=1"),
        ({"process.roles": "broker"}, "a broker-only node needs controller.quorum.bootstrap.servers"),
        ({"process.roles": "controller"}, "a controller needs a listener that is named in controller.listener.names"),
        ({"process.roles": "king"}, "String must be one of: broker, controller"),
        ({"process.roles": ""}, "expected broker, controller or both"),
        ({"controller.quorum.voters": "1@a:9093,2@b:9093"}, "a controller needs a listener that is named in"),
        ({"controller.quorum.voters": "2@a:9093"}, "node 1 is a controller but not a voter"),
        ({"controller.quorum.voters": "1@a:1,1@b:1"}, "expected a different id for each"),
        ({"controller.quorum.voters": "a:9093"}, "'a:9093' is not a voter; expected id@host:port"),
        ({"controller.quorum.voters": "1@:9093"}, "'1@:9093' is not a voter; expected id@host:port"),
        ({"controller.quorum.voters": "1@a:90930"}, "'1@a:90930' is not a voter; expected id@host:port"),
        ({"process.roles": "broker", "controller.quorum.voters": "1@a:1"}, "node 1 is a voter but not a controller"),
        ({"controller.quorum.bootstrap.servers": "a"}, "'a' is not an address; expected host:port"),
        ({"controller.quorum.bootstrap.servers": "a:90930"}, "'a:90930' is not an address; expected host:port"),
        (
            {
                "process.roles": "broker",
                "controller.quorum.bootstrap.servers": "a:1",
                "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            },
            "a broker-only node must not have a listener named in controller.listener.names: remove CONTROLLER",
        ),
        (
            {"process.roles": "controller", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "a controller-only node must not have a listener for clients: remove PLAINTEXT",
        ),
        ({"replica.selector.class": "a.b.Nearest"}, "expected one of LeaderSelector, RackAwareReplicaSelector"),
        ({"listeners": "nonsense"}, "listeners=nonsense: 'nonsense' is not a listener; expected NAME://host:port"),
        ({"listeners": "PLAINTEXT://localhost:99999"}, "is not a listener"),
        ({"listeners": "FOO://localhost:9092"}, "listener FOO has no entry in listener.security.protocol.map"),
        ({"listeners": "SSL://:9092"}, "ssl.keystore.location: a listener with TLS needs a key and a certificate"),
        ({"listeners": "SASL_SSL://:9092"}, "expected"),
        ({"listeners": "CONTROLLER://:9092"}, "a broker needs a listener for clients"),
        ({"listeners": ""}, "a broker needs a listener for clients"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "expected a different name and a different address"),
        ({"listeners": "PLAINTEXT://:9092,PLAINTEXT://:9093"}, "expected a different name and a different address"),
        ({"listener.security.protocol.map": "PLAINTEXT:TELNET"}, "'PLAINTEXT:TELNET' is not NAME:PROTOCOL"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:9092"}, "'0.0.0.0' is not a host to connect to"),
        ({"advertised.listeners": "PLAINTEXT://:9092"}, "'' is not a host to connect to"),
        ({"advertised.listeners": "PLAINTEXT://a..b:9092"}, "'a..b' is not a host to connect to"),
        ({"advertised.listeners": "SSL://a:9092"}, "SSL is not one of the listeners"),
        ({"advertised.listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "expected a different name for each listener"),
        (
            {
                "listeners": "A://:1,B://:2",
                "advertised.listeners": "A://h:1",
                "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
                "inter.broker.listener.name": "B",
            },
            "inter.broker.listener.name=B: expected the name of an advertised listener",
        ),
        (
            {"inter.broker.listener.name": "OTHER"},
            "inter.broker.listener.name=OTHER: expected the name of an advertised",
        ),
        ({"security.inter.broker.protocol": "SSL"}, "expected the protocol of an advertised listener that is not"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "expected the protocol of an advertised listener"),
        ({"security.inter.broker.protocol": "SASL_PLAINTEXT"}, "expected the protocol of an advertised listener"),
        (
            {"security.inter.broker.protocol": "PLAINTEXT", "inter.broker.listener.name": "PLAINTEXT"},
            "only one of inter.broker.listener.name and security.inter.broker.protocol should be set",
        ),
        ({"authorizer.class.name": "a.b.C"}, "not supported; expected org.apache.kafka.metadata.authorizer.Standard"),
        ({"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "ann"}, "'ann' is not a principal; expected"),
        ({"log.roll.ms": "0"}, "log.roll.ms=0: Value must be at least 1, as segment.ms of a topic"),
        ({"ssl.client.auth": "maybe"}, "String must be one of: required, requested, none"),
    ],
)
def test_invalid_settings_are_refused(properties: dict[str, str], expected: str) -> None:
    assert expected in refusal(properties)


def test_defaults_of_the_authorizer_may_be_set_without_one() -> None:
    defaults = {"authorizer.class.name": "", "super.users": "", "allow.everyone.if.no.acl.found": "false"}
    settings = from_properties(defaults)
    assert not settings.authorizer.is_enabled
    assert settings.warnings == ()


def test_a_controllers_listener_needs_an_entry_if_the_protocol_map_is_set() -> None:
    listeners = {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}
    assert from_properties(listeners).controller_listeners
    assert "CONTROLLER has no entry" in refusal({**listeners, "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"})


def test_broker_id_is_the_older_name_of_node_id() -> None:
    assert from_properties({"broker.id": "7"}).node_id == 7
    assert from_properties({"broker.id": "7", "node.id": "7"}).node_id == 7


def test_a_wildcard_listener_advertises_this_machines_name() -> None:
    (listener,) = from_properties({"listeners": "PLAINTEXT://0.0.0.0:9092"}).advertised_listeners
    assert listener.host in (socket.gethostname(), "localhost")


def test_a_machine_whose_name_cannot_be_resolved_advertises_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "no-such-host.invalid")
    settings = from_properties({"listeners": "PLAINTEXT://:9092"})
    assert settings.advertised_listeners == (plaintext("localhost", 9092),)
    assert settings.warnings == (
        "the advertised host is localhost, which works only on this machine: make the machine's name"
        " (no-such-host.invalid) resolvable, or set advertised.listeners",
    )
    properties = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://localhost:9092"}
    assert from_properties(properties).warnings == ()
    assert from_properties({}).warnings == ()


def test_ipv6_addresses() -> None:
    (listener,) = from_properties({"listeners": "PLAINTEXT://[::1]:9092"}).listeners
    assert (listener.host, listener.address, str(listener)) == ("::1", "[::1]:9092", "PLAINTEXT://[::1]:9092")


def test_several_listeners_may_have_port_zero() -> None:
    settings = from_properties({"listeners": "PLAINTEXT://localhost:0,CONTROLLER://localhost:0"})
    assert settings.listeners + settings.controller_listeners == (
        plaintext("localhost", 0),
        plaintext("localhost", 0, "CONTROLLER"),
    )


@pytest.mark.parametrize("key", ["log.dirs", "log.dir"])
def test_several_log_dirs_give_a_warning(key: str) -> None:
    assert from_properties({key: "/a,/b"}).warnings == (
        f"properties: {key}: Moldau uses only the first of several directories",
    )


def test_several_cleaner_threads_give_a_warning() -> None:
    assert from_properties({"log.cleaner.threads": "4"}).warnings == (
        "properties: log.cleaner.threads: Moldau compacts one log at a time",
    )
    assert from_properties({"log.cleaner.threads": "1", "log.cleanup.policy": "compact,delete"}).warnings == ()


def test_a_cleaner_needs_a_minimum_of_memory() -> None:
    with pytest.raises(SettingsError, match="expected more than 1048576"):
        from_properties({"log.cleaner.dedupe.buffer.size": "1048576"})
    with pytest.raises(SettingsError, match="properties: "):
        from_properties({"log.cleaner.dedupe.buffer.size": "4194304", "log.cleaner.threads": "4"})
    from_properties({"log.cleaner.dedupe.buffer.size": "1048577"})


def test_the_memory_for_requests_must_hold_one_request() -> None:
    with pytest.raises(SettingsError, match=r"queued\.max\.request\.bytes"):
        from_properties({"queued.max.request.bytes": "1000"})
    assert from_properties({}).connection_limits.receive_budget_bytes == 512 << 20


def test_an_invalid_cluster_id_is_refused() -> None:
    assert load(environ={"CLUSTER_ID": ""}).cluster_id is None
    with pytest.raises(SettingsError, match=r"CLUSTER_ID not\\nan id"):
        load(environ={"CLUSTER_ID": "not\nan id"})


def test_value_returns_any_broker_key() -> None:
    settings = from_properties({"group.max.size": "9"})
    assert settings.value(groups.GROUP_MAX_SIZE) == 9
    assert settings.value(groups.GROUP_MIN_SESSION_TIMEOUT_MS) == 6000


def test_broker_layers_contain_the_static_configs() -> None:
    assert from_properties({"node.id": "4"}).broker_layers().static == {"node.id": "4", "broker.id": "4"}


@pytest.mark.parametrize("text", ["novalue", "=x", " =x", ""])
def test_an_override_without_key_or_value_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="expected property=value"):
        parse_override(text)
    assert parse_override("a.b=c=d") == ("a.b", "c=d")


@given(st.dictionaries(st.sampled_from(["listeners", "advertised.listeners", "node.id", "log.dirs", "x"]), st.text()))
def test_any_texts_give_settings_or_a_settings_error(given_texts: dict[str, str]) -> None:
    with suppress(SettingsError):
        assert isinstance(from_properties(given_texts), Settings)


def test_the_metrics_listener_is_a_host_and_port() -> None:
    assert from_properties({}).metrics_listener is None
    assert from_properties({"metrics.listener": ""}).metrics_listener is None
    settings = from_properties({"metrics.listener": "localhost:9404", "metrics.per.partition": "false"})
    assert settings.metrics_listener is not None
    assert settings.metrics_listener.address == "localhost:9404"
    assert (settings.metrics_per_partition, settings.warnings) == (False, ())
    for wrong in ("9404", "localhost", "localhost:99999", "http://localhost:9404", "a b:1"):
        assert "expected HOST:PORT" in refusal({"metrics.listener": wrong})
