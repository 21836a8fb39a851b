"""The changes that the lake makes to a file system, each an atomic step.

Everything that a commit changes on disk goes through here, so that a test can simulate a crash between any two steps.
No tables, no Arrow.
"""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator

from moldau.platforms.durable_files import sync_file


def make_directory(path: str) -> None:
    os.makedirs(path, exist_ok=True)


def move(source: str, target: str) -> None:
    os.rename(source, target)


def remove(path: str) -> None:
    """Remove a file; a missing one is no error, because a clean-up is repeated after a crash."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_directory(path: str) -> None:
    """Remove a directory with its files; a missing one is no error."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)


def replace_content(path: str, content: bytes) -> None:
    """Replace a file atomically, also for a power cut: write a temporary file, flush, rename, flush."""
    with _temporary_file(path, content) as temporary:
        os.rename(temporary, path)
    flush(os.path.dirname(path))


def create_content(path: str, content: bytes) -> bool:
    """Create a file atomically; False if it exists already."""
    with _temporary_file(path, content) as temporary:
        try:
            os.link(temporary, path)
        except FileExistsError:
            return False
    flush(os.path.dirname(path))
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


def flush(path: str) -> None:
    """Sync a file's bytes or a directory's names to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


def content_of(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
