"""Finds changed files of a pipeline: its YAML, Python and schemas beside it, its cases.

The files are polled a few times a second: they are few, and this works on every file system. A file has changed if its
time or size has, also when an editor replaces it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from moldau.pipelines.cases.files import CASES

SUFFIXES: Final = (".py", ".yaml", ".yml", ".avsc", ".sql", ".ddl", ".csv", ".json", ".jsonl", ".txt")
FILES_MAX: Final = 2000
"""Limit of polled files, for a pipeline in a folder with thousands of data files."""

Snapshot = dict[Path, tuple[int, int]]
"""Time of modification and size by path."""


def snapshot(pipeline: Path) -> Snapshot:
    files: Snapshot = {}
    for path in _files(pipeline):
        if len(files) == FILES_MAX:
            break
        with suppress(OSError):  # removed since it was listed, as editors do
            status = path.stat()
            files[path] = status.st_mtime_ns, status.st_size
    return files


def changed(before: Snapshot, now: Snapshot) -> list[Path]:
    """Return the files that were changed, added or removed."""
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _files(pipeline: Path) -> Iterator[Path]:
    yield pipeline
    folder = pipeline.parent
    yield from (path for path in sorted(folder.glob("*")) if path.suffix in SUFFIXES and path != pipeline)
    yield from (path for path in sorted((folder / CASES).glob("*/*/*")) if not path.name.startswith("."))
