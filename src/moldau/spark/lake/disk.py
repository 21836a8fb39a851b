"""The few changes that the lake makes to a file system, each one step that either happened or did not.

Everything that a commit changes on disk goes through here, so that a test can stop the world between any two steps.
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
    """Remove a file that may be gone already: whoever cleans up does so again after a crash."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def remove_directory(path: str) -> None:
    """Remove a directory of files, as far as it is there."""
    with contextlib.suppress(FileNotFoundError):
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)


def replace_content(path: str, content: bytes) -> None:
    """Readers see the old content or the new one, also after a power cut: write aside, flush, rename, flush."""
    with _written_aside(path, content) as aside:
        os.rename(aside, path)
    flush(os.path.dirname(path))


def create_content(path: str, content: bytes) -> bool:
    """The same for a file that must not be there; False if it is, since then somebody was quicker."""
    with _written_aside(path, content) as aside:
        try:
            os.link(aside, path)
        except FileExistsError:
            return False
    flush(os.path.dirname(path))
    return True


@contextlib.contextmanager
def _written_aside(path: str, content: bytes) -> Iterator[str]:
    aside = f"{path}.{uuid.uuid4().hex}"
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        try:
            _write_all(descriptor, content)
            sync_file(descriptor)
        finally:
            os.close(descriptor)
        yield aside
    finally:
        remove(aside)


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def flush(path: str) -> None:
    """Make a file's bytes, or a directory's names, outlast a power cut."""
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
