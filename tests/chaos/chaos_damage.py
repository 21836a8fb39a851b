"""Damage to the files of a node that does not run: ends of logs cut off or overwritten, directories removed.

Only logs of partitions are damaged, never the metadata log: a quorum of three does not survive a voter that forgets
what it has confirmed while the others are down too.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

METADATA = "__cluster_metadata-0"
BYTES_MAX = 20_000
"""That much of a log's end is damaged at most."""


def partitions(data: Path) -> list[Path]:
    """Return the directories of the partitions that have records."""
    folders = (path for path in sorted(data.iterdir()) if path.is_dir() and path.name != METADATA)
    return [folder for folder in folders if (last := last_segment(folder)) is not None and last.stat().st_size]


def last_segment(folder: Path) -> Path | None:
    return max(folder.glob("*.log"), default=None)


def cut(folder: Path, rng: random.Random) -> None:
    """Cut off some bytes; rarely that is where a batch begins, which nobody could notice in the file alone."""
    segment, size = _damaged_size(folder, rng)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - size)


def overwrite(folder: Path, rng: random.Random) -> None:
    _overwrite(folder, rng, rng.randbytes)


def overwrite_with_zeros(folder: Path, rng: random.Random) -> None:
    """As after a loss of power on some file systems."""
    _overwrite(folder, rng, bytes)


def remove(folder: Path, rng: random.Random) -> None:
    shutil.rmtree(folder)


KINDS: dict[str, Callable[[Path, random.Random], None]] = {
    "ends cut off": cut,
    "ends overwritten": overwrite,
    "ends zeroed": overwrite_with_zeros,
    "directories removed": remove,
}


def damage(data: Path, kind: str, rng: random.Random) -> list[str]:
    """Damage some or all of the partitions; return their names."""
    found = partitions(data)
    chosen = rng.sample(found, rng.choice([max(1, len(found) // 3), len(found)])) if found else []
    for folder in chosen:
        KINDS[kind](folder, rng)
    return sorted(folder.name for folder in chosen)


def _overwrite(folder: Path, rng: random.Random, filler: Callable[[int], bytes]) -> None:
    segment, size = _damaged_size(folder, rng)
    with segment.open("r+b") as file:
        file.seek(segment.stat().st_size - size)
        file.write(filler(size))


def _damaged_size(folder: Path, rng: random.Random) -> tuple[Path, int]:
    segment = last_segment(folder)
    assert segment is not None
    return segment, rng.randint(1, min(segment.stat().st_size, BYTES_MAX))
