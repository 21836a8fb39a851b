"""`--secure` and `--command-config` on command lines: what is printed, refused and warned of."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from moldau.base.ids import uuid_text
from moldau.cli.cluster.directory import ClusterDirectory, Security
from moldau.cli.connect import Broker, CommandFailed, chosen_broker
from moldau.cli.kafka.server_start import refuse_to_open, warn_of_open_listeners
from moldau.cli.kafka.tool import ToolFailed
from moldau.cli.secure_options import connect_lines
from moldau.cli.start import listener_flags
from moldau.cli.user.commands import connection_properties
from moldau.client.properties import public_java_properties
from moldau.settings import from_properties, from_texts

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
    ("properties", "is_open"),
    [
        ({"listeners": "PLAINTEXT://0.0.0.0:9092"}, True),
        ({"listeners": "PLAINTEXT://:9092"}, True),
        ({"listeners": "PLAINTEXT://localhost:9092"}, False),
        (
            {
                "listeners": "PLAINTEXT://:9092",
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            },
            False,
        ),
    ],
)
def test_who_opens_a_broker_to_everybody_is_warned(properties: dict[str, str], is_open: bool) -> None:
    warnings = list(warn_of_open_listeners(from_properties(properties)))
    assert len(warnings) == is_open
    assert all("moldau start --secure" in line for line in warnings)


def test_secured_data_is_not_opened_by_mistake(tmp_path: Path) -> None:
    settings = from_properties({"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://localhost:9092"})
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
    # The file of another user has nothing of this one's.
    assert public_java_properties(broker.client_config) == {
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "PEM",
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "no such file"),
        ("a=\\u12", "hexadecimal"),
        (f'sasl.jaas.config=x required password="{PLANTED}', "sasl.jaas.config"),
    ],
)
def test_a_bad_command_config_is_one_line_without_secrets(tmp_path: Path, content: str | None, reason: str) -> None:
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
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "PEM",
    }


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
        ],
    )
    def test_security_does_not_change_later(
        self, tmp_path: Path, first: Security | None, then: Security | None, reason: str
    ) -> None:
        directory = self.directory(tmp_path, first)
        with pytest.raises(click.ClickException, match=reason):
            directory.plan(None, None, {}, bytes(16), security=then)


def _text(path: Path) -> str:
    return path.read_bytes().decode("latin-1")
