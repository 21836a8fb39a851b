"""Which files a pipeline is made of, and which of them have changed: the YAML, Python and schemas beside it, its cases.

Looked at again and again, a few times a second: there are few, and it works on every file system. An editor that
replaces a file changes its time or size, and that is what counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from moldau.pipelines.cases.files import CASES

SUFFIXES: Final = (".py", ".yaml", ".yml", ".avsc", ".sql", ".ddl", ".csv", ".json", ".jsonl", ".txt")
FILES_MAX: Final = 2000
"""Beside a pipeline that lies in a folder of thousands of data files, not all of them are looked at."""

Snapshot = dict[Path, tuple[int, int]]


def snapshot(pipeline: Path) -> Snapshot:
    found: Snapshot = {}
    for path in _files(pipeline):
        if len(found) == FILES_MAX:
            break
        with suppress(OSError):  # gone between two looks, as editors do it
            about = path.stat()
            found[path] = about.st_mtime_ns, about.st_size
    return found


def changed(before: Snapshot, now: Snapshot) -> list[Path]:
    return sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))


def _files(pipeline: Path) -> Iterator[Path]:
    yield pipeline
    folder = pipeline.parent
    yield from (path for path in sorted(folder.glob("*")) if path.suffix in SUFFIXES and path != pipeline)
    yield from (path for path in sorted((folder / CASES).glob("*/*/*")) if not path.name.startswith("."))
