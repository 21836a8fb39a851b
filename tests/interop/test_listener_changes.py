"""TLS and SASL of a running broker, changed with kafka-configs: what new connections get, what open ones keep, what is
refused, and what a restarted broker uses."""

from __future__ import annotations

import logging
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from harness.certificates import PASSWORD as STORE_PASSWORD
from harness.certificates import Vault
from harness.patience import PATIENCE_S, wait_until

from moldau.base.errors import ErrorCode
from moldau.base.errors import KafkaError as Refused
from moldau.cli.kafka import configs
from moldau.client.channel import Channel
from moldau.client.properties import security
from moldau.runtime import node_tls
from moldau.testing.broker import TestBroker

pytestmark = pytest.mark.moldau_only

EXTERNAL = "listener.name.external"
JAAS = f"{EXTERNAL}.plain.sasl.jaas.config"
KEY_STORE = f"{EXTERNAL}.ssl.keystore"
SECRET = "planted-0f-bob"


PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def users(**passwords: str) -> str:
    names = " ".join(f'user_{user}="{password}"' for user, password in passwords.items())
    return f"{PLAIN_MODULE} required {names};"


class TwoListeners(TestBroker):
    @property
    def external_port(self) -> int:
        assert self._node is not None
        return self._node.addresses[1].port


class Running:
    """A broker with a plaintext listener for the tools, and one with TLS and SASL."""

    def __init__(self, directory: Path) -> None:
        self.vault = Vault(directory)
        self._directory = directory / "data"
        self.start()

    def start(self, **more: str) -> None:
        self._broker = TwoListeners(
            self._directory,
            {
                "listeners": "PLAINTEXT://127.0.0.1:0,EXTERNAL://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXTERNAL:SASL_SSL,CONTROLLER:PLAINTEXT",
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                JAAS: users(ann="ann-secret"),
                **self.vault.server(),
                **more,
            },
        )
        self._broker.start()
        self.plaintext, self.port = self._broker.bootstrap_servers, self._broker.external_port

    def stop(self) -> None:
        self._broker.stop()

    def alter(self, **flags: str) -> int:
        """Run kafka-configs; `add="a=b"` is --add-config."""
        where = ["--bootstrap-server", self.plaintext, "--entity-type", "brokers", "--entity-name", "1"]
        changes = [word for flag, text in flags.items() for word in (f"--{flag}-config", text)]
        return configs.main([*where, "--alter", *changes])

    def serial(self) -> str:
        """Return the serial number of the certificate that a new connection sees."""
        context = ssl.create_default_context(cafile=self.vault.trusted)
        plain = socket.create_connection(("127.0.0.1", self.port))
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as tls:
            certificate = tls.getpeercert()
        assert certificate is not None
        return str(certificate["serialNumber"])

    def client(self, user: str, password: str) -> dict[str, object]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.vault.trusted,
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
            "linger.ms": 0,
        }

    def can_log_in(self, user: str, password: str) -> bool:
        properties = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{PLAIN_MODULE} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.vault.trusted,
        }
        try:
            Channel("127.0.0.1", self.port, security(properties)).close()
        except Refused as refused:
            if refused.code != ErrorCode.SASL_AUTHENTICATION_FAILED:
                raise
            return False
        return True

    def refusal(self, name: str, value: str, broker: str = "1") -> str:
        """Return the reason why the broker refuses a change, as an AdminClient sees it."""
        admin = AdminClient({"bootstrap.servers": self.plaintext})
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
        with pytest.raises(KafkaException) as refused:
            admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
        error = refused.value.args[0]
        assert error.code() == KafkaError.INVALID_REQUEST
        return str(error.str())


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(node_tls, "CHECK_INTERVAL_S", 3600.0)  # nothing happens because time passes
    started = Running(tmp_path)
    yield started
    started.stop()


