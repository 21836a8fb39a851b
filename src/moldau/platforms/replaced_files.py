"""Text files that are replaced as a whole: a reader finds the old text or the new one, also after a crash."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.platforms.durable_files import sync_directory, sync_file


def replace_file(path: Path, text: str, mode: int = 0o666, *, sync: bool = True) -> None:
    """Write the text to a temporary file and rename it. With `sync`, no power loss after the return takes it away, and
    none before it leaves an empty file."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with replacement(path, (temporary, descriptor), text, sync=sync):
        pass
    if sync:
        sync_directory(str(path.parent))


@contextmanager
def replacement(path: Path, opened: tuple[Path, int], text: str, *, sync: bool = True) -> Iterator[None]:
    """Write the text to a new file, which is open; it replaces the one at the path after the block. If something fails,
    the new file is removed. The caller syncs the directory."""
    temporary, descriptor = opened
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            if sync:
                file.flush()
                sync_file(file.fileno())
        yield
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
