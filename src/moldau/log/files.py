"""The disk as the log uses it: a few calls, so that tests can count them and make them fail or stop half-way.

Every OSError of the log package becomes a StorageFault here and nowhere else. No formats, no names of files.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from contextlib import suppress
from typing import Protocol

from moldau.base.buffers import Buffer
from moldau.base.errors import StorageFault
from moldau.base.limits import (
    DESCRIPTORS_RESERVED_FOR_CONNECTIONS,
    DESCRIPTORS_RESERVED_FOR_SHORT_LIVED_FILES,
    reserved_descriptors,
)
from moldau.platforms.allocation import allocate
from moldau.platforms.durable_files import sync_data, sync_directory
from moldau.platforms.file_locks import try_lock
from moldau.platforms.open_files import open_files_limit


class File(Protocol):
    """An open file. It is closed with its last reference, so a slice can outlive its segment."""

    path: str

    def pwrite(self, data: Buffer, position: int) -> int: ...

    def pread(self, length: int, position: int) -> bytes: ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make the file longer, up to `size`, and take the space for it. It may be longer after an error too."""
        ...

    def sync(self) -> None: ...

    def fileno(self) -> int: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> File:
        """With `stays_open` it fails while the last file descriptors are left: these are reserved for checkpoints and
        admin connections, however many segments there are."""
        ...

    def read(self, path: str) -> bytes | None:
        """The whole content, None if there is no such file."""
        ...

    def sync(self, path: str) -> None:
        """Sync a file by name. A missing file is no error: it was deleted."""
        ...

    def names(self, directory: str) -> list[str]: ...

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def is_directory(self, path: str) -> bool: ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None:
        """A missing file is no error."""
        ...

    def mkdir(self, directory: str) -> bool:
        """Create the directory and its parents. Return whether it is new; one that exists is no error."""
        ...

    def rmdir(self, directory: str) -> None: ...

    def sync_directory(self, directory: str) -> None: ...

    def lock(self, path: str) -> Lock: ...


def write_all(file: File, data: Buffer, position: int) -> None:
    """Write all bytes: a single pwrite may write fewer."""
    view = memoryview(data)
    while view:
        written = file.pwrite(view, position)
        view = view[written:]
        position += written


class DiskFile:
    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def pwrite(self, data: Buffer, position: int) -> int:
        try:
            return os.pwrite(self.fd, data, position)
        except OSError as error:
            raise StorageFault(self.path, error) from error

    def pread(self, length: int, position: int) -> bytes:
        try:
            return os.pread(self.fd, length, position)
        except OSError as error:
            raise StorageFault(self.path, error) from error

    def size(self) -> int:
        try:
            return os.fstat(self.fd).st_size
        except OSError as error:
            raise StorageFault(self.path, error) from error

    def truncate(self, size: int) -> None:
        try:
            os.ftruncate(self.fd, size)
        except OSError as error:
            raise StorageFault(self.path, error) from error

    def allocate(self, size: int) -> None:
        try:
            allocate(self.fd, size)
        except OSError as error:
            raise StorageFault(self.path, error) from error

    def sync(self) -> None:
        try:
            # fdatasync: file times are not worth a second journal write.
            sync_data(self.fd)
        except OSError as error:
            raise StorageFault(self.path, error) from error

    def fileno(self) -> int:
        return self.fd

    def __del__(self) -> None:
        with suppress(OSError):
            os.close(self.fd)


class DiskLock:
    """An advisory lock that the kernel drops when the process ends, however it ends."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


def staying_descriptor_max() -> int:
    """Return the highest descriptor for a file that stays open: connections and other files need some too."""
    limit = open_files_limit()
    reserved = (DESCRIPTORS_RESERVED_FOR_SHORT_LIVED_FILES, DESCRIPTORS_RESERVED_FOR_CONNECTIONS)
    return limit - sum(reserved_descriptors(each, limit) for each in reserved)


class DiskFiles:
    """Files on the local disk."""

    def __init__(self, staying_descriptor_max: int = sys.maxsize) -> None:
        """`staying_descriptor_max` is the highest descriptor number for a file that stays open. The system assigns the
        lowest free number, so a higher one means that as many are in use."""
        self._staying_descriptor_max = staying_descriptor_max

    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> DiskFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            file = DiskFile(path, os.open(path, flags, 0o644))
            if stays_open and file.fd > self._staying_descriptor_max:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        except OSError as error:
            raise StorageFault(path, error) from error
        return file

    def read(self, path: str) -> bytes | None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFault(path, error) from error
        file = DiskFile(path, fd)
        return file.pread(file.size(), 0)

    def sync(self, path: str) -> None:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFault(path, error) from error
        DiskFile(path, fd).sync()

    def names(self, directory: str) -> list[str]:
        try:
            return os.listdir(directory)
        except OSError as error:
            raise StorageFault(directory, error) from error

    def size(self, path: str) -> int:
        try:
            return os.stat(path).st_size
        except OSError as error:
            raise StorageFault(path, error) from error

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_directory(self, path: str) -> bool:
        try:
            return stat.S_ISDIR(os.stat(path).st_mode)
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StorageFault(path, error) from error

    def rename(self, source: str, target: str) -> None:
        try:
            os.rename(source, target)
        except OSError as error:
            raise StorageFault(source, error) from error

    def unlink(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFault(path, error) from error

    def mkdir(self, directory: str) -> bool:
        try:
            os.mkdir(directory)
        except FileExistsError as error:
            if not os.path.isdir(directory):
                raise StorageFault(directory, error) from error
            return False
        except FileNotFoundError:
            return self._mkdir_with_parents(directory)
        except OSError as error:
            raise StorageFault(directory, error) from error
        return True

    def _mkdir_with_parents(self, directory: str) -> bool:
        try:
            os.makedirs(directory)
        except OSError as error:
            raise StorageFault(directory, error) from error
        return True

    def rmdir(self, directory: str) -> None:
        try:
            os.rmdir(directory)
        except OSError as error:
            raise StorageFault(directory, error) from error

    def sync_directory(self, directory: str) -> None:
        try:
            sync_directory(directory)
        except OSError as error:
            raise StorageFault(directory, error) from error

    def lock(self, path: str) -> DiskLock:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StorageFault(path, error) from error
        try:
            if not try_lock(fd):
                raise OSError(errno.EAGAIN, "another process is using this log directory")
        except OSError as error:
            os.close(fd)
            raise StorageFault(path, error) from error
        return DiskLock(fd)
