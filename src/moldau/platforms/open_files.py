"""The limit of open files of this process, and raising it as far as the system allows.

Linux: the soft limit may be raised to the hard one. macOS: the hard limit is infinite, but a soft limit above
`kern.maxfilesperproc` is refused, by older versions even one above OPEN_MAX; it starts at 256.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

OPEN_MAX: Final = 10_240
"""From macOS' sys/syslimits.h: a soft limit that is always allowed, according to setrlimit(2)."""

SetSoft = Callable[[int], None]


def open_files_max() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def allow_open_files(platform: str = sys.platform) -> None:
    """Raise the limit as far as the system allows: each connection and each partition's segment needs an open file."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if platform != "darwin":
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return
    raise_soft_limit(
        soft,
        sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        files_per_process_max(),
        lambda limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard)),
    )


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
