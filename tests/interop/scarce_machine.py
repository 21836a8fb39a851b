"""A server on a machine that lacks something: few open files, or a data directory on a small or read-only disk.

The disks are tmpfs mounts, which needs root. Those of `mounted` are in the server's own mount namespace; those of
`mount_tmpfs` outlive a server.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE_S = 60.0
"""How long to wait for an answer before a test fails; nothing takes that long on a working machine."""


def needs_mounts() -> None:
    """Skip the test if this user may not mount a file system."""
    tried = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"needs root and mount namespaces: {tried.stderr.strip()}")


def mounted(directory: Path, options: str, words: Sequence[str]) -> list[str]:
    """Return the command, with a tmpfs on the directory that only it sees."""
    directory.mkdir(exist_ok=True)
    mount = f"mount -t tmpfs -o {options} tmpfs {shlex.quote(str(directory))}"
    return ["unshare", "-m", "sh", "-c", f"{mount} && exec {shlex.join(words)}"]


def mount_tmpfs(where: Path, options: str) -> None:
    """Mount a small or read-only disk that all processes see, for the caller to unmount; skip the test if this user may
    not do that."""
    where.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a tmpfs needs root")
    ran = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(where)], capture_output=True, text=True)
    if ran.returncode != 0:
        pytest.skip(f"mounting a tmpfs is not allowed here: {ran.stderr.strip()}")


def with_open_files(limit: int, words: Sequence[str]) -> list[str]:
    return ["sh", "-c", f"ulimit -n {limit} && exec {shlex.join(words)}"]


def moldau(*words: str) -> list[str]:
    return [sys.executable, "-m", "moldau", *words]


def environment(**variables: str) -> dict[str, str]:
    """Return our environment without settings of a broker or its log."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("KAFKA_", "MOLDAU_"))} | variables


class Server:
    def __init__(self, words: Sequence[str], log: Path) -> None:
        self.log = log
        with log.open("w") as file:
            self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=file, text=True, env=environment())
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert "is ready: " in ready, log.read_text()
        self.bootstrap = ready.partition("is ready: ")[2].split()[0]

    def lines(self, containing: str) -> list[str]:
        return [line for line in self.log.read_text().splitlines() if containing in line]

    def stop(self) -> int:
        self.process.terminate()
        self.process.communicate(timeout=PATIENCE_S)
        return self.process.returncode


@contextmanager
def running(words: Sequence[str], log: Path) -> Iterator[Server]:
    server = Server(words, log)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.process.communicate()
