"""Files in memory with a page cache that can be lost: a crash shows the difference between written and synced.

For tests only. A crash keeps all synced data and a random part of the rest: a prefix of the writes, the last of them
torn, or pages that were never written back and read as zeros. The same holds for names: until a directory is synced,
the latest creations, renames and removals in it may be undone, newest first.

Faults that a test can set: a disk that is full after some bytes, a sync that fails, short writes, power loss at the
n-th operation.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from moldau.base.buffers import Buffer
from moldau.base.errors import StorageFault

Value = TypeVar("Value")
PAGE_BYTES = 64
"""Smaller than a real page, so that small batches tear across several."""


class PowerLoss(BaseException):
    """Raised at the operation at which power is lost. Not an Exception, so that no code catches it and continues."""


@dataclass(slots=True)
class _Inode:
    data: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes (position, bytes) and truncations (size, None) since the last sync, in order."""
    allocated: int = 0
    """Bytes behind the data that only take space."""

    @property
    def taken_bytes(self) -> int:
        return len(self.data) + self.allocated

    def write(self, position: int, data: bytes) -> None:
        if position > len(self.data):
            self.data += bytes(position - len(self.data))
        self.data[position : position + len(data)] = data
        self.pending.append((position, data))

    def truncate(self, size: int) -> None:
        if size == len(self.data):
            return
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data += bytes(size - len(self.data))
        self.pending.append((size, None))

    def sync(self) -> None:
        self.synced = bytes(self.data)
        self.pending.clear()

    def after_crash(self, rng: random.Random) -> _Inode:
        if self.allocated:
            return _Inode(bytearray(self.synced), self.synced, allocated=self.allocated)
        survivor = _Inode(bytearray(self.synced), self.synced)
        survivors = rng.randint(0, len(self.pending))
        for number, (position, data) in enumerate(self.pending[:survivors]):
            if data is None:
                survivor.truncate(position)
            elif number == survivors - 1 and rng.random() < 0.5:
                survivor.write(position, data[: rng.randint(0, len(data))])
            elif rng.random() < 0.15:
                survivor.write(position, _with_lost_pages(data, rng))
            else:
                survivor.write(position, data)
        survivor.sync()
        return survivor


def _with_lost_pages(data: bytes, rng: random.Random) -> bytes:
    pages = [data[start : start + PAGE_BYTES] for start in range(0, len(data), PAGE_BYTES)]
    return b"".join(bytes(len(page)) if rng.random() < 0.5 else page for page in pages)


class MemoryFile:
    def __init__(self, files: MemoryFiles, path: str, inode: _Inode) -> None:
        self.path = path
        self._files = files
        self._inode = inode

    def pwrite(self, data: Buffer, position: int) -> int:
        self._files.step()
        allowed = self._files.allow_bytes(self.path, position + len(data) - len(self._inode.data), len(data))
        self._inode.write(position, bytes(data[:allowed]))
        return allowed

    def pread(self, length: int, position: int) -> bytes:
        if length < 0 or position < 0:
            raise _fault(self.path, errno.EINVAL)  # as the kernel does
        return bytes(self._inode.data[position : position + length])

    def size(self) -> int:
        return self._inode.taken_bytes

    def truncate(self, size: int) -> None:
        self._files.step()
        if self._files.truncate_fails:
            raise _fault(self.path, errno.EIO)
        self._files.free_bytes(self.size() - size)
        self._inode.allocated = max(min(size - len(self._inode.data), self._inode.allocated), 0)
        self._inode.truncate(size - self._inode.allocated)

    def allocate(self, size: int) -> None:
        growth = size - self.size()
        if growth <= 0:
            return
        self._files.take_bytes(self.path, growth)
        self._inode.allocated += growth

    def sync(self) -> None:
        self._files.step()
        self._files.on_sync()
        if self._files.sync_fails:
            # As Linux does: the pages are marked clean, and their data is lost at the next crash.
            self._inode.pending.clear()
            raise _fault(self.path, errno.EIO)
        self._inode.sync()

    def fileno(self) -> int:
        raise OSError("a file in memory has no descriptor")


class MemoryLock:
    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release


class _Paths(dict[str, Value]):
    """What is at each path, and by directory the names in it, in the order in which they came."""

    def __init__(self) -> None:
        super().__init__()
        self._names: dict[str, dict[str, None]] = {}

    def __setitem__(self, path: str, value: Value) -> None:
        super().__setitem__(path, value)
        directory, _, name = path.rpartition("/")
        self._names.setdefault(directory, {})[name] = None

    def remove(self, path: str) -> Value:
        directory, _, name = path.rpartition("/")
        value = super().pop(path)
        del self._names[directory][name]
        return value

    def names(self, directory: str) -> list[str]:
        return [name for name in self._names.get(directory, ()) if name]


