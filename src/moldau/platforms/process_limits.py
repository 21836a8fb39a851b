"""Limiting the memory and the CPU time of a process. Linux enforces the limit of the address space; other systems may
not. Windows has neither limit.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress

STATUS = "/proc/self/statm"


def limit_memory(extra_bytes: int) -> None:
    """Let this process allocate so many bytes more than now; then allocations fail. Does nothing where that cannot be
    limited."""
    try:
        import resource

        with open(STATUS, encoding="ascii") as file:
            used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (ImportError, OSError):
        return
    limit = min(used + extra_bytes, sys.maxsize)
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_cpu_time(seconds: float) -> None:
    """Let this process use so much CPU time from now on; then it ends. 0 takes the limit back."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_PROF, seconds)


def has_used_up_cpu_time(return_code: int | None) -> bool:
    """Whether a process with this return code ended because of `limit_cpu_time`."""
    return hasattr(signal, "SIGPROF") and return_code == -signal.SIGPROF


def was_killed(return_code: int | None) -> bool:
    """Whether a process with this return code was ended by somebody else: the kernel for want of memory, a person."""
    return return_code in [-getattr(signal, name) for name in ("SIGKILL", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
