"""The processes that a driver of Spark has started, found in /proc by their session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def python_processes(session: int) -> dict[int, int]:
    """Spark's Python processes with their parents: the fork server, and what it has forked, which is the sources that
    run beside the driver, the daemons of workers, and their workers."""
    if not Path("/proc/self").exists():
        pytest.skip("Spark's workers are found in /proc")
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if b".fork_server" in (entry / "cmdline").read_bytes() and os.getsid(int(entry.name)) == session:
                    found[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue  # the process has ended meanwhile
    return found


def python_workers(session: int, driver: int | None = None) -> list[int]:
    """The workers that run tasks: forked by daemons, which the fork server has forked. With `driver` only its own."""
    found = python_processes(session)
    servers = {pid: found[parent] for pid, parent in found.items() if found.get(parent) in found}
    return [pid for pid, server in servers.items() if driver in (None, found[server])]
