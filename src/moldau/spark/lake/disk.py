"""The changes that the lake makes to a file system, each an atomic step, and how it looks at files.

Everything that a commit changes on disk goes through here, so that a test can simulate a crash between any two steps,
or another driver. Whether a name is taken is decided by the file system (`link`, `rename`), not by looking first, which
holds also among machines that share a directory. No tables, no Arrow.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator

from moldau.platforms.durable_files import sync_directory, sync_file

MAKE_ATTEMPTS_MAX = 10


def ensure_directory(path: str) -> None:
    """Make a directory and its parents where they are missing. Another driver may remove empty ones meanwhile: a parent
    (FileNotFoundError), or the directory itself, after it was found to exist (FileExistsError)."""
    for _ in range(MAKE_ATTEMPTS_MAX):
        with contextlib.suppress(FileNotFoundError, FileExistsError):
            os.makedirs(path, exist_ok=True)
            return
    os.makedirs(path, exist_ok=True)


def move(source: str, target: str) -> bool:
    """Move a file or a directory; False if it is no longer there."""
    try:
        os.rename(source, target)
    except FileNotFoundError:
        if exists(source):
            raise  # the target's directory is missing
        return False
    return True


def remove(path: str) -> None:
    """Remove a file; a missing one is no error, because a clean-up is repeated after a crash."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_directory(path: str) -> None:
    """Remove a directory with its files; a missing one is no error, nor one that gets a file meanwhile."""
    for name in names(path):
        remove(os.path.join(path, name))
    remove_empty_directory(path)


def remove_empty_directory(path: str) -> None:
    """Remove a directory unless it has files; a missing one is no error."""
    try:
        os.rmdir(path)
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
            raise


def replace_content(path: str, content: bytes) -> None:
    """Replace a file atomically, also for a power cut: write a temporary file, flush, rename, flush."""
    with _temporary_file(path, content) as temporary:
        os.rename(temporary, path)
    flush_directory(os.path.dirname(path))


def create_content(path: str, content: bytes) -> bool:
    """Create a file atomically; False if it exists already."""
    with _temporary_file(path, content) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            # On a shared file system, a request that was sent twice fails although it has taken effect.
            if os.stat(temporary).st_nlink < 2:
                return False
    flush_directory(os.path.dirname(path))
    return True


def create_directory_with_file(path: str, name: str, content: bytes) -> bool:
    """Create a directory with one file in it, atomically; False if there is a directory with files already."""
    temporary = f"{path}.{uuid.uuid4().hex}"
    os.makedirs(temporary)
    try:
        create_content(os.path.join(temporary, name), content)
        try:
            os.rename(temporary, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            return False
    finally:
        remove_directory(temporary)
    flush_directory(os.path.dirname(path))
    return True


@contextlib.contextmanager
def _temporary_file(path: str, content: bytes) -> Iterator[str]:
    temporary = f"{path}.{uuid.uuid4().hex}"
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _write_all(descriptor, content)
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        yield temporary
    finally:
        remove(temporary)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def flush_file(path: str) -> None:
    """Sync a file's bytes to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def flush_directory(path: str) -> None:
    """Sync a directory's names to disk."""
    sync_directory(path)


def content_of(path: str) -> bytes | None:
    """Return a file's bytes; None if it is missing."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ESTALE):  # ESTALE: removed by another machine
            return None
        raise


def names(path: str) -> list[str]:
    """Return the names in a directory; none if it is missing."""
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []


def exists(path: str) -> bool:
    """Return whether there is such a file. An error of the file system is raised: it does not mean that none is there,
    as `os.path.exists` has it."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True
