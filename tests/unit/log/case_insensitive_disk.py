"""A real disk that preserves but ignores the case of file names, as on macOS by default."""

from __future__ import annotations

import os

from moldau.log.files import DiskFile, DiskFiles, DiskLock


def actual_path(path: str) -> str:
    """The path as it is spelled on the disk, or `path` itself if it does not exist."""
    parent, name = os.path.split(path)
    if os.path.lexists(path) or not name:
        return path
    parent = actual_path(parent)
    try:
        names = os.listdir(parent or ".")
    except (FileNotFoundError, NotADirectoryError):
        return path
    return os.path.join(parent, next((each for each in names if each.lower() == name.lower()), name))


class CaseInsensitiveDisk(DiskFiles):
    def open(self, path: str, *, create: bool = False, stays_open: bool = False) -> DiskFile:
        return super().open(actual_path(path), create=create, stays_open=stays_open)

    def read(self, path: str) -> bytes | None:
        return super().read(actual_path(path))

    def sync(self, path: str) -> None:
        super().sync(actual_path(path))

    def names(self, directory: str) -> list[str]:
        return super().names(actual_path(directory))

    def size(self, path: str) -> int:
        return super().size(actual_path(path))

    def exists(self, path: str) -> bool:
        return super().exists(actual_path(path))

    def is_directory(self, path: str) -> bool:
        return super().is_directory(actual_path(path))

    def rename(self, source: str, target: str) -> None:
        super().rename(actual_path(source), target)

    def unlink(self, path: str) -> None:
        super().unlink(actual_path(path))

    def mkdir(self, directory: str) -> bool:
        return super().mkdir(actual_path(directory))

    def rmdir(self, directory: str) -> None:
        super().rmdir(actual_path(directory))

    def sync_directory(self, directory: str) -> None:
        super().sync_directory(actual_path(directory))

    def lock(self, path: str) -> DiskLock:
        return super().lock(actual_path(path))
