"""Damage to the logs of a node whose process is down: a tail that is cut off or overwritten, or whole partition
directories that are gone, as after a repair of the file system.

A node does not notice that whole batches are missing at the end of a log (decision 015), so logs are cut there only if
another one of the node is damaged so that it is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from moldau.base.ids import TopicPartition
from moldau.testing.files import MemoryFiles
from moldau.wire.batch import LENGTH_PREFIX

DIRECTORY = "data"
SHARE = 0.7
ONE_SHARE = 0.4
OVERWRITTEN_BYTES_MAX = 200


def damage(files: MemoryFiles, partitions: Sequence[TopicPartition], rng: Random) -> list[str]:
    """Damage the logs of some of these partitions, or of one; return what was done."""
    kinds = rng.choice([[_cut], [_overwrite], [_remove], [_cut, _overwrite, _remove]])
    directories = [f"{DIRECTORY}/{each.topic}-{each.partition}" for each in partitions]
    directories = [each for each in directories if files.is_directory(each) and files.size(_last_segment(files, each))]
    is_one = rng.random() < ONE_SHARE
    chosen = [each for each in directories if not is_one and rng.random() < SHARE]
    if not chosen and directories:
        chosen = [rng.choice(directories)]
    done = [f"{each} {rng.choice(kinds)(files, each, rng)}" for each in chosen]
    done += [
        f"{each} {_cut_between_batches(files, each, rng)}"
        for each in directories
        if not is_one and each not in chosen and rng.random() < SHARE
    ]
    return done


def _last_segment(files: MemoryFiles, directory: str) -> str:
    return f"{directory}/{max(name for name in files.names(directory) if name.endswith('.log'))}"


def _cut(files: MemoryFiles, directory: str, rng: Random) -> str:
    """Cut a log within a batch."""
    file = files.open(_last_segment(files, directory))
    ends = _ends(file.pread(file.size(), 0))
    return _cut_to(files, directory, rng.choice([size for size in range(file.size()) if size not in ends]))


def _cut_between_batches(files: MemoryFiles, directory: str, rng: Random) -> str:
    file = files.open(_last_segment(files, directory))
    return _cut_to(files, directory, rng.choice(_ends(file.pread(file.size(), 0))))


def _cut_to(files: MemoryFiles, directory: str, size: int) -> str:
    file = files.open(_last_segment(files, directory))
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
    size = rng.randint(1, min(OVERWRITTEN_BYTES_MAX, file.size()))
    file.pwrite(bytes(each ^ rng.randint(1, 255) for each in file.pread(size, file.size() - size)), file.size() - size)
    file.sync()
    return f"has {size} other bytes at the end"


def _remove(files: MemoryFiles, directory: str, rng: Random) -> str:
    for name in files.names(directory):
        files.unlink(f"{directory}/{name}")
    files.rmdir(directory)
    files.sync_directory(DIRECTORY)
    return "is gone"
