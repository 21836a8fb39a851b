"""Taking space on the disk for a file before anything is written to it. A file that is only made longer takes none.

Linux: `posix_fallocate`. Where the file system cannot do it, glibc writes a byte to each block, and other libraries
answer EOPNOTSUPP or EINVAL. macOS has no such call. There, zeros are written: a file system that compresses (ZFS,
btrfs if it is told to) takes no space for them.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Final

Allocate = Callable[[int, int], None]
UNSUPPORTED: Final = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS))
ZEROS: Final = bytes(1 << 20)


def write_zeros(fd: int, size: int) -> None:
    position = os.fstat(fd).st_size
    while position < size:
        position += os.pwrite(fd, ZEROS[: size - position], position)


def allocate_blocks(fd: int, size: int) -> None:
    old_size = os.fstat(fd).st_size
    if size <= old_size:
        return
    try:
        os.posix_fallocate(fd, old_size, size - old_size)
    except OSError as refused:
        if refused.errno not in UNSUPPORTED:
            raise
        write_zeros(fd, size)


def allocate_of(platform: str) -> Allocate:
    return allocate_blocks if platform == "linux" else write_zeros


allocate = allocate_of(sys.platform)
"""Makes an open file longer, up to a size, and takes the space for it. What was taken before an error stays taken."""
