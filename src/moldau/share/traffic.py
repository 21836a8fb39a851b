"""What share groups of a node have got and said since it started, for metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from moldau.share.window import Acknowledged


class ShareTraffic:
    __slots__ = ("acknowledged", "acquired", "dead_letters", "timed_out")

    def __init__(self) -> None:
        self.acquired = 0
        """Records given to members, each time one is."""
        self.acknowledged: Counter[int] = Counter()
        """Records by type of acknowledgement, when it was written."""
        self.timed_out = 0
        """Records that were not acknowledged in time."""
        self.dead_letters = 0
        """Records that were given up, in groups with a topic for dead letters."""

    def count_acknowledged(self, said: Iterable[Acknowledged]) -> None:
        for each in said:
            if len(each.types) == 1:
                self.acknowledged[each.types[0]] += each.last_offset - each.first_offset + 1
            else:
                self.acknowledged.update(each.types)
