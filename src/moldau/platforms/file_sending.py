"""Sending a part of a file to a socket without copying it, and telling a peer that is gone from a fault.

`send_file(socket, file, offset, count)` gives how many bytes were sent, 0 at the end of the file, and raises
BlockingIOError when a socket that does not block takes nothing. It may send fewer than asked.

Linux: `sendfile` does just that. macOS and FreeBSD: it may send a part and report EAGAIN at once; Python then gives the
number of bytes, as above. But a count of 0 means "to the end of the file" there. Elsewhere the bytes are copied.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Final

SendFile = Callable[[int, int, int, int], int]

GONE: Final = frozenset((errno.ENOTCONN, errno.EPROTOTYPE))
"""What macOS answers, beside EPIPE and ECONNRESET, who sends to a peer that has gone: ENOTCONN from `sendfile`, and
EPROTOTYPE from `send` while the kernel takes the connection down."""


def is_peer_gone(fault: OSError) -> bool:
    """Whether the other side has ended the connection, and nothing else is wrong."""
    return isinstance(fault, ConnectionError) or fault.errno in GONE


def bounded_send_file(sendfile: SendFile) -> SendFile:
    """`sendfile` of macOS and FreeBSD, of which nothing is nothing and not everything."""

    def send_file(out_fd: int, in_fd: int, offset: int, count: int) -> int:
        return sendfile(out_fd, in_fd, offset, count) if count else 0

    return send_file


def copying_send_file(out_fd: int, in_fd: int, offset: int, count: int) -> int:
    data = os.pread(in_fd, count, offset)
    return os.write(out_fd, data) if data else 0


def send_file_of(platform: str) -> SendFile:
    if platform == "linux":
        return os.sendfile
    if platform == "darwin" or platform.startswith("freebsd"):
        return bounded_send_file(os.sendfile)
    return copying_send_file


send_file: Final = send_file_of(sys.platform)
