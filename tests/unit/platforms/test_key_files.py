"""Key files: a path for bytes in memory on every platform, and a version that changes with the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from moldau.platforms.key_files import DiskKeyFiles, named_of


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_bytes_have_a_path_while_they_are_used(platform: str) -> None:
    with named_of(platform)(b"key") as path:
        with open(path, "rb") as file:
            assert file.read() == b"key"
        assert os.stat(path).st_mode & 0o077 == 0 or path.startswith("/proc/")
    assert not os.path.exists(path)


def test_a_replaced_file_has_another_version(tmp_path: Path) -> None:
    files, path = DiskKeyFiles(), tmp_path / "node.pem"
    assert files.version(str(path)) is None
    path.write_bytes(b"one")
    first = files.version(str(path))
    assert files.version(str(path)) == first
    path.with_suffix(".new").write_bytes(b"two")
    path.with_suffix(".new").replace(path)
    assert files.version(str(path)) != first
    assert files.read(str(path), 2) == b"tw"


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A thread that waits for somebody to write to a pipe would never end."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path, reason in (
        (pipe, "it is not a regular file"),
        (Path("/dev/zero"), "regular file"),
        (tmp_path, "directory"),
    ):
        with pytest.raises(OSError, match=reason):
            DiskKeyFiles().read(str(path), 10)


def test_a_path_that_no_file_can_have_is_an_error_of_the_disk() -> None:
    for path in ("/tmp/a\0b", "/tmp/\ud800"):
        assert DiskKeyFiles().version(path) is None
        with pytest.raises(OSError, match="it is not a valid path"):
            DiskKeyFiles().read(path, 1)
