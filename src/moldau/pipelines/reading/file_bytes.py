"""Reads the bytes of a file that somebody named, which may be anything on this machine."""

from __future__ import annotations

import errno
from pathlib import Path


class NotAFile(OSError):
    """The path names a FIFO, a device or a socket."""

    def __init__(self) -> None:
        super().__init__(errno.EINVAL, "it is not a file")


def read_bytes(path: Path, bytes_max: int) -> bytes:
    """Return the first `bytes_max` bytes of a file. Raise NotAFile for a FIFO: opening it would wait for a writer."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise NotAFile
    with path.open("rb") as file:
        return file.read(bytes_max)
