"""The C library's heap: threads that share one leave less memory unused."""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_ARENA_MAX: Final = -8
TRIM_THRESHOLD_BYTES: Final = 128 << 10


def share_heap() -> bool:
    """Let all threads use one heap, and give freed memory at its end back to the system. To be called before threads
    are started. Return False where the C library is another one than glibc: then nothing changes."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc, or not Unix
        return False
    return bool(mallopt(_M_ARENA_MAX, 1) and mallopt(_M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES))
