"""Whether bytes of a file are in the page cache, asked without waiting for the disk; and fetching them when not.

`sendfile` blocks on a cold page, and with it everyone on the same loop: cold ranges go through a thread first. Only
Linux can be asked (`preadv` with RWF_NOWAIT, since 4.14). Elsewhere every range passes for cached, and a cold one
holds up the loop for as long as the disk takes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

READ_BYTES: Final = 1 << 20

IsCached = Callable[[int, int, int], bool]
"""Of a file, a position and a length."""
Fetch = Callable[[int, int, int], None]


def asked_of_linux(fd: int, position: int, length: int) -> bool:
    """True if the first and the last byte of the range can be read at once, or if the file system cannot tell."""
    byte = bytearray(1)
    try:
        os.preadv(fd, [byte], position, os.RWF_NOWAIT)
        os.preadv(fd, [byte], position + length - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system does not know the flag: sending from it is as good as it gets
    return True


def taken_for_cached(fd: int, position: int, length: int) -> bool:
    """Where the system cannot tell."""
    return True


def read_once(fd: int, position: int, length: int) -> None:
    """Reads the range, so that it is cached. Meant for a thread."""
    end = position + length
    while position < end:
        count = len(os.pread(fd, min(end - position, READ_BYTES), position))
        if not count:
            return
        position += count


def announce_and_read(fd: int, position: int, length: int) -> None:
    """The same, with the whole range announced to Linux first."""
    os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)
    read_once(fd, position, length)


def page_cache_of(platform: str) -> tuple[IsCached, Fetch]:
    if platform == "linux" and hasattr(os, "RWF_NOWAIT"):
        return asked_of_linux, announce_and_read
    return taken_for_cached, read_once


is_cached, fetch = page_cache_of(sys.platform)
