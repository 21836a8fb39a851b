"""Apache Kafka with settings of our choice, from a directory of its jars: one node, on free ports, in a temporary
directory. `bench.servers.KafkaScript` is for a script that has settings of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from bench.brokers.servers import KAFKA, PORT_POLL_S, START_TIMEOUT_S, STOP_TIMEOUT_S, NotStarted, Server, is_open

HOST = "127.0.0.1"
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
JAVA = ["-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
QUIET = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"


class KafkaProcess:
    """The first listener in `settings` is the one that `Server.address` names."""

    def __init__(self, libs: Path, settings: Mapping[str, str], name: str = KAFKA) -> None:
        self._classes = f"{libs}/*"
        self._name = name
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-bench-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        controller = f"CONTROLLER://{HOST}:{free_ports(1)[0]}"
        protocols = {each.partition("://")[0] for each in settings["listeners"].split(",")}
        self._settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{controller.partition('://')[2]}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{p}:{p}" for p in protocols)]),
            "log.dirs": str(self._directory / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            **settings,
            "listeners": f"{settings['listeners']},{controller}",
            "advertised.listeners": settings["listeners"],
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> Server:
        properties = self._directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._settings.items()))
        output = (self._directory / "output").open("wb")
        with output:
            java = ["java", QUIET, "-cp", self._classes]
            words = ["format", "-t", CLUSTER_ID, "-c", str(properties)]
            subprocess.run([*java, "kafka.tools.StorageTool", *words], stdout=output, stderr=output, check=True)
            self._process = subprocess.Popen(
                [*java[:1], *JAVA, *java[1:], "kafka.Kafka", str(properties)],
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        address = re.sub(r"^\w+://", "", self._settings["listeners"].split(",")[0])
        deadline = time.perf_counter() + START_TIMEOUT_S
        while not is_open(address):
            if self._process.poll() is not None or time.perf_counter() > deadline:
                raise NotStarted(f"Kafka did not start: {(self._directory / 'output').read_text()[-2000:]}")
            time.sleep(PORT_POLL_S)
        return Server(self._name, address, self._process.pid)

    def _stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
