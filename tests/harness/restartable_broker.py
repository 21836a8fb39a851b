"""A broker in a process of its own that can be killed (-9) and started again, with the same files, at the same port."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RestartableBroker:
    """Not started at first. `options` are those of `moldau start`."""

    def __init__(self, data: Path, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.bootstrap = f"127.0.0.1:{server.getsockname()[1]}"
        self._command = [sys.executable, "-m", "moldau", "start", "--data-dir", str(data), "--listen", self.bootstrap]
        self._command += options
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        assert self._process is None, "it runs"
        self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert "ready: " in line, f"the broker did not start: {line!r}"

    def kill(self) -> None:
        if self._process is not None:
            with self._process as process:
                process.kill()
            self._process = None

    @contextmanager
    def running(self) -> Iterator[str]:
        """Start it; kill it at the end of the block. Yields its address."""
        self.start()
        try:
            yield self.bootstrap
        finally:
            self.kill()
