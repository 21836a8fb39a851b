"""The files that a stream of changes keeps beside the checkpoint of its query:

    <source>/columns.json           the columns that its streams have had: a dropped column stays, with nulls
    <source>/<slot>/lock            flock'ed by the process that plans the stream
    <source>/<slot>/part-00000.parquet …    the snapshot of the table; removed when Spark has committed its last batch
    <source>/<slot>/snapshot.json   {"rows": [of each part], "offset": where changes begin, "at_ms": when}; the last

A slot's directory is made before the slot. A slot is an orphan, and is dropped, if no process plans its stream and no
checkpoint mentions it: its stream ended before Spark noted its first batch, or `--fresh` removed the checkpoint.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moldau.base.errors import StorageFault
from moldau.databases.changes.columns import Column, columns_from_json, columns_to_json
from moldau.databases.changes.offsets import Offset
from moldau.platforms.file_locks import try_lock
from moldau.platforms.replaced_files import replace_file

COLUMNS: Final = "columns.json"
MANIFEST: Final = "snapshot.json"
LOCK: Final = "lock"


@dataclass(frozen=True, slots=True)
class Manifest:
    rows: tuple[int, ...]
    offset: Offset
    at_ms: int


@dataclass(frozen=True, slots=True)
class SlotFiles:
    """The directory of one slot; its name is that of the slot."""

    path: Path

    @property
    def slot(self) -> str:
        return self.path.name

    def part(self, number: int) -> Path:
        return self.path / f"part-{number:05}.parquet"

    def create(self) -> int:
        """Create the directory and lock it; return the descriptor that holds the lock."""
        try:
            self.path.mkdir(parents=True)
            lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StorageFault(str(self.path), error) from error
        assert try_lock(lock), "nobody else knows the name"
        return lock

    def lock(self) -> int | None:
        """Lock the directory of a slot that exists; return the descriptor, or None if another process holds the lock
        or the directory is gone."""
        try:
            lock = os.open(self.path / LOCK, os.O_RDWR)
        except FileNotFoundError:
            return None
        if try_lock(lock):
            return lock
        os.close(lock)
        return None

    def write_manifest(self, manifest: Manifest) -> None:
        content = {"rows": manifest.rows, "offset": manifest.offset.to_json(), "at_ms": manifest.at_ms}
        try:
            replace_file(self.path / MANIFEST, json.dumps(content) + "\n")
        except OSError as error:
            raise StorageFault(str(self.path), error) from error

    def read_manifest(self) -> Manifest | None:
        """Return the manifest; None if the snapshot is not complete, or has been removed."""
        content = _read_json(self.path / MANIFEST)
        if content is None:
            return None
        return Manifest(tuple(content["rows"]), Offset.from_json(content["offset"]), int(content["at_ms"]))

    def remove_snapshot(self) -> None:
        """Remove the snapshot. The lock stays, and with it the note that the slot is ours."""
        (self.path / MANIFEST).unlink(missing_ok=True)
        for part in self.path.glob("part-*"):
            part.unlink(missing_ok=True)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def slots_of(source: Path) -> list[SlotFiles]:
    """Return the slots of a source that have a directory."""
    if not source.is_dir():
        return []
    return [SlotFiles(path) for path in sorted(source.iterdir()) if path.is_dir()]


def orphans(source: Path, checkpoints: Path | None) -> Iterator[tuple[SlotFiles, int]]:
    """Yield the slots that no process plans and no checkpoint mentions, locked. Without `checkpoints`, it is known only
    that a slot without a complete snapshot has no checkpoint."""
    for files in slots_of(source):
        lock = files.lock()
        if lock is None:
            continue
        if checkpoints is None:
            is_orphan = files.read_manifest() is None and any(files.path.glob("part-*"))
        else:
            is_orphan = not is_mentioned(files.slot, checkpoints)
        if is_orphan:
            yield files, lock
        else:
            os.close(lock)


def is_mentioned(slot: str, checkpoints: Path) -> bool:
    """Return whether an offset in a checkpoint of Spark names the slot. The last two batches are looked at: the earlier
    ones of a checkpoint have the same slot, or none."""
    for offsets in checkpoints.glob("*/offsets"):
        batches = sorted((file for file in offsets.iterdir() if file.name.isdigit()), key=lambda file: int(file.name))
        for batch in batches[-2:]:
            with suppress(FileNotFoundError):
                if f'"{slot}"' in batch.read_text(encoding="utf-8", errors="replace"):
                    return True
    return False


def known_columns(source: Path) -> tuple[Column, ...]:
    """Return the columns that earlier streams of the source had."""
    content = _read_json(source / COLUMNS)
    try:
        return () if content is None else columns_from_json(content["columns"])
    except (KeyError, ValueError) as error:
        raise StorageFault(str(source / COLUMNS), OSError(str(error))) from error


def remember_columns(source: Path, columns: Sequence[Column]) -> None:
    if known_columns(source) == tuple(columns):
        return
    try:
        source.mkdir(parents=True, exist_ok=True)
        replace_file(source / COLUMNS, json.dumps({"columns": columns_to_json(columns)}) + "\n")
    except OSError as error:
        raise StorageFault(str(source / COLUMNS), error) from error


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise StorageFault(str(path), OSError(str(error))) from error
    return content if isinstance(content, dict) else None
