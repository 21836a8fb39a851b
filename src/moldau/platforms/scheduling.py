"""Lowering the priority of a process, letting the out-of-memory killer choose it first, and how long a thread was ready
to run and did not.

`nice` is POSIX; the rest exists only on Linux.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from contextlib import suppress
from typing import Final

SLICE_NS: Final = 100_000_000
"""The longest slice of Linux. Of two threads that want a core, the one with the shorter slice runs first (since 6.12).
With the longest slice a thread gets no less time, but yields as soon as another one wakes, not at the next tick."""

OOM_SCORE: Final = "/proc/self/oom_score_adj"

THREAD_TIMES: Final = "/proc/thread-self/schedstat"
"""Nanoseconds on a processor, nanoseconds waiting for one, number of slices."""

_SCHED_SETATTR: Final = {"x86_64": 314, "aarch64": 274, "riscv64": 274}
"""The number of the system call; C libraries have no function for it before glibc 2.41."""
_ATTRIBUTES: Final = struct.Struct("=IIQiIQQQ")
"""Size, policy, flags, niceness, priority; runtime, which is the slice; deadline, period."""


def lower_priority(niceness: int) -> None:
    """Lower the priority of this thread and of those it will start. Errors of the Linux-only part are ignored."""
    niceness = os.nice(niceness)
    number = _SCHED_SETATTR.get(platform.machine()) if platform.system() == "Linux" else None
    if number is not None:
        attributes = _ATTRIBUTES.pack(_ATTRIBUTES.size, os.SCHED_OTHER, 0, niceness, 0, SLICE_NS, 0, 0)
        ctypes.CDLL(None).syscall(number, 0, attributes, 0)


def set_oom_score(score: int, path: str = OOM_SCORE) -> None:
    """Set the out-of-memory score: Linux kills processes with a high score first. Other systems have none."""
    with suppress(OSError), open(path, "w", encoding="ascii") as file:
        file.write(str(score))


def run_queue_wait_s(path: str = THREAD_TIMES) -> float | None:
    """Return how long this thread has been ready to run while others had the processors, since it started; None where
    the system does not tell."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        return int(os.read(descriptor, 100).split()[1]) / 1e9
    finally:
        os.close(descriptor)
