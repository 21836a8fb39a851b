"""`--secure` and `--command-config`: what is printed, which options are refused, and warnings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from moldau.base.ids import uuid_text
from moldau.base.listeners import Listener
from moldau.base.setting_sources import SettingText
from moldau.base.settings.log import LOG_DIRS
from moldau.base.settings.node import ADVERTISED_LISTENERS, LISTENERS
from moldau.base.settings.security import (
    AUTHORIZER_CLASS_NAME,
    DELEGATION_TOKEN_SECRET_KEY,
    SASL_ENABLED_MECHANISMS,
    SASL_JAAS_CONFIG,
    SSL_TRUSTSTORE_CERTIFICATES,
    SSL_TRUSTSTORE_TYPE,
)
from moldau.cli import loopback_names
from moldau.cli.cluster.directory import ClusterDirectory, Security
from moldau.cli.cluster.foreground import Foreground, announcement
from moldau.cli.cluster.screen import Tail
from moldau.cli.connect import Broker, CommandFailed, chosen_broker
from moldau.cli.kafka.server_start import refuse_to_open, warn_of_files_and_names, warn_of_open_listeners
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.loopback_names import warn_of_loopback
from moldau.cli.secure_options import connect_lines
from moldau.cli.secure_start import Recovery, secured_defaults, values_to_keep
from moldau.cli.start import listener_flags
from moldau.cli.user.saving import bootstrap_properties, connection_properties
from moldau.client.admin.cluster_values import BrokerNode, DescribedCluster
from moldau.client.properties import public_java_properties
from moldau.secure_setup.directory import SecureDirectory
from moldau.security.sasl.jaas import parse_line
from moldau.settings import from_properties, from_texts, load

CLIENT_FILE = Path("my data/client.properties")
PLANTED = "planted-secret"


def test_the_password_is_shown_once_and_on_terminals_only() -> None:
    assert PLANTED in "".join(connect_lines("host:9092", CLIENT_FILE, PLANTED, is_terminal=True))
    in_log = "\n".join(connect_lines("host:9092", CLIENT_FILE, PLANTED, is_terminal=False))
    assert PLANTED not in in_log
    assert "the password of the user admin is in my data/client.properties" in in_log
    again = "\n".join(connect_lines("host:9092", CLIENT_FILE, None, is_terminal=True))
    assert "moldau user password admin --save 'my data/client.properties'" in again
    for lines in (in_log, again):
        assert "--bootstrap-server host:9092 --command-config 'my data/client.properties'" in lines


@pytest.mark.parametrize(
    ("listen", "advertise", "advertised"),
    [
        (None, "kafka.example.com", "kafka.example.com:9092"),
        ("0.0.0.0:19092", "kafka.example.com", "kafka.example.com:19092"),
        (None, "kafka.example.com:443", "kafka.example.com:443"),
        (None, "::1", "[::1]:9092"),
        (None, "[::1]:443", "[::1]:443"),
    ],
)
def test_advertise_needs_no_port(listen: str | None, advertise: str, advertised: str) -> None:
    flags = listener_flags(None, listen or "localhost:9092", advertise)
    (listener,) = from_texts(flags).advertised_listeners
    assert listener.address == advertised


@pytest.mark.parametrize(
    (LISTENERS.name, "advertised"),
    [
        ("PLAINTEXT://0.0.0.0:19092", "kafka.example.com:19092"),
        ("SSL://:9093,plaintext://:19092", "kafka.example.com:19092"),
        (None, "kafka.example.com:9092"),
        ("PLAINTEXT://nonsense", "kafka.example.com:9092"),
    ],
)
def test_the_advertised_port_is_that_of_the_listener_in_the_file(listeners: str | None, advertised: str) -> None:
    texts = {LISTENERS.name: SettingText(listeners, "server.properties")} if listeners else {}
    flags = listener_flags(None, None, "kafka.example.com", "PLAINTEXT", texts)
    assert flags[ADVERTISED_LISTENERS.name].text == f"PLAINTEXT://{advertised}"


@pytest.mark.parametrize(
    ("properties", "is_open"),
    [
        ({LISTENERS.name: "PLAINTEXT://0.0.0.0:9092"}, True),
        ({LISTENERS.name: "PLAINTEXT://:9092"}, True),
        ({LISTENERS.name: "PLAINTEXT://localhost:9092"}, False),
        (
            {
                LISTENERS.name: "PLAINTEXT://:9092",
                AUTHORIZER_CLASS_NAME.name: "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            },
            False,
        ),
    ],
)
def test_a_listener_that_is_open_to_everybody_causes_a_warning(properties: dict[str, str], is_open: bool) -> None:
    warnings = list(warn_of_open_listeners(from_properties(properties)))
    assert len(warnings) == is_open
    assert all("moldau start --secure" in line for line in warnings)


def test_secured_data_is_not_served_without_security(tmp_path: Path) -> None:
    settings = from_properties({LOG_DIRS.name: str(tmp_path), LISTENERS.name: "PLAINTEXT://localhost:9092"})
    refuse_to_open(settings)
    (tmp_path / "authority.pem").touch()
    with pytest.raises(ToolFailed, match=r"was secured by `moldau start --secure`, but PLAINTEXT://localhost:9092"):
        refuse_to_open(settings)


def test_a_command_config_is_translated_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        "ssl.truststore.certificates=PEM\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config=x.ScramLoginModule required username="ann" password="{PLANTED}";\n'
    )
    broker = chosen_broker(None, str(file), {"sasl.username": "bob"})
    assert broker.bootstrap_servers == "a:1"
    assert broker.client_config == {
        "security.protocol": "SASL_SSL",
        "ssl.ca.pem": "PEM",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "bob",
        "sasl.password": PLANTED,
    }
    assert chosen_broker("b:2", str(file), {}).bootstrap_servers == "b:2"
    assert chosen_broker(None, None, {}).bootstrap_servers == "localhost:9092"
    # The file of another user contains no credentials of this one.
    assert public_java_properties(broker.client_config) == {
        "security.protocol": "SASL_SSL",
        SSL_TRUSTSTORE_TYPE.name: "PEM",
        SSL_TRUSTSTORE_CERTIFICATES.name: "PEM",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        ("a=\\u12", "hexadecimal"),
        (f'sasl.jaas.config=x required password="{PLANTED}', SASL_JAAS_CONFIG.name),
    ],
)
def test_the_error_for_a_bad_command_config_is_one_line_without_secrets(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    file = tmp_path / "client.properties"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CommandFailed) as failed:
        chosen_broker(None, str(file), {})
    assert failed.value.message.startswith(f"--command-config {file}: ")
    assert reason in failed.value.message.lower()
    assert PLANTED not in failed.value.message


def test_a_saved_file_has_the_certificates_themselves(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("PEM")
    how = {"security.protocol": "SSL", "ssl.ca.location": str(tmp_path / "ca.pem"), "ssl.key.pem": PLANTED}
    assert connection_properties(Broker("a:1", how)) == {
        "security.protocol": "SASL_SSL",
        SSL_TRUSTSTORE_TYPE.name: "PEM",
        SSL_TRUSTSTORE_CERTIFICATES.name: "PEM",
    }


@pytest.mark.parametrize(
    ("protocol", "properties"), [("SASL_SSL", {"bootstrap.servers": "a:1,[::1]:2"}), ("SSL", {}), ("PLAINTEXT", {})]
)
def test_a_saved_file_has_the_advertised_addresses_of_listeners_with_a_login(
    protocol: str, properties: dict[str, str]
) -> None:
    nodes = [
        BrokerNode(2, "::1", 2, None, False),
        BrokerNode(1, "a", 1, None, False),
        BrokerNode(3, "b", 3, None, True),
    ]
    described = DescribedCluster("id", 1, {node.node_id: node for node in nodes})
    admin: Any = SimpleNamespace(described=lambda: described)
    assert bootstrap_properties(Broker("localhost:1", {"security.protocol": protocol}), admin) == properties


class TestCluster:
    def directory(self, path: Path, security: Security | None) -> ClusterDirectory:
        directory = ClusterDirectory(path / "cluster")
        description = directory.plan(2, 23_092, {}, bytes(16), security=security)
        self.password = directory.lay_out(description, security)
        return directory

    def test_a_secured_cluster_has_private_files_and_a_password_once(self, tmp_path: Path) -> None:
        directory = self.directory(tmp_path, Security(advertise="kafka.example.com"))
        description = directory.description()
        assert description.is_secure
        assert description.cluster_id == uuid_text(bytes(16))
        assert len({port for node in description.nodes for port in (node.port, node.internal_port)}) == 4
        assert directory.path.stat().st_mode & 0o777 == 0o700
        assert self.password is not None
        assert "kafka.example.com:23093" in directory.properties_path(2).read_text()
        holders = [path.name for path in directory.path.rglob("*") if path.is_file() and self.password in _text(path)]
        assert holders == ["client.properties"]
        again = directory.plan(None, None, {}, bytes(16), security=Security(names=("other",)))
        assert directory.lay_out(again, Security(names=("other",))) is None

    @pytest.mark.parametrize(
        ("first", "then", "reason"),
        [
            (None, Security(), "was made without --secure"),
            (Security(), None, "is secured; start it with --secure"),
            (Security(), Security(advertise="x"), "leave --listen and --advertise out"),
            (Security(advertise="x"), Security(advertise="y"), "leave --listen and --advertise out"),
            (Security(advertise="x"), Security(listen="127.0.0.1"), "leave --listen and --advertise out"),
        ],
    )
    def test_changing_the_security_of_a_cluster_is_refused(
        self, tmp_path: Path, first: Security | None, then: Security | None, reason: str
    ) -> None:
        directory = self.directory(tmp_path, first)
        with pytest.raises(click.ClickException, match=reason):
            directory.plan(None, None, {}, bytes(16), security=then)

    def test_the_same_command_starts_a_secured_cluster_again(self, tmp_path: Path) -> None:
        same = Security(listen="127.0.0.1", advertise="kafka.example.com")
        directory = self.directory(tmp_path, same)
        assert directory.plan(None, None, {}, bytes(16), security=same).is_secure
        assert directory.plan(None, None, {}, bytes(16), security=Security(advertise="kafka.example.com")).is_secure

    @pytest.mark.parametrize(
        ("security", "host"),
        [
            (Security(advertise="kafka.example.com"), "kafka.example.com"),
            (Security(listen="127.0.0.1"), "127.0.0.1"),
        ],
    )
    def test_the_addresses_shown_are_those_for_clients(self, tmp_path: Path, security: Security, host: str) -> None:
        directory = self.directory(tmp_path, security)
        description = directory.with_advertised_hosts(directory.description())
        assert description.bootstrap_servers == f"{host}:23092,{host}:23093"
        assert f"{host}:23092" in "\n".join(announcement(directory, description, 1.0))
        for node in description.nodes:  # edited by hand later
            path = directory.properties_path(node.id)
            path.write_text(
                path.read_text() + f"advertised.listeners=SASL_SSL://other:{node.port},NODES://127.0.0.1:1\n"
            )
        assert directory.with_advertised_hosts(description).bootstrap_servers == "other:23092,other:23093"
        directory.properties_path(1).write_text("listeners=nonsense\n")
        assert directory.with_advertised_hosts(description).nodes[0].host == host

    def test_settings_are_private_and_all_nodes_have_the_same_token_key(self, tmp_path: Path) -> None:
        directory = self.directory(tmp_path, Security())
        paths = [directory.properties_path(node.id) for node in directory.description().nodes]
        assert {path.stat().st_mode & 0o777 for path in paths} == {0o600}
        assert len({load(str(path)).delegation_tokens.secret_key for path in paths}) == 1


class Lines:
    """A screen that keeps what it shows."""

    def __init__(self) -> None:
        self.shown: list[str] = []

    def node_line(self, node_id: int, text: str) -> None:
        self.shown.append(f"[{node_id}] {text}")


def test_a_warning_of_all_nodes_is_shown_once(tmp_path: Path) -> None:
    screen = Lines()
    directory = ClusterDirectory(tmp_path / "cluster")
    foreground = Foreground(directory, directory.plan(2, 23_092, {}, bytes(16)), screen)  # type: ignore[arg-type]
    for node_id, name in ((1, "one"), (2, "two")):
        log = tmp_path / name
        log.write_text(f"Warning: same\nWarning: {name}\nup\n")
        foreground._tails[node_id] = Tail(log, 0)
        foreground._show_lines(node_id)
    assert screen.shown == ["[1] Warning: same", "[1] Warning: one", "[1] up", "[2] Warning: two", "[2] up"]


class TestRememberedNames:
    def test_the_advertised_name_and_a_generated_key_are_kept(self) -> None:
        texts = {ADVERTISED_LISTENERS.name: SettingText("SASL_SSL://kafka.example.com:9092", "--advertise")}
        ours = {**texts, DELEGATION_TOKEN_SECRET_KEY.name: SettingText("key", "--secure")}
        assert values_to_keep(ours, 9092) == {
            DELEGATION_TOKEN_SECRET_KEY.name: "key",
            "advertise": "kafka.example.com",
        }
        assert values_to_keep(ours, 1)["advertise"] == "kafka.example.com:9092"
        theirs = {ADVERTISED_LISTENERS.name: texts[ADVERTISED_LISTENERS.name]._replace(origin="server.properties:1")}
        assert (
            values_to_keep({**theirs, DELEGATION_TOKEN_SECRET_KEY.name: SettingText("key", "--override")}, 9092) == {}
        )

    def test_a_later_start_uses_the_kept_name_unless_another_is_given(self, tmp_path: Path) -> None:
        directory = SecureDirectory(tmp_path)
        directory.keep({DELEGATION_TOKEN_SECRET_KEY.name: "key", "advertise": "kafka.example.com"})
        defaults = secured_defaults(directory, {})
        assert defaults[ADVERTISED_LISTENERS.name].text == "SASL_SSL://kafka.example.com:9092"
        assert defaults[DELEGATION_TOKEN_SECRET_KEY.name].text == "key"
        other_port = {LISTENERS.name: SettingText("SASL_SSL://0.0.0.0:19092", "--listen")}
        assert secured_defaults(directory, other_port)[ADVERTISED_LISTENERS.name].text.endswith(":19092")
        this_machine = {LISTENERS.name: SettingText("SASL_SSL://localhost:9092", "--listen")}
        assert ADVERTISED_LISTENERS.name not in secured_defaults(directory, this_machine)


def test_a_lost_password_is_renewed_over_a_login_of_the_node_itself() -> None:
    """The node logs in as admin by PLAIN, with a password that only it knows."""
    recovery = Recovery(PLANTED)
    assert PLANTED not in repr(recovery)
    texts = {SASL_ENABLED_MECHANISMS.name: SettingText("SCRAM-SHA-512", "--secure")}
    settings = {key: each.text for key, each in recovery.texts(texts).items()}
    assert settings["listener.name.sasl_ssl.sasl.enabled.mechanisms"] == "SCRAM-SHA-512,PLAIN"
    jaas = settings["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert parse_line(jaas).users() == {"admin": PLANTED}
    client = recovery.client_properties("PEM")
    assert (client["security.protocol"], client["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert parse_line(client[SASL_JAAS_CONFIG.name]).options == {"username": "admin", "password": PLANTED}


@pytest.mark.parametrize(
    (LISTENERS.name, "more", "is_possible"),
    [
        ("SASL_SSL://0.0.0.0:9092", {}, True),
        ("OTHER://:9093,SASL_SSL://:9092", {}, True),
        ("OTHER://:9093", {}, False),
        ("SASL_SSL://:9092", {"listener.name.sasl_ssl.plain.sasl.jaas.config": "x"}, False),
    ],
)
def test_other_listeners_and_settings_of_plain_are_left_alone(
    listeners: str, more: dict[str, str], is_possible: bool
) -> None:
    texts = {key: SettingText(text, "x") for key, text in {LISTENERS.name: listeners, **more}.items()}
    assert Recovery.is_possible(texts) is is_possible


@pytest.mark.parametrize(
    ("listener", "advertised", "own"),
    [
        (Listener("SASL_SSL", "SASL_SSL", "0.0.0.0", 9092), "kafka.example.com:443", "127.0.0.1:9092"),
        (Listener("SASL_SSL", "SASL_SSL", "::", 9092), "kafka.example.com:443", "[::1]:9092"),
        (Listener("SASL_SSL", "SASL_SSL", "localhost", 0), "localhost:41234", "localhost:41234"),
    ],
)
def test_a_node_connects_to_itself_whatever_is_advertised(listener: Listener, advertised: str, own: str) -> None:
    assert Recovery("x").address(listener, advertised) == own


@pytest.mark.parametrize(
    ("host", "addresses", "is_warned"),
    [
        ("myhost", ["127.0.1.1"], True),
        ("myhost", ["::1", "127.0.1.1"], True),
        ("myhost", ["127.0.1.1", "192.0.2.7"], False),
        ("myhost", ["192.0.2.7"], False),
        ("myhost", [], False),
        ("localhost", ["127.0.0.1"], False),
        ("127.0.0.1", ["127.0.0.1"], False),
    ],
)
def test_an_advertised_name_that_resolves_to_loopback_causes_a_warning(
    host: str, addresses: list[str], is_warned: bool
) -> None:
    lines = list(warn_of_loopback([host], lambda name: addresses))
    assert len(lines) == is_warned
    assert all(f"the advertised host {host} is {addresses[0]}" in line for line in lines)


def test_advertised_names_are_resolved_only_if_other_machines_can_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(loopback_names, "_resolve_soon", lambda host: asked.append(host) or ["127.0.0.1"])
    for listeners, lines in (("PLAINTEXT://localhost:1", 0), ("PLAINTEXT://0.0.0.0:1", 1)):
        texts = {LISTENERS.name: listeners, ADVERTISED_LISTENERS.name: "PLAINTEXT://myhost:1"}
        assert len(list(warn_of_files_and_names(from_properties(texts)))) == lines
    assert asked == ["myhost"]


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1")
