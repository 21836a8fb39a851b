"""Apache Kafka and Moldau side by side, each one node with the same users, ACLs and settings; and plain connections.

Apache Kafka comes from MOLDAU_TEST_KAFKA_LIBS, a directory of its jars. Requests and responses are those of
`moldau.wire`, whose bytes other tests compare with independent codecs.
"""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pytest
from harness.patience import PATIENCE_S, wait_until

from moldau.security.authorizer_settings import STANDARD_AUTHORIZER
from moldau.testing.broker import TestBroker
from moldau.wire.apis import ApiKey, response_class
from moldau.wire.frames import read_response, request_frame
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest
from moldau.wire.schema import Message

KAFKA_LIBS = os.environ.get("MOLDAU_TEST_KAFKA_LIBS")
needs_apache = pytest.mark.skipif(
    not KAFKA_LIBS or not shutil.which("java"),
    reason="MOLDAU_TEST_KAFKA_LIBS names no directory of Apache Kafka's jars, or no java is on the PATH",
)
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
SUPER_USER = "admin"
PASSWORD = "pw"
HOST = "127.0.0.1"
GROUP, TRANSACTION = 0, 1
"""Types of keys of coordinators."""


class Side:
    """A broker and its controller, by their ports."""

    def __init__(self, name: str, broker: int, controller: int) -> None:
        self.name, self.broker, self.controller = name, broker, controller

    def connect(self, user: str = SUPER_USER, *, to_controller: bool = False) -> Login:
        return Login(self.controller if to_controller else self.broker, user)


class Login:
    """A connection of a user."""

    def __init__(self, port: int, user: str) -> None:
        self._socket = socket.create_connection((HOST, port), timeout=PATIENCE_S / 4)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.ask(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest("PLAIN"), 1)
        token = f"\0{user}\0{PASSWORD}".encode()
        done = self.ask(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(token), 2)
        assert done.error_code == 0, done.error_message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, api: ApiKey, request: Message, version: int) -> Any:
        """Return the response. Raise ConnectionError if there is none."""
        self._socket.sendall(request_frame(api, version, 7, "compared", request))
        (size,) = struct.unpack(">i", self._exactly(4))
        return read_response(response_class(api), self._exactly(size), api, version)[1]

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            if not (piece := self._socket.recv(count - len(data))):
                raise ConnectionError("closed")
            data += piece
        return bytes(data)


def settings(users: Iterator[str] | list[str], broker: int, controller: int, data: Path) -> dict[str, str]:
    """Return the properties of either node."""
    passwords = " ".join(f'user_{user}="{PASSWORD}"' for user in (SUPER_USER, *users))
    module = f'{PLAIN_MODULE} required username="{SUPER_USER}" password="{PASSWORD}" {passwords};'
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "listeners": f"SASL_PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": f"SASL_PLAINTEXT://{HOST}:{broker}",
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": module,
        "listener.name.controller.plain.sasl.jaas.config": module,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:{SUPER_USER}",
        "log.dirs": str(data),
        "num.partitions": "1",
        "offsets.topic.num.partitions": "2",
        "transaction.state.log.num.partitions": "2",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "2",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def await_coordinators(side: Side, key: str) -> None:
    """Wait until groups and transactions have their coordinators, and producers get ids."""
    with side.connect() as admin:
        for kind in (GROUP, TRANSACTION):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            wait_until(
                lambda request=request: (  # type: ignore[misc]
                    admin.ask(ApiKey.FIND_COORDINATOR, request, 6).coordinators[0].error_code == 0
                ),
                f"{side.name} has its coordinators",
            )
        for name in (None, key):
            new_producer = InitProducerIdRequest(name, 60_000)
            wait_until(
                lambda request=new_producer: admin.ask(ApiKey.INIT_PRODUCER_ID, request, 4).error_code == 0,  # type: ignore[misc]
                f"{side.name} has producer ids",
            )


@contextmanager
def side_by_side(directory: Path, users: list[str]) -> Iterator[tuple[Side, Side]]:
    """Run both; yield Apache Kafka and Moldau."""
    ports = [free_port() for _ in range(4)]
    theirs = settings(users, ports[0], ports[1], directory / "apache")
    ours = settings(users, ports[2], ports[3], directory / "moldau")
    moldau = TestBroker(directory / "moldau", ours).start()
    try:
        with _apache(directory, theirs, ports[0]):
            yield Side("Apache Kafka", *ports[:2]), Side("Moldau", *ports[2:])
    finally:
        moldau.stop()


@contextmanager
def apache_kafka(directory: Path, users: list[str], **more: str) -> Iterator[Side]:
    """Run Apache Kafka alone. `more` are further settings, with underscores for dots."""
    broker, controller = free_port(), free_port()
    properties = settings(users, broker, controller, directory / "apache")
    properties |= {name.replace("_", "."): value for name, value in more.items()}
    with _apache(directory, properties, broker):
        yield Side("Apache Kafka", broker, controller)


@contextmanager
def _apache(directory: Path, properties: Mapping[str, str], port: int) -> Iterator[None]:
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", "-Xmx512M", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{KAFKA_LIBS}/*"]
    words = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(file)]
    subprocess.run([*java, *words], check=True, capture_output=True)
    with (directory / "apache.log").open("w") as log:
        process = subprocess.Popen([*java, "kafka.Kafka", str(file)], stdout=log, stderr=subprocess.STDOUT)
    try:
        _await_login(process, port, directory / "apache.log")
        yield
    finally:
        process.kill()
        process.wait()


def _await_login(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Wait until the super user can log in and is answered."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        try:
            with Login(port, SUPER_USER):
                return
        except OSError:
            assert process.poll() is None, log.read_text()[-2000:]
            time.sleep(0.1)
    raise AssertionError(f"Apache Kafka does not answer: {log.read_text()[-2000:]}")
