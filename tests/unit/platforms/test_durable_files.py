"""The sync functions of each system, tested on Linux: macOS' `fcntl` is simulated, the files are real."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_here import LINUX, linux_only

from moldau.platforms import durable_files
from moldau.platforms.durable_files import F_FULLFSYNC, directory_sync, full_sync, syncs_of


class Disk:
    """Records the calls, and fails with the given errors."""

    def __init__(self, fcntl_fault: int = 0, fsync_fault: int = 0) -> None:
        self.calls: list[str] = []
        self._fcntl_fault = fcntl_fault
        self._fsync_fault = fsync_fault

    def fcntl(self, fd: int, command: int) -> int:
        assert command == F_FULLFSYNC
        os.fstat(fd)
        return self._record("fcntl", self._fcntl_fault)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)
        self._record("fsync", self._fsync_fault)

    def _record(self, call: str, fault: int) -> int:
        self.calls.append(call)
        if fault:
            raise OSError(fault, os.strerror(fault))
        return 0


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    with open(tmp_path / "file", "wb") as file:
        file.write(b"records")
        file.flush()
        yield file.fileno()


def sync_calls(disk: Disk, fd: int) -> list[str]:
    full_sync(disk.fcntl, disk.fsync)(fd)
    return disk.calls


def test_macos_uses_only_the_full_sync(fd: int) -> None:
    assert sync_calls(Disk(), fd) == ["fcntl"]


@pytest.mark.parametrize("fault", [errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_without_full_sync_gets_an_fsync(fd: int, fault: int) -> None:
    assert sync_calls(Disk(fcntl_fault=fault), fd) == ["fcntl", "fsync"]


@pytest.mark.parametrize("fault", [errno.EIO, errno.ENOSPC, errno.EBADF, errno.EDQUOT])
def test_a_full_sync_that_failed_is_not_repeated_as_fsync(fd: int, fault: int) -> None:
    disk = Disk(fcntl_fault=fault)
    with pytest.raises(OSError) as failed:
        sync_calls(disk, fd)
    assert failed.value.errno == fault
    assert disk.calls == ["fcntl"]


def test_a_failed_fallback_fsync_is_an_error(fd: int) -> None:
    disk = Disk(fcntl_fault=errno.ENOTSUP, fsync_fault=errno.EIO)
    with pytest.raises(OSError) as failed:
        sync_calls(disk, fd)
    assert failed.value.errno == errno.EIO
    assert disk.calls == ["fcntl", "fsync"]


@pytest.mark.parametrize("platform", [LINUX, "darwin", "freebsd14", "win32"])
def test_every_system_syncs_a_real_file_and_a_directory(tmp_path: Path, fd: int, platform: str) -> None:
    """Linux returns EINVAL for macOS' `fcntl`, like a file system without it."""
    syncs = syncs_of(platform)
    syncs.data(fd)
    syncs.file(fd)
    syncs.directory(str(tmp_path))


@pytest.mark.parametrize("platform", [LINUX, "darwin", "freebsd14", "win32"])
def test_a_closed_file_cannot_be_synced(platform: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    for sync in syncs_of(platform)[:2]:
        with pytest.raises(OSError, match="Bad file descriptor"):
            sync(writing)


@pytest.mark.parametrize("platform", [LINUX, "darwin"])
def test_a_missing_directory_cannot_be_synced(tmp_path: Path, platform: str) -> None:
    with pytest.raises(FileNotFoundError):
        syncs_of(platform).directory(str(tmp_path / "none"))
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        syncs_of(platform).directory(str(tmp_path / "file"))


def test_a_file_system_that_cannot_sync_directories_is_accepted(tmp_path: Path) -> None:
    disk = Disk(fsync_fault=errno.EINVAL)
    directory_sync(disk.fsync)(str(tmp_path))
    assert disk.calls == ["fsync"]


def test_a_directory_that_could_not_be_synced_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError) as failed:
        directory_sync(Disk(fsync_fault=errno.EIO).fsync)(str(tmp_path))
    assert failed.value.errno == errno.EIO


@linux_only
def test_linux_uses_the_system_calls_directly() -> None:
    assert syncs_of("linux")[:2] == (os.fdatasync, os.fsync)
    assert durable_files.sync_data is os.fdatasync
