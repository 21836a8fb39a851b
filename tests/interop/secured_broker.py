"""`moldau start --secure` in a process of its own, on a terminal or not, for tests."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Self

from harness.patience import PATIENCE_S, wait_until

from moldau.base.properties import parse


class SecuredBroker:
    """A running process, and what it printed. It is killed at the end of its `with`, if it was not stopped."""

    def __init__(self, data_dir: Path, *words: str, on_terminal: bool = False) -> None:
        self.data_dir = data_dir
        self.log_file = data_dir.with_suffix(".log")
        self._chunks: list[bytes] = []
        reading, writing = pty.openpty() if on_terminal else os.pipe()
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "start", "--secure", "-d", str(data_dir), *words],
                stdout=writing,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        os.close(writing)
        self._reader = threading.Thread(target=self._read, args=(reading,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(PATIENCE_S)

    def _read(self, reading: int) -> None:
        try:
            while chunk := os.read(reading, 65536):
                self._chunks.append(chunk)
        except OSError:
            pass  # A terminal ends with an error on Linux.
        os.close(reading)

    @property
    def printed(self) -> str:
        return b"".join(self._chunks).decode()

    def await_ready(self) -> SecuredBroker:
        def is_over() -> bool:
            return self.printed.count("--command-config") >= 2 or self.process.poll() is not None

        wait_until(is_over, lambda: f"the broker is ready: {self.printed} {self.log_file.read_text()}")
        assert self.process.poll() is None, self.log_file.read_text()
        return self

    @property
    def address(self) -> str:
        return self.printed.partition(" is ready: ")[2].partition(" (node")[0]

    @property
    def client_file(self) -> Path:
        return self.data_dir / "client.properties"

    @property
    def properties(self) -> dict[str, str]:
        return {each.key: each.value for each in parse(self.client_file.read_text())}

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(PATIENCE_S) == 0
        self._reader.join(PATIENCE_S)
