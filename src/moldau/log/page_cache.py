"""Whether bytes of a file are in the page cache, asked without waiting for the disk; and fetching them when not.

`sendfile` blocks on a cold page, and with it everyone on the same loop: cold ranges go through a thread first.
"""

from __future__ import annotations

import os
import sys
from typing import Final

_CAN_ASK: Final = sys.platform == "linux" and hasattr(os, "RWF_NOWAIT")
_READ_BYTES: Final = 1 << 20


def is_cached(fd: int, position: int, length: int) -> bool:
    """True if the first and the last byte of the range can be read at once, or if the system cannot tell."""
    if not _CAN_ASK:
        return True
    byte = bytearray(1)
    try:
        os.preadv(fd, [byte], position, os.RWF_NOWAIT)
        os.preadv(fd, [byte], position + length - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system does not know the flag: sending from it is as good as it gets
    return True


def fetch(fd: int, position: int, length: int) -> None:
    """Reads the range once, so that it is cached. Meant for a thread."""
    os.posix_fadvise(fd, position, length, os.POSIX_FADV_WILLNEED)
    buffer = bytearray(min(length, _READ_BYTES))
    end = position + length
    while position < end:
        count = os.preadv(fd, [memoryview(buffer)[: end - position]], position)
        if not count:
            return
        position += count
