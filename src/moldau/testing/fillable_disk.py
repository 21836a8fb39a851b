"""The real disk, which a test can fill: files do not grow any more until it makes room again.

Only the files of the metadata quorum still can: a node keeps some space for them.
"""

from __future__ import annotations

import errno
import os
from typing import Final

from moldau.base.buffers import Buffer
from moldau.base.errors import StorageFault
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log.files import DiskFile, DiskFiles

NEVER_FULL: Final = f"/{METADATA_TOPIC}-0/"


class FillableDisk(DiskFiles):
    is_full = False
    """Set and cleared by a test, from any thread."""

    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> DiskFile:
        opened = super().open(path, create=create, stays_open=stays_open)
        if NEVER_FULL in path:
            return opened
        descriptor, opened.fd = opened.fd, -1
        return _FillableFile(path, descriptor, self)


class _FillableFile(DiskFile):
    __slots__ = ("_disk",)

    def __init__(self, path: str, fd: int, disk: FillableDisk) -> None:
        super().__init__(path, fd)
        self._disk = disk

    def pwrite(self, data: Buffer, position: int) -> int:
        if self._disk.is_full and position + len(data) > self.size():
            raise StorageFault(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        return super().pwrite(data, position)