def test_a_key_store_is_changed_while_clients_run(
    running: Running, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    vault, failures = running.vault, list[KafkaError]()
    producer = Producer(running.client("ann", "ann-secret"))

    def produce() -> None:
        producer.produce("changed", b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(PATIENCE_S) == 0

    def wait_for_other(than: str) -> str:
        wait_until(lambda: running.serial() != than, "the new certificate is in use")
        return running.serial()

    produce()
    first = running.serial()
    assert running.alter(add=f"{KEY_STORE}.location={vault.issue('second')}") == 0
    second = wait_for_other(first)
    produce()

    # The same location again: the file has changed.
    location = vault.issue("second")
    assert running.alter(add=f"{KEY_STORE}.location={location}") == 0
    third = wait_for_other(second)

    # Refused changes leave everything as it is.
    gone = str(vault.directory / "gone.pem")
    assert running.refusal(f"{KEY_STORE}.location", gone) == (
        f"listener EXTERNAL: ssl.keystore.location={gone}: cannot be read: No such file or directory"
    )
    stranger = vault.issue("stranger", user="stranger")
    assert "the subject is CN=stranger" in running.refusal(f"{KEY_STORE}.location", stranger)
    assert "per-listener using the listener prefix" in running.refusal("ssl.keystore.location", location)
    assert running.serial() == third
    produce()

    # A PKCS12 store with a password, which nobody sees.
    store = vault.directory / "node.p12"
    store.write_bytes(vault.authority.issue().pkcs12(vault.authority))
    parts = {"type": "PKCS12", "location": store, "password": STORE_PASSWORD}
    assert running.alter(add=",".join(f"{KEY_STORE}.{part}={text}" for part, text in parts.items())) == 0
    wait_for_other(third)
    capsys.readouterr()
    assert (
        configs.main(
            ["--bootstrap-server", running.plaintext, "--entity-type", "brokers", "--entity-name", "1", "--describe"]
        )
        == 0
    )
    assert f"{KEY_STORE}.password=null sensitive=true" in (shown := capsys.readouterr().out)
    assert STORE_PASSWORD not in shown + caplog.text

    # Without dynamic configs the static ones are in use again.
    assert running.alter(delete=",".join(f"{KEY_STORE}.{part}" for part in parts)) == 0
    wait_until(lambda: running.serial() == first, "the static certificate is in use")
    produce()
    assert failures == []


def test_client_certificates_are_required_from_now_on(running: Running) -> None:
    assert running.can_log_in("ann", "ann-secret")
    assert running.alter(add=f"{EXTERNAL}.ssl.client.auth=required") == 0

    def is_required() -> bool:
        context = ssl.create_default_context(cafile=running.vault.trusted)
        try:
            with (
                socket.create_connection(("127.0.0.1", running.port)) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as tls,
            ):
                tls.settimeout(0.5)
                return tls.recv(1) == b""
        except TimeoutError:
            return False
        except OSError:
            return True

    wait_until(is_required, "a client without a certificate is refused")


def test_users_are_added_and_removed_while_clients_run(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    failures: list[KafkaError] = []
    producer = Producer(running.client("ann", "ann-secret"))

    def produce() -> None:
        producer.produce("users", b"x", on_delivery=lambda error, _: failures.append(error) if error else None)
        assert producer.flush(PATIENCE_S) == 0

    produce()
    assert not running.can_log_in("bob", SECRET)
    assert running.alter(add=f"{JAAS}=[{users(bob=SECRET)}]") == 0
    wait_until(lambda: running.can_log_in("bob", SECRET), "bob can log in")
    assert not running.can_log_in("ann", "ann-secret")
    produce()  # the connection that she has
    assert failures == []
    assert "expected the login module" in running.refusal(JAAS, f'x required user_bob="{SECRET}";')
    assert "[hidden]" in running.refusal(JAAS, f'x required user_bob="{SECRET}";')
    assert "OAUTHBEARER cannot be added" in running.refusal(f"{EXTERNAL}.sasl.enabled.mechanisms", "PLAIN,OAUTHBEARER")
    assert SECRET not in caplog.text


def test_a_restarted_broker_uses_its_dynamic_configs(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    static, second = running.serial(), running.vault.issue("second")
    assert running.alter(add=f"{KEY_STORE}.location={second}") == 0
    assert running.alter(add=f"{JAAS}=[{users(bob=SECRET)}]") == 0
    wait_until(lambda: running.serial() != static, "the new certificate is in use")
    dynamic = running.serial()
    running.stop()
    running.start()
    assert running.serial() == dynamic  # from its first connection on
    assert running.can_log_in("bob", SECRET)
    running.stop()

    # Without the file nobody gets in, and the broker says so. Then the file is back; SASL is not affected.
    hidden = Path(second).rename(running.vault.directory / "hidden.pem")
    monkeypatch.setattr(node_tls, "CHECK_INTERVAL_S", 0.05)
    running.start()
    with pytest.raises(OSError):
        running.serial()
    line = (
        "listener EXTERNAL: no connections are accepted until the dynamic configs can be used:"
        f" ssl.keystore.location={second}: cannot be read: No such file or directory"
    )
    assert line in caplog.text
    hidden.rename(second)
    in_use = "listener EXTERNAL: changed configs are in use for new connections"
    wait_until(lambda: in_use in caplog.text.partition(line)[2], "the file is back")
    assert running.serial() == dynamic
    assert running.can_log_in("bob", SECRET)
    running.stop()

    # The way out if nobody can log in any more.
    running.start(**{"moldau.ignore.dynamic.listener.configs": "true"})
    assert running.serial() == static
    assert running.can_log_in("ann", "ann-secret")
