"""A real disk that ignores the case of names and keeps it, as macOS' does by default."""

from __future__ import annotations

import os

from moldau.log.files import DiskFile, DiskFiles, DiskLock


def found_as(path: str) -> str:
    """The path as it is spelled on the disk; what is not there keeps its own spelling."""
    parent, name = os.path.split(path)
    if os.path.lexists(path) or not name:
        return path
    parent = found_as(parent)
    try:
        names = os.listdir(parent or ".")
    except (FileNotFoundError, NotADirectoryError):
        return path
    return os.path.join(parent, next((each for each in names if each.lower() == name.lower()), name))


class CaselessDisk(DiskFiles):
    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> DiskFile:
        return super().open(found_as(path), create=create, stays_open=stays_open)

    def read(self, path: str) -> bytes | None:
        return super().read(found_as(path))

    def sync(self, path: str) -> None:
        super().sync(found_as(path))

    def names(self, directory: str) -> list[str]:
        return super().names(found_as(directory))

    def size(self, path: str) -> int:
        return super().size(found_as(path))

    def exists(self, path: str) -> bool:
        return super().exists(found_as(path))

    def is_directory(self, path: str) -> bool:
        return super().is_directory(found_as(path))

    def rename(self, source: str, target: str) -> None:
        super().rename(found_as(source), target)

    def unlink(self, path: str) -> None:
        super().unlink(found_as(path))

    def mkdir(self, directory: str) -> bool:
        return super().mkdir(found_as(directory))

    def rmdir(self, directory: str) -> None:
        super().rmdir(found_as(directory))

    def sync_directory(self, directory: str) -> None:
        super().sync_directory(found_as(directory))

    def lock(self, path: str) -> DiskLock:
        return super().lock(found_as(path))
