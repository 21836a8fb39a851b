"""Whether the replicas of a partition are equal, byte for byte, when nothing is written any more and all nodes have
stopped. Where segments begin is each node's own affair."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path


def different_replicas(folders: Iterable[Path], topics: Iterable[str]) -> Iterator[str]:
    """Compare the partitions of these topics in the data directories of all nodes."""
    found = list(folders)
    for topic in topics:
        names = {path.name for folder in found for path in folder.glob(f"{topic}-*") if path.is_dir()}
        for name in sorted(name for name in names if name.removeprefix(f"{topic}-").isdigit()):
            yield from _differences(name, [folder / name for folder in found])


def _differences(name: str, replicas: list[Path]) -> Iterator[str]:
    contents = [b"".join(path.read_bytes() for path in sorted(replica.glob("*.log"))) for replica in replicas]
    for (one, first), (other, second) in pairwise(zip(replicas, contents, strict=True)):
        if first != second:
            at = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
            at = min(len(first), len(second)) if at is None else at
            places = f"{one.parents[1].name} ({len(first)} bytes) and {other.parents[1].name} ({len(second)} bytes)"
            yield f"different replicas: {name} of {places} differ from byte {at} on"
