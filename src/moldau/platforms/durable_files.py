"""Syncing a file's bytes and a directory's names to the disk, so that they survive a power loss.

Linux: `fdatasync` waits for the bytes and the size, `fsync` for the times too. Both flush the disk's cache. Some file
systems cannot sync directories and answer EINVAL (VirtualBox' shared folders): when names become durable is up to them.
macOS: `fsync` only writes the bytes to the disk's cache; only `F_FULLFSYNC` waits until they are durable. There is no
`fdatasync`. File systems without `F_FULLFSYNC` (some network ones) refuse it, and get an `fsync`.
Windows: files only; the file system has a journal for names, and directories cannot be opened.

A sync that failed is never repeated: the kernel may have marked the pages clean (Rebello et al., ATC '20).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

F_FULLFSYNC: Final = 51
"""From macOS' sys/fcntl.h; Python's `fcntl` defines it only on macOS."""
UNSUPPORTED: Final = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY))
"""The errors of a file system without `F_FULLFSYNC`. It has not begun to sync then, so an `fsync` is no repetition."""

SyncFd = Callable[[int], None]


class Syncs(NamedTuple):
    data: SyncFd
    """Syncs the bytes of an open file, and its size."""
    file: SyncFd
    """Syncs the bytes and all metadata of an open file."""
    directory: Callable[[str], None]
    """Syncs the names in a directory."""


def full_sync(fcntl: Callable[[int, int], Any], fsync: SyncFd) -> SyncFd:
    """Return the sync function of macOS, built from its system calls."""

    def sync(fd: int) -> None:
        try:
            fcntl(fd, F_FULLFSYNC)
        except OSError as refused:
            if refused.errno not in UNSUPPORTED:
                raise
            fsync(fd)

    return sync


def directory_sync(sync: SyncFd) -> Callable[[str], None]:
    """Return a function that syncs a directory by its path, using `sync`. A file system that cannot sync directories is
    no error: it answers EINVAL, and has not begun to sync then."""

    def sync_directory(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(fd)
        except OSError as refused:
            if refused.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)

    return sync_directory


def no_sync(path: str) -> None:
    """For systems whose directories need no sync."""


def syncs_of(platform: str) -> Syncs:
    if platform == "win32":
        return Syncs(os.fsync, os.fsync, no_sync)
    if platform == "darwin":
        from fcntl import fcntl

        full = full_sync(fcntl, os.fsync)
        return Syncs(full, full, directory_sync(full))
    return Syncs(getattr(os, "fdatasync", os.fsync), os.fsync, directory_sync(os.fsync))


sync_data, sync_file, sync_directory = syncs_of(sys.platform)
