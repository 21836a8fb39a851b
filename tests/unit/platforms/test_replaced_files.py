"""Files that are replaced as a whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from running_here import linux_only

from moldau.platforms import replaced_files
from moldau.platforms.replaced_files import replace_file


def test_the_bytes_are_synced_before_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, seen = tmp_path / "a.json", []
    path.write_text("old")

    def sync_file(fd: int) -> None:
        (temporary,) = set(tmp_path.iterdir()) - {path}
        seen.append((temporary.read_text(), path.read_text()))

    def sync_directory(directory: str) -> None:
        seen.append((Path(directory).name, path.read_text()))

    monkeypatch.setattr(replaced_files, "sync_file", sync_file)
    monkeypatch.setattr(replaced_files, "sync_directory", sync_directory)
    replace_file(path, "née")
    assert seen == [("née", "old"), (tmp_path.name, "née")]
    replace_file(path, "new", sync=False)
    assert len(seen) == 2
    assert path.read_text() == "new"


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "a.json"
    path.write_text("old")
    monkeypatch.setattr(replaced_files, "sync_file", fail)
    with pytest.raises(OSError, match="No space left"):
        replace_file(path, "new")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("a.json", "old")]


@linux_only
@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_the_mode_of_the_new_file_is_the_one_given(tmp_path: Path, mode: int) -> None:
    """Also if a killed process of this id, or somebody else, has left a temporary file."""
    (tmp_path / f".key.{os.getpid()}.tmp").write_text("half")
    (tmp_path / f".key.{os.getpid()}.tmp").chmod(0o644)
    umask = os.umask(0o027)
    try:
        replace_file(tmp_path / "key", "text", mode)
    finally:
        os.umask(umask)
    (file,) = tmp_path.iterdir()
    assert (file.name, file.read_text(), file.stat().st_mode & 0o777) == ("key", "text", mode & ~0o027)
