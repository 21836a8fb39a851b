"""Runs what the Containerfile, the compose files and the systemd unit specify as plain processes, without a container
engine.

Each service of a compose file becomes a process with the image's variables, the service's own, and the image's command.
Containers have their own addresses, processes share one: so every port of every service is replaced by a free one, in
listeners, advertised listeners, quorum voters and health checks alike.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

ROOT = Path(__file__).parents[2]
CONTAINERFILE = (ROOT / "Containerfile").read_text()
BIN = Path(sys.executable).parent
DATA = "/var/lib/moldau"
ADDRESS = re.compile(r"([\w.-]+):(\d+)")
SETTINGS = re.compile(r"KAFKA_.*|CLUSTER_ID|LOG_DIR")
PATIENCE_S = 120


class Container(NamedTuple):
    """A service of a compose file, on top of the image's variables."""

    name: str
    variables: Mapping[str, str]
    published: Mapping[int, int]
    """Ports of this machine, and the container's ports behind them."""
    health: tuple[str, ...]


def image_words(instruction: str) -> list[str]:
    """Return the words of CMD or HEALTHCHECK CMD, which are JSON."""
    found = re.search(rf"^{instruction}.*?(\[.*\])$", CONTAINERFILE, re.MULTILINE)
    assert found, f"Containerfile has no {instruction}"
    words: list[str] = json.loads(found[1])
    return words


def image_variables() -> dict[str, str]:
    return dict(re.findall(r"(KAFKA_\w+)=(\S+)", CONTAINERFILE))


def containers(compose: str) -> list[Container]:
    services: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / compose).read_text())["services"]
    found = []
    for name, service in services.items():
        pairs = [port.removeprefix("127.0.0.1:").split(":") for port in service["ports"]]
        command, *health = service["healthcheck"]["test"]
        assert command == "CMD"
        assert [volume.partition(":")[2] for volume in service["volumes"]] == [DATA]
        published = {int(outside): int(inside) for outside, inside in pairs}
        found.append(Container(name, image_variables() | service["environment"], published, tuple(health)))
    return found


class Ports:
    """Maps the ports of containers to free ports."""

    def __init__(self, all_containers: list[Container]) -> None:
        self._published = {port: (each.name, to) for each in all_containers for port, to in each.published.items()}
        self._free: dict[tuple[str, int], int] = {}

    def of(self, container: str, port: int) -> int:
        while (container, port) not in self._free:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                free = probe.getsockname()[1]
            if free not in self._free.values():
                self._free[container, port] = free
        return self._free[container, port]

    def published(self, port: int) -> str:
        return f"127.0.0.1:{self.of(*self._published[port])}"

    def replace(self, text: str, own: str, *, localhost_is_this_machine: bool = False) -> str:
        """Replace container addresses by process addresses. `localhost` is the container itself, unless
        `localhost_is_this_machine`."""

        def address(found: re.Match[str]) -> str:
            host, port = found[1], int(found[2])
            if host == "localhost" and localhost_is_this_machine:
                return self.published(port)
            return f"127.0.0.1:{self.of(own if host in ('0.0.0.0', 'localhost') else host, port)}"

        return ADDRESS.sub(address, text)


@contextmanager
def running(container: Container, ports: Ports, data: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the container's command as a process; `wait_until_ready` waits until it serves."""
    kept = {name: value for name, value in os.environ.items() if not SETTINGS.fullmatch(name)}
    ours = {
        name: ports.replace(text, container.name, localhost_is_this_machine="ADVERTISED" in name)
        for name, text in container.variables.items()
    }
    assert ours["KAFKA_LOG_DIRS"] == DATA
    ours["KAFKA_LOG_DIRS"] = str(data)
    program, *words = image_words("CMD")
    with subprocess.Popen(
        [str(BIN / program), *words], env=kept | ours, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
    assert process.returncode == 0


def wait_until_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if " is ready: " in line:
            break
    text = "".join(lines)
    assert " is ready: " in text, f"the node did not start: {text}"
    assert "Warning: " not in text, f"the node does not know all of its settings: {text}"


def check_health(container: Container, ports: Ports) -> None:
    program, *words = (ports.replace(word, container.name) for word in container.health)
    done = subprocess.run([str(BIN / program), *words], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Cluster ID: ")


def produce_and_consume(bootstrap: str, replicas: int) -> None:
    at = {"bootstrap.servers": bootstrap}
    new = NewTopic("orders", num_partitions=3, replication_factor=replicas)
    admin = AdminClient(at)
    admin.create_topics([new], operation_timeout=PATIENCE_S)["orders"].result(PATIENCE_S)
    producer = Producer(at)
    for number in range(30):
        producer.produce("orders", str(number).encode())
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer({**at, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    try:
        records = consumer.consume(30, PATIENCE_S)
    finally:
        consumer.close()
    assert {int(record.value() or b"-1") for record in records} == set(range(30))


def test_the_image_runs_without_a_compose_file(tmp_path: Path) -> None:
    alone = Container("alone", image_variables(), {9092: 9092}, tuple(image_words("HEALTHCHECK")))
    ports = Ports([alone])
    with running(alone, ports, tmp_path) as process:
        wait_until_ready(process)
        check_health(alone, ports)
        produce_and_consume(ports.published(9092), replicas=1)


@pytest.mark.parametrize(("compose", "nodes"), [("compose.yaml", 1), ("compose.cluster.yaml", 3)])
def test_the_services_of_a_compose_file_run(compose: str, nodes: int, tmp_path: Path) -> None:
    services = containers(compose)
    assert len(services) == nodes
    ports = Ports(services)
    with ExitStack() as all_of_them:
        processes = [all_of_them.enter_context(running(each, ports, tmp_path / each.name)) for each in services]
        for process in processes:
            wait_until_ready(process)
        for each in services:
            check_health(each, ports)
        produce_and_consume(ports.published(9092), replicas=nodes)


def test_files_that_the_image_copies_exist_and_are_not_ignored() -> None:
    """The build copies them; .dockerignore must not exclude them."""
    copied = [word for line in re.findall(r"^COPY ([^-].*)$", CONTAINERFILE, re.MULTILINE) for word in line.split()[:-1]]
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert set(copied) == let_through
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_the_systemd_unit_is_valid(tmp_path: Path) -> None:
    unit = (ROOT / "config" / "moldau.service").read_text().replace("/opt/moldau/bin/moldau", "/bin/sh")
    (tmp_path / "moldau.service").write_text(unit)
    command = ["systemd-analyze", "verify", str(tmp_path / "moldau.service")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, "")
