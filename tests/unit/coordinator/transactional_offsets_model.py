"""A model of a group's offsets as a function of the whole log: it has no state and computes every result from the log.

A commit takes effect at its position in the log. A commit in a transaction takes effect there if the producer's next
marker commits it, and is open while there is no marker. Everything before the last removal of the offset is ignored.
The offset is that of the last commit that took effect. GroupRemoved removes the group only: each of its offsets has a
Removed of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Committed(NamedTuple):
    group: str
    partition: int
    offset: int
    producer: int | None = None


class Marker(NamedTuple):
    producer: int
    committed: bool


class Removed(NamedTuple):
    group: str
    partition: int


class GroupRemoved(NamedTuple):
    group: str


@dataclass
class OffsetsModel:
    log: list[Committed | Marker | Removed | GroupRemoved] = field(default_factory=list)

    def offset(self, group: str, partition: int) -> int | None:
        effective = [
            each.offset for at, each in self._remaining_commits(group, partition) if self._is_committed(at, each)
        ]
        return effective[-1] if effective else None

    def is_open(self, group: str, partition: int) -> bool:
        return any(
            each.producer is not None and self._end(at, each.producer) is None
            for at, each in self._remaining_commits(group, partition)
        )

    def exists(self, group: str) -> bool:
        removed_at = max((at for at, each in enumerate(self.log) if each == GroupRemoved(group)), default=-1)
        return any(isinstance(each, Committed) and each.group == group for each in self.log[removed_at + 1 :])

    def _remaining_commits(self, group: str, partition: int) -> list[tuple[int, Committed]]:
        removed_at = max((at for at, each in enumerate(self.log) if each == Removed(group, partition)), default=-1)
        return [
            (at, each)
            for at, each in enumerate(self.log)
            if at > removed_at and isinstance(each, Committed) and each[:2] == (group, partition)
        ]

    def _is_committed(self, at: int, each: Committed) -> bool:
        return each.producer is None or self._end(at, each.producer) is True

    def _end(self, at: int, producer: int) -> bool | None:
        """Return whether the producer's next marker commits; None while there is no marker."""
        later = (each for each in self.log[at:] if isinstance(each, Marker) and each.producer == producer)
        return next((each.committed for each in later), None)
