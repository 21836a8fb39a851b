"""Producer ids at hand: a block from the controller, given out one by one, and the next block asked for in time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from moldau.base.later import Later


class ProducerIds:
    def __init__(self, allocate: Callable[[], Later[range]]) -> None:
        self._allocate = allocate
        self._block = range(0)
        self._waiting: deque[Later[int]] = deque()

    def next(self) -> Later[int]:
        """An id nobody else has or ever had."""
        answer: Later[int] = Later()
        self._waiting.append(answer)
        if self._block:
            self._give()
        elif len(self._waiting) == 1:
            self._allocate().then(self._arrived)
        return answer

    def _arrived(self, block: range) -> None:
        self._block = block
        self._give()
        if self._waiting:
            self._allocate().then(self._arrived)

    def _give(self) -> None:
        while self._waiting and self._block:
            given, self._block = self._block[0], self._block[1:]
            self._waiting.popleft().complete(given)
