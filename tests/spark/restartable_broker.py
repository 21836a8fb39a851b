"""A broker in a process of its own on a fixed port, so that it can be killed (-9) and started again."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def start_broker(data: Path, port: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "moldau", "start", "--data-dir", str(data), "--listen", f"127.0.0.1:{port}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert "ready: " in line, f"the broker did not start: {line!r}"
    return process


def kill_broker(broker: subprocess.Popen[str]) -> None:
    broker.kill()
    broker.wait()
    assert broker.stdout is not None
    broker.stdout.close()


@contextmanager
def running_broker(data: Path, port: int) -> Iterator[None]:
    """A broker that is killed at the end of the block."""
    process = start_broker(data, port)
    try:
        yield
    finally:
        kill_broker(process)
