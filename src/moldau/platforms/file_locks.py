"""Advisory locks that the kernel releases when their process ends, however it ends. Linux and macOS (`flock`)."""

from __future__ import annotations

import errno

from moldau.platforms.support import refusal_text


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Try to lock an open file, exclusively or shared; return False if another process holds the lock."""
    if line := refusal_text("a program that locks a directory"):
        raise OSError(errno.ENOSYS, line)
    import fcntl

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # PermissionError comes from some network file systems
        return False
    return True
