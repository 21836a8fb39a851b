"""A reserve on the disk: a file that only takes space, and that is given back in pieces when the disk is full.

A node needs some small files to vote, to lead, to stop and to start. `ReservedFiles` gives them room of the reserve:

  - small files of the node and of the quorum that are replaced whole (`.tmp`): the epoch and the vote, the
    clean-shutdown marker, …; but not the checkpoints without which a start only takes longer, and which are written
    every few seconds;
  - the lock of the directory;
  - files that grow, or of which there may be thousands, but these leave half of it to the others: the segments of the
    metadata log, the indexes of aborted transactions, which recovery rebuilds, and when the node stops the leader
    epochs of each partition.

Nobody else gets any of it: records of topics are refused. Snapshots of the metadata may be large, and can wait.

What a write did not use is taken back at once: otherwise records of topics would fill it. The size of the file is the
only state, so that threads need no lock here: each step is one system call, and a piece that another thread or process
was quicker to use is only missing, until `fill` finds room again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final, TypeVar

from moldau.base.buffers import Buffer
from moldau.base.errors import StorageFault
from moldau.base.ports import DiskSpace
from moldau.base.reserve import RESERVE_FILE, reserve_size
from moldau.base.topic_names import METADATA_TOPIC
from moldau.log import layout
from moldau.log.checkpoint_files import DISPENSABLE
from moldau.log.files import File, Files, Lock

BLOCK_BYTES: Final = 4096
"""File systems give space in such pieces, or in smaller ones."""
PIECE_BYTES: Final = 16 << 10
"""Given back in addition to what is to be written: a new file may need a block for its name or its map of blocks."""
UNSYNCED_BYTES: Final = 256 << 10
"""Given back if a sync finds no room: nobody knows how much of the file it lacks."""
SEGMENT_SUFFIXES: Final = (*layout.SEGMENT_FILES, layout.SNAPSHOT)

T = TypeVar("T")


class Share(Enum):
    """How much of the reserve a file may use."""

    HALF = 1
    WHOLE = 2


class Reserve:
    def __init__(
        self,
        files: Files,
        directory: str,
        size_max: int,
        disk_space: DiskSpace,
        report: Callable[[str, StorageFault], None],
    ) -> None:
        """`report` is called when some of it is used, with the fault that this avoids. 0 for `size_max` means that
        there is no reserve."""
        self.path = f"{directory}/{RESERVE_FILE}"
        self._size_max = size_max
        self.is_short = False
        """Whether some of it was given back, or there was no room for it, when `fill` was last called or since then."""
        self._files = files
        self._disk_space = disk_space
        self._report = report

    @property
    def held(self) -> int:
        """Return how many bytes it has now. Raise StorageFault."""
        return self._files.size(self.path) if self._files.exists(self.path) else 0

    def fill(self) -> None:
        """Take space up to the size of the reserve, if as much is left for others. Give back what is too much, if the
        setting was changed. Blocks. Raise StorageFault."""
        total, free = self._disk_space()
        size, held = reserve_size(self._size_max, total), self.held
        if held < size and free >= size - held + size:
            self._files.open(self.path, create=True).allocate(size)
            held = size
        elif not size:
            self._files.unlink(self.path)
        elif held > size:
            self._files.open(self.path).truncate(size)
        self.is_short = held < size

    def with_room(self, write: Callable[[], T], count: int, share: Share) -> T:
        """Run a call that writes `count` bytes to a file. While it finds no room, give some of the reserve back, and
        run it again. Raise StorageFault if there is no room in its share either."""
        try:
            return write()
        except StorageFault as fault:
            if not fault.lacks_space:
                raise
            no_room = fault
        size, held = self._size(), self._held_or_zero()
        self.is_short = size > 0
        needed, floor = -(-count // BLOCK_BYTES) * BLOCK_BYTES, size // 2 if share is Share.HALF else 0
        while self.give_back(needed + PIECE_BYTES, floor):
            try:
                result = write()
            except StorageFault as fault:
                if not fault.lacks_space:
                    raise
                continue
            self._take_back(held - needed)
            self._report("some of the reserve is used", no_room)
            return result
        self._take_back(held)
        raise no_room

    def give_back(self, count: int, floor: int = 0) -> bool:
        """Free so many bytes; return False if fewer than `floor` would be left, or the disk refuses even that."""
        left = self._held_or_zero() - count
        if left < floor:
            return False
        try:
            self._files.open(self.path).truncate(left)
        except StorageFault:
            return False  # the caller raises the fault for which it needed room
        return True

    def _size(self) -> int:
        """Return how large it should be."""
        try:
            total, _ = self._disk_space()
        except StorageFault:
            return self._size_max
        return reserve_size(self._size_max, total)

    def _held_or_zero(self) -> int:
        try:
            return self.held
        except StorageFault:
            return 0

    def _take_back(self, size: int) -> None:
        with suppress(StorageFault):  # somebody else has it by now: `fill` takes it when there is room again
            if self._files.exists(self.path):
                self._files.open(self.path).allocate(size)


class ReservedFiles:
    """The files of a node. Those that it needs in order to go on get room of the reserve if the disk is full."""

    def __init__(self, files: Files, directory: str, reserve: Reserve) -> None:
        self.is_stopping = False
        """Set when the node is about to close its logs."""
        self._files = files
        self._reserve = reserve
        self._metadata_directory = f"{directory}/{METADATA_TOPIC}-0"
        self._own_directories = (directory, self._metadata_directory)

    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> File:
        share = self._share(path)
        if share is None:
            return self._files.open(path, create=create, stays_open=stays_open)

        def open_file() -> File:
            return self._files.open(path, create=create, stays_open=stays_open)

        return _ReservedFile(self._reserve.with_room(open_file, 0, share), self._reserve, share)

    def rename(self, source: str, target: str) -> None:
        share = self._share(source)
        if share is None:
            self._files.rename(source, target)
        else:
            self._reserve.with_room(lambda: self._files.rename(source, target), 0, share)

    def lock(self, path: str) -> Lock:
        return self._reserve.with_room(lambda: self._files.lock(path), 0, Share.WHOLE)

    def _share(self, path: str) -> Share | None:
        """Return how much of the reserve a file may use; None if it gets nothing of it."""
        directory, _, name = path.rpartition("/")
        if not name.endswith(layout.TEMPORARY):
            is_metadata = directory == self._metadata_directory and name.endswith(SEGMENT_SUFFIXES)
            return Share.HALF if is_metadata or name.endswith(layout.TXN_INDEX) else None
        if directory not in self._own_directories:
            return Share.HALF if self.is_stopping else None
        return None if name.removesuffix(layout.TEMPORARY) in DISPENSABLE else Share.WHOLE

    # --- calls that need no room ------------------------------------------------------------------------------------

    def read(self, path: str) -> bytes | None:
        return self._files.read(path)

    def sync(self, path: str) -> None:
        self._files.sync(path)

    def names(self, directory: str) -> list[str]:
        return self._files.names(directory)

    def size(self, path: str) -> int:
        return self._files.size(path)

    def exists(self, path: str) -> bool:
        return self._files.exists(path)

    def is_directory(self, path: str) -> bool:
        return self._files.is_directory(path)

    def unlink(self, path: str) -> None:
        self._files.unlink(path)

    def mkdir(self, directory: str) -> bool:
        return self._files.mkdir(directory)

    def rmdir(self, directory: str) -> None:
        self._files.rmdir(directory)

    def sync_directory(self, directory: str) -> None:
        self._files.sync_directory(directory)


class _ReservedFile:
    def __init__(self, file: File, reserve: Reserve, share: Share) -> None:
        self.path = file.path
        self._file = file
        self._reserve = reserve
        self._share = share

    def pwrite(self, data: Buffer, position: int) -> int:
        return self._reserve.with_room(lambda: self._file.pwrite(data, position), len(data), self._share)

    def sync(self) -> None:
        """Sync the file. If that finds no room, the next start has it: a failed sync is never repeated."""
        try:
            self._file.sync()
        except StorageFault as fault:
            if fault.lacks_space:
                self._reserve.give_back(UNSYNCED_BYTES)
            raise

    def pread(self, length: int, position: int) -> bytes:
        return self._file.pread(length, position)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def allocate(self, size: int) -> None:
        self._file.allocate(size)

    def fileno(self) -> int:
        return self._file.fileno()
