"""Sending a part of a file to a socket without copying it, and detecting that the peer is gone.

`send_file(socket, file, offset, count)` returns how many bytes were sent, 0 at the end of the file, and raises
BlockingIOError when a non-blocking socket accepts nothing. It may send fewer bytes than `count`.

Linux: `sendfile` does exactly that. macOS and FreeBSD: it may send a part and report EAGAIN together; Python then
returns the number of bytes, as above. But a count of 0 means "to the end of the file" there. Elsewhere the bytes are
copied.
"""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Callable
from typing import Final

SendFile = Callable[[int, int, int, int], int]

PEER_GONE: Final = frozenset((errno.ENOTCONN, errno.EPROTOTYPE))
"""The errors of macOS, besides EPIPE and ECONNRESET, when the peer is gone: ENOTCONN from `sendfile`, and EPROTOTYPE
from `send` while the kernel closes the connection."""


def is_peer_gone(fault: OSError) -> bool:
    """Whether the error means only that the other side has closed the connection."""
    return isinstance(fault, ConnectionError) or fault.errno in PEER_GONE


def bounded_send_file(sendfile: SendFile) -> SendFile:
    """Wrap `sendfile` of macOS and FreeBSD, so that a count of 0 sends nothing instead of the whole file."""

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

SEND_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)
"""A flag of `send`: more follows at once. The bytes leave together with the file that `send_file` sends next, and the
client wakes up once."""
