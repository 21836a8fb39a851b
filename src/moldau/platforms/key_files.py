"""Files with keys and certificates, and names for keys that are only in memory.

OpenSSL reads a private key from a path only. On Linux the path is that of a file in memory, elsewhere of a temporary
file that only this user can read and that is removed at once.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from tempfile import NamedTemporaryFile
from typing import Final


@contextmanager
def named_in_memory(data: bytes) -> Iterator[str]:
    fd = os.memfd_create("key", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


@contextmanager
def named_temporarily(data: bytes) -> Iterator[str]:
    with NamedTemporaryFile(prefix="moldau-") as file:
        file.write(data)
        file.flush()
        yield file.name


def named_of(platform: str) -> Callable[[bytes], AbstractContextManager[str]]:
    is_linux = platform == "linux" and hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd")
    return named_in_memory if is_linux else named_temporarily


class DiskKeyFiles:
    """`KeyFiles` on the real disk."""

    def read(self, path: str, bytes_max: int) -> bytes:
        try:
            with open(path, "rb", opener=_open_without_blocking) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.EINVAL, "it is not a regular file", path)
                return file.read(bytes_max)
        except ValueError:  # a NUL, or what no file name can contain
            raise OSError(errno.EINVAL, "it is not a valid path", path) from None

    def version(self, path: str) -> object:
        try:
            found = os.stat(path)
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def named(self, data: bytes) -> AbstractContextManager[str]:
        return _named(data)


def _open_without_blocking(path: str, flags: int) -> int:
    """A dynamic config may name a pipe, and perhaps nobody ever writes to it."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


_named: Final = named_of(sys.platform)
