"""Bringing a file's bytes and a directory's names to the disk itself, so that they outlast a power cut.

Linux: `fdatasync` waits for the bytes and the size, `fsync` for the times too. Both have the disk empty its cache.
macOS: `fsync` hands the bytes to the disk and leaves them in its cache; only `F_FULLFSYNC` waits until they are kept.
There is no `fdatasync`. File systems without `F_FULLFSYNC` (some of the network) say so, and get an `fsync`.
Windows: files only; its file system writes down names in its own journal, and directories cannot be opened.

A sync that failed is never tried again: the kernel may have marked the pages clean (Rebello et al., ATC '20).
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

F_FULLFSYNC: Final = 51
"""From macOS' sys/fcntl.h; Python's `fcntl` has the name on macOS only."""
NOT_OFFERED: Final = frozenset((errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY))
"""What a file system without `F_FULLFSYNC` answers. It has not begun to sync then, so an `fsync` repeats nothing."""

SyncFd = Callable[[int], None]


class Syncs(NamedTuple):
    data: SyncFd
    """The bytes of an open file, and the size that is needed to read them back."""
    file: SyncFd
    """Everything that is known of an open file."""
    directory: Callable[[str], None]
    """The names in a directory."""


def full_sync(fcntl: Callable[[int, int], Any], fsync: SyncFd) -> SyncFd:
    """The sync of macOS, made of its calls."""

    def sync(fd: int) -> None:
        try:
            fcntl(fd, F_FULLFSYNC)
        except OSError as refused:
            if refused.errno not in NOT_OFFERED:
                raise
            fsync(fd)

    return sync


def directory_sync(sync: SyncFd) -> Callable[[str], None]:
    """Syncs a directory by its path, with a sync of open files."""

    def sync_directory(path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            sync(fd)
        finally:
            os.close(fd)

    return sync_directory


def no_sync(path: str) -> None:
    """Where directories need none."""


def syncs_of(platform: str) -> Syncs:
    if platform == "win32":
        return Syncs(os.fsync, os.fsync, no_sync)
    if platform == "darwin":
        from fcntl import fcntl

        full = full_sync(fcntl, os.fsync)
        return Syncs(full, full, directory_sync(full))
    return Syncs(getattr(os, "fdatasync", os.fsync), os.fsync, directory_sync(os.fsync))


sync_data, sync_file, sync_directory = syncs_of(sys.platform)
