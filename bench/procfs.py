"""What Linux knows of a process: CPU time, resident memory, when it started. Reads /proc and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

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


def age_s(pid: int) -> float:
    """How long ago it started, in steps of a clock tick."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(_stat(pid)[19]) / TICKS_PER_SECOND


def _stat(pid: int) -> list[str]:
    # The second field is the command in parentheses and may hold blanks: count from behind it.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
