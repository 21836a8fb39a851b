"""What Linux knows of a process: CPU time, memory, when it started, who it is. Reads /proc and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

LISTENING = "0A"
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of all its threads, in steps of a clock tick (10 ms)."""
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND


def resident_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no resident memory: it has ended")


def children(pid: int) -> list[int]:
    """Return its child processes that have not ended."""
    try:
        return [int(each) for file in Path(f"/proc/{pid}/task").glob("*/children") for each in file.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # the thread ended meanwhile
        return []


def started(pid: int) -> float:
    """Return its start time in seconds after boot: together with its id it identifies a process."""
    return int(_stat(pid)[19]) / TICKS_PER_SECOND


def age_s(pid: int) -> float:
    """How long ago it started, in steps of a clock tick."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started(pid)


def has_ended(pid: int) -> bool:
    """Whether it has ended; also true for a zombie."""
    try:
        return _stat(pid)[0] in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return True


def command_line(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0").split("\0")


def listener(port: int) -> int:
    """The process that listens on the port."""
    sockets = {f"socket:[{inode}]" for inode in _listening(port)}
    for file in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(file) in sockets:
                return int(file.parts[2])
        except OSError:  # closed meanwhile
            continue
    raise ProcessLookupError(f"nobody listens on port {port}")


def _listening(port: int) -> list[str]:
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/net/{table}").read_text().splitlines()]
    return [fields[9] for fields in lines if fields[1].endswith(f":{port:04X}") and fields[3] == LISTENING]


def _stat(pid: int) -> list[str]:
    # The second field is the command in parentheses and may hold blanks: count from behind it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
