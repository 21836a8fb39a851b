"""Advisory locks that the kernel drops when their process ends, however it ends. Linux and macOS (`flock`)."""

from __future__ import annotations

import errno

from moldau.platforms.support import refusal


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Takes the lock of an open file, alone or together with others who share; False if somebody is in the way."""
    if line := refusal("what locks a directory"):
        raise OSError(errno.ENOSYS, line)
    import fcntl

    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # the second from some file systems of the network
        return False
    return True
