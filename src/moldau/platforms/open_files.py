"""How many files this process may have open: what it is, and as many as the system grants.

Linux: the soft limit may be raised to the hard one. macOS: the hard limit is infinite, but a soft limit above
`kern.maxfilesperproc` is refused, by older versions even one above OPEN_MAX; it starts at 256.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Final

OPEN_MAX: Final = 10_240
"""From macOS' sys/syslimits.h: what setrlimit(2) says a soft limit may always be."""

SetSoft = Callable[[int], None]


def open_files_max() -> int:
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return sys.maxsize if soft == resource.RLIM_INFINITY else soft


def allow_open_files(platform: str = sys.platform) -> None:
    """As many as the system grants: each connection and each partition's segment is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if platform != "darwin":
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return
    raise_soft_limit(
        soft,
        sys.maxsize if hard == resource.RLIM_INFINITY else hard,
        files_per_process_max(),
        lambda wanted: resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard)),
    )


def raise_soft_limit(soft: int, hard: int, per_process: int | None, set_soft: SetSoft) -> int:
    """The highest limit that macOS takes; gives the one in force. What is refused leaves it as it was."""
    for wanted in _worth_trying(soft, hard, per_process):
        try:
            set_soft(wanted)
        except (ValueError, OSError):  # ValueError is how Python tells of EINVAL here
            continue
        return wanted
    return soft


def _worth_trying(soft: int, hard: int, per_process: int | None) -> Iterator[int]:
    for ceiling in (per_process, OPEN_MAX):
        if ceiling is not None and min(hard, ceiling) > soft:
            yield min(hard, ceiling)


def files_per_process_max() -> int | None:
    """`kern.maxfilesperproc`; None where there is no such thing."""
    import ctypes

    sysctl = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    value = ctypes.c_int()
    size = ctypes.c_size_t(ctypes.sizeof(value))
    if sysctl is None or sysctl(
        b"kern.maxfilesperproc", ctypes.byref(value), ctypes.byref(size), None, ctypes.c_size_t(0)
    ):
        return None
    return value.value
