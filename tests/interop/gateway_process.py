"""`moldau gateway` in a process of its own, and devices that send numbered records to it until they are stopped."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import paho.mqtt.client as mqtt
from harness.patience import PATIENCE_S, wait_until
from mqtt_device import NetworkLoop

_ADDRESS = re.compile(r" is at (\w+)://localhost:(\d+)")
UNSENT = (OSError, http.client.HTTPException)


class GatewayProcess:
    """It can be killed, and started again at the same addresses. It is killed at the end of its `with`."""

    def __init__(self, bootstrap: str, command_config: Path, log_file: Path, *words: str) -> None:
        self._words = ["-b", bootstrap, "--command-config", str(command_config), *words]
        self._log_file = log_file
        self.http_port = self.mqtt_port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        listen = ["--http", f"localhost:{self.http_port}", "--mqtt", f"localhost:{self.mqtt_port}"]
        with self._log_file.open("wb") as log:
            command = [sys.executable, "-m", "moldau", "gateway", *self._words, *listen]
            self._process = process = subprocess.Popen(command, stderr=log)

        def ports() -> dict[str, int]:
            assert process.poll() is None, self.log
            found = {scheme: int(port) for scheme, port in _ADDRESS.findall(self.log)}
            return found if len(found) == 2 else {}

        found = wait_until(ports, lambda: f"the gateway serves HTTP and MQTT: {self.log}")
        self.http_port, self.mqtt_port = sorted(found.items())[0][1], sorted(found.items())[1][1]

    @property
    def log(self) -> str:
        return self._log_file.read_text()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def stop(self) -> int:
        """Stop it with SIGTERM, and return its exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        code = self._process.wait(PATIENCE_S)
        self._process = None
        return code


def basic(user: str, password: str) -> str:
    return "Basic " + b64encode(f"{user}:{password}".encode()).decode()


class Sender:
    """Sends the numbers from 0 on, each until it is acknowledged, in a thread."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.acknowledged = 0
        """Numbers below it are."""
        self.unsure: set[int] = set()
        """Numbers that were sent again after no answer came, so they may be there twice."""
        self.problems: list[str] = []
        """What should not have been answered."""
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def wait_for(self, more: int) -> None:
        """Wait until so many more are acknowledged."""
        goal = self.acknowledged + more
        wait_until(lambda: self.acknowledged >= goal, lambda: f"{self.name} has sent {goal}: {self.problems[-3:]}")

    def value(self, number: int) -> str:
        return f"{self.name}-{number}"

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            if self.send(self.acknowledged):
                self.acknowledged += 1

    def send(self, number: int) -> bool:
        """Send a number once; return whether it is acknowledged."""
        raise NotImplementedError


class HttpSender(Sender):
    def __init__(self, name: str, gateway: GatewayProcess, path: str, authorization: str) -> None:
        super().__init__(name)
        self._gateway, self._path = gateway, path
        self._headers = {"Authorization": authorization, "Content-Type": "text/plain"}
        self._connection: http.client.HTTPConnection | None = None

    def send(self, number: int) -> bool:
        status = self._status(number)
        if status not in (0, 200, 502, 503, 504):
            self.problems.append(f"{number}: {status}")
        if status in (0, 504):
            self.unsure.add(number)
        return status == 200

    def _status(self, number: int) -> int:
        """Return the status of the answer, 0 without one."""
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection("localhost", self._gateway.http_port, timeout=PATIENCE_S)
            headers = {**self._headers, "Idempotency-Key": self.value(number)}
            self._connection.request("POST", self._path, self.value(number), headers)
            response = self._connection.getresponse()
            response.read()
            return response.status
        except UNSENT:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
            return 0

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        if self._connection is not None:
            self._connection.close()


class MqttSender(Sender):
    """paho-mqtt with QoS 1: it sends what is not acknowledged again by itself when it has connected again."""

    def __init__(self, name: str, gateway: GatewayProcess, topic: str, user: str, password: str) -> None:
        super().__init__(name)
        self._topic = topic
        self.reconnections = 0
        self.client = mqtt_client(name, gateway, user, password)
        self.client.on_connect = self._on_connect
        self._loop = NetworkLoop(self.client)

    def _on_connect(self, *_: Any) -> None:
        self.reconnections += 1

    def send(self, number: int) -> bool:
        before = self.reconnections
        sent = self.client.publish(self._topic, self.value(number), qos=1)
        while not sent.is_published() and not self._is_stopped.is_set():
            try:
                sent.wait_for_publish(0.1)
            except RuntimeError:  # it was not connected: it is sent when it is
                self._is_stopped.wait(0.05)
        if self.reconnections != before:
            self.unsure.add(number)
        return sent.is_published()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._loop.stop()


def mqtt_client(name: str, gateway: GatewayProcess, user: str, password: str) -> mqtt.Client:
    """Return a client with a session that stays; a `NetworkLoop` connects it."""
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, client_id=name, clean_session=False)
    client.username_pw_set(user, password)
    client.connect_async("localhost", gateway.mqtt_port)
    return client


class EventReader:
    """Follows a topic by server-sent events and comes again with the last id, as a browser does, in a thread."""

    def __init__(self, gateway: GatewayProcess, path: str, authorization: str) -> None:
        self.found: list[tuple[int, int, str]] = []
        """Partition, offset and value."""
        self.problems: list[str] = []
        self._gateway, self._path, self._last_id = gateway, path, ""
        self._headers = {"Authorization": authorization, "Accept": "text/event-stream"}
        self._is_stopped = threading.Event()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="events")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_stopped.set()
        connection = self._connection
        if connection is not None and connection.sock is not None:
            connection.sock.shutdown(2)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def values(self) -> list[str]:
        return [value for _, _, value in self.found]

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._follow()
            except UNSENT:
                self._is_stopped.wait(0.1)

    def _follow(self) -> None:
        connection = self._connection = http.client.HTTPConnection(
            "localhost", self._gateway.http_port, timeout=PATIENCE_S
        )
        try:
            connection.request("GET", self._path, headers={**self._headers, "Last-Event-ID": self._last_id})
            response = connection.getresponse()
            if response.status != 200:
                if response.status not in (502, 503, 504):
                    self.problems.append(response.read().decode())
                return
            self._read(response.readline)
        finally:
            connection.close()

    def _read(self, read_line: Callable[[], bytes]) -> None:
        last_id = ""
        while line := read_line():
            field, _, text = line.decode().rstrip("\n").partition(": ")
            if field == "id":
                last_id = text
            elif field == "data":
                record = json.loads(text)
                if "error" in record:
                    return
                self.found.append((record["partition"], record["offset"], record["value"]))
                self._last_id = last_id
