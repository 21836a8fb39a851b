"""The brokers as processes: how ours is started and stopped, and where Apache Kafka comes from.

Each is a context manager, so that an error or Ctrl-C leaves no process and no directory behind. A benchmark sees only
a `Server`: a name, an address and a process id.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from bench.brokers.procfs import age_s

MOLDAU = "moldau"
KAFKA = "kafka"
SOURCES = Path(__file__).resolve().parents[2] / "src"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
PORT_POLL_S = 0.005


class NotStarted(Exception):
    """A broker did not start; the message has its output."""


@dataclass(frozen=True)
class Server:
    name: str
    address: str
    pid: int

    @property
    def pids(self) -> tuple[int, ...]:
        """All processes whose CPU time counts as the system's."""
        return (self.pid,)


class MoldauProcess:
    """Our broker in its own process, on a free port, in a temporary directory.

    It can be stopped and started again on the same data; the directory goes at the end of the `with` block.
    """

    def __init__(
        self, name: str = MOLDAU, settings: Mapping[str, str] | None = None, listen: str | None = "127.0.0.1:0"
    ) -> None:
        """With `listen` None the settings say where it listens."""
        self._name = name
        self._listen = [] if listen is None else ["--listen", listen]
        self._overrides = [part for item in (settings or {}).items() for part in ("--override", "=".join(item))]
        self._directory = Path(tempfile.mkdtemp(prefix="moldau-bench-"))
        self._process: subprocess.Popen[bytes] | None = None
        self.start_s = 0.0

    @property
    def data(self) -> Path:
        """The directory of its logs."""
        return self._directory / "data"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            shutil.rmtree(self._directory, ignore_errors=True)

    def start(self) -> Server:
        """Return when it says that it is ready; `start_s` is the time from the start of the process."""
        path = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "moldau", "start", *self._listen]
        with (self._directory / "stderr").open("wb") as errors:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                [*command, "--data-dir", str(self.data), *self._overrides],
                stdout=subprocess.PIPE,
                stderr=errors,
                env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,  # Ctrl-C goes to the benchmark, which then stops the broker itself
            )
        address = self._await_ready(self._process)
        self.start_s = time.perf_counter() - began
        return Server(self._name, address, self._process.pid)

    def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def kill(self) -> None:
        """Kill it without warning, like a crash."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self.stop()

    def _await_ready(self, process: subprocess.Popen[bytes]) -> str:
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_TIMEOUT_S)
        line = process.stdout.readline().decode() if readable else ""
        ready = re.search(r"ready: (\S+:\d+)", line)
        if ready is None:
            self.stop()
            raise NotStarted(f"moldau did not start: {line}{(self._directory / 'stderr').read_text()}")
        return ready[1]


def kafka_at(text: str) -> Server:
    """A Kafka that already runs, from `HOST:PORT/PID`."""
    address, _, pid = text.partition("/")
    if not pid.isdigit() or not is_open(address):
        raise NotStarted(f"no Kafka at {text!r}: give HOST:PORT/PID of one that runs")
    return Server(KAFKA, address, int(pid))


class KafkaScript:
    """Apache Kafka by a script with the verbs `start` (prints `pid N at HOST:PORT`) and `stop`.

    Such a script has one fixed address and empties its directory when it starts, so a Kafka that already runs is never
    touched: pass its process id instead.
    """

    def __init__(self, path: Path, address: str) -> None:
        self._path = path
        self._address = address
        self._script: subprocess.Popen[str] | None = None
        self._is_ours = False
        self.start_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> Server:
        """Return when its port is open; `start_s` counts from the start of the Java process, without formatting."""
        if is_open(self._address):
            raise NotStarted(f"something listens at {self._address}: give it as --kafka {self._address}/PID")
        self._is_ours = True
        self._script = script = subprocess.Popen(
            [self._path, "start"], stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        opened = self._await_port(script)
        output, _ = script.communicate(timeout=START_TIMEOUT_S)
        match = re.search(r"pid (\d+) at (\S+)", output)
        if script.returncode or match is None:
            raise NotStarted(f"{self._path} start did not start Kafka: {output}")
        self.start_s = age_s(int(match[1])) - (time.perf_counter() - opened)
        return Server(KAFKA, match[2], int(match[1]))

    def stop(self) -> None:
        script, self._script = self._script, None
        if script is not None and script.poll() is None:
            os.killpg(script.pid, signal.SIGTERM)
            script.wait()
        if self._is_ours:
            subprocess.run([self._path, "stop"], check=True, start_new_session=True)
            self._is_ours = False

    def _await_port(self, script: subprocess.Popen[str]) -> float:
        deadline = time.perf_counter() + START_TIMEOUT_S
        while time.perf_counter() < deadline and not script.poll():
            if is_open(self._address):
                return time.perf_counter()
            time.sleep(PORT_POLL_S)
        raise NotStarted(f"{self._path} start: nothing listens at {self._address}")


def is_open(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
