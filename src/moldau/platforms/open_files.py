"""The limit of open files of this process, and raising it as far as the system allows.

Linux: the soft limit may be raised to the hard one, unless the hard one is above `fs.nr_open`; then every change that
keeps it is refused. macOS: the hard limit is infinite, but a soft limit above `kern.maxfilesperproc` is refused, by
older versions even one above OPEN_MAX; it starts at 256.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final

OPEN_MAX: Final = 10_240
"""From macOS' sys/syslimits.h: a soft limit that is always allowed, according to setrlimit(2)."""

RESERVED_MAX: Final = 1 << 16
"""The table then takes half a megabyte."""

SetSoft = Callable[[int], None]


def open_files_limit() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit(platform: str = sys.platform) -> None:
    """Raise the limit as far as the system allows: each connection and each partition's segment needs an open file."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if platform != "darwin":
        refusals = (ValueError, OSError)  # Python raises ValueError for EPERM here
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except refusals:
            ceiling = nr_open()
            if ceiling is not None and ceiling > soft:
                with suppress(*refusals):
                    resource.setrlimit(resource.RLIMIT_NOFILE, (ceiling, ceiling))
        return
    raise_soft_limit(
        soft,
        sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        files_per_process_max(),
        lambda limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard)),
    )


def reserve_descriptors(count: int) -> None:
    """Let the kernel make room for so many open files at once, at most `RESERVED_MAX`. Linux doubles the table of open
    files when it is full, and lets the thread that opens the file wait until no other thread uses the old table: 10 to
    100 ms, in which an event loop serves nobody."""
    import fcntl

    highest = min(count, RESERVED_MAX) - 1
    with open(os.devnull, "rb") as file, suppress(OSError):
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, highest))


def raise_soft_limit(soft: int, hard: int, per_process: int | None, set_soft: SetSoft) -> int:
    """Set the highest limit that macOS accepts; return the effective one, which is `soft` if all are refused."""
    for limit in _limits_to_try(soft, hard, per_process):
        try:
            set_soft(limit)
        except (ValueError, OSError):  # Python raises ValueError for EINVAL here
            continue
        return limit
    return soft


def _limits_to_try(soft: int, hard: int, per_process: int | None) -> Iterator[int]:
    for ceiling in (per_process, OPEN_MAX):
        if ceiling is not None and min(hard, ceiling) > soft:
            yield min(hard, ceiling)


def nr_open() -> int | None:
    """Return `fs.nr_open`, the highest limit that Linux allows; None without /proc."""
    try:
        with open("/proc/sys/fs/nr_open", encoding="ascii") as file:
            return int(file.read())
    except OSError:
        return None


def files_per_process_max() -> int | None:
    """Return `kern.maxfilesperproc` of macOS; None on other systems."""
    import ctypes

    sysctl = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    value = ctypes.c_int()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    if sysctl is None or sysctl(
        b"kern.maxfilesperproc", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    ):
        return None
    return value.value
