"""Damage to the logs of a node whose process is down: a tail that is cut off, at the end of a batch or within one, or
overwritten, or whole partition directories that are gone, as after a repair of the file system.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from moldau.base.ids import TopicPartition
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import LENGTH_PREFIX

DIRECTORY = "data"
OVERWRITTEN_BYTES_MAX = 200


def damage(files: MemoryFiles, partitions: Sequence[TopicPartition], rng: Random) -> list[str]:
    """Damage the logs of some of these partitions; return what was done."""
    kinds = rng.choice([[_cut], [_overwrite], [_remove], [_cut, _overwrite, _remove]])
    done = []
    for partition in partitions:
        directory = f"{DIRECTORY}/{partition.topic}-{partition.partition}"
        if files.is_directory(directory) and rng.random() < 0.7:
            done.append(f"{partition.topic}-{partition.partition} {rng.choice(kinds)(files, directory, rng)}")
    return done


def _last_segment(files: MemoryFiles, directory: str) -> str:
    return f"{directory}/{max(name for name in files.names(directory) if name.endswith('.log'))}"


def _cut(files: MemoryFiles, directory: str, rng: Random) -> str:
    file = files.open(_last_segment(files, directory))
    size = rng.choice(_ends(file.pread(file.size(), 0))) if rng.random() < 0.5 else rng.randint(0, file.size())
    said = f"is cut from {file.size()} to {size} bytes"
    file.truncate(size)
    file.sync()
    return said


def _ends(data: bytes) -> list[int]:
    """Return the positions at which a batch begins, and the end."""
    ends = [0]
    while ends[-1] < len(data):
        ends.append(ends[-1] + LENGTH_PREFIX.size + LENGTH_PREFIX.unpack_from(data, ends[-1])[1])
    return ends


def _overwrite(files: MemoryFiles, directory: str, rng: Random) -> str:
    file = files.open(_last_segment(files, directory))
    size = rng.randint(0, min(OVERWRITTEN_BYTES_MAX, file.size()))
    file.pwrite(rng.randbytes(size), file.size() - size)
    file.sync()
    return f"has {size} other bytes at the end"


def _remove(files: MemoryFiles, directory: str, rng: Random) -> str:
    for name in files.names(directory):
        files.unlink(f"{directory}/{name}")
    files.rmdir(directory)
    files.sync_directory(DIRECTORY)
    return "is gone"
