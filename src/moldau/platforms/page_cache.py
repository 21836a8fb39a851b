"""Whether bytes of a file are in the page cache, without waiting for the disk; and reading them into it.

`sendfile` blocks on a page that is not cached, and blocks the whole event loop: a thread reads such ranges first. Only
Linux can check this (`preadv` with RWF_NOWAIT, since 4.14). Elsewhere every range is assumed to be cached, and the loop
waits for the disk if it is not.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

READ_BYTES: Final = 1 << 20

IsCached = Callable[[int, int, int], bool]
"""Takes a file descriptor, a position and a length."""
Fetch = Callable[[int, int, int], None]


def is_cached_on_linux(fd: int, position: int, length: int) -> bool:
    """Return True if the range's first and last byte can be read at once, or if the file system cannot tell."""
    byte = bytearray(1)
    try:
        os.preadv(fd, [byte], position, os.RWF_NOWAIT)
        os.preadv(fd, [byte], position + length - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system does not support the flag, so nothing better can be done than to send
    return True


def assume_cached(fd: int, position: int, length: int) -> bool:
    """For systems that cannot tell."""
    return True


def read_once(fd: int, position: int, length: int) -> None:
    """Read the range, so that it is cached. To be called in a thread."""
    end = position + length
    while position < end:
        count = len(os.pread(fd, min(end - position, READ_BYTES), position))
        if not count:
            return
        position += count


def advise_and_read(fd: int, position: int, length: int) -> None:
    """Like `read_once`, but first advise Linux to read the whole range ahead."""
    os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)
    read_once(fd, position, length)


def page_cache_of(platform: str) -> tuple[IsCached, Fetch]:
    if platform == "linux" and hasattr(os, "RWF_NOWAIT"):
        return is_cached_on_linux, advise_and_read
    return assume_cached, read_once


is_cached, fetch = page_cache_of(sys.platform)