class MemoryFiles:
    """The disk of one machine. `crash` returns the disk as the machine finds it after a restart."""

    def __init__(self) -> None:
        self.bytes_left: int | None = None
        """Bytes until the disk is full; None for no limit."""
        self.write_bytes_max: int | None = None
        """The most bytes that one write accepts."""
        self.sync_fails = False
        self.truncate_fails = False
        self.operations = 0
        self.on_sync: Callable[[], None] = _ignore
        """Called before each sync of a file or directory."""
        self.power_lost_at: int | None = None
        """The number of the first operation that is not executed any more."""
        self._inodes: _Paths[_Inode] = _Paths()
        self._directories: _Paths[None] = _Paths()
        self._directories[""] = None
        self._undo: dict[str, list[Callable[[], None]]] = {}
        """Per directory, how to undo each change of names since its last sync."""
        self._locks: set[str] = set()

    # --- faults -------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Count an operation that changes something; raise PowerLoss before it if a test asked for that."""
        if self.power_lost_at is not None and self.operations >= self.power_lost_at:
            raise PowerLoss
        self.operations += 1

    def allow_bytes(self, path: str, growth: int, length: int) -> int:
        """Return how many bytes of a write are accepted."""
        if self.write_bytes_max is not None and length > self.write_bytes_max:
            growth -= length - self.write_bytes_max
            length = self.write_bytes_max
        if self.bytes_left is not None and growth > 0:
            allowed = min(growth, self.bytes_left)
            self.bytes_left -= allowed
            length -= growth - allowed
            if length <= 0:
                raise _fault(path, errno.ENOSPC)
        return length

    def take_bytes(self, path: str, count: int) -> None:
        """Take so many bytes of the disk, or none if there are not so many."""
        if self.bytes_left is not None:
            if count > self.bytes_left:
                raise _fault(path, errno.ENOSPC)
            self.bytes_left -= count

    def free_bytes(self, count: int) -> None:
        if self.bytes_left is not None:
            self.bytes_left += count

    def crash(self, rng: random.Random) -> MemoryFiles:
        """Return what is left after power is lost now. The old object must not be used any more."""
        for changes in self._undo.values():
            for undo in reversed(changes[rng.randint(0, len(changes)) :]):
                undo()
        survivor = MemoryFiles()
        for directory in self._directories:
            survivor._directories[directory] = None
        for path, inode in self._inodes.items():
            survivor._inodes[path] = inode.after_crash(rng)
        return survivor

    def restart(self) -> MemoryFiles:
        """Simulate the death of the process only: all that was written is there, locks are not."""
        survivor = MemoryFiles()
        survivor._directories, survivor._inodes, survivor._undo = self._directories, self._inodes, self._undo
        return survivor

    # --- Files --------------------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> MemoryFile:
        inode = self._inodes.get(path)
        if inode is None:
            if not create:
                raise _fault(path, errno.ENOENT)
            self._require_directory(_parent(path))
            self.step()
            inode = self._inodes[path] = _Inode()
            self._note(path, lambda: self._forget(path))
        return MemoryFile(self, path, inode)

    def read(self, path: str) -> bytes | None:
        inode = self._inodes.get(path)
        return None if inode is None else bytes(inode.data)

    def sync(self, path: str) -> None:
        if path in self._inodes:
            self.open(path).sync()

    def names(self, directory: str) -> list[str]:
        self._require_directory(directory)
        return [*self._inodes.names(directory), *self._directories.names(directory)]

    def size(self, path: str) -> int:
        return self.open(path).size()

    def exists(self, path: str) -> bool:
        return path in self._inodes or path in self._directories

    def is_directory(self, path: str) -> bool:
        return path in self._directories

    def rename(self, source: str, target: str) -> None:
        self.step()
        if source in self._directories:
            self._rename_directory(source, target)
            return
        if source not in self._inodes:
            raise _fault(source, errno.ENOENT)
        moved, replaced = self._inodes.remove(source), self._inodes.get(target)
        self._inodes[target] = moved
        self.free_bytes(0 if replaced is None else replaced.taken_bytes)

        def undo() -> None:
            self._inodes[source] = moved
            if replaced is None:
                self._forget(target)
            else:
                self._inodes[target] = replaced

        self._note(target, undo)

    def _rename_directory(self, source: str, target: str) -> None:
        """Durable at once: no test depends on losing it."""
        self._directories.remove(source)
        self._directories[target] = None
        for path in [path for path in self._inodes if path.startswith(source + "/")]:
            self._inodes[target + path[len(source) :]] = self._inodes.remove(path)
        self._undo.pop(source, None)

    def unlink(self, path: str) -> None:
        if path not in self._inodes:
            return
        self.step()
        inode = self._inodes.remove(path)
        self.free_bytes(inode.taken_bytes)
        self._note(path, lambda: self._inodes.__setitem__(path, inode))

    def mkdir(self, directory: str) -> bool:
        """Durable at once: losing a whole directory loses nothing that a log has acknowledged."""
        is_new = directory not in self._directories
        while directory:
            self._directories[directory] = None
            directory = _parent(directory)
        return is_new

    def rmdir(self, directory: str) -> None:
        self.step()
        self._directories.remove(directory)

    def sync_directory(self, directory: str) -> None:
        self._require_directory(directory)
        self.step()
        self.on_sync()
        self._undo.pop(directory, None)

    def lock(self, path: str) -> MemoryLock:
        if path in self._locks:
            raise StorageFault(path, OSError(errno.EAGAIN, "another process is using this log directory"))
        self._locks.add(path)
        return MemoryLock(lambda: self._locks.discard(path))

    def _forget(self, path: str) -> None:
        if path in self._inodes:
            self._inodes.remove(path)

    def _require_directory(self, directory: str) -> None:
        if directory not in self._directories:
            raise _fault(directory, errno.ENOENT)

    def _note(self, path: str, undo: Callable[[], object]) -> None:
        self._undo.setdefault(_parent(path), []).append(lambda: (undo(), None)[1])


def _parent(path: str) -> str:
    return path.rpartition("/")[0]


def _fault(path: str, number: int) -> StorageFault:
    return StorageFault(path, OSError(number, os.strerror(number)))


def _ignore() -> None:
    """Nobody wants to know of syncs."""
