"""A broker process with views, which can be killed, and so can the workers that evaluate its views."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Self

from confluent_kafka.admin import AdminClient, NewTopic
from harness.patience import PATIENCE_S, wait_until
from wire_client import ConnectionEnded, Wire, message


class ViewBroker:
    def __init__(self, folder: Path, **properties: object) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.bootstrap = f"127.0.0.1:{probe.getsockname()[1]}"
        self._output = folder / "broker.out"
        self._command = [sys.executable, "-m", "moldau", "start", "--listen", self.bootstrap]
        self._command += ["--data-dir", str(folder / "data")]
        for key, value in properties.items():
            self._command += ["-o", f"{key.replace('_', '.')}={value}"]
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(PATIENCE_S)

    def start(self) -> None:
        with self._output.open("ab") as output:
            process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        self.process = process

        def is_ready() -> bool:
            assert process.poll() is None, self._output.read_text()
            return self.answers()

        wait_until(is_ready, lambda: f"the broker answers: {self._output.read_text()}")

    def answers(self) -> bool:
        try:
            with Wire(self.bootstrap) as probe:
                return bool(probe.ask(message("api_versions", 0)).error_code == 0)
        except (ConnectionRefusedError, ConnectionEnded):
            return False

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(PATIENCE_S)

    def workers(self) -> list[int]:
        """The process ids of its view workers."""
        assert self.process is not None
        found = []
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            with suppress(FileNotFoundError):  # a thread that has just ended
                found += [int(pid) for pid in (task / "children").read_text().split()]
        return [pid for pid in found if b"views" in _command_line(pid)]

    def kill_workers(self) -> int:
        """Kill the view workers that run; return how many."""
        workers = self.workers()
        for pid in workers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return len(workers)

    def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        new = NewTopic(name, partitions, -1, config={key.replace("_", "."): value for key, value in configs.items()})
        admin.create_topics([new], operation_timeout=PATIENCE_S)[name].result(PATIENCE_S)
        wait_until(lambda: name in admin.list_topics(timeout=PATIENCE_S).topics, f"the topic {name}")

    def create_view(self, name: str, source: str, **configs: str) -> None:
        self.create(name, -1, moldau_view_from=source, **{f"moldau_view_{key}": text for key, text in configs.items()})


def _command_line(pid: int) -> bytes:
    with suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""
